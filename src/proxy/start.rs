//! Kernels that are started and restarted for a front end, while its messages wait.
//!
//! They are started as `nb open` starts them: nobody's descendants, so that they survive the front
//! end. Whoever starts one may be killed at any moment; the next call finishes what it began.

use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;

use super::bound::Bound;
use super::origin::Origin;
use super::shell::Shell;
use super::target::{Found, Target};
use super::words;
use crate::ops::open::{OpenError, OpenOptions, Opened, ensure_kernel};
use crate::ops::restart::{Report, begin_restart};
use crate::project::{Project, Status};
use crate::route::Kernel;

/// What this proxy has set going for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    /// It only follows.
    Nothing,
    /// A kernel is being started.
    Start,
    /// The kernel is being restarted: its lives up to this one are not the wanted one.
    Restart(u64),
}

impl Pending {
    /// Returns whether this is news, or only what it was before the deed was done.
    pub(super) fn admits(self, found: &Found) -> bool {
        match (self, found) {
            (Self::Nothing, _)
            | (Self::Start, Found::Live(_))
            | (Self::Start | Self::Restart(_), Found::Awaited) => true,
            (Self::Restart(past), Found::Live(kernel)) => kernel.generation > past,
            (Self::Start | Self::Restart(_), Found::Died(_) | Found::None(_)) => false,
        }
    }
}

/// How long a start or restart may take; requests wait no longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a front end that has asked for a restart is kept until the restart has begun.
/// JupyterLab's server sends SIGTERM 2.5 s after its request.
const BEGINNING: Duration = Duration::from_secs(2);

/// How many of the last lines of a kernel that cannot start are shown.
const SAID: usize = 2;

/// How often the state is read meanwhile.
const LOOK: Duration = Duration::from_millis(10);

impl Shell {
    /// Returns whether a kernel may be started for a notebook, by its user's wish too.
    pub(super) fn may_start(&self, target: &Target) -> bool {
        self.settings.borrow().autostart && target.may_start()
    }

    /// Follows the kernel, for a launch that has just learnt which it is; starts one where none
    /// lives, so that choosing "nb shared kernel" always works.
    pub(super) fn arrive(&self) {
        let Some(bound) = self.bound() else { return };
        match self.wants_a_start(&bound) {
            Ok(None) => self.start(&bound),
            Ok(Some(found)) => self.adopt(found),
            Err(error) => {
                tracing::error!("{error:#}");
                self.adopt(Found::None(words::not_started(&bound.target, &error)));
            }
        }
    }

    /// As [`Shell::arrive`], for a launch that ends where no kernel can be had.
    pub(super) async fn arrive_now(&self) -> anyhow::Result<()> {
        let Some(bound) = self.bound() else {
            return Ok(());
        };
        if let Some(found) = self.wants_a_start(&bound)? {
            self.adopt(found);
            return Ok(());
        }
        bound.pending.set(Pending::Start);
        let opened = tokio::select! {
            opened = open(&bound.target, &self.origin) => opened,
            () = self.is_to_stop() => return Ok(()),
        };
        bound.pending.set(Pending::Nothing);
        match opened {
            Ok(opened) => tell(&opened),
            Err(error) => {
                let error = why(error);
                tracing::error!("{error:#}");
                return Err(error).with_context(|| {
                    format!(
                        "cannot start a kernel for {}\nTry: {}",
                        bound.target.key,
                        bound.target.mend()
                    )
                });
            }
        }
        self.refresh();
        Ok(())
    }

    /// Looks at the kernel; returns nothing where one is to be started.
    fn wants_a_start(&self, bound: &Bound) -> anyhow::Result<Option<Found>> {
        let target = &bound.target;
        let found = target.look()?;
        let text = match &found {
            Found::Live(_) => return Ok(Some(found)),
            Found::Awaited if !target.is_abandoned() => return Ok(Some(found)),
            Found::Awaited => "nobody finishes the start of the kernel",
            Found::Died(ending) => {
                // Its front end's user may have made the variables that went with it.
                bound.missed.set(true);
                &ending.text
            }
            Found::None(ending) => &ending.text,
        };
        if !self.may_start(target) {
            return Ok(Some(found));
        }
        tracing::info!("{text}");
        if !target.is_recorded()
            && let Some(other) = target.neighbour()
        {
            tracing::info!("{}", words::could_share(target, &other));
        }
        Ok(None)
    }

    /// Starts another kernel for one that went by itself.
    pub(super) fn revive(&self) {
        let Some(bound) = self.bound() else { return };
        if self.may_start(&bound.target) {
            return self.start(&bound);
        }
        self.refresh();
        // Nobody starts one, whatever is known of it.
        if self.is_awaited() {
            let ending = words::died(&bound.target, None);
            self.adopt(Found::None(ending));
        }
    }

