//! A notebook that a command only reads, and the cells that it shows to an actor.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::history::{self, Recording};
use super::notebook_file::{NotebookFile, NotebookFileError};
use super::seen::SeenCells;
use crate::notebook::{Cell, Document, Revision};

/// A notebook that was read. The saves of other programs are recorded.
#[derive(Debug)]
pub struct View<'a> {
    /// The notebook.
    pub document: Document,
    notebook: &'a NotebookFile,
    by: &'a str,
    shown: RefCell<Vec<(String, Revision)>>,
}

/// Reads a notebook for an actor.
///
/// # Errors
/// The file cannot be read, or is not a notebook.
pub fn open<'a>(notebook: &'a NotebookFile, by: &'a str) -> Result<View<'a>, NotebookFileError> {
    let mut document = notebook.read()?;
    if !history::is_known(notebook, &document) {
        // A large notebook should not be in memory twice.
        drop(document);
        let mut recording = Recording::read(notebook, by);
        // Another command may have written the file but not yet the ledger.
        document = notebook.read()?;
        recording.touch(&document);
    }
    Ok(View {
        document,
        notebook,
        by,
        shown: RefCell::default(),
    })
}

impl View<'_> {
    /// Marks a cell as seen: its whole source is shown.
    pub fn shown(&self, cell: &Cell) {
        let shown = (cell.id().to_owned(), cell.revision());
        self.shown.borrow_mut().push(shown);
    }

    /// Returns the cells that were shown.
    pub fn into_shown(self) -> ShownCells {
        ShownCells {
            notebook: self.notebook.clone(),
            by: self.by.to_owned(),
            cells: self.shown.into_inner(),
        }
    }
}

/// Cells that were shown to an actor: once they are printed, the actor has seen them.
#[derive(Debug)]
pub struct ShownCells {
    pub(super) notebook: NotebookFile,
    pub(super) by: String,
    pub(super) cells: Vec<(String, Revision)>,
}

impl ShownCells {
    /// Stores that the actor has seen them. A failure is only logged.
    pub fn remember(self) {
        if self.cells.is_empty() {
            return;
        }
        let mut seen = SeenCells::of(&self.notebook, &self.by);
        for (cell, revision) in &self.cells {
            seen.show(cell, *revision);
        }
        seen.remember();
    }
}

/// Cells on their way to an actor. Clones are the same cells.
#[derive(Clone, Debug, Default)]
pub struct PendingCells(Arc<Mutex<Vec<ShownCells>>>);

impl PendingCells {
    /// Adds cells that the answer shows.
    pub fn add(&self, shown: ShownCells) {
        self.lock().push(shown);
    }

    /// Stores that the actor has seen them: the answer is printed.
    pub fn delivered(&self) {
        let all = std::mem::take(&mut *self.lock());
        all.into_iter().for_each(ShownCells::remember);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ShownCells>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
