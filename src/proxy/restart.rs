//! A front end's Restart: recognised or asked for in words, carried out, and waited for.
//!
//! The deed is done by a process of its own, since this one is about to be killed by whoever has
//! asked for it; the proxy that comes next holds its client's messages until the kernel is there.

use std::time::{Duration, Instant};

use anyhow::Context;

use super::bound::open_log;
use super::relaunch::{self, Launched, Own, Record};
use super::shell::Shell;
use super::start::{PATIENCE, Pending};
use super::target::Target;
use crate::lifecycle::open_error::OpenError;
use crate::lifecycle::restart::{TaskReport, begin_restart};
use crate::project::{OnRestart, Project, Status};
use crate::route::FrontEnd;

/// How long a front end that has asked for a restart is kept until the restart has begun.
/// JupyterLab's server sends SIGTERM 2.5 s after its request.
const BEGINNING: Duration = Duration::from_secs(2);

/// How often the state is read meanwhile.
const LOOK: Duration = Duration::from_millis(10);

impl Shell {
    // ---- by the same session that comes back, as VS Code does it

    /// Writes down what makes the next launch recognisable as a restart.
    pub(super) fn leave_traces(&self) {
        if self.origin.front_end != FrontEnd::VsCode {
            return;
        }
        let (Some(bound), Some(launched)) = (self.bound(), self.launched()) else {
            return;
        };
        let Target { project, key } = &bound.target;
        if !self.restarts(project) {
            return;
        }
        match Own::serve(project, &launched, key, 0) {
            Ok(own) => *self.record.borrow_mut() = own,
            Err(error) => tracing::warn!("a restart will not be recognised: {error}"),
        }
    }

    fn launched(&self) -> Option<Launched> {
        Some(Launched {
            at: self.launched_at,
            parent: self.parent.clone(),
            session: self.session.borrow().clone()?,
            by_jupyter: std::env::var_os("JPY_PARENT_PID").is_some(),
        })
    }

    /// Looks whether this launch is the second half of a restart; waits for the end of a proxy
    /// that serves the same session.
    pub(super) async fn relaunched(&self, project: &Project) -> Option<Record> {
        if !self.restarts(project) {
            return None;
        }
        let launched = self.launched()?;
        let deadline = Instant::now() + relaunch::PATIENCE;
        let mut waited = false;
        loop {
            match relaunch::look(project, &launched) {
                relaunch::Found::Restart(record) => return Some(*record),
                // Whose end was awaited has just written it: one more look finds it.
                relaunch::Found::Nothing(_) if std::mem::take(&mut waited) => {
                    tokio::time::sleep(relaunch::LOOK).await;
                }
                relaunch::Found::Nothing(rejected) => {
                    for (key, why) in rejected {
                        tracing::info!("no restart of the kernel of {key}: {why}");
                    }
                    return None;
                }
                relaunch::Found::Wait if Instant::now() > deadline => {
                    tracing::info!("no restart: the proxy before serves on");
                    return None;
                }
                relaunch::Found::Wait => {
                    waited = true;
                    tokio::time::sleep(relaunch::LOOK).await;
                }
            }
        }
    }

    fn restarts(&self, project: &Project) -> bool {
        let settings = project.settings();
        settings.map_or(true, |settings| settings.on_restart == OnRestart::Restart)
    }

    /// Restarts the kernel for the front end whose launch this is; its messages wait meanwhile.
    pub(super) async fn resume(&self, project: Project, record: &Record) {
        let target = Target {
            project,
            key: record.key.clone(),
        };
        self.obey(Some(&target.project));
        open_log(&target.project, &self.settings.borrow());
        tracing::info!(
            "the front end restarts the kernel of {}: its session came back",
            target.key
        );
        self.take(target);
        self.restart(record.generation).await;
    }

    /// Writes down that the front end has ended this process, at once: the next is perhaps launched
    /// already.
    pub(super) fn leave_record(&self) {
        let Some(own) = self.record.take() else {
            return;
        };
        let links = self.links.borrow();
        let generation = links.as_ref().map_or(0, |links| links.kernel().generation);
        if let Err(error) = own.leave(generation, self.shutdown_requested.get()) {
            tracing::warn!("a restart will not be recognised: {error}");
        }
    }

    /// Restarts the kernel for the front end and holds its messages until that is done. `known`
    /// is the life of the kernel that it knew.
    async fn restart(&self, known: u64) {
        let Some(bound) = self.bound() else { return };
        let target = &bound.target;
        let (owner, by) = (target.owner(), self.origin.by());
        let now = generation(&target.project, &owner).map_or(0, |(_, now)| now);
        bound.pending.set(Pending::Restart(now.max(known)));
        let begun = begin_restart(&target.project, &owner, &by, PATIENCE);
        let done = match begun.await {
            Ok(begun) => begun.report().await.map_err(OpenError::from),
            Err(error) => Err(error),
        };
        bound.pending.set(Pending::Nothing);
        match done {
            Ok(TaskReport::Done(session)) => {
                tracing::info!(generation = session.generation, "the kernel was restarted");
                self.refresh().await;
            }
            Ok(TaskReport::Failed { message, .. }) => {
                tracing::error!("the kernel was not restarted: {message}");
                self.refresh().await;
            }
            // As at any launch: whoever has none gets one.
            Err(OpenError::NoKernel { .. }) => self.arrive(),
            Err(error) => {
                let text = format!("The kernel was not restarted: {error}");
                tracing::warn!("{text}");
                self.bridge.borrow_mut().set_notice(text);
                self.arrive();
            }
        }
    }

    // ---- in words, as Jupyter servers do it

    /// Begins a restart for a front end that has asked for it in words, and leaves: it launches
    /// the next proxy, which waits for the new kernel.
    pub(super) fn restart_and_leave(&self) {
        self.spawn(async |shell| {
            let begun = tokio::time::timeout(BEGINNING, shell.begin_to_restart()).await;
            match begun {
                Ok(Ok(())) => tracing::info!("the kernel is being restarted"),
                Ok(Err(error)) => shell.leave_note(&error),
                Err(_) => tracing::warn!("the restart has not begun after {BEGINNING:?}"),
            }
            shell.leave(super::shell::RESTARTS);
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
                TaskReport::Done(_) => Ok(()),
                TaskReport::Failed { message, .. } => Err(anyhow::anyhow!(message)),
            },
        }
    }

    // ---- a restart that is refused

    /// Leaves word for the proxy that the front end launches next: it looks as if the kernel had
    /// been restarted.
    fn leave_note(&self, error: &anyhow::Error) {
        let text = format!("The kernel was not restarted: {error:#}");
        tracing::warn!("{text}");
        if let Some(bound) = self.bound() {
            let left = relaunch::leave_note(&bound.target.project, &self.connection_file, &text);
            if let Err(error) = left {
                tracing::warn!("nobody will be told: {error}");
            }
        }
    }

    /// Reads what the proxy before has left for this one.
    pub(super) fn read_note(&self) {
        if let Some(bound) = self.bound()
            && let Some(text) = relaunch::take_note(&bound.target.project, &self.connection_file)
        {
            self.bridge.borrow_mut().set_notice(text);
        }
    }
}

/// Returns the state and the life of a session's kernel.
fn generation(project: &Project, owner: &str) -> Option<(Status, u64)> {
    let state = project.state().ok()?;
    let session = state.sessions.get(owner)?;
    Some((session.status.clone(), session.generation))
}
