//! Kernels that exited unexpectedly: recorded once, with the cell and the cause, and reported until the
//! next one is started.

use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use rustix::process::Signal;

use super::confined;
use super::server_connection;
use crate::activity::actor::Actor;
use crate::activity::labels::{self, cell_with_actor};
use crate::activity::zone;
use crate::hint;
use crate::hint::{Hint, Joint, Verb, nb};
use crate::kernel::process::Process;
use crate::kernel::process::connection::KernelFiles;
use crate::kernel::process::launch::last_lines;
use crate::kernel::process::plan::ProcessEnd;
use crate::notebook::size;
use crate::project::event::{CellEnd, Event, EventKind, RunningExecution};
use crate::project::jobs::JobCell;
use crate::project::{Ended, Exit, Project, Relation, Session, StateError, Status};

/// How long a supervisor may take to record how its kernel ended.
const SUPERVISOR: Duration = Duration::from_millis(150);

/// The pause between two checks for that record.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// How many of the last lines of a kernel's log are stored.
const LINES: usize = 8;

/// The field that marks the end of a kernel that was never ready.
const AT_START: &str = "at_start";

/// The field with the id of the running cell's request.
const CELL_REQUEST: &str = "cell_msg_id";

/// The field with the reason for a shutdown that no user asked for at that moment.
pub(super) const BECAUSE: &str = "because";

/// Records that a kernel exited unexpectedly, and the cell that it ran, unless the session has changed
/// since it was `observed`.
///
/// The actor who had asked for that cell is `cell_by` in the record; `by` is the actor who ended a
/// kernel. Blocks for some milliseconds, which the supervisor may need to record the cause.
pub fn note_death(project: &Project, key: &str, observed: Session) -> Result<Session, StateError> {
    // The session of the kernel's owner is changed: a notebook that shares the kernel has no record
    // of it.
    let key = &project.state()?.owner_key(key);
    // The end of a bridge says nothing about its kernel.
    let end = supervised_end(&observed).filter(|_| observed.as_remote().is_none());
    let server_reason = server_connection::why_ended(&observed);
    if observed.as_remote().is_some() && server_reason.is_none() {
        return Ok(observed);
    }
    confined::update(project, key, &observed);
    let running = project.present(key, observed.generation).running;
    let job = job_of(project, key, &observed, running.as_ref());
    let reason = match observed.relation() {
        _ if let Some(why) = &server_reason => why,
        Relation::EarlierBoot => "the machine was started anew",
        _ if observed.is_attached() => "it answers no more",
        _ => "its process ended",
    };
    let mut recorded_end = None;
    let now = project.update(|state| match state.sessions.get_mut(key) {
        Some(session) if session.pid() == observed.pid() && session.status == Status::Live => {
            let mut ended = session.ends_now(reason, None);
            if let Some(end) = &end {
                add_process_end(&mut ended, end);
            }
            // The lines from its start do not explain its end.
            let log = session.as_local().and_then(|local| local.log_bytes);
            let log = log.map(|at| (project.kernel_log(key), at));
            if let Some((log, at)) = log {
                ended.lines = last_lines(&log, at, LINES);
            }
            ended.job = job;
            if let Some(cell) = running {
                add_cell(&mut ended, cell);
            }
            session.status = Status::Died;
            session.ended = Some(ended);
            recorded_end = session.ended.clone();
            session.clone()
        }
        Some(session) => {
            // Another process recorded the end already. It may have been faster than the supervisor, and
            // than the proxy whose cell ran, so that it knows that cell only from the kernel's broadcast.
            // Now the record is completed.
            if session.pid() == observed.pid()
                && session.status == Status::Died
                && let Some(ended) = &mut session.ended
            {
                if let Some(end) = &end
                    && ended.exit.is_none()
                {
                    add_process_end(ended, end);
                }
                let is_known = |cell: &RunningExecution| {
                    ended.other.get(CELL_REQUEST) == Some(&cell.msg_id.as_str().into())
                };
                if let Some(cell) = running.filter(is_known) {
                    add_cell(ended, cell);
                    ended.job = job.or(ended.job.take());
                }
            }
            session.clone()
        }
        None => observed,
    })?;
    if let Some(end) = recorded_end {
        let kind = EventKind::Died {
            reason: end.reason,
            cell: end.cell,
        };
        project.record(&[Event {
            at: end.at,
            generation: Some(end.generation),
            ..Event::now(key, kind)
        }]);
    }
    Ok(now)
}

/// Records the end of `process`, which its supervisor reports, if it is the kernel of a session.
pub fn supervisor_reports(
    project: &Project,
    key: &str,
    process: &Process,
) -> Result<(), StateError> {
    let session = project.state()?.sessions.get(key).cloned();
    let session = session.filter(|session| Process::recorded(session).as_ref() == Some(process));
    match session {
        Some(session) => note_death(project, key, session).map(|_| ()),
        None => Ok(()),
    }
}

