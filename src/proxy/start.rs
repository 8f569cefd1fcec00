//! Kernels that are started for a front end, while its messages wait.
//!
//! They are started as `nb open` starts them: nobody's descendants, so that they survive the front
//! end. Whoever starts one may be killed at any moment; the next call finishes what it began.

use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;

use super::attachment::Attachment;
use super::messages;
use super::shell::Shell;
use super::target::{Found, Target};
use crate::kernel::environment::probe;
use crate::kernel::shell::quote;
use crate::lifecycle::open::{OpenOptions, Opened, ensure_kernel};
use crate::lifecycle::open_error::OpenError;
use crate::route::Kernel;

/// What this proxy is doing to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    /// It only follows.
    Nothing,
    /// A kernel is being started.
    Start,
    /// The kernel is being restarted: generations up to this one are the old ones.
    Restart(u64),
}

impl Pending {
    /// Returns whether a state is new, and not the one from before the start or restart.
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
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// How many of the last lines of a kernel that cannot start are shown.
const SAID: usize = 2;

impl Shell {
    /// Returns whether a kernel may be started for a notebook, by its user's wish too.
    pub(super) fn may_start(&self, target: &Target) -> bool {
        self.settings.borrow().autostart && target.may_start()
    }

    /// As [`Shell::may_start`], as far as was seen last.
    pub(super) fn may_start_again(&self, attachment: &Attachment) -> bool {
        self.settings.borrow().autostart && attachment.may_start.get()
    }

    /// Follows the kernel, for a launch that has just learnt which it is; starts one where none
    /// lives, so that choosing "nb shared kernel" always works.
    pub(super) fn arrive(&self) {
        let Some(attachment) = self.attachment() else {
            return;
        };
        match self.wants_a_start(&attachment) {
            Ok(None) => self.start(&attachment),
            Ok(Some(found)) => self.adopt(found),
            Err(error) => {
                tracing::error!("{error:#}");
                self.adopt(Found::None(messages::not_started(
                    &attachment.target,
                    &error,
                )));
            }
        }
    }

    /// As [`Shell::arrive`], for a launch that ends where no kernel can be had.
    pub(super) async fn arrive_now(&self) -> anyhow::Result<()> {
        let Some(attachment) = self.attachment() else {
            return Ok(());
        };
        if let Some(found) = self.wants_a_start(&attachment)? {
            self.adopt(found);
            return Ok(());
        }
        attachment.pending.set(Pending::Start);
        let opened = tokio::select! {
            opened = self.open(&attachment.target) => opened,
            () = self.is_to_stop() => return Ok(()),
        };
        attachment.pending.set(Pending::Nothing);
        match opened {
            Ok(opened) => self.note_start(&opened),
            Err(error) => {
                let error = why(error, &attachment.target);
                tracing::error!("{error:#}");
                return Err(error).with_context(|| {
                    format!(
                        "cannot start a kernel for {}\nTry: {}",
                        attachment.target.key,
                        attachment.target.mend()
                    )
                });
            }
        }
        self.refresh().await;
        Ok(())
    }

    /// Looks at the kernel; returns nothing where one is to be started.
    fn wants_a_start(&self, attachment: &Attachment) -> anyhow::Result<Option<Found>> {
        let target = &attachment.target;
        let look = target.look_closely()?;
        attachment.note(&look);
        let found = look.found;
        let text = match &found {
            Found::Live(_) => return Ok(Some(found)),
            Found::Awaited if !target.is_abandoned() => return Ok(Some(found)),
            Found::Awaited => "the process that was starting the kernel is gone".to_owned(),
            Found::Died(ended) => {
                // Its front end's user may have made the variables that went with it.
                attachment.missed.set(true);
                messages::died(target, ended.as_ref()).text
            }
            Found::None(ending) => ending.text.clone(),
        };
        if !self.may_start(target) {
            return Ok(Some(found));
        }
        tracing::info!("{text}");
        if !target.is_recorded()
            && let Some(other) = target.neighbour()
        {
            tracing::info!("{}", messages::could_share(target, &other));
        }
        Ok(None)
    }

