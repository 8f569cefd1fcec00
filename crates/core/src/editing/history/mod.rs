//! The recorded changes of a notebook's cells: who changed them, and what they were before.
//!
//! # What is stored
//! The **ledger** of a notebook (`.nb/notebooks/`) has the id and revision of each of its cells, as
//! `nb` last saw them. Every command that reads or edits the notebook first compares the file with the
//! ledger: another program has saved any difference. A command that only reads holds the ledger's lock
//! during the comparison; a command that edits holds it until its own change is in the journal.
//!
//! Files of formats before 4.5 hold no cell ids. For them the ids in the ledger are used: every reader
//! of the file takes them from there (`recall_ids`).
//!
//! The **journal** has one [`Event`](crate::project::event::Event) for each change. Its `session` is
//! the notebook's own key, even if its kernel belongs to another notebook's session:
//! - `edited`: a command of `nb` made the change. `by` is the actor, `op` the edit's name (eight
//!   hexadecimal digits, a prefix will do), `command` the kind of command, `forced` whether checks were
//!   skipped, `undoes` the op that it undid, `conflicts` how many of its changes are not in the file.
//! - `saved`: another program made the change between two commands. `by` is the front end that is
//!   joined to the notebook, if there is exactly one; `overwritten` lists `nb`'s edits that the save
//!   wiped out.
//!
//! Both have the notebook's revision `before` and `after`, and `changes`: one
//! [`CellStep`](crate::project::event::CellStep) for each cell, two for a cell that was edited and
//! moved. They describe the result of all operations of a command together: `index` is the position
//! after all of them (for a removed cell: before them), so that [`steps::back`] computes the earlier
//! list exactly from the later one.
//!
//! The **versions** (`.nb/objects/`) are cells without outputs, named by their revisions ([`version`]):
//! every cell when `nb` first reads the notebook, and each cell that is changed later, before and after
//! the change. When a command removes the results of a run (it removes, clears, splits or joins a cell,
//! or makes it one without code), the cell is also stored with its outputs, and the step's `kept` names
//! that version ([`kept`]). Nothing is stored if the user wants no code in `.nb` (`journal.code =
//! false`).

use std::time::Duration;

mod git_head;
mod keep;
mod ledger_content;
mod overwritten;
mod past;
mod record;
mod restore;
pub mod steps;
mod undo;
mod versions;

#[cfg(test)]
mod tests;

pub(in crate::editing) use keep::keep_version;
pub use keep::{kept, version, version_source};
pub(in crate::editing) use ledger_content::recall_ids;
pub use past::manifest_at;
pub use record::{EditCommand, Recording, is_kept, is_known, resembles};
pub use restore::{RestoreError, Restored, preview_restore, restore};
pub use steps::Manifest;
pub use undo::{OperationEntry, UndoError, Undone, preview_undo, undo};
pub use versions::{
    CellVersion, Deleted, NotSelected, RecordedChange, Selected, deleted, events, select, versions,
};

/// How long a command that only reads waits for the ledger. If it gets no lock, the next command finds the
/// same differences.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a command that edits waits for the ledger. Others' edits take a moment each; the limit
/// keeps a stopped process from blocking edits for longer.
const EDIT_TIMEOUT: Duration = Duration::from_secs(10);
