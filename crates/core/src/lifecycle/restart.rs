//! Replaces a notebook's kernel by a new one on the same sockets.
//!
//! A detached process does this: the restart may kill the process that asked for it, as it does with a
//! front end's proxy, and the new kernel must be started even if the user closes the window.

use std::path::PathBuf;
use std::time::Duration;

use super::action_event::journal;
use super::all_kernels::still_runs;
use super::end_kernel::end_kernel;
use super::liveness::{Liveness, liveness};
use super::open_error::OpenError;
use super::server_kernel::{self, ServerKernels};
use super::start::LockedSession;
use super::target::recorded;
use crate::kernel::process::connection::{self, KernelFiles};
use crate::kernel::process::detach::PreforkedProcess;
use crate::kernel::process::launch;
use crate::kernel::variables::ProcessVariables;
use crate::project::event::EventKind;
use crate::project::{Project, Session, Status};
pub use crate::task::TaskReport;
use crate::task::{self, Task, TaskHandle, TaskProgram};
use crate::wire::Transport;

/// Starts the restart in a detached process, for which [`TaskHandle::report`] waits.
///
/// It continues whatever happens to the caller.
pub async fn begin_restart(
    project: &Project,
    key: &str,
    by: &str,
    timeout: Duration,
    program: TaskProgram,
) -> Result<TaskHandle, OpenError> {
    check(project, key).await?;
    let task = Task::Restart {
        state_file: project.state_file(),
        key: key.to_owned(),
        by: by.to_owned(),
        timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
    };
    Ok(task::begin(project, &task, program).await?)
}

/// Fails if the restart could not work.
async fn check(project: &Project, key: &str) -> Result<(), OpenError> {
    let notebook = project.notebook(key);
    let session = recorded(&project.state()?, project, key).ok_or(OpenError::NoKernel {
        notebook: notebook.clone(),
    })?;
    if !session.is_owned() {
        return Err(OpenError::NotOwned { notebook });
    }
    if session.status == Status::Stopped {
        return Err(OpenError::NoKernel { notebook });
    }
    if liveness(&session).await == Liveness::OutOfReach {
        return Err(OpenError::out_of_reach(&session));
    }
    let is_elsewhere = !session.confinement().is_none() || session.as_remote().is_some();
    // Checked while the old kernel still runs, so that it is not ended for one that cannot be
    // started.
    if let Some(spec) = session.kernelspec.filter(|_| !is_elsewhere) {
        let folder = notebook.parent().unwrap_or(&notebook);
        launch::check_outside(&spec, folder, &ProcessVariables)?;
    }
    Ok(())
}

/// Restarts the kernel, in the detached process.
pub async fn perform(
    servers: &impl ServerKernels,
    project: &Project,
    key: &str,
    by: &str,
    timeout: Duration,
) -> Result<Session, OpenError> {
    let locked = LockedSession::wait(project, key, timeout).await?;
    let notebook: PathBuf = project.notebook(key);
    let no_kernel = || OpenError::NoKernel {
        notebook: notebook.clone(),
    };
    // Checked again under the lock: the kernel may have been shut down in the meantime.
    let session = locked
        .session()?
        .filter(Session::is_owned)
        .ok_or_else(no_kernel)?;
    let Some(spec) = session
        .kernelspec
        .clone()
        .filter(|_| session.status != Status::Stopped)
    else {
        return Err(no_kernel());
    };
    if let Some(remote) = session.as_remote().cloned() {
        return server_kernel::restart(servers, &locked, session, remote, by, timeout).await;
    }
    locked.record(|session| {
        session.status = Status::Restarting;
        session.ended = Some(session.ends_now("restarted", Some(by)));
    })?;
    locked.set_preforked(PreforkedProcess::supervised().ok());
    if let Liveness::Own(process) = liveness(&session).await {
        end_kernel(&locked, &session, &process, true).await;
    }
    let files = KernelFiles::of(&session.connection_file);
    match connection::read(files.connection_file()) {
        // Some kernels cannot bind to a socket file that a killed one left.
        Ok(_) if session.transport == Transport::Ipc => files.remove_sockets(&locked.variables),
        Ok(_) => {}
        Err(_) => {
            files.remove(&locked.variables);
            locked.create(
                &files,
                !session.confinement().is_none(),
                session.transport,
                &spec,
            )?;
        }
    }
    let session = locked
        .run(&files, &spec, session.transport, timeout)
        .await?;
    journal(project, key, &session, EventKind::Restarted, by);
    project.remember(key, &session, still_runs);
    Ok(session)
}
