//! Starts kernels for a front end, while its messages wait.
//!
//! Kernels are started as by `nb open`, as descendants of no process, so that they survive the front end.
//! This process may be killed at any moment; the next start then finishes what it has begun.

use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;

use super::Shell;
use crate::kernel::environment::probe;
use crate::kernel::programs::nb_beside;
use crate::kernel::variables::{ProcessVariables, Variables};
use crate::lifecycle::open::{OpenOptions, Opened, ensure_kernel};
use crate::lifecycle::open_error::OpenError;
use crate::lifecycle::server_kernel::NoServers;
use crate::lifecycle::target::recorded;
use crate::proxy::attachment::{Attachment, Pending};
use crate::proxy::messages;
use crate::proxy::snapshot::KernelState;
use crate::proxy::target::Target;
use crate::route::Kernel;
use crate::task::{self, Task, TaskProgram, TaskReport};

/// How long a start or restart may take; requests wait no longer than that.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How many of the last lines of a kernel that cannot start are shown.
const LAST_LINES: usize = 2;

impl Shell {
    /// Returns whether the user's settings and the last snapshot allow to start a kernel for the session.
    pub(super) fn may_start(&self, attachment: &Attachment) -> bool {
        self.settings.borrow().autostart && attachment.may_start()
    }

    /// Follows the kernel of a session that has just become known; starts one if none lives, so that choosing
    /// "nb shared kernel" always works.
    pub(super) fn follow_or_start(&self) {
        let Some(attachment) = self.attachment() else {
            return;
        };
        match self.existing_kernel(&attachment) {
            Ok(None) => self.start(&attachment),
            Ok(Some(kernel)) => self.adopt(kernel),
            Err(error) => {
                tracing::error!("{error:#}");
                let ending = messages::not_started(&attachment.target(), &error);
                self.adopt(KernelState::None(ending));
            }
        }
    }

    /// Like [`Shell::follow_or_start`], but fails if no kernel can be started.
    pub(super) async fn follow_or_start_now(&self) -> anyhow::Result<()> {
        let Some(attachment) = self.attachment() else {
            return Ok(());
        };
        if let Some(kernel) = self.existing_kernel(&attachment)? {
            self.adopt(kernel);
            return Ok(());
        }
        attachment.pending.set(Pending::Start);
        let target = attachment.target();
        let opened = tokio::select! {
            opened = self.open(&target) => opened,
            () = self.exit.is_decided() => return Ok(()),
        };
        attachment.pending.set(Pending::Nothing);
        match opened {
            Ok(()) => {}
            Err(error) => {
                let error = with_hints(error, &attachment.target());
                tracing::error!("{error:#}");
                return Err(error).with_context(|| {
                    format!(
                        "cannot start a kernel for {}\nTry: {}",
                        attachment.target().key,
                        attachment.target().open_command()
                    )
                });
            }
        }
        self.refresh().await;
        Ok(())
    }

    /// Reads the state of the kernel; returns `None` if one must be started.
    fn existing_kernel(&self, attachment: &Attachment) -> anyhow::Result<Option<KernelState>> {
        let target = &attachment.target();
        let snapshot = target.snapshot()?;
        self.store_flags(attachment, &snapshot);
        let kernel = snapshot.kernel;
        let text = match &kernel {
            KernelState::Live(kernel) if kernel.is_disconnected => {
                "the bridge to the kernel's server does not run".to_owned()
            }
            KernelState::Live(_) => return Ok(Some(kernel)),
            KernelState::Awaited(_) if !target.is_abandoned() => return Ok(Some(kernel)),
            KernelState::Awaited(_) => {
                "the process that was starting the kernel is gone".to_owned()
            }
            KernelState::Died(ended) => {
                // The front end's user may have variables in the kernel that died.
                attachment.has_missed_kernel.set(true);
                messages::died(target, ended.as_ref()).text
            }
            KernelState::None(ending) => ending.text.clone(),
        };
        if !self.may_start(attachment) {
            return Ok(Some(kernel));
        }
        tracing::info!("{text}");
        if !snapshot.is_recorded
            && let Some(other) = target.shareable_notebook()
        {
            tracing::info!("{}", messages::could_share(target, &other));
        }
        Ok(None)
    }

    /// Starts another kernel after one has exited unexpectedly.
    pub(super) fn revive(&self) {
        let Some(attachment) = self.attachment() else {
            return;
        };
        if self.may_start(&attachment) {
            return self.start(&attachment);
        }
        self.spawn(async move |shell| {
            shell.refresh().await;
            // This proxy has started no kernel, even if the state says that one is being started.
            if shell.is_awaited() {
                let ending = messages::died(&attachment.target(), None);
                shell.adopt(KernelState::None(ending));
            }
        });
    }

