//! Recognises the cells of a notebook whose kernel runs in a sandbox or container under another name or in another
//! folder: another program has moved or copied it, or has deleted `.nb`.

use std::collections::HashSet;
use std::path::Path;

use crate::editing::history::steps;
use crate::editing::notebook_file::{NotebookFile, NotebookFileError};
use crate::kernel::confine::sandbox::SandboxError;
use crate::notebook::{Cell, Document, Revision};
use crate::project::confined::{self, ConfinedNotebook};
use crate::project::{Project, Session};

/// Records that a notebook's kernel runs in its sandbox or container, with the present cells; forgets it where the user
/// has said that it runs in none.
pub(super) fn remember(project: &Project, key: &str, session: &Session) {
    if session.settings.unconfined {
        return project.forget_confined(key);
    }
    let confinement = session.confinement();
    if confinement.is_none() {
        return;
    }
    let Some(document) = read(&project.notebook(key)) else {
        return;
    };
    let is_container = confinement.container().is_some();
    let cells = steps::manifest(&document);
    if let Err(error) = project.remember_confined(key, is_container, &cells) {
        tracing::warn!(%error, "the sandbox of the kernel of {key} cannot be recorded");
    }
}

/// Records the present cells of a notebook whose kernel ran in a sandbox or container.
pub(super) fn update(project: &Project, key: &str, session: &Session) {
    if !session.confinement().is_none()
        && let Some(document) = read(&project.notebook(key))
    {
        project.update_confined(key, &steps::manifest(&document));
    }
}

/// Returns the error that a notebook has most of the cells of one whose kernel runs in a sandbox or container. A notebook
/// that had a kernel outside before may have the cells of another that still exists: the other is the copy.
///
/// # Errors
/// The notebook cannot be read.
pub(super) fn check(
    project: &Project,
    key: &str,
    notebook: &Path,
    before: Option<&Session>,
) -> Result<Option<SandboxError>, NotebookFileError> {
    let known = confined::known();
    if known.is_empty() {
        return Ok(None);
    }
    let document = match NotebookFile::of(notebook).and_then(|file| file.read()) {
        Ok(document) => document,
        Err(NotebookFileError::Missing { .. } | NotebookFileError::Empty { .. }) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let cells = Cells::of(&document);
    for other in known.iter().filter(|other| cells.are_of(other)) {
        let is_gone = || !still_there(other);
        let place = match other.is_container {
            true => "a container",
            false => "a sandbox",
        };
        let of = other.notebook.display();
        let why = if other.is_of(project, key) {
            format!("it ran in {place}, which .nb does not say any more")
        } else if is_gone() {
            format!("its cells are those of {of}, which does not exist any more and ran in {place}")
        } else if before.is_none() {
            format!("its cells are those of {of}, which runs in {place}")
        } else {
            continue;
        };
        return Ok(Some(SandboxError::Left {
            notebook: notebook.to_owned(),
            why,
            is_container: other.is_container,
        }));
    }
    Ok(None)
}

/// The cells of a document: the ids that are in the file, and the revisions of cells without one.
struct Cells<'a> {
    ids: HashSet<&'a str>,
    revisions: HashSet<Revision>,
}

impl<'a> Cells<'a> {
    fn of(document: &'a Document) -> Self {
        let cells = document.cells();
        let (named, unnamed): (Vec<_>, Vec<_>) = cells.iter().partition(|cell| cell.has_own_id());
        Self {
            ids: named.into_iter().map(Cell::id).collect(),
            revisions: unnamed.into_iter().map(Cell::revision).collect(),
        }
    }

    /// Returns whether most cells of a recorded notebook are among them. Cells that were edited count: their ids have
    /// stayed.
    fn are_of(&self, other: &ConfinedNotebook) -> bool {
        let same = other.cells.iter().filter(|(id, revision)| {
            self.ids.contains(id.as_str()) || self.revisions.contains(revision)
        });
        same.count() * 2 > other.cells.len()
    }
}

/// Returns whether a recorded notebook is where it was.
fn still_there(other: &ConfinedNotebook) -> bool {
    let is_file = std::fs::metadata(&other.notebook).is_ok_and(|found| found.is_file());
    let text = is_file.then(|| std::fs::read_to_string(&other.notebook).ok());
    let document = text.flatten().and_then(|text| Document::parse(text).ok());
    document.is_some_and(|document| Cells::of(&document).are_of(other))
}

fn read(notebook: &Path) -> Option<Document> {
    NotebookFile::of(notebook).and_then(|file| file.read()).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(minor: u32, cells: &[(&str, &str)]) -> Document {
        let cells = cells.iter().map(|(id, source)| {
            let mut cell = json!({
                "cell_type": "code", "metadata": {}, "source": source, "outputs": [], "execution_count": null,
            });
            if minor >= 5 {
                cell["id"] = (*id).into();
            }
            cell
        });
        let notebook = json!({
            "nbformat": 4, "nbformat_minor": minor, "metadata": {}, "cells": cells.collect::<Vec<_>>(),
        });
        Document::parse(notebook.to_string()).unwrap()
    }

    fn has_cells_of(document: &Document, other: &ConfinedNotebook) -> bool {
        Cells::of(document).are_of(other)
    }

    fn recorded(document: &Document) -> ConfinedNotebook {
        ConfinedNotebook {
            notebook: "/p/a.ipynb".into(),
            state_file: "/p/.nb/state.json".into(),
            key: "a.ipynb".to_owned(),
            is_container: false,
            cells: steps::manifest(document),
            other: serde_json::Map::new(),
        }
    }

    #[test]
    fn most_cells_of_a_notebook_are_recognised_also_after_they_were_edited() {
        let cells = [
            ("aaaaaaaa", "x = 1"),
            ("bbbbbbbb", "y = 2"),
            ("cccccccc", "z = 3"),
        ];
        let other = recorded(&document(5, &cells));
        let has = |cells: &[(&str, &str)]| has_cells_of(&document(5, cells), &other);
        assert!(has(&cells));
        assert!(has(&[
            ("new", "w = 0"),
            ("cccccccc", "z = 30"),
            ("aaaaaaaa", "")
        ]));
        assert!(!has(&[("cccccccc", "z = 3"), ("new", "w = 0")]));
        assert!(
            !has(&[("d", "x = 1"), ("e", "y = 2"), ("f", "z = 3")]),
            "only equal text"
        );
        assert!(!has(&[]));
        assert!(!has_cells_of(
            &document(5, &cells),
            &recorded(&document(5, &[]))
        ));
        // In an older format cells have no ids.
        let other = recorded(&document(4, &cells));
        assert!(has_cells_of(&document(4, &cells[1..]), &other));
        assert!(!has_cells_of(
            &document(4, &[("", "x = 1"), ("", "w = 0")]),
            &other
        ));
    }
}
