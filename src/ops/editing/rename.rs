//! Which kernelspec a notebook's file names: its real kernel's, or the one that front ends share.
//!
//! A front end writes the name of the kernelspec that was chosen there into the notebook. Where
//! `nb` is not installed (a colleague, CI, papermill) a notebook that names `nb-shared` does not
//! run, so the real kernel's name, which its session keeps, is put back when `nb` is done with it.

use std::path::Path;

use super::page::{Page, PageError};
use super::transaction::{self, WriteError};
use crate::kernel::spec;
use crate::notebook::{Document, Kernelspec, Named, NotANotebook, with_kernelspec};
use crate::ops::causes::with_causes;
use crate::ops::kernels::status::joined;
use crate::project::{Project, RealSpec, State, registry};

/// Why a notebook's file was left as it is.
#[derive(Debug, thiserror::Error)]
pub enum RenameError {
    /// It could not be found.
    #[error(transparent)]
    Page(#[from] PageError),
    /// It is not what a notebook is.
    #[error(transparent)]
    NotANotebook(#[from] NotANotebook),
    /// It could not be read or written.
    #[error(transparent)]
    Write(#[from] Box<WriteError<NotANotebook>>),
}

/// Puts the real kernel's name back into a notebook that names the shared one.
///
/// Returns what its user should know. What cannot be put back stops nothing.
pub(in crate::ops) fn put_back(project: &Project, state: &State, key: &str) -> Option<String> {
    let notebook = project.notebook(key);
    let shared = match std::fs::read(&notebook) {
        Ok(text) => match Named::read(&text) {
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
    let own = Kernelspec {
        name: &real.name,
        display_name: &real.display_name,
        language: &real.language,
    };
    let page = Page::in_project(project, &notebook).map_err(RenameError::from);
    match page.and_then(|page| name(&page, &own)) {
        Ok(true) => {
            let mut open = joined(project).into_iter();
            let open = open.any(|joined| joined.session.as_deref() == Some(key));
            let editor = if open {
                "; a front end that shows it sees that as a change on disk"
            } else {
                ""
            };
            Some(format!(
                "{key} names its own kernelspec {} again{editor}",
                real.name
            ))
        }
        Ok(false) => None,
        Err(error) => Some(format!(
            "{key} names the kernelspec {} still: {}",
            spec::SHARED,
            with_causes(&error)
        )),
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
    let shared = Kernelspec {
        name: &spec::shared_name(&real.language),
        display_name: &spec::shared_display_name(&real.language),
        language: &real.language,
    };
    name(&Page::of(notebook)?, &shared)
}

/// Names a kernelspec in a notebook's file; says whether that changed it.
fn name(page: &Page, named: &Kernelspec<'_>) -> Result<bool, RenameError> {
    let written = transaction::write(page, false, |document| {
        match with_kernelspec(&document.to_bytes(), named)? {
            Some(text) => Document::parse(text),
            None => Ok(document.clone()),
        }
    });
    Ok(written.map_err(Box::new)?.wrote)
}
