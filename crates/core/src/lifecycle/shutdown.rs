//! Ends a notebook's kernel for good.

use std::time::{Duration, Instant};

use super::action_event::journal;
use super::confined;
use super::death::BECAUSE;
use super::end_kernel::end_kernel;
use super::liveness::{Liveness, liveness};
use super::open_error::OpenError;
use super::sandbox;
use super::server_kernel::{self, ServerKernels};
use super::share;
use super::start::LockedSession;
use crate::editing::named_kernelspec;
use crate::kernel::process::connection::KernelFiles;
use crate::project::event::EventKind;
use crate::project::{Project, Session, StateError, Status};
use crate::task::causes::with_causes;

/// The result of a shutdown.
#[derive(Clone, Debug)]
pub struct Stopped {
    /// The session, stopped.
    pub session: Session,
    /// Whether a kernel was running. A shared kernel continues to run.
    pub was_running: bool,
    /// The key of the session whose kernel was shared.
    pub let_go_of: Option<String>,
    /// The notebooks that shared the kernel and have none now.
    pub shared_with: Vec<String>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

/// Ends the kernel: by a request, then by SIGTERM, then by SIGKILL to its process group.
///
/// `key` is the notebook's own, see [`super::target::Target`]. Only `nb open` starts a kernel for
/// the session again. A kernel of another program or of another notebook is not ended; the notebook
/// only stops using it.
/// With `keeps_kernel` a kernel on a server goes on running there.
pub async fn shutdown(
    servers: &impl ServerKernels,
    project: &Project,
    key: &str,
    by: &str,
    timeout: Duration,
    keeps_kernel: bool,
) -> Result<Stopped, OpenError> {
    let start = Instant::now();
    let locked = LockedSession::wait(project, key, timeout).await?;
    end(servers, &locked, by, None, keeps_kernel, start).await
}

/// Ends the kernel like [`shutdown`], and records the reason, unless `keeps` returns a reason against
/// it. `keeps` is called once the session's lock is held, since the kernel may have been used during
/// the wait for the lock.
pub(super) async fn shutdown_unless(
    servers: &impl ServerKernels,
    project: &Project,
    key: &str,
    by: &str,
    why: Option<&str>,
    timeout: Duration,
    keeps: impl AsyncFnOnce(Session) -> Result<Option<String>, StateError>,
) -> Result<Result<Stopped, String>, OpenError> {
    let start = Instant::now();
    let locked = LockedSession::wait(project, key, timeout).await?;
    if let Some(session) = locked.session()?
        && let Some(reason) = keeps(session).await?
    {
        return Ok(Err(reason));
    }
    end(servers, &locked, by, why, false, start).await.map(Ok)
}

/// Ends the kernel of a session whose lock is held.
async fn end(
    servers: &impl ServerKernels,
    locked: &LockedSession<'_>,
    by: &str,
    why: Option<&str>,
    keeps_kernel: bool,
    start: Instant,
) -> Result<Stopped, OpenError> {
    let (project, key) = (locked.project, locked.key);
    let notebook = project.notebook(key);
    let session = locked.session()?.ok_or_else(|| OpenError::NoKernel {
        notebook: notebook.clone(),
    })?;
    // Read before the change: it still names the shared kernel.
    let state = project.state()?;
    if let Some(owner) = state.shared_with(key) {
        let goes_on = match state.session(&owner) {
            Some(session) => liveness(&session).await.is_up(),
            None => false,
        };
        locked.record(|session| share::detach(session, &owner, by))?;
        journal(project, key, &session, EventKind::Stopped, by);
        return Ok(Stopped {
            session: locked.session()?.unwrap_or(session),
            was_running: goes_on,
            let_go_of: Some(owner),
            shared_with: Vec::new(),
            notes: named_kernelspec::restore(project, &state, key)
                .into_iter()
                .collect(),
            took: start.elapsed(),
        });
    }
    if !state.sessions.contains_key(key) {
        // Only the top-level fields name the kernel: another program wrote them, and has to remove
        // them.
        return Err(OpenError::NotOwned { notebook });
    }
    let found = liveness(&session).await;
    if found == Liveness::OutOfReach {
        return Err(OpenError::out_of_reach(&session));
    }
    let was_running = matches!(found, Liveness::Own(_) | Liveness::Disconnected);
    let shared_with = state.sharers(key);
    let record = || {
        locked.record(|session| {
            session.status = Status::Stopped;
            let reason = if keeps_kernel {
                server_kernel::LEFT_RUNNING
            } else {
                "shut down"
            };
            let mut ended = session.ends_now(reason, Some(by));
            let why = why.map(|why| (BECAUSE.to_owned(), why.into()));
            ended.other.extend(why);
            session.ended = Some(ended);
        })
    };
    // If nothing can be written, as on a full disk, the kernel is ended all the same: its files may
    // be what fills the disk.
    let mut unrecorded = None;
    if session.status != Status::Stopped {
        unrecorded = record().err();
        journal(project, key, &session, EventKind::Stopped, by);
    }
    let mut notes = Vec::new();
    if let Some(remote) = session.as_remote() {
        notes = server_kernel::end(servers, locked, &session, remote, keeps_kernel).await;
    } else if let Liveness::Own(process) = &found {
        end_kernel(locked, &session, process, false).await;
    }
    if session.is_owned() || session.as_remote().is_some() {
        KernelFiles::of(&session.connection_file).remove(&locked.variables);
    }
    if unrecorded.is_some() {
        // The end of the kernel may have freed space on the disk.
        unrecorded = record().err();
    }
    let unrecorded = unrecorded.map(|error| {
        let why = with_causes(&error);
        format!("its kernel has ended, but that is not written down, and commands will say that it died: {why}")
    });
    let session = locked.session()?.unwrap_or(session);
    confined::update(project, key, &session);
    let scratch = sandbox::end(&session);
    Ok(Stopped {
        session,
        was_running,
        let_go_of: None,
        notes: std::iter::once(key)
            .chain(shared_with.iter().map(String::as_str))
            .filter_map(|key| named_kernelspec::restore(project, &state, key))
            .chain(scratch)
            .chain(unrecorded)
            .chain(notes)
            .collect(),
        shared_with,
        took: start.elapsed(),
    })
}
