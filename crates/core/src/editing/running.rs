//! The running cell of a notebook, according to the project's files.

use super::notebook_file::NotebookFile;
use crate::kernel::process::Process;
use crate::project::Status;
use crate::project::event::RunningExecution;

/// Returns the cell that the notebook's kernel runs.
///
/// Reads only the state and the journal and opens no socket, so that a list of cells is quick. If the
/// recorder or proxy of an execution was killed, its cell is returned even after it has ended; `nb status`
/// asks the kernel itself.
pub fn running(notebook: &NotebookFile) -> Option<RunningExecution> {
    let state = notebook.project.state().ok()?;
    let key = state.owner_key(&notebook.key);
    let session = state.session(&key)?;
    let is_live = session.status == Status::Live
        && Process::recorded(&session).is_some_and(|process| process.is_alive());
    let present = is_live.then(|| notebook.project.present(&key, session.generation));
    present?.running
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::project::event::fixtures::event;
    use crate::project::{Session, Status, boot_id};

    #[test]
    fn a_cell_runs_while_its_kernel_is_alive_and_no_end_is_recorded() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a.ipynb");
        std::fs::write(&path, "{}").unwrap();
        let notebook = NotebookFile::of(&path).unwrap();
        let mut journal = notebook.project.journal().unwrap();
        let tell = |kind: &str| {
            event(json!({
                "event": kind, "generation": 1, "msg_id": "1", "cell": "3f2c", "status": "ok",
            }))
        };
        journal.append(&tell("requested")).unwrap();
        assert_eq!(running(&notebook), None);
        let set_live = |start_time: u64| {
            let mut session = Session::local(path.clone());
            session.status = Status::Live;
            session.set_process(std::process::id(), start_time, None);
            let known = |state: &mut crate::project::State| {
                state.sessions.insert("a.ipynb".to_owned(), session);
            };
            notebook.project.update(known).unwrap();
        };
        let own = Process::current();
        assert_eq!(own.boot_id, boot_id());
        set_live(own.start_time);
        assert_eq!(running(&notebook).unwrap().cell.as_deref(), Some("3f2c"));
        set_live(own.start_time + 1);
        assert_eq!(running(&notebook), None);
        set_live(own.start_time);
        journal.append(&tell("done")).unwrap();
        assert_eq!(running(&notebook), None);
    }
}
