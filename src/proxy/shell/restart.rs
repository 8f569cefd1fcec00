//! A front end's Restart: how it is recognised or requested, carried out, and waited for.
//!
//! A detached process does the restart, since the front end that requests it is about to kill this proxy; the
//! next proxy holds its client's messages until the kernel has started.

use std::time::{Duration, Instant};

use anyhow::Context;

use super::Shell;
use super::start::{START_TIMEOUT, program_for};
use crate::lifecycle::open_error::OpenError;
use crate::lifecycle::restart::{TaskReport, begin_restart};
use crate::project::{OnRestart, Project, Status};
use crate::proxy::attachment::Pending;
use crate::proxy::exit::ExitReason;
use crate::proxy::messages;
use crate::proxy::target::Target;
use crate::proxy::vscode_restart::{self, OwnRecord, POLL, Record, RestartCandidate, RestartMatch};
use crate::route::FrontEnd;

/// How long a front end that has requested a restart is delayed until the restart has begun.
/// JupyterLab's server sends SIGTERM 2.5 s after its request.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(2);

impl Shell {
    // ---- VS Code: the same session comes back

    /// Writes the record by which the next launch is recognised as a restart.
    pub(super) fn write_restart_record(&self) {
        if self.launch.front_end.kind != FrontEnd::VsCode {
            return;
        }
        let (Some(attachment), Some(candidate)) = (self.attachment(), self.restart_candidate())
        else {
            return;
        };
        let Target { project, key } = &attachment.target();
        if !self.may_restart(project) {
            return;
        }
        match OwnRecord::serve(project, &candidate, key, 0) {
            Ok(own) => *self.record.borrow_mut() = own,
            Err(error) => tracing::warn!("a restart will not be recognised: {error}"),
        }
    }

    fn restart_candidate(&self) -> Option<RestartCandidate> {
        Some(RestartCandidate {
            at: self.launch.at,
            parent: self.launch.parent.clone(),
            session: self.session.borrow().clone()?,
            by_jupyter: std::env::var_os("JPY_PARENT_PID").is_some(),
        })
    }

    /// Returns the record by which this launch is the second half of a restart; waits for the end of a proxy
    /// that serves the same session.
    pub(super) async fn find_restart(&self, project: &Project) -> Option<Record> {
        if !self.may_restart(project) {
            return None;
        }
        let candidate = self.restart_candidate()?;
        let deadline = Instant::now() + vscode_restart::PROXY_END_TIMEOUT;
        let mut waited = false;
        loop {
            match vscode_restart::find_restart(project, &candidate) {
                RestartMatch::Restart(record) => return Some(*record),
                RestartMatch::Nothing(rejected) if !waited => {
                    for (key, reason) in rejected {
                        tracing::info!("no restart of the kernel of {key}: {reason}");
                    }
                    return None;
                }
                // The proxy that has just ended has written its record by now: the next attempt finds it.
                RestartMatch::Nothing(_) => waited = false,
                RestartMatch::Wait if Instant::now() > deadline => {
                    tracing::info!("no restart: the previous proxy is still serving");
                    return None;
                }
                RestartMatch::Wait => waited = true,
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn may_restart(&self, project: &Project) -> bool {
        let settings = project.settings();
        settings.map_or(true, |settings| settings.on_restart == OnRestart::Restart)
    }

    /// Restarts the kernel for the front end that launched this proxy; its messages wait until that is done.
    pub(super) async fn finish_restart(&self, project: Project, record: &Record) {
        let target = Target {
            project,
            key: record.key.clone(),
        };
        self.use_project(&target.project);
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

    /// Restarts the kernel for the front end and holds its messages until that is done. `used` is the
    /// generation of the kernel that the front end used.
    async fn restart(&self, used: u64) {
        let Some(attachment) = self.attachment() else {
            return;
        };
        let target = &attachment.target();
        let (owner, actor) = (target.owner(), self.launch.front_end.actor());
        let current = generation(&target.project, &owner).map_or(0, |(_, current)| current);
        attachment.pending.set(Pending::Restart(current.max(used)));
        let restart = async {
            let program = program_for(target).await?;
            begin_restart(&target.project, &owner, &actor, START_TIMEOUT, program).await
        };
        let result = match restart.await {
            Ok(restart) => restart.report().await.map_err(OpenError::from),
            Err(error) => Err(error),
        };
        attachment.pending.set(Pending::Nothing);
        match result {
            Ok(TaskReport::Done(session)) => {
                tracing::info!(generation = session.generation, "the kernel was restarted");
                self.refresh().await;
            }
            Ok(TaskReport::Failed { message, .. }) => {
                tracing::error!("the kernel was not restarted: {message}");
                self.refresh().await;
            }
            // As at any launch, a notebook without a kernel gets one.
            Err(OpenError::NoKernel { .. }) => self.follow_or_start(),
            Err(error) => {
                let text = format!("The kernel was not restarted: {error}");
                tracing::warn!("{text}");
                self.bridge.borrow_mut().set_notice(text);
                self.follow_or_start();
            }
        }
    }

    // ---- Jupyter servers: a shutdown_request asks for it

    /// Starts a restart that the front end has requested, and ends this process: the front end launches the
    /// next proxy, which waits for the new kernel.
    pub(super) fn restart_and_leave(&self) {
        self.spawn(async |shell| {
            let result = tokio::time::timeout(BEGIN_TIMEOUT, shell.begin_to_restart()).await;
            match result {
                Ok(Ok(())) => tracing::info!("the kernel is being restarted"),
                Ok(Err(error)) => shell.leave_note(&error),
                Err(_) => tracing::warn!("the restart has not begun after {BEGIN_TIMEOUT:?}"),
            }
            shell.exit.decide(ExitReason::Restart);
        });
    }

    async fn begin_to_restart(&self) -> anyhow::Result<()> {
        let attachment = self.attachment().context("no kernel was found yet")?;
        let target = &attachment.target();
        let owner = target.owner();
        let before = generation(&target.project, &owner);
        let restart = begin_restart(
            &target.project,
            &owner,
            &self.launch.front_end.actor(),
            START_TIMEOUT,
            program_for(target).await?,
        )
        .await?;
        let has_begun = async {
            loop {
                let current = generation(&target.project, &owner);
                if current != before || matches!(current, Some((Status::Restarting, _))) {
                    return Ok(());
                }
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::select! {
            result = has_begun => result,
            report = restart.report() => match report? {
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
            tracing::info!("{}", messages::not_restarted(&attachment.target()));
        }
    }

    /// Leaves a note for the proxy that the front end launches next: its user would otherwise believe that
    /// the kernel was restarted.
    fn leave_note(&self, error: &anyhow::Error) {
        let text = format!("The kernel was not restarted: {error:#}");
        tracing::warn!("{text}");
        if let Some(attachment) = self.attachment() {
            let result = vscode_restart::leave_note(
                &attachment.target().project,
                &self.launch.connection_file,
                &text,
            );
            if let Err(error) = result {
                tracing::warn!("the note for the next launch was not written: {error}");
            }
        }
    }

    /// Reads the note that the last proxy has left for this one.
    pub(super) fn read_note(&self) {
        if let Some(attachment) = self.attachment()
            && let Some(text) = vscode_restart::take_note(
                &attachment.target().project,
                &self.launch.connection_file,
            )
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
