//! When `nb` may write a notebook that an editor has open.
//!
//! While a front end runs a cell, the cell's outputs make its editor's copy differ from the file. If
//! the file changes then, VS Code neither reads the change nor saves over it: the tab stays in
//! conflict until the person decides. So writes wait until the front end's cell has ended.

use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;

use super::notebook_file::NotebookFile;
use crate::activity::labels::cell_with_actor;
use crate::activity::participants;
use crate::project::Status;
use crate::project::event::{Event, RunningExecution};
use crate::project::joined::JoinedFrontEnd;

/// How long a write waits at most.
const WAIT: Duration = Duration::from_secs(60);

/// How long after a cell's end VS Code may take to save automatically: its `files.autoSaveDelay` is a
/// second.
const AUTO_SAVE: Duration = Duration::from_secs(2);

/// The time between two checks whether the cell has ended.
const PAUSE: Duration = Duration::from_millis(100);

/// Returns whether a write has to wait: a front end runs a cell of this notebook, or VS Code may be
/// about to save the outputs of one.
///
/// If no front end is joined to the notebook, this only lists a folder.
pub fn must_wait(notebook: &NotebookFile) -> bool {
    activity(notebook).is_some()
}

/// Waits until the notebook may be written, and returns how long that took. `tell` is called once
/// with the cell that the write waits for.
pub fn wait_for_front_end(notebook: &NotebookFile, notify: &dyn Fn(&str)) -> Duration {
    let begun = Instant::now();
    let mut is_announced = false;
    while let Some(activity) = activity(notebook) {
        let awaited = match &activity {
            EditorActivity::By(cell) => format!("{} to end", cell_with_actor(cell)),
            EditorActivity::MaySave => "VS Code to save".to_owned(),
        };
        let most = WAIT.as_secs();
        if begun.elapsed() >= WAIT {
            notify(&format!(
                "not waiting any longer than {most} s for {awaited}"
            ));
            break;
        }
        if !is_announced && matches!(activity, EditorActivity::By(_)) {
            notify(&format!(
                "waiting for {awaited} before writing, {most} s at most (--now does not)"
            ));
            is_announced = true;
        }
        sleep(PAUSE);
    }
    begun.elapsed()
}

/// Why a notebook may not be written now.
enum EditorActivity {
    /// A front end's cell runs.
    By(RunningExecution),
    /// A front end's cell has just ended, and VS Code may be about to save.
    MaySave,
}

fn activity(notebook: &NotebookFile) -> Option<EditorActivity> {
    let joined = joined(notebook);
    // Without a front end there is no need to read the journal.
    if joined.is_empty() {
        return None;
    }
    let state = notebook.project.state().ok()?;
    let owner = state.owner_key(&notebook.key);
    let session = state.session(&owner)?;
    if session.status != Status::Live {
        return None;
    }
    let running = notebook.project.present(&owner, session.generation).running;
    let now = Timestamp::now();
    let is_of_front_end =
        |cell: &RunningExecution| has_sent(&joined, cell.by.as_deref(), cell.since, now);
    if let Some(cell) = running.filter(is_of_front_end) {
        return Some(EditorActivity::By(cell));
    }
    let events = notebook.project.events(&owner);
    let mut recent = events.take_while(|event| is_young(event.at, now));
    let ended = recent.find(|event| event.end().is_some_and(|end| end.store_history))?;
    (may_save(&joined, &ended) && !saved_since(notebook, ended.at, now))
        .then_some(EditorActivity::MaySave)
}

/// Returns the front ends that have this notebook open.
pub(super) fn joined(notebook: &NotebookFile) -> Vec<JoinedFrontEnd> {
    let of_this = |joined: &JoinedFrontEnd| joined.session.as_ref() == Some(&notebook.key);
    let mut joined = participants::joined(&notebook.project);
    joined.retain(of_this);
    joined
}

/// Returns whether one of these front ends sent a request. A request from before the front end joined is
/// not its own: it ended with an earlier front end of the same name, or a recorder took it over.
fn has_sent(joined: &[JoinedFrontEnd], by: Option<&str>, since: Timestamp, now: Timestamp) -> bool {
    let mut joined = joined.iter().filter(|joined| by == Some(&joined.by()));
    joined.any(|joined| joined.was_there(since, now))
}

fn may_save(joined: &[JoinedFrontEnd], ended: &Event) -> bool {
    let mut vs_code = joined.iter().filter(|joined| is_vs_code(joined));
    vs_code.any(|joined| ended.by == Some(joined.by()))
}

/// Returns whether this front end is VS Code or an editor based on it.
pub(super) fn is_vs_code(joined: &JoinedFrontEnd) -> bool {
    joined.front_end == JoinedFrontEnd::VS_CODE
}

/// Returns whether the file was saved after a moment. A time in the future, from another machine's clock, does not
/// show that.
fn saved_since(notebook: &NotebookFile, moment: Timestamp, now: Timestamp) -> bool {
    let modified = std::fs::metadata(&notebook.real).and_then(|found| found.modified());
    let [moment, now] = [moment, now].map(SystemTime::from);
    modified.is_ok_and(|modified| modified > moment && modified <= now)
}

/// Returns whether a moment is less than [`AUTO_SAVE`] ago; false for the future, to which a clock that was
/// set back leads.
fn is_young(at: Timestamp, now: Timestamp) -> bool {
    Duration::try_from(now.duration_since(at)).is_ok_and(|age| age < AUTO_SAVE)
}

