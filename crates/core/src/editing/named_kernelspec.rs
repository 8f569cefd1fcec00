//! The kernelspec that a notebook's file names: the one of its real kernel, or the shared one.
//!
//! A front end writes the name of the chosen kernelspec into the notebook. Where `nb` is not installed
//! (a colleague, CI, papermill), a notebook that names `nb-shared` does not run. So `nb` restores the
//! name of the real kernelspec, which the session stores, when the kernel is shut down.

use std::path::Path;

use super::content;
use super::notebook_file::NotebookFile;
use super::transaction::{self, NB, SizeRule, WriteError, WriteMode};
use crate::activity::participants::joined;
use crate::hint::shell::quote;
use crate::kernel::spec;
use crate::notebook::{Document, DocumentEditError, KernelspecMetadata, NamedKernel};
use crate::project::{Project, RealSpec, State, Status, registry};
use crate::task::causes::with_causes;

/// Why a notebook's file was left as it is.
pub type NamingError = WriteError<DocumentEditError>;

/// Restores the real kernelspec's name in a notebook that names the shared one.
///
/// Returns a note for the user; a failure becomes a note too. While a front end shows the notebook
/// its file is not changed: the editor would refuse the person's next save.
pub fn restore(project: &Project, state: &State, key: &str) -> Option<String> {
    let notebook = project.notebook(key);
    // The file was moved or was never saved.
    let text = content::read_notebook(&notebook).ok()?;
    let named = match NamedKernel::read(&text) {
        Ok(named) => named.kernelspec?,
        Err(error) => return Some(format!("{key} was left as it is: {}", with_causes(&error))),
    };
    if !spec::is_shared_name(&named) {
        return None;
    }
    let unchanged = format!("{key} names the kernelspec {}", spec::SHARED);
    let real = state.session(key).and_then(|session| session.kernelspec);
    let Some(real) = real.filter(|spec| !spec.name.is_empty()) else {
        return Some(format!(
            "{unchanged} still: which real kernel it had is not known"
        ));
    };
    if is_shown(project, key) {
        return Some(format!(
            "{unchanged} while a front end shows it; once that is closed and the kernel shut down, the next edit by nb names {} again, or: nb fmt --write {}",
            real.name,
            quote(&notebook)
        ));
    }
    let notebook = NotebookFile::in_project(project, &notebook).map_err(NamingError::from);
    match notebook.and_then(|notebook| write_name(&notebook, &metadata_of(&real))) {
        Ok(true) => Some(format!(
            "{key} names its own kernelspec {} again",
            real.name
        )),
        Ok(false) => None,
        Err(error) => Some(format!("{unchanged} still: {}", with_causes(&error))),
    }
}

/// Returns whether a front end has a notebook open.
fn is_shown(project: &Project, key: &str) -> bool {
    let mut joined = joined(project).into_iter();
    joined.any(|joined| joined.session.as_deref() == Some(key))
}

/// Restores the real kernelspec's name after an edit, if a front end had the notebook open when its
/// kernel was shut down. Returns a note for the user.
pub(super) fn restore_late(notebook: &NotebookFile, document: &Document) -> Option<String> {
    names_shared(document)?;
    let state = notebook.project.state().ok()?;
    let is_stopped = state.session(&notebook.key)?.status == Status::Stopped;
    match is_stopped && !is_shown(&notebook.project, &notebook.key) {
        true => restore(&notebook.project, &state, &notebook.key),
        false => None,
    }
}

/// Restores the real kernelspecs' names in the notebooks of all the user's projects, since the
/// shared kernelspec is removed. Returns notes for the user.
pub fn restore_everywhere() -> Vec<String> {
    let projects = registry::known();
    let projects = projects.iter().filter_map(|known| known.project());
    let mut notes = Vec::new();
    for project in projects {
        let Ok(state) = project.state() else { continue };
        for key in state.sessions.keys() {
            let note = restore(&project, &state, key);
            notes.extend(note.map(|note| format!("{}: {note}", project.root().display())));
        }
    }
    notes
}

/// Writes the name of the shared kernelspec into a notebook, so that JupyterLab starts it without
/// asking; returns whether the file changed. The session stores the real one.
pub fn select(notebook: &Path, real: &RealSpec) -> Result<bool, NamingError> {
    let shared = KernelspecMetadata {
        name: &spec::shared_name(&real.language),
        display_name: &spec::shared_display_name(&real.language),
        language: &real.language,
    };
    write_name(&NotebookFile::of(notebook)?, &shared)
}

/// Returns the name of the kernelspec in a notebook, if it is the shared one.
pub(super) fn names_shared(document: &Document) -> Option<String> {
    let name = document.metadata_string(&["kernelspec", "name"])?;
    spec::is_shared_name(&name).then_some(name)
}

/// Returns the real kernelspec from a notebook's session.
pub(super) fn real_spec(notebook: &NotebookFile) -> Option<RealSpec> {
    let session = notebook.project.state().ok()?.session(&notebook.key)?;
    session.kernelspec.filter(|spec| !spec.name.is_empty())
}