/// Returns how a session's kernel ended according to its supervisor; waits a moment for its record.
fn supervised_end(session: &Session) -> Option<ProcessEnd> {
    if session.relation() != Relation::Here {
        return None;
    }
    let process = Process::recorded(session)?;
    end_of(&KernelFiles::of(&session.connection_file), &process)
}

/// Returns how a process ended according to its supervisor; waits a moment for its record.
pub(super) fn end_of(files: &KernelFiles, process: &Process) -> Option<ProcessEnd> {
    let deadline = Instant::now() + SUPERVISOR;
    while files.end_of(process).is_none() && Instant::now() < deadline {
        let supervisor = files.supervisor_of(process);
        if !supervisor.is_some_and(|supervisor| supervisor.is_alive()) {
            break;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    files.end_of(process)
}

/// Adds the cell that the kernel ran to the record.
fn add_cell(ended: &mut Ended, cell: RunningExecution) {
    let fields = [
        ("cell_by", Actor::parse(cell.by.as_deref()).name()),
        ("cell_of", cell_with_actor(&cell)),
        (CELL_REQUEST, cell.msg_id),
    ];
    let fields = fields.map(|(name, text)| (name.to_owned(), text.into()));
    ended.other.extend(fields);
    ended.cell = cell.cell;
}

fn add_process_end(ended: &mut Ended, end: &ProcessEnd) {
    ended.at = end.at;
    ended.reason = reason(end.exit, end.memory_bytes);
    ended.exit = Some(end.exit);
    ended.memory_bytes = end.memory_bytes;
}

/// Returns the job whose code ran. Its recorder sees the end at the same moment: it may already have
/// recorded that the cell ended, or not yet that the cell had begun.
fn job_of(
    project: &Project,
    key: &str,
    session: &Session,
    cell: Option<&RunningExecution>,
) -> Option<String> {
    let jobs = project.jobs().into_iter().filter_map(|job| job.read().ok());
    let mut running = jobs.filter(|job| {
        let of_it = |it: &JobCell| {
            let is_open = it.status.is_none();
            let ran = is_open || it.status == Some(CellEnd::KernelDied);
            let same = cell.is_none_or(|cell| it.cell == cell.cell);
            let is_requested = cell.is_some_and(|cell| {
                cell.by.as_ref() == Some(&job.by) && cell.code.as_ref() == Some(&it.code)
            });
            ran && same && (it.begun_at.is_some() || is_open && is_requested)
        };
        job.session == key
            && job.generation == Some(session.generation)
            && job.cells.iter().any(of_it)
    });
    running.next().map(|job| job.id)
}

/// Returns a description of how a process ended: `out of memory, 61.8 GB`, `SIGSEGV`.
pub(super) fn reason(exit: Exit, memory_bytes: Option<u64>) -> String {
    let memory = memory_bytes.map(|bytes| format!(", {}", size(bytes)));
    let memory = memory.unwrap_or_default();
    match exit {
        Exit::Status(status) => format!("exit status {status}"),
        Exit::Signal(signal) => signal_hook::low_level::signal_name(signal)
            .map_or_else(|| format!("signal {signal}"), str::to_owned),
        Exit::OutOfMemory => format!("out of memory{memory}"),
        Exit::PerhapsOutOfMemory => format!("SIGKILL, probably out of memory{memory}"),
    }
}

/// Marks the record as that of a kernel that was never ready.
pub(super) fn mark_at_start(ended: &mut Ended) {
    ended.other.insert(AT_START.to_owned(), true.into());
}

/// Returns one or two sentences about a kernel that exited unexpectedly.
pub fn description(notebook: &str, ended: &Ended) -> String {
    description_in(notebook, ended, &zone::here())
}

/// Returns the command that starts a notebook's kernel again.
pub fn fix_command(notebook: &Path) -> Hint {
    let replay = nb(Verb::Exec).notebook(notebook).option("--replay");
    hint![nb(Verb::Open).notebook(notebook), Joint::And, replay]
}

fn description_in(notebook: &str, ended: &Ended, zone: &TimeZone) -> String {
    let verb = match ended.exit {
        _ if ended.other.contains_key(AT_START) => "could not be started",
        Some(Exit::Signal(signal)) if is_crash(signal) => "crashed",
        Some(Exit::Signal(_) | Exit::OutOfMemory | Exit::PerhapsOutOfMemory) => "was killed",
        Some(Exit::Status(_)) => "ended by itself",
        None => "ended",
    };
    let at = clock(ended.at, zone);
    let mut text = format!("the kernel of {notebook} {verb} at {at} ({})", ended.reason);
    let field = |name: &str| ended.other.get(name).and_then(|it| it.as_str());
    match (&ended.cell, &ended.job, field("cell_by")) {
        (cell, Some(job), Some(by)) => {
            let cell = cell.as_deref().map(labels::cell);
            let cell = cell.map_or(String::new(), |cell| format!("cell {cell}, "));
            text.push_str(&format!(" in {cell}job {job}, for {by}"));
        }
        _ => {
            let during = field("cell_of").map(|of| format!(" while {of} ran"));
            text.push_str(&during.unwrap_or_default());
        }
    }
    text.push('.');
    if ended.job.is_some() {
        text.push_str(" Outputs until then are kept.");
    }
    text
}

/// Returns whether a program causes this signal by a crash.
pub(crate) fn is_crash(signal: i32) -> bool {
    let crashes = [
        Signal::SEGV,
        Signal::ABORT,
        Signal::BUS,
        Signal::ILL,
        Signal::FPE,
    ];
    crashes.map(Signal::as_raw).contains(&signal)
}

/// Formats a time: hours and minutes, with the date if it is not today.
pub fn clock(at: Timestamp, zone: &TimeZone) -> String {
    let (at, now) = (
        at.to_zoned(zone.clone()),
        Timestamp::now().to_zoned(zone.clone()),
    );
    let form = if at.date() == now.date() {
        "%H:%M"
    } else {
        "%H:%M on %Y-%m-%d"
    };
    at.strftime(form).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::event::fixtures;

    fn ended(exit: Option<Exit>, bytes: Option<u64>) -> Ended {
        let reason = exit.map_or_else(
            || "its process ended".to_owned(),
            |exit| reason(exit, bytes),
        );
        let text = serde_json::json!({
            "at": "2026-01-02T03:12:00Z", "reason": reason, "generation": 1,
        });
        let ended: Ended = serde_json::from_value(text).unwrap();
        Ended { exit, ..ended }
    }

    #[test]
    fn the_sender_of_the_cell_that_ran_is_known_however_late_its_journal_is() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a.ipynb");
        std::fs::write(&path, "{}").unwrap();
        let project = Project::for_notebook(&path).unwrap();
        let mut session = Session::local(path);
        (session.status, session.generation) = (Status::Live, 1);
        let added = session.clone();
        project
            .update(|state| state.sessions.insert("a.ipynb".into(), added))
            .unwrap();
        let event = |kind: &str, by: &str, cell: Option<&str>| {
            let fields = serde_json::json!({
                "event": kind, "generation": 1, "msg_id": "m", "by": by, "cell": cell,
                "code": "f()",
            });
            project.record(&[fixtures::event(fields)]);
        };
        event("begun_outside", "username", None);
        let first = note_death(&project, "a.ipynb", session.clone()).unwrap();
        assert_eq!(first.ended.unwrap().cell, None);
        event("requested", "human (VS Code)", Some("k1"));
        let recorded = note_death(&project, "a.ipynb", session).unwrap();
        let ended = recorded.ended.unwrap();
        assert_eq!(ended.cell.as_deref(), Some("k1"));
        assert_eq!(ended.other["cell_of"], "human (VS Code)'s cell k1");
    }

    fn train_description(ended: &Ended) -> String {
        description_in("train.ipynb", ended, &TimeZone::UTC)
    }

    #[test]
    fn a_death_says_when_of_what_in_which_cell_and_for_whom() {
        let mut killed = ended(Some(Exit::OutOfMemory), Some(61_800_000_000));
        killed.cell = Some("3f2c9a1e-0000-4000-8000-c0ffee000000".into());
        killed.job = Some("7f3a".into());
        killed.other.insert("cell_by".into(), "claude-code".into());
        assert_eq!(
            train_description(&killed),
            "the kernel of train.ipynb was killed at 03:12 on 2026-01-02 (out of memory, 61.8 GB) \
             in cell 3f2c, job 7f3a, for claude-code. Outputs until then are kept."
        );
        killed.cell = None;
        assert!(
            train_description(&killed)
                .contains("(out of memory, 61.8 GB) in job 7f3a, for claude-code.")
        );
    }

    #[test]
    fn what_did_it_is_told_apart() {
        for (exit, want) in [
            (
                Some(Exit::Signal(9)),
                "was killed at 03:12 on 2026-01-02 (SIGKILL).",
            ),
            (
                Some(Exit::Signal(11)),
                "crashed at 03:12 on 2026-01-02 (SIGSEGV).",
            ),
            (
                Some(Exit::Status(3)),
                "ended by itself at 03:12 on 2026-01-02 (exit status 3).",
            ),
            (None, "ended at 03:12 on 2026-01-02 (its process ended)."),
        ] {
            assert_eq!(
                train_description(&ended(exit, Some(1))),
                format!("the kernel of train.ipynb {want}")
            );
        }
        let perhaps = reason(Exit::PerhapsOutOfMemory, Some(900_000_000));
        assert_eq!(perhaps, "SIGKILL, probably out of memory, 900 MB");
        assert_eq!(reason(Exit::Signal(64), None), "signal 64");
        let mut cell = ended(Some(Exit::Signal(6)), None);
        cell.other
            .insert("cell_of".into(), "human (VS Code)'s cell \"f()\"".into());
        assert!(
            train_description(&cell)
                .ends_with("(SIGABRT) while human (VS Code)'s cell \"f()\" ran.")
        );
    }
}