    /// Starts a kernel while the front end's messages wait.
    fn start(&self, bound: &Rc<Bound>) {
        if bound.pending.replace(Pending::Start) != Pending::Nothing {
            return;
        }
        bound.failure.take();
        let ending = words::replaced(&bound.target);
        self.route(|bridge, now| bridge.kernel_is(now, Kernel::Awaited, &ending, []));
        let bound = Rc::clone(bound);
        self.spawn(async move |shell| {
            let opened = open(&bound.target, &shell.origin).await;
            bound.pending.set(Pending::Nothing);
            let is_served = shell.bound().is_some_and(|now| Rc::ptr_eq(&now, &bound));
            match opened {
                Ok(opened) => tell(&opened),
                Err(error) => {
                    let mended = is_mended_by_another_try(&error);
                    let ending = words::not_started(&bound.target, &why(error));
                    *bound.failure.borrow_mut() = Some(ending.clone());
                    if is_served {
                        shell.adopt(if mended {
                            Found::Died(ending)
                        } else {
                            Found::None(ending)
                        });
                    }
                    return;
                }
            }
            if is_served {
                shell.refresh();
            }
        });
    }

    /// Restarts the kernel for the front end and holds its messages until that is done. `known`
    /// is the life of the kernel that it knew.
    pub(super) async fn restart(&self, known: u64) {
        let Some(bound) = self.bound() else { return };
        let target = &bound.target;
        let (owner, by) = (target.owner(), self.origin.by());
        let now = generation(&target.project, &owner).map_or(0, |(_, now)| now);
        bound.pending.set(Pending::Restart(now.max(known)));
        let begun = begin_restart(&target.project, &owner, &by, PATIENCE);
        let done = match begun.await {
            Ok(begun) => begun.report().await,
            Err(error) => Err(error),
        };
        bound.pending.set(Pending::Nothing);
        match done {
            Ok(Report::Done(session)) => {
                tracing::info!(generation = session.generation, "the kernel was restarted");
                self.refresh();
            }
            Ok(Report::Failed { message, .. }) => {
                tracing::error!("the kernel was not restarted: {message}");
                self.refresh();
            }
            // As at any launch: whoever has none gets one.
            Err(OpenError::NoKernel { .. }) => self.arrive(),
            Err(error) => {
                let text = format!("the kernel was not restarted: {error}");
                tracing::warn!("{text}");
                self.bridge.borrow_mut().set_notice(text);
                self.arrive();
            }
        }
    }

    /// Begins a restart for a front end that has asked for it in words, and leaves: it launches
    /// the next proxy, which waits for the new kernel.
    pub(super) fn restart_and_leave(&self) {
        self.spawn(async |shell| {
            let begun = tokio::time::timeout(BEGINNING, shell.begin_to_restart()).await;
            match begun {
                Ok(Ok(())) => tracing::info!("the kernel is being restarted"),
                Ok(Err(error)) => tracing::warn!("the kernel is not restarted: {error:#}"),
                Err(_) => tracing::warn!("the restart has not begun after {BEGINNING:?}"),
            }
            shell.leave("its front end restarts it");
        });
    }

    async fn begin_to_restart(&self) -> anyhow::Result<()> {
        let bound = self.bound().context("no kernel was found yet")?;
        let target = &bound.target;
        let owner = target.owner();
        let before = generation(&target.project, &owner);
        let begun = begin_restart(&target.project, &owner, &self.origin.by(), PATIENCE).await?;
        let began = async {
            loop {
                let now = generation(&target.project, &owner);
                if now != before || matches!(now, Some((Status::Restarting, _))) {
                    return Ok(());
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            began = began => began,
            done = begun.report() => match done? {
                Report::Done(_) => Ok(()),
                Report::Failed { message, .. } => Err(anyhow::anyhow!(message)),
            },
        }
    }
}

/// Starts the kernel that a notebook uses.
async fn open(target: &Target, origin: &Origin) -> Result<Opened, OpenError> {
    let options = OpenOptions {
        by: origin.by(),
        language: Some(origin.language.clone()),
        patience: PATIENCE,
        ..OpenOptions::default()
    };
    ensure_kernel(&target.project, &target.notebook(), &options).await
}

/// Returns the error with what mends it, or with what the kernel said last.
fn why(error: OpenError) -> anyhow::Error {
    let more = match &error {
        OpenError::Choose(choice) => choice.hint().into_iter().collect(),
        OpenError::Died { lines, .. } => lines[lines.len().saturating_sub(SAID)..].to_vec(),
        _ => Vec::new(),
    };
    let error = anyhow::Error::from(error);
    if more.is_empty() {
        return error;
    }
    anyhow::anyhow!("{error:#} ({})", more.join("; "))
}

fn tell(opened: &Opened) {
    for note in &opened.notes {
        tracing::info!("{note}");
    }
    tracing::info!(
        generation = opened.session.generation,
        took_ms = opened.took.as_millis(),
        "the kernel of {} is there: {:?}",
        opened.key,
        opened.how
    );
}

/// Returns whether the next cell may try again. What the record or this process's place forbids,
/// it forbids again.
fn is_mended_by_another_try(error: &OpenError) -> bool {
    !matches!(
        error,
        OpenError::Sandboxed { .. }
            | OpenError::Unchecked { .. }
            | OpenError::Elsewhere { .. }
            | OpenError::NotOwned { .. }
            | OpenError::Attach(_)
    )
}

/// Returns the state and the life of a session's kernel.
fn generation(project: &Project, owner: &str) -> Option<(Status, u64)> {
    let state = project.state().ok()?;
    let session = state.sessions.get(owner)?;
    Some((session.status.clone(), session.generation))
}
