//! The changes of a notebook's cells by one edit or one save.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::notebook::{ChangeKind, Revision};

/// A change of a notebook's cells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NotebookChange {
    /// The name of the edit, for `nb undo`; none for what another program saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
    /// The command that made the edit: `edit`, `insert`, `rm`, `move`, `clear`, `split`, `join`, `apply`,
    /// `undo`, `restore` or `fmt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The notebook's revision before.
    pub before: Revision,
    /// The notebook's revision after.
    pub after: Revision,
    /// The changes of the cells.
    pub changes: Vec<CellStep>,
    /// Whether the last writer won.
    #[serde(default, skip_serializing_if = "super::is_no")]
    pub forced: bool,
    /// The edit that this one has undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<String>,
    /// The number of its changes that are not in the file.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub conflicts: usize,
    /// The name of the stored bytes that it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<String>,
    /// Earlier edits that a save wiped out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overwritten: Vec<OverwrittenEdit>,
    /// The front ends that were joined, if it is not known who saved.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "super::names"
    )]
    pub joined: Vec<String>,
    /// What moved git's HEAD when the file was changed, in git's words: `checkout: moving from main to dev`.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "super::optional_name"
    )]
    pub git: Option<String>,
}

impl NotebookChange {
    /// Returns a change with these cells and no further details.
    pub fn of(before: Revision, after: Revision, changes: Vec<CellStep>) -> Self {
        Self {
            op: None,
            command: None,
            before,
            after,
            changes,
            forced: false,
            undoes: None,
            conflicts: 0,
            exact: None,
            overwritten: Vec::new(),
            joined: Vec::new(),
            git: None,
        }
    }
}

/// The change of one cell; a cell that was edited and moved has two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CellStep {
    /// The cell's id.
    pub cell: String,
    /// The kind of change.
    #[serde(rename = "what")]
    pub kind: ChangeKind,
    /// Its place in the list after all changes; of a removed cell, its place before them.
    pub index: usize,
    /// The place of a moved cell before all changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<usize>,
    /// Its revision before; none for a new cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Revision>,
    /// Its revision after; none for a removed cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Revision>,
    /// The name of the stored version with the outputs that the change removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// Whether the change gave outputs to a cell that had none.
    #[serde(default, skip_serializing_if = "super::is_no")]
    pub came: bool,
}

impl CellStep {
    /// Returns a step with no further details.
    pub fn new(cell: &str, kind: ChangeKind, index: usize) -> Self {
        Self {
            cell: cell.to_owned(),
            kind,
            index,
            from: None,
            before: None,
            after: None,
            kept: None,
            came: false,
        }
    }
}

/// An edit that another program's save wiped out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OverwrittenEdit {
    /// The cell's id.
    pub cell: String,
    /// The edit, as `nb undo` and the journal name it.
    pub op: String,
    /// The actor of the edit.
    #[serde(deserialize_with = "super::name")]
    pub by: String,
    /// The agent's session that made the edit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_session: Option<String>,
    /// The kind of edit: `inserted`, `edited` or `removed`.
    #[serde(rename = "what")]
    pub kind: ChangeKind,
    /// The overwritten revision, which `nb restore` restores; for a removed cell, the revision that the save
    /// brought back. None if versions are not stored.
    pub revision: Option<Revision>,
    /// When the edit was made.
    pub at: Timestamp,
}

fn is_zero(it: &usize) -> bool {
    *it == 0
}
