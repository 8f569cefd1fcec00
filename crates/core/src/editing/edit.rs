//! Edits of a notebook's cells by one actor. Each edit is made as a whole or not at all.

use super::conflict_summary::{ConflictSide, summaries};
use super::editor_back_off;
use super::history::{self, EditCommand, Recording};
use super::named_kernelspec;
use super::notebook_file::{NotebookFile, NotebookFileError};
use super::seen::SeenCells;
use super::transaction::{self, SizeRule, Sizes, TransactionResult, WriteError, WriteMode};
use super::unsaved::{self, Unsaved};
use super::unseen::{EditBasis, PendingEdit, TextBasis, UnseenEdits};
use super::view::{PendingCells, ShownCells};
use crate::activity::notification::PendingNotices;
use crate::hint;
use crate::hint::{Hint, Verb, nb};
use crate::notebook::{
    Cell, CellChange, CellSelector, ChangeKind, Conflict, Document, Operation, OperationError,
    OperationFailure, Replacement, Revision, merge_keeping_both, merge_texts,
};
use crate::project;

/// The actor of an edit, and the checks that are made.
#[derive(Clone, Debug)]
pub struct Editor {
    /// The actor.
    pub by: String,
    /// Whether the last writer wins: nothing is checked, and others' edits of the same lines are lost.
    pub force: bool,
    /// Whether to write while a front end's cell runs.
    pub now: bool,
    /// Whether the actor must have seen a cell before it changes it; false for a human at a
    /// terminal.
    pub must_have_seen: bool,
    /// Is called with what the edit waits for, while it waits.
    pub progress: fn(&str),
    /// Collects the edit's notes that an actor gets only once.
    pub notices: PendingNotices,
    /// Gets the cells that a conflict shows.
    pub shown: PendingCells,
    /// Whether a conflict is delivered with the whole text of its cells, not only with some changed lines.
    pub shows_whole: bool,
}

/// The result of an edit.
#[derive(Clone, Debug)]
pub struct EditOutcome {
    /// The changes of cells.
    pub changes: Vec<CellChange>,
    /// The changes that are not in the file: another program saved the same lines in between.
    pub conflicts: Vec<Conflict>,
    /// The notebook as it is now.
    pub document: Document,
    /// The name by which `nb undo` knows the edit; none where nothing was changed.
    pub op: Option<String>,
    /// Notes for the actor, one line each.
    pub notes: Vec<Hint>,
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
    /// Cells have changed since the actor saw them, or the actor never saw them.
    #[error("{}", unseen_reason(conflicts))]
    Unseen {
        /// The cells as they are now.
        conflicts: Vec<Conflict>,
    },
    /// An editor has unsaved text of these cells.
    #[error("{editor} has unsaved text of {} ({age})", if conflicts.len() == 1 { "the cell" } else { "these cells" })]
    Unsaved {
        /// The editor's name.
        editor: String,
        /// The unsaved text, as `theirs`.
        conflicts: Vec<Conflict>,
        /// When it was typed, for a reader.
        age: String,
    },
    /// The caller's own reason why the edit cannot be made.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
    /// The notebook could not be written.
    #[error(transparent)]
    Write(Box<WriteError<EditError>>),
}

/// Says why the conflicts are conflicts: an actor that has seen no earlier text cannot know what was changed.
fn unseen_reason(conflicts: &[Conflict]) -> &'static str {
    let has_seen = conflicts.iter().any(|conflict| conflict.base.is_some());
    match (has_seen, conflicts.len()) {
        (true, 1) => "others have changed the cell since you saw it",
        (true, _) => "others have changed these cells since you saw them",
        (false, 1) => "you have not seen the cell as it is now",
        (false, _) => "you have not seen these cells as they are now",
    }
}

