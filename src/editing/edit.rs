//! Edits of a notebook's cells by one name, each all or none.

use super::history::{self, Deed, Recording};
use super::notebook_file::{NotebookFile, NotebookFileError};
use super::rename;
use super::seen::Seen;
use super::transaction::{self, WriteError, Written};
use super::unsaved::{self, Unsaved};
use super::write_policy;
use crate::notebook::{
    Cell, CellChange, ChangeKind, Conflict, Document, Operation, OperationError, OperationFailure,
    Revision,
};
use crate::project;

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
    pub changes: Vec<CellChange>,
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
    NotebookFile(#[from] NotebookFileError),
    /// An operation cannot be done.
    #[error(transparent)]
    Operation(#[from] OperationFailure),
    /// Cells have changed since their writer saw them, or were never seen.
    #[error("{}", if conflicts.len() == 1 { "the cell is not what you saw last" } else { "these cells are not what you saw last" })]
    Unseen {
        /// What they are now.
        conflicts: Vec<Conflict>,
    },
    /// A person has typed in these cells, in VS Code, and not saved.
    #[error("VS Code has unsaved text of {} ({age})", if conflicts.len() == 1 { "the cell" } else { "these cells" })]
    Unsaved {
        /// What is unsaved, as `theirs`.
        conflicts: Vec<Conflict>,
        /// Since when, in words.
        age: String,
    },
    /// What was to be done cannot be done, for a reason of its own.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
    /// The notebook could not be written.
    #[error(transparent)]
    Write(Box<WriteError<EditError>>),
}

/// Does operations on a notebook, all or none.
///
/// # Errors
/// One cannot be done, cells are not what their writer saw, or the file cannot be written.
pub fn apply(
    page: &NotebookFile,
    operations: &[Operation],
    editor: &Editor,
) -> Result<Done, EditError> {
    let deed = Deed {
        op: name(operations).to_owned(),
        forced: editor.force,
        undoes: None,
    };
    let said: Vec<_> = operations.iter().filter_map(if_rev).collect();
    change(page, editor, &deed, &said, |document| {
        Ok(document.applied(operations, &mut project::fresh_id)?)
    })
}

/// Returns a notebook as it is, and as operations would leave it. Nothing is written.
///
/// # Errors
/// One cannot be done, or the notebook cannot be read.
pub fn would(
    page: &NotebookFile,
    operations: &[Operation],
) -> Result<(Document, Document), EditError> {
    let before = page.read()?;
    let (after, _) = before.applied(operations, &mut project::fresh_id)?;
    Ok((before, after))
}

/// Changes a notebook by `make`, all or nothing, and writes down what was done. `make` may be called
/// again, with what somebody saved in between. Cells of the revisions in `said` count as seen: the
/// writer has named them.
///
/// # Errors
/// `make` says so, cells are not what their writer saw, or the file cannot be written.
pub fn change(
    page: &NotebookFile,
    editor: &Editor,
    deed: &Deed,
    said: &[Revision],
    mut make: impl FnMut(&Document) -> Result<(Document, Vec<CellChange>), EditError>,
) -> Result<Done, EditError> {
    if !editor.now && write_policy::must_wait(page) {
        // What cannot be done is said before anything is waited for.
        make(&page.read()?)?;
        write_policy::wait_for_front_end(page, &editor.tell);
    }
    let unsaved = unsaved::look(page);
    let mut seen = Seen::of(page, &editor.by);
    let mut recording = Recording::edit(page, &editor.by);
    let (mut changes, mut meant) = (Vec::new(), None);
    let written = transaction::write(page, editor.force, |document| {
        recording.touch(document);
        let (after, changed) =
            make(document).inspect_err(|error| see_stale(error, document, &mut seen))?;
        // As it will be written: what is recorded of it is what undoes it.
        let mut movers = changed
            .iter()
            .filter(|change| change.what == ChangeKind::Moved);
        let mover = movers.next().map(|change| &*change.cell);
        let after = after.with_other_size(document, mover);
        if !editor.force {
            check_unsaved(page, document, &after, &unsaved, &mut seen)?;
        }
        if editor.must_have_seen && !editor.force {
            check_seen(page, document, &after, &changed, said, &mut seen)?;
        }
        recording.intend(document, &after, &changed, deed);
        changes = changed;
        meant = Some(after.clone());
        Ok(after)
    });
    let written = written.map_err(|error| match error {
        WriteError::Change(error) => error,
        WriteError::NotebookFile(error) => error.into(),
        error => EditError::Write(Box::new(error)),
    })?;
    let mut notes = written.notes.clone();
    if written.wrote {
        notes.extend(unsaved.note(page, &written.before, &editor.by));
    }
    // It was made, or there would be an error.
    let meant = meant.unwrap_or_else(|| written.after.clone());
    let op = recording.done(&written, &meant, &changes, deed);
    see_own(&mut seen, &changes, &meant, &written);
    if written.wrote {
        // After the recording: this is no edit of a cell.
        notes.extend(rename::put_back_late(page, &written.after));
    }
    Ok(Done {
        changes,
        conflicts: written.conflicts,
        document: written.after,
        op,
        notes,
    })
}

/// Refuses to change or delete cells in which somebody types; that shows the file's text too.
fn check_unsaved(
    page: &NotebookFile,
    document: &Document,
    after: &Document,
    unsaved: &Unsaved,
    seen: &mut Seen,
) -> Result<(), EditError> {
    let conflicts = unsaved.conflicts(page, document, after);
    if conflicts.is_empty() {
        return Ok(());
    }
    show(&conflicts, document, seen);
    let age = unsaved.age();
    Err(EditError::Unsaved { conflicts, age })
}

/// Refuses to change or delete cells that are not what the writer saw last; that shows them.
fn check_seen(
    page: &NotebookFile,
    document: &Document,
    after: &Document,
    changes: &[CellChange],
    said: &[Revision],
    seen: &mut Seen,
) -> Result<(), EditError> {
    let mut conflicts: Vec<Conflict> = Vec::new();
    for change in changes {
        let is_text = matches!(change.what, ChangeKind::Edited | ChangeKind::Removed);
        // A cell that the operations inserted themselves is not in it.
        let Some(cell) = find(document, &change.cell).filter(|_| is_text) else {
            continue;
        };
        let revision = cell.revision();
        let known = conflicts
            .iter()
            .any(|it| it.cell.as_ref() == Some(&change.cell));
        if known || seen.has(&change.cell, revision) || said.contains(&revision) {
            continue;
        }
        let last = seen.last(&change.cell);
        let yours = find(after, &change.cell).map(|cell| cell.source().into_owned());
        conflicts.push(Conflict {
            cell: Some(change.cell.clone()),
            field: if yours.is_some() { "source" } else { "deleted" }.to_owned(),
            base: last.and_then(|last| history::version_source(page, last)),
            yours,
            theirs: Some(cell.source().into_owned()),
            revision: Some(revision),
        });
    }
    if conflicts.is_empty() {
        return Ok(());
    }
    show(&conflicts, document, seen);
    Err(EditError::Unseen { conflicts })
}

/// A conflict shows the cell as it is in the file.
fn show(conflicts: &[Conflict], document: &Document, seen: &mut Seen) {
    for conflict in conflicts {
        if let (Some(cell), Some(revision)) = (&conflict.cell, conflict.revision) {
            seen.show(cell, revision);
        }
    }
    seen.remember(document);
}

/// A revision that does not hold is answered with the cell's text.
fn see_stale(error: &EditError, document: &Document, seen: &mut Seen) {
    let EditError::Operation(OperationFailure {
        source: OperationError::Stale { cell, actual, .. },
        ..
    }) = error
    else {
        return;
    };
    seen.show(cell, *actual);
    seen.remember(document);
}

/// Takes what the writer wrote for seen, and what conflicts show; not a cell into which a merge
/// brought somebody else's text.
fn see_own(seen: &mut Seen, changes: &[CellChange], meant: &Document, written: &Written) {
    for change in changes {
        let now = find(&written.after, &change.cell).map(Cell::revision);
        let then = find(meant, &change.cell).map(Cell::revision);
        if let Some(revision) = now.filter(|_| now == then) {
            seen.show(&change.cell, revision);
        }
    }
    for conflict in &written.conflicts {
        let cell = conflict
            .cell
            .as_deref()
            .and_then(|id| find(&written.after, id));
        if let Some(cell) = cell
            && conflict.theirs.as_deref() == Some(&*cell.source())
        {
            seen.show(cell.id(), cell.revision());
        }
    }
    seen.remember(&written.after);
}

fn find<'a>(document: &'a Document, id: &str) -> Option<&'a Cell> {
    document.cells().iter().find(|cell| cell.id() == id)
}

/// Returns the name of a list of operations in the journal.
fn name(operations: &[Operation]) -> &'static str {
    let mut names = operations.iter().map(|operation| match operation {
        Operation::Insert { .. } => "insert",
        Operation::Edit { .. } | Operation::Replace { .. } => "edit",
        Operation::Remove { .. } => "rm",
        Operation::Move { .. } => "move",
        Operation::Clear { .. } => "clear",
        Operation::Split { .. } => "split",
        Operation::Join { .. } => "join",
    });
    let first = names.next().unwrap_or("apply");
    if names.all(|name| name == first) {
        first
    } else {
        "apply"
    }
}

fn if_rev(operation: &Operation) -> Option<Revision> {
    match operation {
        Operation::Edit { if_rev, .. }
        | Operation::Replace { if_rev, .. }
        | Operation::Remove { if_rev, .. }
        | Operation::Split { if_rev, .. } => *if_rev,
        _ => None,
    }
}
