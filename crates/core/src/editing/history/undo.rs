//! Undoes an operation.

use std::collections::HashMap;

use jiff::Timestamp;
use serde::Serialize;

use super::keep;
use super::past::manifest_at;
use super::record::EditCommand;
use super::steps;
use super::versions::{RecordedChange, events, json_of, last_events};
use crate::activity::actor::Actor;
use crate::editing::edit::{self, EditError, EditOutcome, Editor};
use crate::editing::notebook_file::{NotebookFile, NotebookFileError};
use crate::editing::unseen::EditBasis;
use crate::editing::view;
use crate::notebook::{
    self, ChangeKind, Conflict, Document, OperationUndo, OperationUndoError, RememberedCell,
    TouchedCell,
};
use crate::project::event::{CellStep, NotebookChange};

/// The number of operations in an error message.
const MOST_NEAR: usize = 5;

/// The fewest characters that are accepted as the beginning of an operation's name.
const PREFIX_CHARS_MIN: usize = 3;

/// An operation in the journal, for a reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OperationEntry {
    /// The operation's name.
    pub op: String,
    /// The command that made it.
    pub command: String,
    /// The actor.
    pub by: Option<String>,
    /// When.
    pub at: Timestamp,
    /// The ids of the cells that it changed.
    pub cells: Vec<String>,
}

/// The result of an undo.
#[derive(Debug)]
pub struct Undone {
    /// The operation that was undone.
    pub op: OperationEntry,
    /// The ids of cells that also contain others' later changes, so that no actor has seen them as
    /// they are now.
    pub merged: Vec<String>,
    /// The edit that undid it.
    pub done: EditOutcome,
}