/// Applies all operations to a notebook, or none.
///
/// # Errors
/// An operation cannot be done, cells are not what the actor saw, or the file cannot be written.
pub fn apply(
    notebook: &NotebookFile,
    operations: &[Operation],
    editor: &Editor,
) -> Result<EditOutcome, EditError> {
    let command = EditCommand {
        name: name(operations).to_owned(),
        forced: editor.force,
        undoes: None,
    };
    let quotes_text = |operation: &Operation| match operation {
        Operation::Insert { .. }
        | Operation::Replace { .. }
        | Operation::Append { .. }
        | Operation::Move { .. }
        | Operation::Clear { .. } => true,
        Operation::Edit { source, .. } => source.is_none(),
        _ => false,
    };
    // These are made from the file's text, at a line or in an order that the actor may not know.
    let rearranges = operations
        .iter()
        .any(|it| matches!(it, Operation::Split { .. } | Operation::Join { .. }));
    let basis = EditBasis {
        revisions: operations.iter().filter_map(if_rev).collect(),
        text: match operations.iter().all(quotes_text) {
            true => TextBasis::Quoted,
            false if rearranges => TextBasis::Other,
            false => TextBasis::Seen,
        },
    };
    change(notebook, editor, &command, &basis, |document| {
        Ok(document.applied(operations, &mut project::fresh_id)?)
    })
}

/// Replaces a pattern in the sources of cells, in all of them or in none. Returns how many matches there were.
///
/// # Errors
/// A cell was not found, an editor has unsaved text in a changed cell, or the file cannot be written.
pub fn replace(
    notebook: &NotebookFile,
    cells: &[CellSelector],
    replacement: &Replacement,
    editor: &Editor,
) -> Result<(EditOutcome, usize), EditError> {
    let command = EditCommand {
        name: "replace".to_owned(),
        forced: editor.force,
        undoes: None,
    };
    let basis = EditBasis {
        revisions: Vec::new(),
        text: TextBasis::Quoted,
    };
    let mut count = 0;
    let done = change(notebook, editor, &command, &basis, |document| {
        let replaced = document.replaced(cells, replacement);
        let (after, changes, found) =
            replaced.map_err(|source| OperationFailure { number: 0, source })?;
        count = found;
        Ok((after, changes))
    })?;
    Ok((done, count))
}

/// A source that a person has written from an earlier one.
#[derive(Clone, Debug)]
pub struct Rewrite {
    /// The cell.
    pub cell: CellSelector,
    /// The cell's revision when the new source was begun. If it still has that one, the source is taken as it is.
    pub revision: Option<Revision>,
    /// The source that the new one was written from.
    pub base: String,
    /// The new source.
    pub source: String,
    /// Whether both texts are kept where others have changed the same lines: the new one first.
    pub keeps_both: bool,
}

impl Rewrite {
    /// Returns the source that the cell gets: the new one, with the lines that others have changed since.
    fn merged(&self, cell: &Cell) -> Result<String, EditError> {
        if self.revision == Some(cell.revision()) {
            return Ok(self.source.clone());
        }
        let theirs = cell.source();
        if let Some(merged) = merge_texts(&self.base, &theirs, &self.source) {
            return Ok(merged);
        }
        if self.keeps_both {
            return Ok(merge_keeping_both(&self.base, &self.source, &theirs));
        }
        let conflict = Conflict {
            cell: Some(cell.id().to_owned()),
            field: "source".to_owned(),
            base: Some(self.base.clone()),
            yours: Some(self.source.clone()),
            theirs: Some(theirs.into_owned()),
            revision: Some(cell.revision()),
        };
        Err(EditError::Unseen {
            conflicts: vec![conflict],
        })
    }
}

/// Writes a person's text of a cell, merged by lines with what others have written since.
///
/// # Errors
/// The cell was not found, others have changed the same lines, an editor has unsaved text in the cell, or the file cannot
/// be written.
pub fn rewrite(
    notebook: &NotebookFile,
    rewrite: &Rewrite,
    editor: &Editor,
) -> Result<EditOutcome, EditError> {
    let command = EditCommand {
        name: "edit".to_owned(),
        forced: editor.force,
        undoes: None,
    };
    let basis = EditBasis {
        revisions: Vec::new(),
        text: TextBasis::Quoted,
    };
    let failed = |source| OperationFailure { number: 0, source };
    change(notebook, editor, &command, &basis, |document| {
        let at = document.find(&rewrite.cell);
        let at = at.map_err(|error| failed(error.into()))?;
        let mut after = document.clone();
        let Some(cell) = document.cells().get(at) else {
            return Ok((after, Vec::new()));
        };
        let change = after.set_source(at, &rewrite.merged(cell)?);
        let change = change.map_err(|error| failed(error.into()))?;
        Ok((after, vec![change]))
    })
}

