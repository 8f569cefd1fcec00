//! The versions that a notebook's cells have had, and the cells that were deleted.

use std::collections::HashSet;

use jiff::Timestamp;
use serde::Serialize;

use super::keep::{kept, version};
use crate::editing::notebook_file::NotebookFile;
use crate::notebook::{CellSelector, ChangeKind, Document, Json, Revision, SelectError};
use crate::project::event::{Events, NotebookChange};

/// One change of a notebook in the journal.
#[derive(Clone, Debug)]
pub struct RecordedChange {
    /// When it was recorded. Another program's save is recorded by the next command of `nb`.
    pub at: Timestamp,
    /// The actor, if known.
    pub by: Option<String>,
    /// The change.
    pub change: NotebookChange,
}

/// One version of a cell, or its removal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CellVersion {
    /// When the cell got this version; none for the one that `nb` read first.
    pub at: Option<Timestamp>,
    /// The actor, if known.
    pub by: Option<String>,
    /// The kind of change; none for the version that `nb` read first.
    #[serde(rename = "what")]
    pub kind: Option<ChangeKind>,
    /// The edit, as `nb undo` names it; none for what another program saved.
    pub op: Option<String>,
    /// The command that made the edit.
    pub command: Option<String>,
    /// The cell's revision since then; none where it was removed.
    pub revision: Option<Revision>,
    /// The notebook's revision since then.
    pub notebook: Option<Revision>,
    /// The cell's position.
    pub index: Option<usize>,
    /// The name of the stored version that this change replaced, with its outputs.
    #[serde(skip)]
    pub kept: Option<String>,
}

/// A cell that was removed and is not in the notebook again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Deleted {
    /// Its id.
    pub cell: String,
    /// The revision that it had last.
    pub revision: Revision,
    /// When it was removed.
    pub at: Timestamp,
    /// The actor who removed it, if known.
    pub by: Option<String>,
    /// Its position before that.
    pub index: usize,
    /// The edit that removed it; none where another program saved without it.
    pub op: Option<String>,
    /// The notebook's revision before that.
    pub notebook: Revision,
}

/// Returns the changes of a notebook, newest first.
pub fn events(notebook: &NotebookFile) -> impl Iterator<Item = RecordedChange> {
    changes(notebook.project.events(&notebook.key))
}

/// Returns the changes of a notebook in the last bytes of the journal, newest first.
pub(super) fn last_events(
    notebook: &NotebookFile,
    bytes: u64,
) -> impl Iterator<Item = RecordedChange> {
    changes(notebook.project.events(&notebook.key).within(bytes))
}

fn changes(events: Events) -> impl Iterator<Item = RecordedChange> {
    events.filter_map(|event| {
        Some(RecordedChange {
            at: event.at,
            by: event.by.clone(),
            change: event.into_change()?,
        })
    })
}

/// Returns the versions of a cell, oldest first, beginning with the one that `nb` read first or that was
/// inserted. Empty if the cell never existed.
pub fn versions(notebook: &NotebookFile, document: &Document, cell: &str) -> Vec<CellVersion> {
    let mut list = Vec::new();
    let now = document.position_by_id(cell);
    let now = now.and_then(|index| Some((index, document.cells().get(index)?)));
    let mut first = now.map(|(index, cell)| (index, cell.revision()));
    for RecordedChange { at, by, change } in events(notebook) {
        let steps = change.changes.iter().rev();
        for step in steps.filter(|step| step.cell == cell && step.kind != ChangeKind::Moved) {
            list.push(CellVersion {
                at: Some(at),
                by: by.clone(),
                kind: Some(step.kind),
                op: change.op.clone(),
                command: change.command.clone(),
                revision: step.after,
                notebook: Some(change.after),
                index: Some(step.index),
                kept: step.kept.clone(),
            });
            first = step.before.map(|before| (step.index, before));
        }
    }
    if let Some((index, revision)) = first {
        list.push(CellVersion {
            revision: Some(revision),
            index: Some(index),
            ..CellVersion::default()
        });
    }
    list.reverse();
    list
}

/// Returns the cells that were removed and not restored, last removed first.
pub fn deleted(notebook: &NotebookFile, document: &Document) -> Vec<Deleted> {
    let mut known: HashSet<String> = document.cells().iter().map(|it| it.id().into()).collect();
    let mut list: Vec<Deleted> = Vec::new();
    for RecordedChange { at, by, change } in events(notebook) {
        for step in change.changes {
            if step.kind == ChangeKind::Removed
                && let Some(revision) = step.before
                && known.insert(step.cell.clone())
            {
                list.push(Deleted {
                    cell: step.cell,
                    revision,
                    at,
                    by: by.clone(),
                    index: step.index,
                    op: change.op.clone(),
                    notebook: change.before,
                });
            }
        }
    }
    list
}

/// The fewest characters that are accepted as the beginning of an id or a revision.
pub(super) const PREFIX_CHARS_MIN: usize = 3;

/// The cell that a selector matches, in the notebook or among the cells deleted from it.
#[derive(Debug)]
pub enum Selected<'a> {
    /// A cell of the notebook, by its position.
    Present(usize),
    /// A deleted cell.
    Deleted(&'a Deleted),
}

/// Why a selector matches no single cell.
#[derive(Debug)]
pub struct NotSelected<'a> {
    /// Why it matches none of the notebook's cells.
    pub source: SelectError,
    /// The deleted cells that it matches, if there are several.
    pub candidates: Vec<&'a Deleted>,
}

/// Finds the cell that a selector matches, in a notebook and among the cells deleted from it.
///
/// A whole id matches only its own cell, even if another id begins with it. A prefix is searched
/// first among the notebook's own cells.
///
/// # Errors
/// The selector matches no cell, or several.
pub fn select<'a>(
    document: &Document,
    deleted: &'a [Deleted],
    cell: &CellSelector,
) -> Result<Selected<'a>, NotSelected<'a>> {
    let prefix = match cell {
        CellSelector::Id(prefix) => prefix.as_str(),
        _ => "",
    };
    if let Some(deleted) = deleted.iter().find(|deleted| deleted.cell == prefix) {
        return Ok(Selected::Deleted(deleted));
    }
    let source = match document.find(cell) {
        Ok(index) => return Ok(Selected::Present(index)),
        Err(source) => source,
    };
    let long = prefix.chars().count() >= PREFIX_CHARS_MIN
        && matches!(source, SelectError::NoSuchId { .. });
    let begins = |deleted: &&Deleted| long && deleted.cell.starts_with(prefix);
    let candidates: Vec<_> = deleted.iter().filter(begins).collect();
    match candidates.as_slice() {
        [deleted] => Ok(Selected::Deleted(deleted)),
        _ => Err(NotSelected { source, candidates }),
    }
}

/// Returns a version of a cell: the stored one of this name, with outputs, or else the one of this
/// revision.
pub(super) fn json_of(
    notebook: &NotebookFile,
    revision: Revision,
    name: Option<&str>,
) -> Option<Json> {
    let whole = name.and_then(|name| kept(notebook, name));
    whole.or_else(|| version(notebook, revision))
}
