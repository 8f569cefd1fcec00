//! Which kernelspec a notebook's file names: its real kernel's, or the one that front ends share.
//!
//! A front end writes the name of the kernelspec that was chosen there into the notebook. Where
//! `nb` is not installed (a colleague, CI, papermill) a notebook that names `nb-shared` does not
//! run, so the real kernel's name, which its session keeps, is put back when `nb` is done with it.

use std::path::Path;

use super::notebook_file::{NotebookFile, NotebookFileError};
use super::transaction::{self, WriteError};
use crate::activity::participants::joined;
use crate::kernel::shell::quote;
use crate::kernel::spec;
use crate::notebook::{Document, KernelspecMetadata, NamedKernel, NotANotebook, with_kernelspec};
use crate::project::{Project, RealSpec, State, Status, registry};
use crate::task::causes::with_causes;

/// Why a notebook's file was left as it is.
#[derive(Debug, thiserror::Error)]
pub enum RenameError {
    /// It could not be found.
    #[error(transparent)]
    NotebookFile(#[from] NotebookFileError),
    /// It is not what a notebook is.
    #[error(transparent)]
    NotANotebook(#[from] NotANotebook),
    /// It could not be read or written.
    #[error(transparent)]
    Write(#[from] Box<WriteError<NotANotebook>>),
}

/// Puts the real kernel's name back into a notebook that names the shared one.
///
/// Returns what its user should know. What cannot be put back stops nothing. While a front end shows
/// the notebook its file is left alone: the editor would refuse the person's next save.
pub(crate) fn put_back(project: &Project, state: &State, key: &str) -> Option<String> {
    let notebook = project.notebook(key);
    let shared = match std::fs::read(&notebook) {
        Ok(text) => match NamedKernel::read(&text) {
            Ok(named) => named
                .kernelspec
                .is_some_and(|name| spec::is_shared_name(&name)),
            Err(error) => {
                return Some(format!(
                    "{key} was left as it is: {}",
                    with_causes(&RenameError::from(error))
                ));
            }
        },
        // The file was moved or never saved; nothing names anything.
        Err(_) => false,
    };
    if !shared {
        return None;
    }
    let real = state.session(key).and_then(|session| session.kernelspec);
    let Some(real) = real.filter(|spec| !spec.name.is_empty()) else {
        return Some(format!(
            "{key} names the kernelspec {} still: which real kernel it had is not known",
            spec::SHARED
        ));
    };
    let own = KernelspecMetadata {
        name: &real.name,
        display_name: &real.display_name,
        language: &real.language,
    };
    if is_shown(project, key) {
        return Some(format!(
            "{key} names the kernelspec {} while a front end shows it; once that is closed and the kernel shut down, the next edit by nb names {} again, or: nb fmt --write {}",
            spec::SHARED,
            real.name,
            quote(&notebook)
        ));
    }
    let page = NotebookFile::in_project(project, &notebook).map_err(RenameError::from);
    match page.and_then(|page| name(&page, &own)) {
        Ok(true) => Some(format!(
            "{key} names its own kernelspec {} again",
            real.name
        )),
        Ok(false) => None,
        Err(error) => Some(format!(
            "{key} names the kernelspec {} still: {}",
            spec::SHARED,
            with_causes(&error)
        )),
    }
}

/// Whether a front end shows a notebook.
fn is_shown(project: &Project, key: &str) -> bool {
    let mut joined = joined(project).into_iter();
    joined.any(|joined| joined.session.as_deref() == Some(key))
}

/// Puts the real kernel's name back after an edit, where that could not be done when the kernel was
/// shut down: a front end showed the notebook. Returns what the user should know.
pub(super) fn put_back_late(page: &NotebookFile, document: &Document) -> Option<String> {
    let name = document.metadata_string(&["kernelspec", "name"])?;
    if !spec::is_shared_name(&name) {
        return None;
    }
    let state = page.project.state().ok()?;
    let is_stopped = state.session(&page.key)?.status == Status::Stopped;
    match is_stopped && !is_shown(&page.project, &page.key) {
        true => put_back(&page.project, &state, &page.key),
        false => None,
    }
}

/// Puts the real kernels' names back in the notebooks of all the user's projects: the shared
/// kernelspec is no more. Returns what the user should know.
pub fn put_back_everywhere() -> Vec<String> {
    let projects = registry::known();
    let projects = projects.iter().filter_map(|known| known.project());
    let mut notes = Vec::new();
    for project in projects {
        let Ok(state) = project.state() else { continue };
        for key in state.sessions.keys() {
            let note = put_back(&project, &state, key);
            notes.extend(note.map(|note| format!("{}: {note}", project.root().display())));
        }
    }
    notes
}

/// Lets a notebook name the kernelspec that front ends share, so that JupyterLab starts it by
/// itself; says whether that changed the file. The session keeps the real one.
pub fn select(notebook: &Path, real: &RealSpec) -> Result<bool, RenameError> {
    let shared = KernelspecMetadata {
        name: &spec::shared_name(&real.language),
        display_name: &spec::shared_display_name(&real.language),
        language: &real.language,
    };
    name(&NotebookFile::of(notebook)?, &shared)
}

/// Names a kernelspec in a notebook's file; says whether that changed it.
fn name(page: &NotebookFile, named: &KernelspecMetadata<'_>) -> Result<bool, RenameError> {
    let written = transaction::write(page, false, |document| {
        match with_kernelspec(&document.to_bytes(), named)? {
            Some(text) => Document::parse(text).map(|mut named| {
                named.adopt_ids(document);
                named
            }),
            None => Ok(document.clone()),
        }
    });
    Ok(written.map_err(Box::new)?.wrote)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::editing::edit::{self, Editor};
    use crate::editing::write_policy::joined_here;
    use crate::notebook::Operation;
    use crate::project::Session;

    const SHARED: &str = r#"{"cells": [], "metadata": {"kernelspec": {"display_name": "nb shared kernel", "language": "python", "name": "nb-shared"}}, "nbformat": 4, "nbformat_minor": 5}"#;

    /// A project with a notebook whose kernel was shut down, and which names the shared kernelspec.
    fn desk() -> (tempfile::TempDir, NotebookFile) {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a.ipynb");
        std::fs::write(&path, SHARED).unwrap();
        let page = NotebookFile::of(&path).unwrap();
        let mut session = Session::local(path);
        session.status = Status::Stopped;
        let real =
            r#"{"name": "python3", "display_name": "Python 3", "language": "python", "argv": []}"#;
        session.kernelspec = serde_json::from_str(real).unwrap();
        let insert = |state: &mut State| state.sessions.insert(page.key.clone(), session);
        page.project.update(insert).unwrap();
        (temp, page)
    }

    fn join(page: &NotebookFile) {
        let joined = joined_here(page, "JupyterLab", Timestamp::now());
        page.project.write_joined(&joined).unwrap();
    }

    fn leave(page: &NotebookFile) {
        page.project.remove_joined(std::process::id()).unwrap();
    }

    fn text(page: &NotebookFile) -> String {
        std::fs::read_to_string(&page.real).unwrap()
    }

    #[test]
    fn the_file_is_left_alone_while_a_front_end_shows_it() {
        let (_temp, page) = desk();
        let state = page.project.state().unwrap();
        join(&page);
        let note = put_back(&page.project, &state, &page.key).unwrap();
        assert_eq!(text(&page), SHARED);
        assert!(note.contains("while a front end shows it"), "{note}");
        // The next `nb shutdown` or `nb unserve` after it has left.
        leave(&page);
        let note = put_back(&page.project, &state, &page.key).unwrap();
        assert!(
            note.ends_with("names its own kernelspec python3 again"),
            "{note}"
        );
        assert!(text(&page).contains("\"python3\""), "{}", text(&page));
    }

    #[test]
    fn the_next_edit_after_the_front_end_has_left_puts_the_name_back() {
        let (_temp, page) = desk();
        let editor = Editor {
            by: "ada".to_owned(),
            force: true,
            now: true,
            must_have_seen: false,
            tell: |_| {},
        };
        let insert = |source: &str| {
            let list = format!(r#"[{{"op": "insert", "source": "{source}"}}]"#);
            let operations = Operation::read_list(&list).unwrap();
            edit::apply(&page, &operations, &editor).unwrap().notes
        };
        join(&page);
        assert_eq!(insert("1"), Vec::<String>::new());
        assert!(text(&page).contains("\"nb-shared\""));
        leave(&page);
        let notes = insert("2");
        assert!(notes[0].ends_with("kernelspec python3 again"), "{notes:?}");
        assert!(!text(&page).contains("nb-shared"), "{}", text(&page));
        // Of a kernel that runs the name stays.
        let (_temp, page) = desk();
        let run = |state: &mut State| {
            let session = state.sessions.get_mut(&page.key);
            session.map(|session| session.status = Status::Live)
        };
        page.project.update(run).unwrap();
        let operations = Operation::read_list(r#"[{"op": "insert", "source": "1"}]"#).unwrap();
        edit::apply(&page, &operations, &editor).unwrap();
        assert!(text(&page).contains("\"nb-shared\""));
    }
}