/// Returns a notebook as it is and as the operations would change it. Nothing is written.
///
/// # Errors
/// An operation cannot be done, or the notebook cannot be read.
pub fn preview(
    notebook: &NotebookFile,
    operations: &[Operation],
) -> Result<(Document, Document), EditError> {
    let before = notebook.read()?;
    let (after, _) = before.applied(operations, &mut project::fresh_id)?;
    Ok((before, after))
}

/// Changes a notebook by `make`, as a whole or not at all, and records the edit. `make` may be called
/// again with a notebook that another program saved in the meantime. Others' changes of the same cells since
/// the actor saw them are merged if `basis` allows it.
///
/// # Errors
/// `make` fails, cells are not what the actor saw, or the file cannot be written.
pub fn change(
    notebook: &NotebookFile,
    editor: &Editor,
    command: &EditCommand,
    basis: &EditBasis,
    mut make: impl FnMut(&Document) -> Result<(Document, Vec<CellChange>), EditError>,
) -> Result<EditOutcome, EditError> {
    if !editor.now && editor_back_off::must_wait(notebook) {
        // An edit that cannot be made fails before it waits.
        make(&notebook.read()?).map_err(|error| explain_stale(error, notebook, editor))?;
        editor_back_off::wait_for_front_end(notebook, &editor.progress);
    }
    let unsaved = unsaved::find(notebook);
    let mut seen = SeenCells::of(notebook, &editor.by);
    let mut recording = Recording::edit(notebook, &editor.by, command);
    let (mut changes, mut intended) = (Vec::new(), None);
    let mut unseen = UnseenEdits::default();
    let rule = match (&*command.name, &command.undoes) {
        ("fmt", _) => SizeRule::Any,
        (_, Some(_)) => SizeRule::NewOrSameText,
        (_, None) => SizeRule::New,
    };
    let write_change = |document: &Document, sizes: &Sizes| {
        recording.touch(document);
        let (mut after, changed) =
            make(document).map_err(|error| explain_stale(error, notebook, editor))?;
        if !editor.force {
            check_unsaved(notebook, document, &after, &unsaved, editor)?;
        }
        if editor.must_have_seen && !editor.force {
            let edit = PendingEdit {
                notebook,
                by: &editor.by,
                document,
                is_recorded: recording.has_all(document),
                changes: &changed,
                basis,
                seen: &seen,
            };
            unseen = edit.merge_unseen(&mut after).map_err(|conflicts| {
                editor.show_conflicts(notebook, &conflicts);
                EditError::Unseen { conflicts }
            })?;
        }
        // `after` gets the bytes that will be written, since the undo needs exactly these.
        let mut movers = changed
            .iter()
            .filter(|change| change.kind == ChangeKind::Moved);
        let mover = movers.next().map(|change| &*change.cell);
        let after = sizes.fit(rule, after, document, mover);
        recording.intend(document, &after, &changed);
        changes = changed;
        intended = Some(after.clone());
        Ok(after)
    };
    let mode = WriteMode {
        by: &editor.by,
        force: editor.force || rule == SizeRule::Any,
        in_room: command.forced,
        size: rule,
    };
    let written = transaction::write_with(notebook, mode, write_change);
    let written = written.map_err(|error| match error {
        WriteError::Change(error) => error,
        WriteError::NotebookFile(error) => error.into(),
        error => EditError::Write(Box::new(error)),
    })?;
    let notes = written.notes.iter().cloned();
    let mut notes: Vec<_> = notes.map(Hint::from).collect();
    if written.wrote {
        let note = unsaved.note(notebook, &written.before, &editor.by);
        notes.extend(note.map(|note| {
            let notice = note.notice.into_iter();
            notice.for_each(|notice| editor.notices.add(&notebook.project, notice));
            Hint::from(note.text)
        }));
    }
    // Without a call of `make` there would have been an error.
    let intended = intended.unwrap_or_else(|| written.after.clone());
    let op = recording.done(&written, &intended, &changes);
    notes.extend(unseen.merged.iter().map(|(cell, _)| {
        let text = format!("{cell}: lines that others changed since you saw it are kept: ");
        hint![text, nb(Verb::Cell).word(&**cell)]
    }));
    remember_own(&mut seen, &changes, &intended, &written, &unseen);
    show_merged(notebook, &written, editor);
    if written.wrote {
        // After the recording, since this does not edit a cell.
        let restored = named_kernelspec::restore_late(notebook, &written.after);
        notes.extend(restored.map(Hint::from));
    }
    Ok(EditOutcome {
        changes,
        conflicts: written.conflicts,
        document: written.after,
        op,
        notes,
    })
}

