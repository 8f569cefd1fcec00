//! One operation taken back.

use std::collections::HashMap;

use jiff::Timestamp;
use serde::Serialize;

use super::deed::Deed;
use super::keep;
use super::past::manifest_at;
use super::steps;
use super::versions::{RecordedChange, events, json_of};
use crate::activity::company;
use crate::editing::edit::{self, Done, EditError, Editor};
use crate::editing::notebook_file::{NotebookFile, NotebookFileError};
use crate::editing::view;
use crate::notebook::{
    self, ChangeKind, Conflict, Document, OperationUndo, OperationUndoError, RememberedCell,
    TouchedCell,
};
use crate::project::event::{CellStep, NotebookChange, split_actor};

/// So many operations are suggested where none was meant.
const MOST_NEAR: usize = 5;

/// As much of an operation's name is needed.
const LEAST: usize = 3;

/// An operation as people speak of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Op {
    /// Its name.
    pub op: String,
    /// The kind of command.
    pub deed: String,
    /// Whose it was.
    pub by: Option<String>,
    /// When.
    pub at: Timestamp,
    /// The cells that it changed.
    pub cells: Vec<String>,
}

/// What came of an undo.
#[derive(Debug)]
pub struct Undone {
    /// What was taken back.
    pub op: Op,
    /// Cells in which others' later changes stay: what they are now was never written by anybody.
    pub merged: Vec<String>,
    /// What was done.
    pub done: Done,
}