/// Why nothing was undone; the notebook is as it was.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The notebook could not be read.
    #[error(transparent)]
    NotebookFile(#[from] NotebookFileError),
    /// The actor has made no operation that can be undone.
    #[error("{by} did nothing in this notebook that is left to take back")]
    Nothing {
        /// The actor.
        by: String,
        /// The last undo by this actor, which can be undone itself.
        undo: Option<Box<OperationEntry>>,
        /// The last operations of others.
        others: Vec<OperationEntry>,
    },
    /// No operation has that name.
    #[error("no operation on this notebook is called {name:?}")]
    NoSuchOp {
        /// The name asked for.
        name: String,
        /// The last operations.
        last: Vec<OperationEntry>,
    },
    /// Several operations have names that begin so.
    #[error("{name:?} is more than one operation")]
    Ambiguous {
        /// The name asked for.
        name: String,
        /// All of them.
        candidates: Vec<OperationEntry>,
    },
    /// The file contains nothing of the actor's last operations any more: another program has saved without
    /// them, or a person has undone them by hand.
    #[error("what {by} did last is not in the notebook any more; nothing was taken back")]
    Gone {
        /// The actor.
        by: String,
        /// The operations of which nothing is left, newest first.
        operations: Vec<OperationEntry>,
        /// The operation before them.
        next: Option<Box<OperationEntry>>,
    },
    /// The operation is undone already.
    #[error("{} is taken back already, by {by}", op.op)]
    Already {
        /// The operation.
        op: Box<OperationEntry>,
        /// The name of the one that undid it.
        by: String,
    },
    /// The journal has a gap, or does not reach back so far.
    #[error("what the notebook was when {} was done is not known any more", op.op)]
    Unknown {
        /// The operation.
        op: Box<OperationEntry>,
    },
    /// The same lines have changed since.
    #[error("what {} did has been changed since; nothing was taken back", op.op)]
    Conflicts {
        /// The operation.
        op: Box<OperationEntry>,
        /// The changes: `yours` is what the undo would make of them.
        conflicts: Vec<Conflict>,
    },
    /// A version that is needed is not stored any more.
    #[error("{} cannot be taken back", op.op)]
    Operation {
        /// The operation.
        op: Box<OperationEntry>,
        /// Why.
        source: OperationUndoError,
    },
    /// The notebook could not be edited.
    #[error(transparent)]
    Edit(#[from] EditError),
}

/// An operation in the journal.
#[derive(Clone)]
struct RecordedOperation {
    op: OperationEntry,
    change: NotebookChange,
    /// The operation that this one undid, if it is an undo.
    undone: Option<NotebookChange>,
}

/// Undoes an operation: the one that is named, or the editor's last one that is not undone. An undo is an
/// operation too, which can be undone by its name.
///
/// Cells that are still as the operation left them are restored, even if the editor has not seen them;
/// others' later changes stay if they can be merged with that.
///
/// # Errors
/// There is no such operation; its result was changed since, unless the editor forces; a version that is
/// needed is not stored any more; the notebook cannot be written.
pub fn undo(
    notebook: &NotebookFile,
    op: Option<&str>,
    editor: &Editor,
) -> Result<Undone, UndoError> {
    let document = view::open(notebook, &editor.by)?.document;
    let (operation, inverse) = chosen(notebook, &document, op, editor)?;
    undo_one(notebook, &operation, &inverse, editor)
}

/// Returns the operation that [`undo`] would undo, and the notebook before and after that. Nothing is written.
///
/// # Errors
/// Those of [`undo`], but for the writing.
pub fn preview_undo(
    notebook: &NotebookFile,
    op: Option<&str>,
    editor: &Editor,
) -> Result<(OperationEntry, Document, Document), UndoError> {
    let document = view::open(notebook, &editor.by)?.document;
    let (operation, inverse) = chosen(notebook, &document, op, editor)?;
    let after = undone_document(&inverse, &document, &operation.op, editor)?;
    Ok((operation.op, document, after))
}

/// Returns the operation that an undo means, and its inverse.
fn chosen(
    notebook: &NotebookFile,
    document: &Document,
    op: Option<&str>,
    editor: &Editor,
) -> Result<(RecordedOperation, OperationUndo), UndoError> {
    let Some(name) = op else {
        // An operation is older than its undo, so the journal's end shows which one is the last that is not undone.
        for bytes in LAST_BYTES {
            let last = operations(last_events(notebook, bytes));
            if let Ok(found) = last_own(notebook, document, &last, editor) {
                return Ok(found);
            }
        }
        let all = operations(events(notebook));
        return last_own(notebook, document, &all, editor);
    };
    let all = operations(events(notebook));
    let operation = find_operation(&all, name)?;
    Ok((operation.clone(), inverse(notebook, operation)?))
}

/// Returns the editor's last operation that is not undone, and its inverse.
fn last_own(
    notebook: &NotebookFile,
    document: &Document,
    all: &[RecordedOperation],
    editor: &Editor,
) -> Result<(RecordedOperation, OperationUndo), UndoError> {
    let undone = undone(all);
    let actor = Actor::from(&*editor.by);
    let is_own = |op: &OperationEntry| actor.is_same(&Actor::parse(op.by.as_deref()));
    let not_undone = || {
        all.iter()
            .filter(|it| !undone.contains_key(it.op.op.as_str()))
    };
    let own = not_undone().filter(|it| it.change.undoes.is_none() && is_own(&it.op));
    let by = || actor.name();
    let mut without_effect = Vec::new();
    for operation in own.take(MOST_PASSED) {
        let inverse = inverse(notebook, operation)?;
        if let Ok(taken) = inverse.undo(document, editor.force)
            && taken.conflicts.is_empty()
            && notebook::changes(document, &taken.document).is_empty()
        {
            without_effect.push(operation.op.clone());
            continue;
        }
        if without_effect.is_empty() {
            return Ok((operation.clone(), inverse));
        }
        // An operation without a name is the last one: an earlier one is undone only by its name.
        let (by, next) = (by(), Some(Box::new(operation.op.clone())));
        return Err(UndoError::Gone {
            by,
            operations: without_effect,
            next,
        });
    }
    if !without_effect.is_empty() {
        let (by, next) = (by(), None);
        return Err(UndoError::Gone {
            by,
            operations: without_effect,
            next,
        });
    }
    let (own, others): (Vec<_>, Vec<_>) = not_undone().map(|it| it.op.clone()).partition(is_own);
    Err(UndoError::Nothing {
        by: by(),
        undo: own
            .into_iter()
            .find(|op| op.command == "undo")
            .map(Box::new),
        others: others.into_iter().take(MOST_NEAR).collect(),
    })
}

/// Returns a notebook without what an operation did.
fn undone_document(
    inverse: &OperationUndo,
    document: &Document,
    op: &OperationEntry,
    editor: &Editor,
) -> Result<Document, UndoError> {
    let op = Box::new(op.clone());
    match inverse.undo(document, editor.force) {
        Ok(taken) if taken.conflicts.is_empty() => Ok(taken.document),
        Ok(taken) => Err(UndoError::Conflicts {
            op,
            conflicts: taken.conflicts,
        }),
        Err(source) => Err(UndoError::Operation { op, source }),
    }
}

/// How many of the journal's last bytes are searched for the operation to undo, before all of it is.
const LAST_BYTES: [u64; 2] = [8 << 10, 256 << 10];

/// How many operations without traces in the file are skipped.
const MOST_PASSED: usize = 20;

/// Reads the operations from the journal, newest first.
fn operations(events: impl Iterator<Item = RecordedChange>) -> Vec<RecordedOperation> {
    let mut list: Vec<RecordedOperation> = Vec::new();
    for RecordedChange { at, by, change } in events {
        let Some(op) = change.op.clone().filter(|_| !change.changes.is_empty()) else {
            continue;
        };
        let mut cells: Vec<String> = Vec::new();
        for step in &change.changes {
            if !cells.contains(&step.cell) {
                cells.push(step.cell.clone());
            }
        }
        for later in &mut list {
            if later.change.undoes.as_ref() == Some(&op) {
                later.undone = Some(change.clone());
            }
        }
        list.push(RecordedOperation {
            op: OperationEntry {
                op,
                command: change.command.clone().unwrap_or_default(),
                by,
                at,
                cells,
            },
            change,
            undone: None,
        });
    }
    list
}

/// Returns the operations that are undone, each with the operation that undid it. An undo that was
/// itself undone does not count.
fn undone(newest_first: &[RecordedOperation]) -> HashMap<&str, &str> {
    let mut undone = HashMap::new();
    for operation in newest_first {
        if let Some(other) = &operation.change.undoes
            && !undone.contains_key(operation.op.op.as_str())
        {
            undone.insert(other.as_str(), operation.op.op.as_str());
        }
    }
    undone
}

fn find_operation<'a>(
    all: &'a [RecordedOperation],
    name: &str,
) -> Result<&'a RecordedOperation, UndoError> {
    let matches = |it: &&RecordedOperation| {
        it.op.op == name || (name.len() >= PREFIX_CHARS_MIN && it.op.op.starts_with(name))
    };
    let found: Vec<_> = all.iter().filter(matches).collect();
    let name = name.to_owned();
    match found.as_slice() {
        [] => Err(UndoError::NoSuchOp {
            name,
            last: all.iter().take(MOST_NEAR).map(|it| it.op.clone()).collect(),
        }),
        [operation] => match undone(all).get(operation.op.op.as_str()) {
            Some(by) => Err(UndoError::Already {
                op: Box::new(operation.op.clone()),
                by: (*by).to_owned(),
            }),
            None => Ok(operation),
        },
        several => Err(UndoError::Ambiguous {
            name,
            candidates: several.iter().map(|it| it.op.clone()).collect(),
        }),
    }
}