/// Fails if cells that are to be changed or deleted have unsaved text in VS Code; the error shows the file's
/// text too.
fn check_unsaved(
    notebook: &NotebookFile,
    document: &Document,
    after: &Document,
    unsaved: &Unsaved,
    editor: &Editor,
) -> Result<(), EditError> {
    let conflicts = unsaved.conflicts(notebook, document, after, &editor.by);
    if conflicts.is_empty() {
        return Ok(());
    }
    editor.show_conflicts(notebook, &conflicts);
    Err(EditError::Unsaved {
        conflicts,
        editor: unsaved.editor(),
        age: unsaved.age(),
    })
}

/// Adds what has changed to the error about a cell whose revision is not the given one.
fn explain_stale(mut error: EditError, notebook: &NotebookFile, editor: &Editor) -> EditError {
    if let EditError::Operation(OperationFailure {
        source: OperationError::Stale {
            expected, conflict, ..
        },
        ..
    }) = &mut error
    {
        conflict.base = history::version_source(notebook, *expected);
        editor.show_conflicts(notebook, std::slice::from_ref(conflict));
    }
    error
}

impl Editor {
    /// Shows the actor the cells of conflicts, as they are in the file.
    pub(super) fn show_conflicts(&self, notebook: &NotebookFile, conflicts: &[Conflict]) {
        // Only what is shown whole has been seen.
        let shown = conflicts
            .iter()
            .zip(summaries(conflicts, ConflictSide::Theirs));
        let shown = shown.filter(|(_, summary)| self.shows_whole || summary.left_out == 0);
        let cells = shown.filter_map(|(it, _)| Some((it.cell.clone()?, it.revision?)));
        self.show(notebook, cells.collect());
    }

    fn show(&self, notebook: &NotebookFile, cells: Vec<(String, Revision)>) {
        self.shown.add(ShownCells {
            notebook: notebook.clone(),
            by: self.by.clone(),
            cells,
        });
    }
}

/// Marks as seen what the actor wrote, except cells into which a merge brought another program's text.
fn remember_own(
    seen: &mut SeenCells,
    changes: &[CellChange],
    intended: &Document,
    written: &TransactionResult,
    unseen: &UnseenEdits,
) {
    let is_own = |change: &&CellChange| {
        matches!(change.kind, ChangeKind::Inserted | ChangeKind::Edited)
            && !unseen.cells.contains(&change.cell)
    };
    for change in changes.iter().filter(is_own) {
        let revision = |document: &Document| document.cell_by_id(&change.cell).map(Cell::revision);
        let now = revision(&written.after);
        if let Some(revision) = now.filter(|_| now == revision(intended)) {
            seen.show(&change.cell, revision);
        }
    }
    for (cell, yours) in &unseen.merged {
        seen.show(cell, *yours);
    }
    seen.remember();
}

/// Shows the actor the cells whose source stays as another program saved it.
fn show_merged(notebook: &NotebookFile, written: &TransactionResult, editor: &Editor) {
    let shown = summaries(&written.conflicts, ConflictSide::Theirs);
    let cells = written.conflicts.iter().zip(shown);
    let cells = cells.filter_map(|(conflict, summary)| {
        let cell = written.after.cell_by_id(conflict.cell.as_deref()?)?;
        let is_whole = conflict.theirs.as_deref() == Some(&*cell.source());
        let is_shown = editor.shows_whole || summary.left_out == 0;
        (is_whole && is_shown).then(|| (cell.id().to_owned(), cell.revision()))
    });
    editor.show(notebook, cells.collect());
}

/// Returns the command that a list of operations counts as in the journal.
fn name(operations: &[Operation]) -> &'static str {
    let mut names = operations.iter().map(|operation| match operation {
        Operation::Insert { .. } => "insert",
        Operation::Edit { .. } | Operation::Replace { .. } | Operation::Append { .. } => "edit",
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

/// Returns the revision that an operation expects its cell to have.
pub fn if_rev(operation: &Operation) -> Option<Revision> {
    match operation {
        Operation::Edit { if_rev, .. }
        | Operation::Replace { if_rev, .. }
        | Operation::Append { if_rev, .. }
        | Operation::Remove { if_rev, .. }
        | Operation::Move { if_rev, .. }
        | Operation::Split { if_rev, .. } => *if_rev,
        _ => None,
    }
}
