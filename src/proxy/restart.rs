//! A front end's Restart: recognised or asked for by a message, carried out, and waited for.
//!
//! The restart is done by a process of its own, since this one is about to be killed by whoever has
//! asked for it; the proxy that comes next holds its client's messages until the kernel is there.

use std::time::{Duration, Instant};

use anyhow::Context;

use super::attachment::open_log;
use super::exit::ExitReason;
use super::shell::Shell;
use super::start::{PATIENCE, Pending};
use super::target::Target;
use super::vscode_restart::{self, Launched, OwnRecord, Record};
use crate::lifecycle::open_error::OpenError;
use crate::lifecycle::restart::{TaskReport, begin_restart};
use crate::project::{OnRestart, Project, Status};
use crate::route::FrontEnd;

/// How long a front end that has asked for a restart waits until the restart has begun.
/// JupyterLab's server sends SIGTERM 2.5 s after its request.
const BEGINNING: Duration = Duration::from_secs(2);

/// How often the state is read meanwhile.
const LOOK: Duration = Duration::from_millis(10);

impl Shell {
    // ---- by the same session that comes back, as VS Code does it

    /// Writes down what makes the next launch recognisable as a restart.
    pub(super) fn leave_traces(&self) {
        if self.launch.front_end.kind != FrontEnd::VsCode {
            return;
        }
        let (Some(attachment), Some(launched)) = (self.attachment(), self.launched()) else {
            return;
        };
        let Target { project, key } = &attachment.target;
        if !self.restarts(project) {
            return;
        }
        match OwnRecord::serve(project, &launched, key, 0) {
            Ok(own) => *self.record.borrow_mut() = own,
            Err(error) => tracing::warn!("a restart will not be recognised: {error}"),
        }
    }

    fn launched(&self) -> Option<Launched> {
        Some(Launched {
            at: self.launch.at,
            parent: self.launch.parent.clone(),
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
        let deadline = Instant::now() + vscode_restart::PATIENCE;
        let mut waited = false;
        loop {
            match vscode_restart::look(project, &launched) {
                vscode_restart::Found::Restart(record) => return Some(*record),
                // Whose end was awaited has just written it: one more look finds it.
                vscode_restart::Found::Nothing(_) if std::mem::take(&mut waited) => {
                    tokio::time::sleep(vscode_restart::LOOK).await;
                }
                vscode_restart::Found::Nothing(rejected) => {
                    for (key, why) in rejected {
                        tracing::info!("no restart of the kernel of {key}: {why}");
                    }
                    return None;
                }
                vscode_restart::Found::Wait if Instant::now() > deadline => {
                    tracing::info!("no restart: the proxy before serves on");
                    return None;
                }
                vscode_restart::Found::Wait => {
                    waited = true;
                    tokio::time::sleep(vscode_restart::LOOK).await;
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
        self.attach(target);
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
    /// is the generation of the kernel that it knew.
    async fn restart(&self, known: u64) {
        let Some(attachment) = self.attachment() else {
            return;
        };
        let target = &attachment.target;
        let (owner, by) = (target.owner(), self.launch.front_end.by());
        let now = generation(&target.project, &owner).map_or(0, |(_, now)| now);
        attachment.pending.set(Pending::Restart(now.max(known)));
        let begun = begin_restart(&target.project, &owner, &by, PATIENCE);
        let done = match begun.await {
            Ok(begun) => begun.report().await.map_err(OpenError::from),
            Err(error) => Err(error),
        };
        attachment.pending.set(Pending::Nothing);
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

    // ---- by a shutdown_request, as Jupyter servers do it

    /// Begins a restart for a front end that has asked for it, and ends this process: it launches
    /// the next proxy, which waits for the new kernel.
    pub(super) fn restart_and_leave(&self) {
        self.spawn(async |shell| {
            let begun = tokio::time::timeout(BEGINNING, shell.begin_to_restart()).await;
            match begun {
                Ok(Ok(())) => tracing::info!("the kernel is being restarted"),
                Ok(Err(error)) => shell.leave_note(&error),
                Err(_) => tracing::warn!("the restart has not begun after {BEGINNING:?}"),
            }
            shell.leave(ExitReason::Restart);
        });
    }

    async fn begin_to_restart(&self) -> anyhow::Result<()> {
        let attachment = self.attachment().context("no kernel was found yet")?;
        let target = &attachment.target;
        let owner = target.owner();
        let before = generation(&target.project, &owner);
        let begun = begin_restart(
            &target.project,
            &owner,
            &self.launch.front_end.by(),
            PATIENCE,
        )
        .await?;
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
        if let Some(attachment) = self.attachment() {
            let left = vscode_restart::leave_note(
                &attachment.target.project,
                &self.launch.connection_file,
                &text,
            );
            if let Err(error) = left {
                tracing::warn!("the next launch cannot say so: {error}");
            }
        }
    }

    /// Reads what the proxy before has left for this one.
    pub(super) fn read_note(&self) {
        if let Some(attachment) = self.attachment()
            && let Some(text) =
                vscode_restart::take_note(&attachment.target.project, &self.launch.connection_file)
        {
            self.bridge.borrow_mut().set_notice(text);
        }
    }
}

/// Returns the state and the generation of a session's kernel.
fn generation(project: &Project, owner: &str) -> Option<(Status, u64)> {
    let state = project.state().ok()?;
    let session = state.sessions.get(owner)?;
    Some((session.status.clone(), session.generation))
}
