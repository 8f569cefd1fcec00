//! What becomes of a notebook's cells, written down: by whom, and what they were before.
//!
//! # What is kept
//! The **ledger** of a notebook (`.nb/notebooks/`) has the id and revision of each of its cells as
//! `nb` knew them last. Every command that reads or edits compares the file with it first: what
//! differs, somebody else has saved. All of it goes on under the ledger's lock, which a command
//! that edits holds from its first look at the file until its own change is written down.
//!
//! A file of a format before 4.5 holds no ids of cells. The ledger's list is then the record of what
//! its cells are called: whoever reads the file takes the ids from there (`recall_ids`).
//!
//! The **journal** has one [`Event`](crate::project::event::Event) for each change, whose `session` is
//! the notebook's own key (also where its kernel is another's):
//! - `edited`: a command of `nb` did it. `by` is its name, `op` the edit's own name (eight
//!   hexadecimal digits, a prefix will do), `deed` the kind of command, `forced` where nothing was
//!   checked, `undoes` the op that it took back, `conflicts` how much did not go into the file.
//! - `saved`: somebody else did it between two commands. `by` is the front end that is joined to
//!   the notebook, where it is one; `overwritten` lists `nb`'s edits that the save wiped out.
//!
//! Both have the notebook's revision `before` and `after`, and `changes`: one
//! [`CellStep`](crate::project::event::CellStep) a cell, two for one that was edited and moved. They are canonical, whatever the command did one after the
//! other: `index` is the place in the list after all of them (of a removed cell: before them), so
//! that [`steps::back`] makes the earlier list of the later one exactly.
//!
//! The **versions** (`.nb/objects/`): of every cell at the first look, and of every cell that is
//! changed since, before and after; without outputs, named by the cell's revision ([`version`]).
//! Where a command takes away what running a cell has left (a cell removed or cleared, no code any
//! more, split, joined), the cell is kept whole and the step's `kept` names it ([`kept`]). Where the
//! user wants no code kept (`journal.code = false`) no version is.

use std::time::Duration;

mod deed;
mod keep;
mod known;
mod overwritten;
mod past;
mod record;
mod restore;
pub mod steps;
mod undo;
mod versions;

#[cfg(test)]
mod tests;

pub use deed::Deed;
pub use keep::{kept, version, version_source};
pub(in crate::editing) use known::recall_ids;
pub use past::manifest_at;
pub use record::{Recording, is_known};
pub use restore::{RestoreError, Restored, restore};
pub use steps::Manifest;
pub use undo::{Op, UndoError, Undone, undo};
pub use versions::{
    CellVersion, Deleted, NotSelected, RecordedChange, Selected, deleted, events, select, versions,
};

/// How long who only looks waits for the ledger: who does not get it in time has missed nothing
/// that the next look will not find.
const GLANCE: Duration = Duration::from_secs(2);

/// How long who edits waits for it: others' edits take a moment each. A process that was stopped
/// keeps nobody from editing for ever.
const TURN: Duration = Duration::from_secs(10);
