//! Edits of a notebook's cells by one name, each all or none.

use super::manners;
use super::page::{Page, PageError};
use super::transaction::{self, WriteError};
use super::unsaved;
use crate::notebook::{Changed, Conflict, Document, NotApplied, Operation};

/// Who edits, and how.
#[derive(Clone, Debug)]
pub struct Editor {
    /// The name that it is done under.
    pub by: String,
    /// The last writer wins: nothing is checked, and others' edits of the same lines give way.
    pub force: bool,
    /// A front end's running cell is not waited for.
    pub now: bool,
    /// Whether a cell must have been seen before it is changed: not for a human at a terminal.
    pub must_have_seen: bool,
    /// Is told what is waited for, as it happens.
    pub tell: fn(&str),
}

/// What came of an edit.
#[derive(Clone, Debug)]
pub struct Done {
    /// What was done to which cells.
    pub changes: Vec<Changed>,
    /// What did not go into the file, as somebody else saved the same lines in between.
    pub conflicts: Vec<Conflict>,
    /// The notebook as it is now.
    pub document: Document,
    /// The name by which `nb undo` knows it; none where nothing was changed.
    pub op: Option<String>,
    /// What its writer should know, one line each.
    pub notes: Vec<String>,
}

/// Why an edit was not made; the notebook is as it was.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The notebook could not be read.
    #[error(transparent)]
    Page(#[from] PageError),
    /// An operation cannot be done.
    #[error(transparent)]
    Operation(#[from] NotApplied),
    /// Cells have changed since their writer saw them, or were never seen.
    #[error("{}", if conflicts.len() == 1 { "the cell is not what you saw last" } else { "these cells are not what you saw last" })]
    Unseen {
        /// What they are now.
        conflicts: Vec<Conflict>,
    },
    /// A person has typed in these cells, in VS Code, and not saved.
    #[error("VS Code has unsaved text of {}", if conflicts.len() == 1 { "the cell" } else { "these cells" })]
    Unsaved {
        /// What is unsaved, as `theirs`.
        conflicts: Vec<Conflict>,
    },
    /// The notebook could not be written.
    #[error(transparent)]
    Write(Box<WriteError<EditError>>),
}

/// Does operations on a notebook, all or none.
///
/// # Errors
/// One cannot be done, cells are not what their writer saw, or the file cannot be written.
pub fn apply(page: &Page, operations: &[Operation], editor: &Editor) -> Result<Done, EditError> {
    manners::wait_for_front_end(page, editor.now, &editor.tell);
    let unsaved = unsaved::look(page);
    let mut changes = Vec::new();
    let written = transaction::write(page, editor.force, |document| {
        let (after, changed) = document.applied(operations, &mut fresh_id)?;
        let conflicts = unsaved.conflicts(page, document, &after);
        if !conflicts.is_empty() && !editor.force {
            return Err(EditError::Unsaved { conflicts });
        }
        changes = changed;
        Ok(after)
    });
    let written = written.map_err(|error| match error {
        WriteError::Change(error) => error,
        WriteError::Page(error) => error.into(),
        error => EditError::Write(Box::new(error)),
    })?;
    let notes = match written.wrote {
        true => unsaved.note(page, &written.before, &editor.by),
        false => None,
    };
    Ok(Done {
        changes,
        conflicts: written.conflicts,
        document: written.after,
        op: None,
        notes: notes.into_iter().collect(),
    })
}

/// Returns an id as Jupyter makes them: eight random hexadecimal digits.
fn fresh_id() -> String {
    let id = uuid::Uuid::new_v4().simple().to_string();
    id.chars().take(8).collect()
}
