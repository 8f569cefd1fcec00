//! The journal's entries `edited` and `saved`, as data.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::steps::Step;
use crate::notebook::{ChangeKind, Revision};
use crate::project::journal::Entry;

/// What kind of command an edit was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deed {
    /// `edit`, `insert`, `rm`, `move`, `clear`, `split`, `join`, `apply`, `undo`, `restore`, `fmt`.
    pub op: String,
    /// Whether nothing was checked: the last writer won.
    #[serde(default, skip_serializing_if = "is_no")]
    pub forced: bool,
    /// The op that it took back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<String>,
}

/// What the journal tells of a change of a notebook's cells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// The name of the edit, for `nb undo`; none for what somebody else saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
    /// The kind of command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deed: Option<String>,
    /// The notebook's revision before.
    pub before: Revision,
    /// And after.
    pub after: Revision,
    /// What was done to which cells.
    pub changes: Vec<Step>,
    /// Whether the last writer won.
    #[serde(default, skip_serializing_if = "is_no")]
    pub forced: bool,
    /// The op that it took back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<String>,
    /// How many of its changes did not go into the file.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub conflicts: usize,
    /// The name of the kept bytes that it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<String>,
    /// Earlier edits that are not in the file any more by what was saved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overwritten: Vec<Overwritten>,
}

/// An edit of somebody's that a save wiped out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overwritten {
    /// The cell's id.
    pub cell: String,
    /// The edit, as `nb undo` and the journal name it.
    pub op: String,
    /// Whose edit it was.
    pub by: String,
    /// What it had done: `inserted`, `edited` or `removed`.
    pub what: ChangeKind,
    /// The revision that is wiped out, and that `nb restore` brings back; of a cell that had been
    /// removed, the one that is back. None where versions are not kept.
    pub revision: Option<Revision>,
    /// When the edit was made.
    pub at: Timestamp,
}

impl Recorded {
    /// Reads an entry of the journal; none where it is of another kind.
    pub fn of(entry: &Entry) -> Option<Self> {
        if !matches!(entry.event.as_str(), "edited" | "saved") {
            return None;
        }
        serde_json::from_value(Value::Object(entry.other.clone())).ok()
    }

    /// Returns the journal's entry of this moment.
    pub(super) fn entry(&self, key: &str, by: Option<String>) -> serde_json::Result<Entry> {
        let event = if self.op.is_some() { "edited" } else { "saved" };
        let mut entry = Entry::now(event, key);
        entry.by = by;
        if let Value::Object(fields) = serde_json::to_value(self)? {
            entry.other = fields;
        }
        Ok(entry)
    }
}

fn is_no(it: &bool) -> bool {
    !*it
}

fn is_zero(it: &usize) -> bool {
    *it == 0
}
