//! The status of kernels: which are open, what they run, and who is joined.

use std::time::Duration;

use jiff::Timestamp;

use super::death::note_death;
use super::liveness::{Liveness, liveness};
use super::server_connection;
use crate::activity::participants::{joined_to, retain_waiting};
use crate::client::Client;
use crate::kernel::process::connection;
use crate::project::event::{CellEnd, Event, EventKind, ExecutionEnd, Present, RunningExecution};
use crate::project::joined::JoinedFrontEnd;
use crate::project::{Project, Session, StateError, Status};
use crate::wire::Channel;

/// How long an idle kernel may take to answer; a slower one counts as busy.
const IDLE_ANSWER: Duration = Duration::from_millis(500);

/// How long to wait for the end of a kernel that cannot be reached: it may just be ending.
const DYING: Duration = Duration::from_millis(300);

/// The status of one notebook's kernel and its users.
#[derive(Clone, Debug)]
pub struct SessionStatus {
    /// Its key in `state.json`.
    pub key: String,
    /// Its record, corrected if its kernel was found dead.
    pub session: Session,
    /// The present state of its kernel.
    pub liveness: Liveness,
    /// Whether the kernel runs something; `None` if it was not asked or cannot be reached.
    pub busy: Option<bool>,
    /// The execution that it runs, if it is busy and the journal knows.
    pub running: Option<RunningExecution>,
    /// The cells that wait at the proxies of front ends, oldest first.
    pub waiting: Vec<RunningExecution>,
    /// When something last happened, if it is idle.
    pub idle_since: Option<Timestamp>,
    /// The kernel's resident memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// The proxies that serve it now.
    pub joined: Vec<JoinedFrontEnd>,
    /// The key of the session whose kernel it shares.
    pub kernel_of: Option<String>,
    /// The other notebooks that use the kernel, by their keys.
    pub shared_by: Vec<String>,
    /// Whether a start or restart was not finished.
    pub abandoned: bool,
}

/// Returns the status of one session that has a kernel of its own.
///
/// Records the end of a kernel that is found dead.
pub async fn status(
    project: &Project,
    key: &str,
    session: Session,
) -> Result<SessionStatus, StateError> {
    let mut current = liveness(&session).await;
    let running =
        current.is_up() && current != Liveness::Disconnected && session.status == Status::Live;
    // Read before the kernel is asked: requests sent after that do not matter.
    let mut present = if running {
        project.present(key, session.generation)
    } else {
        Present::default()
    };
    let busy = match running {
        true => busy(&session).await,
        false => None,
    };
    if busy == Some(false)
        && let Some(cell) = present.running.take()
        && is_over(&session, &cell).await
    {
        note_end(project, key, &session, &cell);
        present.last = Some(Timestamp::now());
    }
    if let Liveness::Own(process) = &current
        && running
        && busy.is_none()
        && process.ended_within(DYING).await
    {
        current = Liveness::Dead;
    }
    let session = match &current {
        Liveness::Dead if session.status == Status::Live => note_death(project, key, session)?,
        _ => session,
    };
    let memory_bytes = match &current {
        // The memory of a bridge is not the kernel's.
        Liveness::Own(process) if session.as_remote().is_none() => process.memory_bytes(),
        _ => None,
    };
    let is_changing = matches!(session.status, Status::Starting | Status::Restarting);
    let abandoned = is_changing && matches!(project.try_lock_session(key), Ok(Some(_)));
    let joined = joined_to(project, key);
    retain_waiting(&mut present.waiting, &joined);
    let shared_by = project.state()?.sharers(key);
    Ok(SessionStatus {
        key: key.to_owned(),
        idle_since: (busy == Some(false))
            .then(|| present.last.or(session.started_at))
            .flatten(),
        session,
        liveness: current,
        kernel_of: None,
        busy,
        running: present.running,
        waiting: present.waiting,
        shared_by,
        memory_bytes,
        joined,
        abandoned,
    })
}

/// How old a cell must be before an idle kernel proves that it has ended: a younger one may not
/// have reached the kernel yet.
const ON_ITS_WAY: Duration = Duration::from_secs(5);

/// Says whether a cell is so young that it may not have reached the kernel yet.
pub(super) fn is_on_its_way(cell: &RunningExecution) -> bool {
    let age = Duration::try_from(Timestamp::now().duration_since(cell.since));
    age.is_ok_and(|age| age < ON_ITS_WAY)
}

/// Says whether a cell without an end in the journal has ended, on a kernel that was idle just now.
async fn is_over(session: &Session, cell: &RunningExecution) -> bool {
    if is_on_its_way(cell) {
        return false;
    }
    // The kernel takes its clients' requests in turn: a cell in the queue may come after the first
    // request, but then it is before the second one.
    busy(session).await == Some(false)
}

/// Records the unseen end of a cell with the present time: the real time is not known.
fn note_end(project: &Project, key: &str, session: &Session, cell: &RunningExecution) {
    let end = ExecutionEnd::new(&cell.msg_id, CellEnd::Unobserved, None);
    project.record(&[Event {
        generation: Some(session.generation),
        by: cell.by.clone(),
        ..Event::now(key, EventKind::Done(end))
    }]);
}

/// Sends a request on shell, which waits behind a running cell; `None` if the kernel cannot be
/// reached.
pub async fn busy(session: &Session) -> Option<bool> {
    if server_connection::lost(session).is_some() {
        // The request would wait for the connection.
        return None;
    }
    let info = connection::read(&session.connection_file).ok()?;
    let mut client = Client::connect(&info, "nb").await.ok()?;
    Some(
        client
            .kernel_info(Channel::Shell, IDLE_ANSWER)
            .await
            .is_err(),
    )
}

/// Returns the cells that wait at the proxies of a session's kernel, oldest first.
pub fn waiting_cells(project: &Project, key: &str) -> Vec<RunningExecution> {
    let session = project.state().ok().and_then(|state| state.session(key));
    let Some(session) = session.filter(|session| session.status == Status::Live) else {
        return Vec::new();
    };
    present(project, key, session.generation).waiting
}

/// Returns the present state of a session's kernel according to the journal, without the cells whose proxy has ended.
pub fn present(project: &Project, key: &str, generation: u64) -> Present {
    let mut present = project.present(key, generation);
    if !present.waiting.is_empty() {
        retain_waiting(&mut present.waiting, &joined_to(project, key));
    }
    present
}
