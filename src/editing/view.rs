//! A notebook as a command that only reads sees it, and shows it to a name.

use std::cell::RefCell;

use super::history::{self, Recording};
use super::notebook_file::{NotebookFile, NotebookFileError};
use super::seen::Seen;
use crate::notebook::{Cell, Document, Revision};

/// A notebook, read; what others saved since `nb` knew it last is written down.
#[derive(Debug)]
pub struct View<'a> {
    /// The notebook.
    pub document: Document,
    page: &'a NotebookFile,
    by: &'a str,
    shown: RefCell<Vec<(String, Revision)>>,
}

/// Reads a notebook for a name.
///
/// # Errors
/// The file cannot be read, or is no notebook.
pub fn open<'a>(page: &'a NotebookFile, by: &'a str) -> Result<View<'a>, NotebookFileError> {
    Ok(View {
        document: read(page, by)?,
        page,
        by,
        shown: RefCell::default(),
    })
}

fn read(page: &NotebookFile, by: &str) -> Result<Document, NotebookFileError> {
    let document = page.read()?;
    if history::is_known(page, &document) {
        return Ok(document);
    }
    // A large one need not be in memory twice.
    drop(document);
    let mut recording = Recording::look(page, by);
    // It may be a command's own write that was not in the ledger yet: now it is.
    let document = page.read()?;
    recording.touch(&document);
    Ok(document)
}

impl View<'_> {
    /// Takes a cell for seen: its whole source is shown.
    pub fn shown(&self, cell: &Cell) {
        let shown = (cell.id().to_owned(), cell.revision());
        self.shown.borrow_mut().push(shown);
    }

    /// Remembers what was shown. It fails no command.
    pub fn remember(&self) {
        let shown = self.shown.take();
        // Whoever is shown no whole cell does not pay for reading what was seen before.
        if shown.is_empty() {
            return;
        }
        let mut seen = Seen::of(self.page, self.by);
        for (cell, revision) in &shown {
            seen.show(cell, *revision);
        }
        seen.remember(&self.document);
    }
}