    /// Starts a kernel while the front end's messages wait.
    fn start(&self, attachment: &Rc<Attachment>) {
        if attachment.pending.replace(Pending::Start) != Pending::Nothing {
            return;
        }
        attachment.failure.take();
        let ending = messages::replaced(&attachment.target(), None);
        self.route(|bridge, now| bridge.set_kernel(now, Kernel::Awaited, &ending, []));
        let attachment = Rc::clone(attachment);
        self.spawn(async move |shell| {
            let opened = shell.open(&attachment.target()).await;
            attachment.pending.set(Pending::Nothing);
            let is_served = shell.serves(&attachment);
            match opened {
                Ok(()) => {}
                Err(error) => {
                    let may_succeed = may_succeed_later(&error);
                    let ending = messages::not_started(
                        &attachment.target(),
                        &with_hints(error, &attachment.target()),
                    );
                    *attachment.failure.borrow_mut() = Some(ending.clone());
                    if is_served {
                        shell.adopt(if may_succeed {
                            KernelState::Died(None)
                        } else {
                            KernelState::None(ending)
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
    async fn open(&self, target: &Target) -> Result<(), OpenError> {
        let program = program_for(target).await?;
        if program != TaskProgram::Own {
            return self.open_with(target, program).await;
        }
        let options = OpenOptions {
            by: self.launch.front_end.actor(),
            language: Some(self.launch.front_end.language.clone()),
            front_end_python: self.launch.parent.as_ref().and_then(probe::of_process),
            timeout: START_TIMEOUT,
            // A Jupyter server starts what the notebook names as soon as it shows the notebook. In VS Code a person
            // has chosen the kernel or runs a cell.
            unchosen: ProcessVariables.get("JPY_PARENT_PID").is_some(),
            ..OpenOptions::default()
        };
        let notebook = target.notebook();
        let opened = ensure_kernel(&NoServers, &target.project, &notebook, &options).await?;
        self.log_start(&opened);
        Ok(())
    }

    /// Lets another program start the kernel that a notebook uses.
    async fn open_with(&self, target: &Target, program: TaskProgram) -> Result<(), OpenError> {
        let task = Task::Open {
            state_file: target.project.state_file(),
            key: target.current_key(),
            by: self.launch.front_end.actor(),
            timeout_ms: START_TIMEOUT.as_millis().try_into().unwrap_or(u64::MAX),
        };
        let task = task::begin(&target.project, &task, program).await?;
        match task.report().await? {
            TaskReport::Done(session) => {
                let generation = session.generation;
                tracing::info!(generation, "the kernel of {} is running", target.key);
                Ok(())
            }
            TaskReport::Failed { message, .. } => Err(OpenError::Internal(message)),
        }
    }

    /// Logs the result of a start. The client of the first cell gets a notice of how the kernel was chosen:
    /// nothing else tells the person that their own environment was not used.
    fn log_start(&self, opened: &Opened) {
        for note in &opened.notes {
            tracing::info!("{note}");
        }
        if !opened.choice.is_empty() {
            let choice: Vec<_> = opened.choice.iter().map(ToString::to_string).collect();
            self.bridge.borrow_mut().set_choice(choice.join("\n[nb] "));
        }
        tracing::info!(
            generation = opened.session.generation,
            took_ms = opened.took.as_millis(),
            "the kernel of {} is running: {:?}",
            opened.key,
            opened.how
        );
    }
}

/// Returns the program that starts and restarts the kernel of a session: `nb` if the kernel runs on a server.
pub(super) async fn program_for(target: &Target) -> Result<TaskProgram, OpenError> {
    let (key, state) = target.current_key_and_state()?;
    let session = recorded(&state, &target.project, &state.owner_key(&key));
    let Some(server) = session
        .as_ref()
        .and_then(|it| Some(&it.as_remote()?.server))
    else {
        return Ok(TaskProgram::Own);
    };
    let nb = tokio::task::spawn_blocking(nb_beside).await;
    let nb = nb.map_err(|error| OpenError::Internal(error.to_string()))?;
    nb.map(TaskProgram::Nb)
        .map_err(|error| OpenError::NoServers {
            server: server.clone(),
            reason: error.to_string(),
        })
}

/// Returns the error with hints, or with the last lines that the kernel printed.
fn with_hints(error: OpenError, target: &Target) -> anyhow::Error {
    let notebook = target.notebook();
    let details = match &error {
        OpenError::Choose(choice) => {
            let hints = choice.hints().into_iter();
            hints
                .map(|hint| hint.named(&notebook).to_string())
                .collect()
        }
        OpenError::Died { lines, .. } => lines[lines.len().saturating_sub(LAST_LINES)..].to_vec(),
        _ => Vec::new(),
    };
    let error = anyhow::Error::from(error);
    if details.is_empty() {
        return error;
    }
    anyhow::anyhow!("{error:#} ({})", details.join("; "))
}

/// Returns whether the next cell may try again. An error whose cause is in the record or in where this
/// process runs would only be repeated.
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
