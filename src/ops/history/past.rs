//! The cells of a notebook at an earlier revision.

use super::GLANCE;
use super::known::Known;
use super::recorded::Recorded;
use super::steps::{self, Manifest};
use crate::notebook::Revision;
use crate::ops::page::Page;

/// Returns the cells, id and revision, that a notebook had at an earlier revision of its own: where
/// it had that more than once, the last time. None where the journal does not tell (any more).
pub fn manifest_at(page: &Page, revision: Revision) -> Option<Manifest> {
    let (known, past) = {
        // The journal's end and the ledger belong together.
        let ledger = page.project.ledger(&page.key, GLANCE).ok()?;
        let known: Known = ledger.read()?;
        (known, page.project.past(&page.key))
    };
    let entries = past.filter_map(|placed| Recorded::of(&placed.entry));
    walk_back(known.cells, known.revision, entries, revision)
}

/// `entries` come newest first, and lead from one to the next without a gap.
fn walk_back(
    mut cells: Manifest,
    mut at: Revision,
    mut entries: impl Iterator<Item = Recorded>,
    wanted: Revision,
) -> Option<Manifest> {
    while at != wanted {
        let entry = entries.next().filter(|entry| entry.after == at)?;
        cells = steps::back(&cells, &entry.changes);
        at = entry.before;
    }
    // What a lost line of the journal has led astray is not told for true.
    (steps::revision(&cells) == wanted).then_some(cells)
}