    /// Starts another kernel for one that exited unexpectedly.
    pub(super) fn revive(&self) {
        let Some(attachment) = self.attachment() else {
            return;
        };
        if self.may_start_again(&attachment) {
            return self.start(&attachment);
        }
        self.spawn(async move |shell| {
            shell.refresh().await;
            // None is started, even where the state says that one is.
            if shell.is_awaited() {
                let ending = messages::died(&attachment.target, None);
                shell.adopt(Found::None(ending));
            }
        });
    }

    /// Starts a kernel while the front end's messages wait.
    fn start(&self, attachment: &Rc<Attachment>) {
        if attachment.pending.replace(Pending::Start) != Pending::Nothing {
            return;
        }
        attachment.failure.take();
        let ending = messages::replaced(&attachment.target);
        self.route(|bridge, now| bridge.kernel_is(now, Kernel::Awaited, &ending, []));
        let attachment = Rc::clone(attachment);
        self.spawn(async move |shell| {
            let opened = shell.open(&attachment.target).await;
            attachment.pending.set(Pending::Nothing);
            let is_served = shell
                .attachment()
                .is_some_and(|now| Rc::ptr_eq(&now, &attachment));
            match opened {
                Ok(opened) => shell.note_start(&opened),
                Err(error) => {
                    let mended = may_succeed_later(&error);
                    let ending =
                        messages::not_started(&attachment.target, &why(error, &attachment.target));
                    *attachment.failure.borrow_mut() = Some(ending.clone());
                    if is_served {
                        shell.adopt(if mended {
                            Found::Died(None)
                        } else {
                            Found::None(ending)
                        });
                    }
                    return;
                }
            }
            if is_served {
                shell.refresh().await;
            }
        });
    }

    /// Starts the kernel that a notebook uses.
    async fn open(&self, target: &Target) -> Result<Opened, OpenError> {
        let options = OpenOptions {
            by: self.launch.front_end.by(),
            language: Some(self.launch.front_end.language.clone()),
            front_end_python: self.launch.parent.as_ref().and_then(probe::of_process),
            patience: PATIENCE,
            ..OpenOptions::default()
        };
        ensure_kernel(&target.project, &target.notebook(), &options).await
    }

    /// Logs the result of a start. The client of the first cell reads how the kernel was chosen: nothing else says
    /// to the person that their own environment was not used.
    fn note_start(&self, opened: &Opened) {
        for note in &opened.notes {
            tracing::info!("{note}");
        }
        if !opened.choice.is_empty() {
            self.bridge
                .borrow_mut()
                .set_choice(opened.choice.join("\n[nb] "));
        }
        tracing::info!(
            generation = opened.session.generation,
            took_ms = opened.took.as_millis(),
            "the kernel of {} is there: {:?}",
            opened.key,
            opened.how
        );
    }
}

/// Returns the error with what mends it, or with what the kernel said last.
fn why(error: OpenError, target: &Target) -> anyhow::Error {
    let notebook = quote(&target.notebook());
    let more = match &error {
        OpenError::Choose(choice) => {
            let hints = choice.hints().into_iter();
            hints
                .map(|hint| hint.replace("NOTEBOOK", &notebook))
                .collect()
        }
        OpenError::Died { lines, .. } => lines[lines.len().saturating_sub(SAID)..].to_vec(),
        _ => Vec::new(),
    };
    let error = anyhow::Error::from(error);
    if more.is_empty() {
        return error;
    }
    anyhow::anyhow!("{error:#} ({})", more.join("; "))
}

/// Returns whether the next cell may try again. What the record or this process's place forbids,
/// it forbids again.
fn may_succeed_later(error: &OpenError) -> bool {
    !matches!(
        error,
        OpenError::Sandboxed { .. }
            | OpenError::Unchecked { .. }
            | OpenError::OtherHost { .. }
            | OpenError::LaterKind { .. }
            | OpenError::NotOwned { .. }
            | OpenError::Attach(_)
    )
}
