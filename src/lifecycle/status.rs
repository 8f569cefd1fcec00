//! What is open, who is joined, and whether the spec is sound.

use std::time::Duration;

use jiff::Timestamp;

use super::death::note_death;
use super::liveness::{Liveness, liveness};
use crate::activity::participants::joined_to;
use crate::client::Client;
use crate::kernel::process::connection;
use crate::project::event::{Event, EventKind, ExecutionEnd, Outcome, Present, RunningCell};
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
    pub liveness: Liveness,
    /// Whether the kernel runs something; unknown where it was not asked or cannot be reached.
    pub busy: Option<bool>,
    /// What it runs, where it is busy and the journal knows.
    pub running: Option<RunningCell>,
    /// Since when nothing has happened, where it is idle.
    pub idle_since: Option<Timestamp>,
    /// The kernel's resident memory.
    pub memory_bytes: Option<u64>,
    /// The proxies that serve it now.
    pub joined: Vec<Joined>,
    /// The key of the session whose kernel it shares.
    pub kernel_of: Option<String>,
    /// The other notebooks that use the kernel, by their keys.
    pub shared_by: Vec<String>,
    /// Whether a start or restart was left half done.
    pub abandoned: bool,
}

/// Returns the status of one session that has a kernel of its own.
///
/// A kernel that is found dead is recorded as such, and records of killed proxies are removed.
pub async fn status(
    project: &Project,
    key: &str,
    session: Session,
) -> Result<SessionStatus, StateError> {
    look(project, key, session, true).await
}

/// As [`status`], without a word to the kernel: whether it is busy is what the journal says.
pub async fn glance(
    project: &Project,
    key: &str,
    session: Session,
) -> Result<SessionStatus, StateError> {
    look(project, key, session, false).await
}

async fn look(
    project: &Project,
    key: &str,
    session: Session,
    asks: bool,
) -> Result<SessionStatus, StateError> {
    let mut found = liveness(&session).await;
    let running = found.is_up() && session.status == Status::Live;
    // Before the kernel is asked: what is asked for after that is another story.
    let mut present = if running {
        project.present(key, session.generation)
    } else {
        Present::default()
    };
    let busy = match running {
        true if asks => busy(&session).await,
        true => Some(present.running.is_some()),
        false => None,
    };
    if busy == Some(false)
        && asks
        && let Some(cell) = present.running.take()
        && is_over(&session, &cell).await
    {
        note_end(project, key, &session, &cell);
        present.last = Some(Timestamp::now());
    }
    if let Liveness::Own(process) = &found
        && running
        && busy.is_none()
        && process.ended_within(DYING).await
    {
        found = Liveness::Dead;
    }
    let session = match &found {
        Liveness::Dead if session.status == Status::Live => note_death(project, key, session)?,
        _ => session,
    };
    let memory_bytes = match &found {
        Liveness::Own(process) => process.memory_bytes(),
        _ => None,
    };
    let between = matches!(session.status, Status::Starting | Status::Restarting);
    let abandoned = between && matches!(project.try_lock_session(key), Ok(Some(_)));
    let joined = joined_to(project, key);
    let shared_by = project.state()?.sharers(key);
    Ok(SessionStatus {
        key: key.to_owned(),
        idle_since: (busy == Some(false))
            .then(|| present.last.or(session.started_at))
            .flatten(),
        session,
        liveness: found,
        kernel_of: None,
        busy,
        running: present.running,
        shared_by,
        memory_bytes,
        joined,
        abandoned,
    })
}

/// How old a cell must be before an idle kernel proves that it has ended: a younger one may be on
/// its way there.
const ON_ITS_WAY: Duration = Duration::from_secs(5);

/// Says whether a cell has ended whose end nobody told, on a kernel that was idle just now.
async fn is_over(session: &Session, cell: &RunningCell) -> bool {
    let age = Duration::try_from(Timestamp::now().duration_since(cell.since));
    if age.is_ok_and(|age| age < ON_ITS_WAY) {
        return false;
    }
    // A kernel takes its clients in turn: a cell in its queue may come after the first answer, but
    // then before the second.
    busy(session).await == Some(false)
}

/// Notes the end of a cell that nobody saw, as of now: since when the kernel is idle is not known.
fn note_end(project: &Project, key: &str, session: &Session, cell: &RunningCell) {
    let end = ExecutionEnd::new(&cell.msg_id, Outcome::Unseen, None);
    project.record(&[Event {
        generation: Some(session.generation),
        by: cell.by.clone(),
        ..Event::now(key, EventKind::Done(end))
    }]);
}

/// Asks on shell, which waits behind a running cell; none where it cannot be reached.
pub(super) async fn busy(session: &Session) -> Option<bool> {
    let info = connection::read(&session.connection_file).ok()?;
    let mut client = Client::connect(&info, "nb").await.ok()?;
    Some(
        client
            .kernel_info(Channel::Shell, IDLE_ANSWER)
            .await
            .is_err(),
    )
}
