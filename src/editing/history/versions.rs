//! What became of the cells of a notebook, one after the other: which versions there were.

use jiff::Timestamp;
use serde::Serialize;

use super::keep::{kept, version};
use crate::editing::notebook_file::NotebookFile;
use crate::notebook::{CellSelector, ChangeKind, Document, Json, Revision, SelectError};
use crate::project::event::{CellStep, NotebookChange};

/// One change of a notebook, by whomever, with its place in time.
#[derive(Clone, Debug)]
pub struct RecordedChange {
    /// When it was written down: what somebody else saved is noticed by the next command.
    pub at: Timestamp,
    /// Whose it was, where that is known.
    pub by: Option<String>,
    /// What it was.
    pub recorded: NotebookChange,
}

/// One version of a cell, or its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CellVersion {
    /// Since when it was so; none for what `nb` found when it met the notebook.
    pub at: Option<Timestamp>,
    /// Who made it so, where that is known.
    pub by: Option<String>,
    /// What was done to the cell; none for what was found.
    pub what: Option<ChangeKind>,
    /// The edit, as `nb undo` knows it; none for what somebody saved.
    pub op: Option<String>,
    /// The kind of command.
    pub deed: Option<String>,
    /// The cell's revision since then; none where it was removed.
    pub revision: Option<Revision>,
    /// The notebook's revision since then.
    pub notebook: Option<Revision>,
    /// Where it stood.
    pub index: Option<usize>,
    /// The kept version of what went with it, outputs among it.
    #[serde(skip)]
    pub kept: Option<String>,
}

/// A cell that was there and is not any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Deleted {
    /// Its id.
    pub cell: String,
    /// The revision that it had last.
    pub revision: Revision,
    /// When it went.
    pub at: Timestamp,
    /// Who removed it, where that is known.
    pub by: Option<String>,
    /// Where it stood.
    pub index: usize,
    /// The edit that removed it; none where somebody saved without it.
    pub op: Option<String>,
    /// The notebook's revision when it was still there.
    pub notebook: Revision,
    #[serde(skip)]
    kept: Option<String>,
}

/// Returns the changes of a notebook, newest first.
pub fn events(page: &NotebookFile) -> impl Iterator<Item = RecordedChange> {
    let events = page.project.events(&page.key);
    events.filter_map(|event| {
        Some(RecordedChange {
            at: event.at,
            by: event.by.clone(),
            recorded: event.into_change()?,
        })
    })
}

/// Returns what became of a cell, oldest first: the first is what was found, or the cell's making.
/// Nothing where the cell was never there.
pub fn versions(page: &NotebookFile, document: &Document, cell: &str) -> Vec<CellVersion> {
    let now = document.cells().iter().enumerate();
    let now = now.clone().find(|(_, there)| there.id() == cell);
    versions_of(
        events(page),
        now.map(|(index, it)| (index, it.revision())),
        cell,
    )
}

fn versions_of(
    events: impl Iterator<Item = RecordedChange>,
    now: Option<(usize, Revision)>,
    cell: &str,
) -> Vec<CellVersion> {
    let mut list = Vec::new();
    let mut first = now;
    for event in events {
        let steps = event.recorded.changes.iter().rev();
        for step in steps.filter(|step| step.cell == cell && step.what != ChangeKind::Moved) {
            list.push(CellVersion {
                at: Some(event.at),
                by: event.by.clone(),
                what: Some(step.what),
                op: event.recorded.op.clone(),
                deed: event.recorded.deed.clone(),
                revision: step.after,
                notebook: Some(event.recorded.after),
                index: Some(step.index),
                kept: step.kept.clone(),
            });
            first = step.before.map(|before| (step.index, before));
        }
    }
    if let Some((index, revision)) = first {
        list.push(CellVersion {
            at: None,
            by: None,
            what: None,
            op: None,
            deed: None,
            revision: Some(revision),
            notebook: None,
            index: Some(index),
            kept: None,
        });
    }
    list.reverse();
    list
}

/// Returns the cells that were removed and are not there again, the last one first.
pub fn deleted(page: &NotebookFile, document: &Document) -> Vec<Deleted> {
    let there: std::collections::HashSet<&str> =
        document.cells().iter().map(|cell| cell.id()).collect();
    let mut list: Vec<Deleted> = Vec::new();
    for event in events(page) {
        let removed = |step: &&CellStep| step.what == ChangeKind::Removed;
        for step in event.recorded.changes.iter().filter(removed) {
            let known = list.iter().any(|deleted| deleted.cell == step.cell);
            let Some(revision) = step.before.filter(|_| !known) else {
                continue;
            };
            if there.contains(step.cell.as_str()) {
                continue;
            }
            list.push(Deleted {
                cell: step.cell.clone(),
                revision,
                at: event.at,
                by: event.by.clone(),
                index: step.index,
                op: event.recorded.op.clone(),
                notebook: event.recorded.before,
                kept: step.kept.clone(),
            });
        }
    }
    list
}

/// As much of an id or a revision is needed.
pub(super) const LEAST: usize = 3;

/// The cell that a selector means where deleted cells count too.
#[derive(Debug)]
pub enum Selected<'a> {
    /// One of the notebook, by its place.
    Present(usize),
    /// A deleted one.
    Deleted(&'a Deleted),
}

/// Why no cell is meant.
#[derive(Debug)]
pub struct NotSelected<'a> {
    /// What is wrong with it among the notebook's own cells.
    pub source: SelectError,
    /// The deleted cells that are meant, where they are more than one.
    pub candidates: Vec<&'a Deleted>,
}

/// Finds the cell that a selector means, in a notebook and among those deleted from it.
///
/// A whole id means its cell, also where another's begins so; with less of an id the notebook's own
/// cells come first.
///
/// # Errors
/// None is meant, or more than one.
pub fn select<'a>(
    document: &Document,
    deleted: &'a [Deleted],
    cell: &CellSelector,
) -> Result<Selected<'a>, NotSelected<'a>> {
    let given = match cell {
        CellSelector::Id(given) => given.as_str(),
        _ => "",
    };
    if let Some(deleted) = deleted.iter().find(|deleted| deleted.cell == given) {
        return Ok(Selected::Deleted(deleted));
    }
    let source = match document.find(cell) {
        Ok(index) => return Ok(Selected::Present(index)),
        Err(source) => source,
    };
    let long = given.chars().count() >= LEAST && matches!(source, SelectError::NoSuchId { .. });
    let begins = |deleted: &&Deleted| long && deleted.cell.starts_with(given);
    let candidates: Vec<_> = deleted.iter().filter(begins).collect();
    match candidates.as_slice() {
        [deleted] => Ok(Selected::Deleted(deleted)),
        _ => Err(NotSelected { source, candidates }),
    }
}

impl Deleted {
    /// Returns the cell as it was, with its outputs where they are kept; none where it is not.
    pub fn json(&self, page: &NotebookFile) -> Option<Json> {
        let whole = self.kept.as_deref().and_then(|name| kept(page, name));
        whole.or_else(|| version(page, self.revision))
    }
}

/// Returns what a change left of a cell, or what it was before it: with outputs where a change took
/// them away.
pub(super) fn json_of(page: &NotebookFile, revision: Revision, name: Option<&str>) -> Option<Json> {
    let whole = name.and_then(|name| kept(page, name));
    whole.or_else(|| version(page, revision))
}