/// Why nothing was taken back; the notebook is as it was.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The notebook could not be read.
    #[error(transparent)]
    NotebookFile(#[from] NotebookFileError),
    /// Nothing of this name's is left to take back.
    #[error("{by} did nothing in this notebook that is left to take back")]
    Nothing {
        /// The name.
        by: String,
        /// The last undo of this name's, which can be taken back itself.
        undo: Option<Box<Op>>,
        /// What others did last.
        others: Vec<Op>,
    },
    /// No operation has that name.
    #[error("no operation on this notebook is called {given:?}")]
    NoSuchOp {
        /// What was asked for.
        given: String,
        /// The last ones.
        last: Vec<Op>,
    },
    /// Several operations have names that begin so.
    #[error("{given:?} is more than one operation")]
    Ambiguous {
        /// What was asked for.
        given: String,
        /// All of them.
        candidates: Vec<Op>,
    },
    /// Nothing of this name's last operations is left in the file: somebody has saved without them, or
    /// taken them back by hand.
    #[error("what {by} did last is not in the notebook any more; nothing was taken back")]
    Gone {
        /// The name.
        by: String,
        /// The operations of which nothing is left, newest first.
        gone: Vec<Op>,
        /// The one before them.
        next: Option<Box<Op>>,
    },
    /// It is taken back already.
    #[error("{} is taken back already, by {by}", op.op)]
    Already {
        /// The operation.
        op: Box<Op>,
        /// The one that took it back.
        by: String,
    },
    /// The journal has a gap, or does not reach back so far.
    #[error("what the notebook was when {} was done is not known any more", op.op)]
    Unknown {
        /// The operation.
        op: Box<Op>,
    },
    /// Somebody has changed the same lines since.
    #[error("what {} did has been changed since; nothing was taken back", op.op)]
    Conflicts {
        /// The operation.
        op: Box<Op>,
        /// What was changed: `yours` is what the undo would make of it.
        conflicts: Vec<Conflict>,
    },
    /// A version that is needed is forgotten.
    #[error("{} cannot be taken back", op.op)]
    Operation {
        /// The operation.
        op: Box<Op>,
        /// Why.
        source: OperationUndoError,
    },
    /// The notebook could not be edited.
    #[error(transparent)]
    Edit(#[from] EditError),
}

/// An operation in the journal.
struct RecordedOperation {
    op: Op,
    recorded: NotebookChange,
    /// Of an undo: the operation that it took back.
    undone: Option<NotebookChange>,
}

/// Takes an operation back: the one that is named, else the last one of the editor's name that is
/// not taken back. An undo is an operation too, which can be taken back by its name.
///
/// Cells that are still what the operation left become what they were, whoever has seen them; what
/// others changed since stays where it goes together with that.
///
/// # Errors
/// There is no such operation; what it did was changed since, unless the editor forces; what is
/// needed is forgotten; the notebook cannot be written.
pub fn undo(page: &NotebookFile, op: Option<&str>, editor: &Editor) -> Result<Undone, UndoError> {
    let document = view::open(page, &editor.by)?.document;
    let all = known(events(page));
    if let Some(given) = op {
        let known = named(&all, given)?;
        let back = back(page, known)?;
        return take_back(page, known, &back, editor);
    }
    let undone = undone(&all);
    let own = |known: &&RecordedOperation| {
        let by = company::name(known.op.by.as_deref());
        known.recorded.undoes.is_none()
            && company::is_same(by, &editor.by)
            && !undone.contains_key(known.op.op.as_str())
    };
    let mut gone = Vec::new();
    for known in all.iter().filter(own).take(MOST_PASSED) {
        let back = back(page, known)?;
        if let Ok(taken) = back.undo(&document, editor.force)
            && taken.conflicts.is_empty()
            && notebook::changes(&document, &taken.document).is_empty()
        {
            gone.push(known.op.clone());
            continue;
        }
        // Whoever asks means the last one: another is not touched before they know.
        if !gone.is_empty() {
            return Err(UndoError::Gone {
                by: split_actor(&editor.by).0.to_owned(),
                gone,
                next: Some(Box::new(known.op.clone())),
            });
        }
        return take_back(page, known, &back, editor);
    }
    if !gone.is_empty() {
        let (by, next) = (split_actor(&editor.by).0.to_owned(), None);
        return Err(UndoError::Gone { by, gone, next });
    }
    let is_own = |op: &Op| company::is_same(company::name(op.by.as_deref()), &editor.by);
    let left = all
        .iter()
        .filter(|known| !undone.contains_key(known.op.op.as_str()));
    let (own, others): (Vec<_>, Vec<_>) = left.map(|known| known.op.clone()).partition(is_own);
    Err(UndoError::Nothing {
        by: split_actor(&editor.by).0.to_owned(),
        undo: own.into_iter().find(|op| op.deed == "undo").map(Box::new),
        others: others.into_iter().take(MOST_NEAR).collect(),
    })
}

/// So many operations of which nothing is left are passed over.
const MOST_PASSED: usize = 20;

/// Reads the operations out of the journal, newest first.
fn known(events: impl Iterator<Item = RecordedChange>) -> Vec<RecordedOperation> {
    let mut list: Vec<RecordedOperation> = Vec::new();
    for event in events {
        let (Some(op), false) = (&event.recorded.op, event.recorded.changes.is_empty()) else {
            continue;
        };
        let mut cells: Vec<String> = Vec::new();
        for step in &event.recorded.changes {
            if !cells.contains(&step.cell) {
                cells.push(step.cell.clone());
            }
        }
        let op = Op {
            op: op.clone(),
            deed: event.recorded.deed.clone().unwrap_or_default(),
            by: event.by,
            at: event.at,
            cells,
        };
        for later in &mut list {
            if later.recorded.undoes.as_ref() == Some(&op.op) {
                later.undone = Some(event.recorded.clone());
            }
        }
        list.push(RecordedOperation {
            op,
            recorded: event.recorded,
            undone: None,
        });
    }
    list
}

/// Returns the operations that are taken back, each with the one that did it. An undo that was
/// itself taken back does not count.
fn undone(newest_first: &[RecordedOperation]) -> HashMap<&str, &str> {
    let mut undone = HashMap::new();
    for known in newest_first {
        if let Some(other) = &known.recorded.undoes
            && !undone.contains_key(known.op.op.as_str())
        {
            undone.insert(other.as_str(), known.op.op.as_str());
        }
    }
    undone
}

fn named<'a>(
    all: &'a [RecordedOperation],
    given: &str,
) -> Result<&'a RecordedOperation, UndoError> {
    let listed = |known: &mut dyn Iterator<Item = &RecordedOperation>| -> Vec<Op> {
        known.map(|known| known.op.clone()).collect()
    };
    let is_meant = |known: &&RecordedOperation| {
        known.op.op == given || (given.len() >= LEAST && known.op.op.starts_with(given))
    };
    let meant: Vec<_> = all.iter().filter(is_meant).collect();
    match meant.as_slice() {
        [] => Err(UndoError::NoSuchOp {
            given: given.to_owned(),
            last: listed(&mut all.iter().take(MOST_NEAR)),
        }),
        [known] => match undone(all).get(known.op.op.as_str()) {
            Some(by) => Err(UndoError::Already {
                op: Box::new(known.op.clone()),
                by: (*by).to_owned(),
            }),
            None => Ok(known),
        },
        several => Err(UndoError::Ambiguous {
            given: given.to_owned(),
            candidates: listed(&mut several.iter().copied()),
        }),
    }
}