/// Returns the undo of an operation, with the stored versions of its cells.
fn inverse(
    notebook: &NotebookFile,
    operation: &RecordedOperation,
) -> Result<OperationUndo, UndoError> {
    let change = &operation.change;
    let after = manifest_at(notebook, change.after).ok_or_else(|| UndoError::Unknown {
        op: Box::new(operation.op.clone()),
    })?;
    let before = steps::back(&after, &change.changes);
    let ids = |cells: steps::Manifest| cells.into_iter().map(|(id, _)| id).collect();
    // If an operation removed outputs, its undo restored them.
    let outputs_came = |step: &CellStep| {
        let first = operation.undone.as_ref().and_then(|undone| {
            let mut steps = undone.changes.iter();
            steps.find(|first| first.cell == step.cell && first.kind != ChangeKind::Moved)
        });
        step.came
            || step.kind == ChangeKind::Outputs && step.kept.is_none()
            || first.is_some_and(|first| first.kept.is_some() && first.after.is_some())
    };
    let version = |revision, kept| RememberedCell {
        cell: json_of(notebook, revision, kept),
        revision,
    };
    let steps = change.changes.iter();
    let steps = steps.filter(|step| step.kind != ChangeKind::Moved);
    let cells = steps.map(|step| TouchedCell {
        cell: step.cell.clone(),
        before: step.before.map(|it| version(it, step.kept.as_deref())),
        after: step.after.map(|it| version(it, None)),
        outputs_came: outputs_came(step),
    });
    let exact = change.exact.as_deref();
    Ok(OperationUndo {
        cells: cells.collect(),
        before: ids(before),
        after: ids(after),
        exact: exact.and_then(|name| keep::exact(notebook, name)),
    })
}

fn undo_one(
    notebook: &NotebookFile,
    operation: &RecordedOperation,
    inverse: &OperationUndo,
    editor: &Editor,
) -> Result<Undone, UndoError> {
    let command = EditCommand {
        name: "undo".to_owned(),
        forced: editor.force,
        undoes: Some(operation.op.op.clone()),
    };
    // The undo itself checks that each cell is as the operation left it.
    let editor = Editor {
        must_have_seen: false,
        ..editor.clone()
    };
    let mut merged = Vec::new();
    let done = edit::change(
        notebook,
        &editor,
        &command,
        &EditBasis::default(),
        |document| {
            let after = undone_document(inverse, document, &operation.op, &editor)
                .map_err(|error| EditError::Other(Box::new(error)))?;
            merged = merged_cells(inverse, &after);
            let changes = notebook::changes(document, &after);
            Ok((after, changes))
        },
    );
    let done = done.map_err(|error| match error {
        EditError::Other(error) => match error.downcast::<UndoError>() {
            Ok(own) => *own,
            Err(error) => EditError::Other(error).into(),
        },
        error => error.into(),
    })?;
    Ok(Undone {
        op: operation.op.clone(),
        merged,
        done,
    })
}

/// Returns the ids of the cells that are neither as before the operation nor as after it.
fn merged_cells(inverse: &OperationUndo, document: &Document) -> Vec<String> {
    let is_mixed = |touched: &&TouchedCell| {
        let cell = document
            .cell_by_id(&touched.cell)
            .zip(touched.before.as_ref());
        cell.is_some_and(|(cell, before)| cell.revision() != before.revision)
    };
    let merged_cells = inverse.cells.iter().filter(is_mixed);
    merged_cells.map(|touched| touched.cell.clone()).collect()
}
