//! What the ledger holds: what `nb` knew last of a notebook.

use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::steps::{self, Manifest};
use super::{Deed, version_source};
use crate::editing::notebook_file::NotebookFile;
use crate::notebook::{Cell, ChangeKind, Document, Revision};
use crate::project::event::CellStep;

/// So many of `nb`'s last edits are watched for what becomes of them. Who saves over more of them
/// has kept a notebook open for days.
const WATCHED: usize = 256;

/// The content of a ledger.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Known {
    /// The notebook's key, for a human reader.
    pub notebook: String,
    /// When it was so.
    pub at: Timestamp,
    /// Its revision.
    pub revision: Revision,
    /// Its cells.
    pub cells: Manifest,
    /// The file that had them: device and inode. Every write of `nb` makes another one.
    #[serde(default)]
    pub file: Option<(u64, u64)>,
    /// What `nb` did last, oldest first.
    #[serde(default)]
    pub watched: Vec<Watched>,
    /// What is being written just now. One that a reader finds was left by a process that was
    /// killed: the ledger is locked while it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
}

/// What of a ledger tells whether anything has happened: the cells are passed over.
#[derive(Debug, Deserialize)]
pub(super) struct Head {
    pub revision: Revision,
    #[serde(default)]
    pub intent: Option<IgnoredAny>,
}

/// One change of one cell by a command of `nb`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Watched {
    /// The command's name in the journal.
    pub op: String,
    /// Whose it was.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// Which cell.
    pub cell: String,
    /// Inserted, edited or removed.
    pub what: ChangeKind,
    /// The cell's revision before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Revision>,
    /// And after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Revision>,
}

/// What a command is about to write.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Intent {
    /// The command's name in the journal.
    pub op: String,
    /// Whose it is.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// What kind of command.
    pub deed: Deed,
    /// What it does.
    pub steps: Vec<CellStep>,
    /// The name of the kept bytes that it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<String>,
}

/// Gives the cells of a notebook that was just read the ids that its ledger has for them, where
/// the file has none.
pub(in crate::editing) fn recall_ids(page: &NotebookFile, document: &mut Document) {
    if document.cells().iter().all(Cell::has_own_id) {
        return;
    }
    let known = page.project.last_ledger::<Known>(&page.key);
    let cells = known.map_or_else(Vec::new, |known| known.cells_of(document));
    document.recall_ids(&cells, &|revision| version_source(page, revision));
}

impl Known {
    /// Returns the cells that a file was written with: before or after the change that is being
    /// written just now.
    fn cells_of(self, document: &Document) -> Manifest {
        let Some(intent) = &self.intent else {
            return self.cells;
        };
        let after = steps::forth(&self.cells, &intent.steps);
        let there: Vec<_> = document.cells().iter().map(Cell::revision).collect();
        let alike = |cells: &Manifest| {
            let pairs = cells.iter().zip(&there);
            let same = pairs.filter(|((_, known), revision)| known == *revision);
            (cells.len() == there.len(), same.count())
        };
        if alike(&after) > alike(&self.cells) {
            after
        } else {
            self.cells
        }
    }

    /// Returns what is known at first.
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

    /// Takes the cells for what is in the file now.
    pub(super) fn advance(&mut self, cells: Manifest) {
        self.at = Timestamp::now();
        self.revision = steps::revision(&cells);
        self.cells = cells;
    }

    /// Watches what becomes of a command's changes from now on.
    pub(super) fn watch(&mut self, op: &str, by: &str, steps: &[CellStep]) {
        let at = Timestamp::now();
        let lasting = [
            ChangeKind::Inserted,
            ChangeKind::Edited,
            ChangeKind::Removed,
        ];
        let steps = steps.iter().filter(|step| lasting.contains(&step.what));
        self.watched.extend(steps.map(|step| Watched {
            op: op.to_owned(),
            by: by.to_owned(),
            at,
            cell: step.cell.clone(),
            what: step.what,
            before: step.before,
            after: step.after,
        }));
        let too_many = self.watched.len().saturating_sub(WATCHED);
        self.watched.drain(..too_many);
    }
}

impl Intent {
    /// Whether it got into the file: something of it is there that was not before.
    pub(super) fn has_landed(&self, known: &Manifest, there: &Manifest) -> bool {
        let of = |cells: &Manifest, id: &str| {
            let cell = cells.iter().find(|(its, _)| its == id);
            cell.map(|(_, revision)| *revision)
        };
        let index = |cells: &Manifest, id: &str| cells.iter().position(|(its, _)| its == id);
        self.steps.iter().any(|step| match step.what {
            ChangeKind::Inserted => of(there, &step.cell).is_some(),
            ChangeKind::Removed => of(there, &step.cell).is_none(),
            ChangeKind::Edited => of(there, &step.cell) == step.after,
            ChangeKind::Moved => {
                known.len() == there.len() && index(there, &step.cell) == Some(step.index)
            }
            ChangeKind::Outputs | ChangeKind::Nothing => false,
        })
    }
}