/// Returns what an operation did, with the versions of its cells that are kept.
fn back(page: &NotebookFile, known: &RecordedOperation) -> Result<OperationUndo, UndoError> {
    let recorded = &known.recorded;
    let after = manifest_at(page, recorded.after).ok_or_else(|| UndoError::Unknown {
        op: Box::new(known.op.clone()),
    })?;
    let before = steps::back(&after, &recorded.changes);
    let ids = |cells: steps::Manifest| cells.into_iter().map(|(id, _)| id).collect();
    let steps = recorded.changes.iter();
    let steps = steps.filter(|step| step.what != ChangeKind::Moved);
    // What an operation had taken away an undo of it has brought back.
    let came = |step: &CellStep| {
        let first = known.undone.as_ref().and_then(|undone| {
            let mut steps = undone.changes.iter();
            steps.find(|first| first.cell == step.cell && first.what != ChangeKind::Moved)
        });
        step.came
            || step.what == ChangeKind::Outputs && step.kept.is_none()
            || first.is_some_and(|first| first.kept.is_some() && first.after.is_some())
    };
    let version = |revision, kept| RememberedCell {
        cell: json_of(page, revision, kept),
        revision,
    };
    Ok(OperationUndo {
        cells: steps
            .map(|step| TouchedCell {
                cell: step.cell.clone(),
                before: step.before.map(|it| version(it, step.kept.as_deref())),
                after: step.after.map(|it| version(it, None)),
                outputs_came: came(step),
            })
            .collect(),
        before: ids(before),
        after: ids(after),
        exact: recorded
            .exact
            .as_deref()
            .and_then(|name| keep::exact(page, name)),
    })
}

fn take_back(
    page: &NotebookFile,
    known: &RecordedOperation,
    back: &OperationUndo,
    editor: &Editor,
) -> Result<Undone, UndoError> {
    let deed = Deed {
        op: "undo".to_owned(),
        forced: editor.force,
        undoes: Some(known.op.op.clone()),
    };
    // What it was and what became of it is compared here, more exactly.
    let editor = Editor {
        must_have_seen: false,
        ..editor.clone()
    };
    let op = || Box::new(known.op.clone());
    let mut merged = Vec::new();
    let done = edit::change(page, &editor, &deed, &[], |document| {
        let taken = back.undo(document, editor.force);
        let taken = taken.map_err(|source| other(UndoError::Operation { op: op(), source }))?;
        if !taken.conflicts.is_empty() {
            return Err(other(UndoError::Conflicts {
                op: op(),
                conflicts: taken.conflicts,
            }));
        }
        merged = mixed(back, &taken.document);
        let changes = notebook::changes(document, &taken.document);
        Ok((taken.document, changes))
    });
    let done = done.map_err(|error| match error {
        EditError::Other(error) => match error.downcast::<UndoError>() {
            Ok(own) => *own,
            Err(error) => EditError::Other(error).into(),
        },
        error => error.into(),
    })?;
    Ok(Undone {
        op: known.op.clone(),
        merged,
        done,
    })
}

fn other(error: UndoError) -> EditError {
    EditError::Other(Box::new(error))
}

/// Returns the cells that became neither what they were nor what the operation left.
fn mixed(back: &OperationUndo, document: &Document) -> Vec<String> {
    let mut mixed = Vec::new();
    for touched in &back.cells {
        let mut cells = document.cells().iter();
        let cell = cells.find(|cell| cell.id() == touched.cell);
        let before = touched.before.as_ref();
        if let Some((cell, before)) = cell.zip(before)
            && cell.revision() != before.revision
        {
            mixed.push(touched.cell.clone());
        }
    }
    mixed
}
