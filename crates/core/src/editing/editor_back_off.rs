//! When `nb` may write a notebook that an editor has open.
//!
//! While a front end runs a cell, the cell's outputs make its editor's copy differ from the file. If
//! the file changes then, VS Code neither reads the change nor saves over it: the tab stays in
//! conflict until the person decides. So writes wait until the front end's cell has ended.
//!
//! VS Code reads a changed file at once into a tab without unsaved changes. It then replaces the cells that were run
//! in the tab, and drops those of them that wait for the kernel. So a cell of VS Code that waits counts like one that
//! runs. No other front end reads a file by itself.
//!
//! None of this holds for an editor that `nb live` connects: it has the change before the file is written, so it neither
//! loads the file nor is in conflict with it, and it never replaces a cell that waits or runs.

use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;

use super::notebook_file::NotebookFile;
use super::transaction;
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

/// Returns whether a write has to wait: a front end runs a cell of this notebook, a cell of VS Code waits for the
/// kernel, or VS Code may be about to save the outputs of one.
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

/// Waits for a moment if VS Code may be about to save, and returns a cell of VS Code that waits or runs. Until it has
/// ended, no outputs are written into the notebook.
pub(crate) fn open_cell_of_vs_code(notebook: &NotebookFile) -> Option<RunningExecution> {
    let begun = Instant::now();
    loop {
        let mut joined = not_asked(notebook);
        joined.retain(is_vs_code);
        match activity_of(notebook, &joined)? {
            EditorActivity::By(cell) => return Some(cell),
            EditorActivity::MaySave if begun.elapsed() >= WAIT => return None,
            EditorActivity::MaySave => sleep(PAUSE),
        }
    }
}

/// Why a notebook may not be written now.
enum EditorActivity {
    /// A front end's cell runs, or a cell of VS Code waits for the kernel.
    By(RunningExecution),
    /// A front end's cell has just ended, and VS Code may be about to save.
    MaySave,
}

fn activity(notebook: &NotebookFile) -> Option<EditorActivity> {
    activity_of(notebook, &not_asked(notebook))
}

/// Returns the front ends that have this notebook open and do not get what is written before it is written. The proxies do
/// not tell which window is theirs, so one front end counts for each editor of its name.
fn not_asked(notebook: &NotebookFile) -> Vec<JoinedFrontEnd> {
    let mut joined = joined(notebook);
    if !joined.is_empty() {
        for asked in transaction::names_of_asked(notebook) {
            let mut front_ends = joined.iter();
            if let Some(at) = front_ends.position(|front_end| front_end.front_end == asked) {
                joined.remove(at);
            }
        }
    }
    joined
}

/// Returns the activity of these front ends, which are joined to the notebook.
fn activity_of(notebook: &NotebookFile, joined: &[JoinedFrontEnd]) -> Option<EditorActivity> {
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
    let present = notebook.project.present(&owner, session.generation);
    let now = Timestamp::now();
    // A request from before the front end joined is not its own: it ended with an earlier front end of the same name,
    // or a recorder took it over.
    let is_of = |cell: &RunningExecution, joined: &JoinedFrontEnd| {
        cell.by == Some(joined.by()) && joined.was_there(cell.since, now)
    };
    let running = present
        .running
        .filter(|cell| joined.iter().any(|it| is_of(cell, it)));
    // Those in the kernel's own queue, and those at the proxies.
    let at_proxies = present.waiting.into_iter();
    let at_proxies = at_proxies.filter(|cell| cell.notebook == notebook.key);
    let mut waiting = present.queued.into_iter().chain(at_proxies);
    let open = running
        .or_else(|| waiting.find(|cell| joined.iter().any(|it| is_vs_code(it) && is_of(cell, it))));
    if let Some(cell) = open {
        return Some(EditorActivity::By(cell));
    }
    let events = notebook.project.events(&owner);
    let mut recent = events.take_while(|event| is_young(event.at, now));
    let is_end = |event: &Event| event.end().is_some_and(|end| end.store_history);
    let ended = recent.find(|event| is_end(event) && may_save(joined, event))?;
    (!saved_since(notebook, ended.at, now)).then_some(EditorActivity::MaySave)
}

