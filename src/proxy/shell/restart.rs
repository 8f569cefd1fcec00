//! A front end's Restart: how it is recognised or requested, carried out, and waited for.
//!
//! A detached process does the restart, since the front end that requests it is about to kill this proxy; the
//! next proxy holds its client's messages until the kernel has started.

use std::time::{Duration, Instant};

use anyhow::Context;

use super::Shell;
use super::start::PATIENCE;
use crate::lifecycle::open_error::OpenError;
use crate::lifecycle::restart::{TaskReport, begin_restart};
use crate::project::{OnRestart, Project, Status};
use crate::proxy::attachment::Pending;
use crate::proxy::exit::ExitReason;
use crate::proxy::messages;
use crate::proxy::target::Target;
use crate::proxy::vscode_restart::{self, Launched, OwnRecord, POLL, Record, RestartMatch};
use crate::route::FrontEnd;

/// How long a front end that has requested a restart is delayed until the restart has begun.
/// JupyterLab's server sends SIGTERM 2.5 s after its request.
const BEGINNING: Duration = Duration::from_secs(2);

impl Shell {
    // ---- VS Code: the same session comes back

    /// Writes the record by which the next launch is recognised as a restart.
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

    /// Returns the record by which this launch is the second half of a restart; waits for the end of a proxy
    /// that serves the same session.
    pub(super) async fn relaunched(&self, project: &Project) -> Option<Record> {
        if !self.restarts(project) {
            return None;
        }
        let launched = self.launched()?;
        let deadline = Instant::now() + vscode_restart::PATIENCE;
        let mut waits = false;
        loop {
            match vscode_restart::find_restart(project, &launched) {
                RestartMatch::Restart(record) => return Some(*record),
                RestartMatch::Nothing(rejected) if !waits => {
                    for (key, why) in rejected {
                        tracing::info!("no restart of the kernel of {key}: {why}");
                    }
                    return None;
                }
                // The proxy that has just ended has written its record by now: the next attempt finds it.
                RestartMatch::Nothing(_) => waits = false,
                RestartMatch::Wait if Instant::now() > deadline => {
                    tracing::info!("no restart: the previous proxy is still serving");
                    return None;
                }
                RestartMatch::Wait => waits = true,
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn restarts(&self, project: &Project) -> bool {
        let settings = project.settings();
        settings.map_or(true, |settings| settings.on_restart == OnRestart::Restart)
    }

    /// Restarts the kernel for the front end that launched this proxy; its messages wait until that is done.
    pub(super) async fn resume(&self, project: Project, record: &Record) {
        let target = Target {
            project,
            key: record.key.clone(),
        };
        self.enter(&target.project);
        tracing::info!(
            "the front end restarts the kernel of {}: its session has come back",
            target.key
        );
        self.attach(target);
        self.restart(record.generation).await;
    }

    /// Records that the front end has ended this process. It does so at once, because the next proxy may
    /// already be launched.
    pub(super) fn leave_record(&self) {
        let Some(own) = self.record.take() else {
            return;
        };
        let links = self.links();
        let generation = links.map_or(0, |links| links.kernel().generation);
        if let Err(error) = own.leave(generation, self.shutdown_requested.get()) {
            tracing::warn!("a restart will not be recognised: {error}");
        }
    }

    /// Restarts the kernel for the front end and holds its messages until that is done. `known` is the
    /// generation of the kernel that the front end used.
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
            // As at any launch, a notebook without a kernel gets one.
            Err(OpenError::NoKernel { .. }) => self.arrive(),
            Err(error) => {
                let text = format!("The kernel was not restarted: {error}");
                tracing::warn!("{text}");
                self.bridge.borrow_mut().set_notice(text);
                self.arrive();
            }
        }
    }

    // ---- Jupyter servers: a shutdown_request asks for it

    /// Starts a restart that the front end has requested, and ends this process: the front end launches the
    /// next proxy, which waits for the new kernel.
    pub(super) fn restart_and_leave(&self) {
        self.spawn(async |shell| {
            let begun = tokio::time::timeout(BEGINNING, shell.begin_to_restart()).await;
            match begun {
                Ok(Ok(())) => tracing::info!("the kernel is being restarted"),
                Ok(Err(error)) => shell.leave_note(&error),
                Err(_) => tracing::warn!("the restart has not begun after {BEGINNING:?}"),
            }
            shell.exit.decide(ExitReason::Restart);
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
                tokio::time::sleep(POLL).await;
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

    // ---- a restart that is refused, or not recognised

    /// Logs why the end of this proxy restarts nothing, if the front end may have meant a restart: jupyverse
    /// restarts by SIGTERM and another launch, which is how others end a kernel.
    pub(super) fn log_no_restart(&self) {
        let sends_shutdown_requests = self.launch.front_end.kind != FrontEnd::Other;
        if sends_shutdown_requests || self.shutdown_requested.get() {
            return;
        }
        if let Some(attachment) = self.attachment() {
            tracing::info!("{}", messages::not_restarted(&attachment.target));
        }
    }

    /// Leaves a note for the proxy that the front end launches next: its user would otherwise believe that
    /// the kernel was restarted.
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
                tracing::warn!("the note for the next launch was not written: {error}");
            }
        }
    }

    /// Reads the note that the last proxy has left for this one.
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
