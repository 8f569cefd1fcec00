//! What is open, who is joined, and whether the spec is sound.

use std::time::Duration;

use super::life::{Life, life};
use super::shutdown::ended;
use crate::client::Client;
use crate::kernel::connection;
use crate::kernel::process::Process;
use crate::project::joined::Joined;
use crate::project::{Project, Session, StateError, Status};
use crate::wire::Channel;

/// How long an idle kernel may take to answer; one that does not is busy.
const IDLE_ANSWER: Duration = Duration::from_millis(500);

/// How long a kernel that cannot be reached may take to be gone: it is perhaps just ending.
const DYING: Duration = Duration::from_millis(300);

/// One notebook's kernel and who uses it.
#[derive(Clone, Debug)]
pub struct SessionStatus {
    /// Its key in `state.json`.
    pub key: String,
    /// Its record, corrected where its kernel was found dead.
    pub session: Session,
    /// What its kernel is now.
    pub life: Life,
    /// Whether the kernel runs something; unknown where it was not asked or cannot be reached.
    pub busy: Option<bool>,
    /// The kernel's resident memory.
    pub memory_bytes: Option<u64>,
    /// The proxies that serve it now.
    pub joined: Vec<Joined>,
    /// Whether a start or restart was left half done.
    pub abandoned: bool,
}

/// Returns the status of one session.
///
/// A kernel that is found dead is recorded as such, and records of killed proxies are removed.
pub async fn status(
    project: &Project,
    key: &str,
    session: Session,
) -> Result<SessionStatus, StateError> {
    let mut life = life(&session).await;
    let running = matches!(life, Life::Own(_) | Life::Foreign) && session.status == Status::Live;
    let busy = if running { busy(&session).await } else { None };
    if let Life::Own(process) = &life
        && running
        && busy.is_none()
        && process.ended_within(DYING).await
    {
        life = Life::Gone;
    }
    let session = match &life {
        Life::Gone if session.status == Status::Live => note_death(project, key, session)?,
        _ => session,
    };
    let memory_bytes = match &life {
        Life::Own(process) => process.memory_bytes(),
        _ => None,
    };
    let between = matches!(session.status, Status::Starting | Status::Restarting);
    let abandoned = between && matches!(project.try_lock_session(key), Ok(Some(_)));
    let joined = joined(project)
        .into_iter()
        .filter(|joined| joined.session.as_deref() == Some(key))
        .collect();
    Ok(SessionStatus {
        key: key.to_owned(),
        session,
        life,
        busy,
        memory_bytes,
        joined,
        abandoned,
    })
}

/// Returns the proxies that live; the records of others are removed.
pub fn joined(project: &Project) -> Vec<Joined> {
    let (alive, dead): (Vec<_>, Vec<_>) = project
        .list_joined()
        .into_iter()
        .partition(|joined| Process::joined(joined).is_alive());
    for joined in dead {
        // Of another boot or namespace nothing is known; its record stays.
        if joined.boot_id == crate::project::boot_id() {
            let _ = project.remove_joined(joined.pid);
        }
    }
    alive
}

/// Records that a kernel went by itself, unless the record has changed meanwhile.
pub fn note_death(project: &Project, key: &str, seen: Session) -> Result<Session, StateError> {
    project.update(|state| match state.sessions.get_mut(key) {
        Some(session) if session.pid == seen.pid && session.status == Status::Live => {
            session.status = Status::Died;
            session.ended = Some(ended(session, "its process ended", None));
            session.clone()
        }
        Some(session) => session.clone(),
        None => seen,
    })
}

/// Asks on shell, which waits behind a running cell.
async fn busy(session: &Session) -> Option<bool> {
    let info = connection::read(&session.connection_file).ok()?;
    let mut client = Client::connect(&info, "nb").await.ok()?;
    Some(
        client
            .kernel_info(Channel::Shell, IDLE_ANSWER)
            .await
            .is_err(),
    )
}
