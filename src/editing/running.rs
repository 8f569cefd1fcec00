//! Which cell of a notebook runs, as far as files tell of it.

use super::notebook_file::NotebookFile;
use crate::kernel::process::Process;
use crate::project::Status;
use crate::project::event::RunningCell;

/// Returns what the notebook's kernel runs.
///
/// Only records and the journal are read: no socket is opened, so that a list of cells costs
/// nothing. Where whoever would have told an execution's end was killed, it is still returned; the
/// kernel itself, which `nb status` asks, knows better.
pub fn running(page: &NotebookFile) -> Option<RunningCell> {
    let state = page.project.state().ok()?;
    let key = state.owner_key(&page.key);
    let session = state.session(&key)?;
    let lives = session.status == Status::Live
        && Process::recorded(&session).is_some_and(|process| process.is_alive());
    let present = lives.then(|| page.project.present(&key, session.generation));
    present?.running
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::project::event::fixtures::event;
    use crate::project::{Session, Status, boot_id};

    #[test]
    fn a_cell_runs_while_its_kernel_lives_and_nobody_told_its_end() {
        let temp = tempfile::tempdir().unwrap();
        let notebook = temp.path().join("a.ipynb");
        std::fs::write(&notebook, "{}").unwrap();
        let page = NotebookFile::of(&notebook).unwrap();
        let mut journal = page.project.journal().unwrap();
        let tell = |kind: &str| {
            event(json!({
                "event": kind, "generation": 1, "msg_id": "1", "cell": "3f2c", "status": "ok",
            }))
        };
        journal.append(&tell("asked")).unwrap();
        assert_eq!(running(&page), None);
        let lives = |start_time: u64| {
            let mut session = Session::local(notebook.clone());
            session.status = Status::Live;
            session.set_process(std::process::id(), start_time, None);
            let known = |state: &mut crate::project::State| {
                state.sessions.insert("a.ipynb".to_owned(), session);
            };
            page.project.update(known).unwrap();
        };
        let own = Process::current();
        assert_eq!(own.boot_id, boot_id());
        lives(own.start_time);
        assert_eq!(running(&page).unwrap().cell.as_deref(), Some("3f2c"));
        lives(own.start_time + 1);
        assert_eq!(running(&page), None);
        lives(own.start_time);
        journal.append(&tell("done")).unwrap();
        assert_eq!(running(&page), None);
    }
}
