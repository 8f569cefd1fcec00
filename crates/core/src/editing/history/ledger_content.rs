//! The content of a ledger: a notebook's cells as `nb` last saw them.

use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::steps::{self, Manifest};
use super::version_source;
use crate::editing::notebook_file::NotebookFile;
use crate::notebook::{Cell, ChangeKind, Document, Revision};
use crate::project::event::{CellStep, NotebookChange};

/// How many of `nb`'s last edits are compared with each later save. An editor whose save wipes out more of
/// them has had the notebook open for days.
const MOST_WATCHED: usize = 256;

/// The content of a ledger.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LedgerContent {
    /// The notebook's key, for a human reader.
    pub notebook: String,
    /// When the ledger was written.
    pub at: Timestamp,
    /// The notebook's revision.
    pub revision: Revision,
    /// Its cells.
    pub cells: Manifest,
    /// The notebook's file: device and inode. Every write of `nb` makes a new file.
    #[serde(default)]
    pub file: Option<(u64, u64)>,
    /// The last edits by `nb`, oldest first, in ledgers of earlier versions; see [`EditLine`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub watched: Vec<Watched>,
    /// The edit that is being written. If a reader finds one, the process that wrote it was killed,
    /// as it would otherwise still hold the ledger's lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
}

/// The part of a ledger that shows whether the notebook has changed; parsing it skips the cells.
#[derive(Debug, Deserialize)]
pub(super) struct Head {
    pub revision: Revision,
    #[serde(default)]
    pub intent: Option<IgnoredAny>,
}

/// One change of one cell by a command of `nb`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Watched {
    /// The edit's name in the journal.
    pub op: String,
    /// The actor.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// The cell's id.
    pub cell: String,
    /// `Inserted`, `Edited` or `Removed`.
    #[serde(rename = "what")]
    pub kind: ChangeKind,
    /// The cell's revision before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Revision>,
    /// The cell's revision after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Revision>,
    /// The operation that undid the edit, unless it was undone itself. Such an edit cannot be lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undone_by: Option<String>,
}

/// An edit that a command is about to write.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Intent {
    /// The actor.
    pub by: String,
    /// The edit.
    pub change: NotebookChange,
}

/// Sets the ids of cells in a notebook that was just read from its ledger, if the file has none.
pub(in crate::editing) fn recall_ids(notebook: &NotebookFile, document: &mut Document) {
    if document.cells().iter().all(Cell::has_own_id) {
        return;
    }
    let content = notebook.project.last_ledger::<LedgerContent>(&notebook.key);
    let cells = content.map_or_else(Vec::new, |content| content.cells_of(document));
    document.recall_ids(&cells, &|revision| version_source(notebook, revision));
}

impl LedgerContent {
    /// Returns the ledger's cells that match the file: those before or those after the edit that is
    /// being written, whichever are more similar to the file's.
    fn cells_of(self, document: &Document) -> Manifest {
        let Some(intent) = &self.intent else {
            return self.cells;
        };
        let after = steps::forth(&self.cells, &intent.change.changes);
        let revisions: Vec<_> = document.cells().iter().map(Cell::revision).collect();
        let similarity = |cells: &Manifest| {
            let pairs = cells.iter().zip(&revisions);
            let same = pairs.filter(|((_, recorded), revision)| recorded == *revision);
            (cells.len() == revisions.len(), same.count())
        };
        if similarity(&after) > similarity(&self.cells) {
            after
        } else {
            self.cells
        }
    }

    /// Returns the ledger of a notebook that `nb` reads for the first time.
    pub(super) fn new(notebook: &str, cells: Manifest) -> Self {
        Self {
            notebook: notebook.to_owned(),
            at: Timestamp::now(),
            revision: steps::revision(&cells),
            cells,
            file: None,
            watched: Vec::new(),
            intent: None,
        }
    }

    /// Replaces the cells by those that the file has now.
    pub(super) fn advance(&mut self, cells: Manifest) {
        self.at = Timestamp::now();
        self.revision = steps::revision(&cells);
        self.cells = cells;
    }
}

/// A line of the last edits that are compared with later saves; they are beside the ledger.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum EditLine {
    /// An edit.
    Edit(Watched),
    /// An operation that undid another one. It takes that one out, and if that is an undo, puts the first edit back.
    Undo {
        /// The undo's name in the journal.
        undo: String,
        /// The operation that it undid.
        undoes: String,
    },
}

impl EditLine {
    /// Returns the lines of an edit.
    pub(super) fn of(op: &str, by: &str, change: &NotebookChange) -> Vec<Self> {
        if let Some(undone) = &change.undoes {
            return vec![Self::Undo {
                undo: op.to_owned(),
                undoes: undone.clone(),
            }];
        }
        let steps: &[CellStep] = &change.changes;
        let at = Timestamp::now();
        let lasting = [
            ChangeKind::Inserted,
            ChangeKind::Edited,
            ChangeKind::Removed,
        ];
        let steps = steps.iter().filter(|step| lasting.contains(&step.kind));
        let edits = steps.map(|step| Watched {
            op: op.to_owned(),
            by: by.to_owned(),
            at,
            cell: step.cell.clone(),
            kind: step.kind,
            before: step.before,
            after: step.after,
            undone_by: None,
        });
        edits.map(Self::Edit).collect()
    }
}

/// Returns the last edits that are compared with the next save, oldest first.
pub(super) fn watched(lines: impl IntoIterator<Item = EditLine>) -> Vec<Watched> {
    let mut watched: Vec<Watched> = Vec::new();
    for line in lines {
        match line {
            EditLine::Edit(edit) => {
                // A process that was killed may have added it before.
                let is_known = |it: &Watched| (&it.op, &it.cell) == (&edit.op, &edit.cell);
                if !watched.iter().rev().take(MOST_WATCHED).any(is_known) {
                    watched.push(edit);
                }
            }
            EditLine::Undo { undo, undoes } => {
                for edit in &mut watched {
                    if edit.undone_by.as_ref() == Some(&undoes) {
                        edit.undone_by = None;
                    } else if edit.op == undoes {
                        edit.undone_by = Some(undo.clone());
                    }
                }
            }
        }
    }
    let extra = watched.len().saturating_sub(MOST_WATCHED);
    watched.drain(..extra);
    watched
}
