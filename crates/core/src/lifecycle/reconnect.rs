//! Starts the bridge of a kernel on a server again, after it was killed or this machine was rebooted. The kernel kept
//! running meanwhile, and its server kept the kernel's messages.

use std::time::{Duration, SystemTime};

use super::liveness::{Liveness, recorded_liveness};
use super::open_error::OpenError;
use super::start::LockedSession;
use crate::kernel::process::Process;
use crate::kernel::process::connection::{self, KernelFiles};
use crate::kernel::variables::ProcessVariables;
use crate::project::{Project, RealSpec, Session, beneath};
use crate::wire::Transport;

/// A bridge that ends sooner than this after its start is not started again by its supervisor.
const SHORTEST_RUN: Duration = Duration::from_secs(2);

/// How long the new bridge may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Makes sure that the bridge of a session's kernel runs.
///
/// # Errors
/// The session has no kernel on a server any more, or the bridge cannot be started.
pub async fn reconnect(project: &Project, key: &str) -> Result<Session, OpenError> {
    let locked = LockedSession::wait(project, key, TIMEOUT).await?;
    let session = locked.session()?.ok_or_else(|| OpenError::NoKernel {
        notebook: project.notebook(key),
    })?;
    match recorded_liveness(&session) {
        Liveness::Disconnected => reconnect_held(&locked, session).await,
        liveness if liveness.is_up() => Ok(session),
        _ => Err(OpenError::NoKernel {
            notebook: session.notebook,
        }),
    }
}

/// Starts the bridge of a session whose lock is held.
pub(super) async fn reconnect_held(
    locked: &LockedSession<'_>,
    session: Session,
) -> Result<Session, OpenError> {
    let files = KernelFiles::of(&session.connection_file);
    let spec = session.kernelspec.unwrap_or_else(|| RealSpec::named(""));
    match connection::read(files.connection_file()) {
        // Clients that wait for the bridge connect to the same addresses again.
        Ok(_) => files.remove_sockets(&ProcessVariables),
        Err(_) => {
            files.remove(&locked.variables);
            locked.create(&files, false, Transport::Ipc, &spec)?;
        }
    }
    locked.relaunch_bridge(&files, TIMEOUT).await
}

/// Says whether a process that has ended was the bridge of a kernel that goes on.
pub fn is_lost(project: &Project, key: &str, process: &Process) -> bool {
    let session = project.state().ok().and_then(|state| state.session(key));
    session.is_some_and(|session| {
        Process::recorded(&session).as_ref() == Some(process)
            && recorded_liveness(&session) == Liveness::Disconnected
    })
}

/// Starts the bridge again after its supervisor has seen its end. A bridge that ends at once again is left to the next
/// command, which reports why.
///
/// # Errors
/// Like [`reconnect`].
pub async fn after_a_loss(
    project: &Project,
    key: &str,
    process: &Process,
) -> Result<(), OpenError> {
    let session = project.state()?.session(key);
    let started_at = session.and_then(|session| {
        let files = KernelFiles::of(&session.connection_file);
        let started_at = beneath::metadata(&files.pid_file()).ok()?.modified().ok()?;
        (files.process().as_ref() == Some(process)).then_some(started_at)
    });
    let age = started_at.and_then(|started_at| SystemTime::now().duration_since(started_at).ok());
    if age.is_none_or(|age| age < SHORTEST_RUN) {
        return Ok(());
    }
    reconnect(project, key).await.map(drop)
}
