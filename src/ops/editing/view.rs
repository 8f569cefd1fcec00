//! A notebook as a command that only reads sees it, and shows it to a name.

use std::cell::RefCell;

use super::history::Recording;
use super::page::{Page, PageError};
use super::seen::Seen;
use crate::notebook::{Cell, Document};

/// A notebook, read; what others saved since `nb` knew it last is written down.
#[derive(Debug)]
pub struct View {
    /// The notebook.
    pub document: Document,
    seen: RefCell<Seen>,
}

/// Reads a notebook for a name.
///
/// # Errors
/// The file cannot be read, or is no notebook.
pub fn open(page: &Page, by: &str) -> Result<View, PageError> {
    Ok(View {
        document: read(page, by)?,
        seen: RefCell::new(Seen::of(page, by)),
    })
}

fn read(page: &Page, by: &str) -> Result<Document, PageError> {
    let document = page.read()?;
    let mut recording = Recording::look(page, by);
    if recording.knows(&document) {
        return Ok(document);
    }
    // A large one need not be in memory twice.
    drop(document);
    // It may be a command's own write that was not in the ledger yet: now it is.
    let document = page.read()?;
    recording.touch(&document);
    Ok(document)
}

impl View {
    /// Takes a cell for seen: its whole source is shown.
    pub fn shown(&self, cell: &Cell) {
        self.seen.borrow_mut().show(cell.id(), cell.revision());
    }

    /// Remembers what was shown. It fails no command.
    pub fn remember(&self) {
        self.seen.borrow_mut().remember(&self.document);
    }
}