/// Returns the record of a front end at the notebook, with this process as its proxy.
#[cfg(test)]
pub(super) fn joined_here(
    notebook: &NotebookFile,
    front_end: &str,
    since: Timestamp,
) -> JoinedFrontEnd {
    let process = crate::kernel::process::Process::current();
    JoinedFrontEnd {
        pid: process.pid,
        start_time: process.start_time,
        boot_id: process.boot_id,
        pid_namespace: String::new(),
        session: Some(notebook.key.clone()),
        front_end: front_end.to_owned(),
        since,
        clients: 1,
        counters: None,
        other: serde_json::Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::Session;
    use crate::project::event::fixtures::event;

    const NOTEBOOK: &str = r#"{"cells":[],"metadata":{},"nbformat":4,"nbformat_minor":5}"#;

    /// A notebook with a kernel, and a VS Code that joined a while ago.
    struct Desk {
        _home: tempfile::TempDir,
        notebook: NotebookFile,
    }

    impl Desk {
        fn new() -> Self {
            Self::joined_since(ago(30))
        }

        fn joined_since(since: Timestamp) -> Self {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join("a.ipynb");
            std::fs::write(&path, NOTEBOOK).unwrap();
            let notebook = NotebookFile::of(&path).unwrap();
            let desk = Self {
                _home: home,
                notebook,
            };
            desk.saved(60);
            let mut session = Session::local(desk.notebook.path.clone());
            session.status = Status::Live;
            session.generation = 1;
            let key = desk.notebook.key.clone();
            let project = &desk.notebook.project;
            project
                .update(|state| state.sessions.insert(key.clone(), session))
                .unwrap();
            let joined = joined_here(&desk.notebook, "VS Code", since);
            project.write_joined(&joined).unwrap();
            desk
        }

        /// Makes the file so many seconds old.
        fn saved(&self, seconds: u64) {
            let file = std::fs::File::options()
                .append(true)
                .open(&self.notebook.real)
                .unwrap();
            let then = SystemTime::now() - Duration::from_secs(seconds);
            file.set_modified(then).unwrap();
        }

        fn happened(&self, kind: &str, by: &str, seconds: i64) {
            self.notebook.project.record(&[event(serde_json::json!({
                "at": ago(seconds).to_string(), "event": kind, "generation": 1, "msg_id": "1",
                "by": by, "status": "ok",
            }))]);
        }
    }

    fn ago(seconds: i64) -> Timestamp {
        Timestamp::now() - jiff::Span::new().seconds(seconds)
    }

    #[test]
    fn a_file_from_the_future_was_not_saved_since() {
        let desk = Desk::new();
        desk.happened("asked", PERSON, 1);
        desk.happened("done", PERSON, 1);
        let file = std::fs::File::options()
            .append(true)
            .open(&desk.notebook.real)
            .unwrap();
        let is_quiet = || activity(&desk.notebook).is_none();
        let now = SystemTime::now();
        file.set_modified(now + Duration::from_secs(180)).unwrap();
        assert!(!is_quiet());
        file.set_modified(now).unwrap();
        assert!(is_quiet());
    }

    #[test]
    fn a_front_end_that_joined_before_the_clock_was_set_back_is_waited_for() {
        let desk = Desk::joined_since(ago(-3600));
        desk.happened("asked", PERSON, 10);
        let activity = activity(&desk.notebook);
        assert!(matches!(activity, Some(EditorActivity::By(_))));
    }

    const PERSON: &str = "human (VS Code)";

    #[test]
    fn only_a_cell_of_a_front_end_that_is_still_there_is_waited_for() {
        for (by, seconds, waits) in [(PERSON, 10, true), (PERSON, 40, false), ("ada", 10, false)] {
            let desk = Desk::new();
            assert!(activity(&desk.notebook).is_none());
            desk.happened("asked", by, seconds);
            let activity = activity(&desk.notebook);
            assert_eq!(
                matches!(activity, Some(EditorActivity::By(_))),
                waits,
                "{by} {seconds}"
            );
        }
        let desk = Desk::new();
        desk.happened("asked", PERSON, 10);
        desk.notebook
            .project
            .remove_joined(std::process::id())
            .unwrap();
        assert!(activity(&desk.notebook).is_none());
    }

    #[test]
    fn vs_code_has_time_to_save_what_a_cell_printed() {
        let desk = Desk::new();
        desk.happened("asked", PERSON, 10);
        desk.happened("done", PERSON, 0);
        assert!(matches!(
            activity(&desk.notebook),
            Some(EditorActivity::MaySave)
        ));
        desk.saved(0);
        assert!(activity(&desk.notebook).is_none(), "it has saved");
        let begun = Instant::now();
        let fail_on_wait = |awaited: &str| panic!("waited for {awaited}");
        wait_for_front_end(&desk.notebook, &fail_on_wait);
        assert!(begun.elapsed() < AUTO_SAVE);
        for (by, seconds) in [(PERSON, 3), ("ada", 0), (PERSON, -3600)] {
            let desk = Desk::new();
            desk.happened("asked", by, 10);
            desk.happened("done", by, seconds);
            assert!(activity(&desk.notebook).is_none(), "{by} {seconds}");
        }
    }
}