/// Returns the metadata that name a real kernelspec.
pub(super) fn metadata_of(real: &RealSpec) -> KernelspecMetadata<'_> {
    KernelspecMetadata {
        name: &real.name,
        display_name: &real.display_name,
        language: &real.language,
    }
}

/// Writes a kernelspec's name into a notebook's file; returns whether the file changed.
fn write_name(
    notebook: &NotebookFile,
    named: &KernelspecMetadata<'_>,
) -> Result<bool, NamingError> {
    // The name that the file had before brings its bytes back; the cells are the same.
    let mode = WriteMode {
        by: NB,
        force: false,
        in_room: false,
        size: SizeRule::NewOrSameText,
    };
    let written = transaction::write_with(notebook, mode, |document, _| {
        let mut after = document.clone();
        after.set_kernelspec(named)?;
        Ok(after)
    });
    Ok(written?.wrote)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::activity::notification::PendingNotices;
    use crate::editing::edit::{self, Editor};
    use crate::editing::editor_back_off::joined_here;
    use crate::editing::view::PendingCells;
    use crate::notebook::Operation;
    use crate::project::Session;

    const SHARED: &str = r#"{"cells": [], "metadata": {"kernelspec": {"display_name": "nb shared kernel", "language": "python", "name": "nb-shared"}}, "nbformat": 4, "nbformat_minor": 5}"#;

    /// Makes a project with a notebook that names the shared kernelspec and whose kernel was shut
    /// down.
    fn desk() -> (tempfile::TempDir, NotebookFile) {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a.ipynb");
        std::fs::write(&path, SHARED).unwrap();
        let notebook = NotebookFile::of(&path).unwrap();
        let mut session = Session::local(path);
        session.status = Status::Stopped;
        let real =
            r#"{"name": "python3", "display_name": "Python 3", "language": "python", "argv": []}"#;
        session.kernelspec = serde_json::from_str(real).unwrap();
        let insert = |state: &mut State| state.sessions.insert(notebook.key.clone(), session);
        notebook.project.update(insert).unwrap();
        (temp, notebook)
    }

    fn join(notebook: &NotebookFile) {
        let joined = joined_here(notebook, "JupyterLab", Timestamp::now());
        notebook.project.write_joined(&joined).unwrap();
    }

    fn leave(notebook: &NotebookFile) {
        notebook.project.remove_joined(std::process::id()).unwrap();
    }

    fn text(notebook: &NotebookFile) -> String {
        std::fs::read_to_string(&notebook.real).unwrap()
    }

    #[test]
    fn the_file_is_left_alone_while_a_front_end_shows_it() {
        let (_temp, notebook) = desk();
        let state = notebook.project.state().unwrap();
        join(&notebook);
        let note = restore(&notebook.project, &state, &notebook.key).unwrap();
        assert_eq!(text(&notebook), SHARED);
        assert!(note.contains("while a front end shows it"), "{note}");
        // The next `nb shutdown` or `nb unserve` after the front end has left.
        leave(&notebook);
        let note = restore(&notebook.project, &state, &notebook.key).unwrap();
        assert!(
            note.ends_with("names its own kernelspec python3 again"),
            "{note}"
        );
        assert!(
            text(&notebook).contains("\"python3\""),
            "{}",
            text(&notebook)
        );
    }

    #[test]
    fn the_next_edit_after_the_front_end_has_left_puts_the_name_back() {
        let (_temp, notebook) = desk();
        let editor = Editor {
            by: "ada".to_owned(),
            force: true,
            now: true,
            must_have_seen: false,
            progress: |_| {},
            notices: PendingNotices::default(),
            shown: PendingCells::default(),
            shows_whole: false,
        };
        let insert = |source: &str| {
            let list = format!(r#"[{{"op": "insert", "source": "{source}"}}]"#);
            let operations = Operation::read_list(&list).unwrap();
            edit::apply(&notebook, &operations, &editor).unwrap().notes
        };
        join(&notebook);
        assert!(insert("1").is_empty());
        assert!(text(&notebook).contains("\"nb-shared\""));
        leave(&notebook);
        let notes = insert("2");
        let note = notes[0].to_string();
        assert!(note.ends_with("kernelspec python3 again"), "{note}");
        assert!(
            !text(&notebook).contains("nb-shared"),
            "{}",
            text(&notebook)
        );
        // While the kernel runs, the name stays.
        let (_temp, notebook) = desk();
        let run = |state: &mut State| {
            let session = state.sessions.get_mut(&notebook.key);
            session.map(|session| session.status = Status::Live)
        };
        notebook.project.update(run).unwrap();
        let operations = Operation::read_list(r#"[{"op": "insert", "source": "1"}]"#).unwrap();
        edit::apply(&notebook, &operations, &editor).unwrap();
        assert!(text(&notebook).contains("\"nb-shared\""));
    }
}