/// Returns the front ends that have this notebook open.
pub(super) fn joined(notebook: &NotebookFile) -> Vec<JoinedFrontEnd> {
    let of_this = |joined: &JoinedFrontEnd| joined.session.as_ref() == Some(&notebook.key);
    let mut joined = participants::joined(&notebook.project);
    joined.retain(of_this);
    joined
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
            Self::joined_since(VS_CODE, ago(30))
        }

        fn joined_since(front_end: &str, since: Timestamp) -> Self {
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
            let joined = joined_here(&desk.notebook, front_end, since);
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
            self.happens(kind, "1", by, seconds);
        }

        fn happens(&self, kind: &str, id: &str, by: &str, seconds: i64) {
            self.notebook.project.record(&[event(serde_json::json!({
                "at": ago(seconds).to_string(), "event": kind, "generation": 1, "msg_id": id,
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
        desk.happened("requested", PERSON, 1);
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
        let desk = Desk::joined_since(VS_CODE, ago(-3600));
        desk.happened("requested", PERSON, 10);
        let activity = activity(&desk.notebook);
        assert!(matches!(activity, Some(EditorActivity::By(_))));
    }

    const VS_CODE: &str = JoinedFrontEnd::VS_CODE;
    const PERSON: &str = "human (VS Code)";

    #[test]
    fn nothing_is_written_while_a_cell_of_vs_code_waits_or_runs() {
        let cell = |desk: &Desk| open_cell_of_vs_code(&desk.notebook).map(|cell| cell.since);
        // An agent's cell runs; behind it waits a cell at a proxy, or in the kernel's own queue.
        for (kind, by, seconds, waits) in [
            ("queued", PERSON, 10, true),
            ("queued", PERSON, 40, false),
            ("queued", "human (JupyterLab)", 10, false),
            ("requested", PERSON, 10, true),
            ("requested", "bob", 10, false),
        ] {
            let desk = Desk::new();
            desk.happens("requested", "1", "ada", 20);
            assert!(cell(&desk).is_none() && !must_wait(&desk.notebook));
            desk.happens(kind, "2", by, seconds);
            assert_eq!(must_wait(&desk.notebook), waits, "{kind} {by} {seconds}");
            assert_eq!(cell(&desk).is_some(), waits, "{kind} {by} {seconds}");
            // The agent's cell ends, and the person's runs.
            desk.happens("done", "1", "ada", 9);
            assert_eq!(cell(&desk).is_some(), waits, "{kind} {by} {seconds}");
            desk.happens("requested", "2", by, 9);
            assert_eq!(cell(&desk).is_some(), by == PERSON, "{kind} {by} {seconds}");
            desk.happens("done", "2", by, 5);
            assert!(cell(&desk).is_none() && !must_wait(&desk.notebook));
        }
    }

    #[test]
    fn a_cell_of_jupyterlab_delays_edits_while_it_runs_and_no_outputs() {
        let person = "human (JupyterLab)";
        let desk = Desk::joined_since("JupyterLab", ago(30));
        desk.happens("requested", "1", "ada", 20);
        desk.happens("queued", "2", person, 10);
        assert!(!must_wait(&desk.notebook));
        desk.happens("done", "1", "ada", 9);
        desk.happens("requested", "2", person, 9);
        assert!(must_wait(&desk.notebook));
        assert!(open_cell_of_vs_code(&desk.notebook).is_none());
    }

    #[test]
    fn outputs_wait_for_vs_code_to_save_also_where_another_cell_has_ended_since() {
        let desk = Desk::new();
        desk.happens("requested", "1", PERSON, 10);
        desk.happens("done", "1", PERSON, 1);
        desk.happens("requested", "2", "ada", 1);
        desk.happens("done", "2", "ada", 0);
        assert!(matches!(
            activity(&desk.notebook),
            Some(EditorActivity::MaySave)
        ));
        assert!(open_cell_of_vs_code(&desk.notebook).is_none());
        assert!(activity(&desk.notebook).is_none());
    }

    #[test]
    fn only_a_cell_of_a_front_end_that_is_still_there_is_waited_for() {
        for (by, seconds, waits) in [(PERSON, 10, true), (PERSON, 40, false), ("ada", 10, false)] {
            let desk = Desk::new();
            assert!(activity(&desk.notebook).is_none());
            desk.happened("requested", by, seconds);
            let activity = activity(&desk.notebook);
            assert_eq!(
                matches!(activity, Some(EditorActivity::By(_))),
                waits,
                "{by} {seconds}"
            );
        }
        let desk = Desk::new();
        desk.happened("requested", PERSON, 10);
        desk.notebook
            .project
            .remove_joined(std::process::id())
            .unwrap();
        assert!(activity(&desk.notebook).is_none());
    }

    #[test]
    fn vs_code_has_time_to_save_what_a_cell_printed() {
        let desk = Desk::new();
        desk.happened("requested", PERSON, 10);
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
            desk.happened("requested", by, 10);
            desk.happened("done", by, seconds);
            assert!(activity(&desk.notebook).is_none(), "{by} {seconds}");
        }
    }
}
