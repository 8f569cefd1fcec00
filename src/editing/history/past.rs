//! The cells of a notebook at an earlier revision.

use super::GLANCE;
use super::known::Known;
use super::steps::{self, Manifest};
use crate::editing::notebook_file::NotebookFile;
use crate::notebook::Revision;
use crate::project::event::{Event, NotebookChange};

/// Returns the cells, id and revision, that a notebook had at an earlier revision of its own: where
/// it had that more than once, the last time. None where the journal does not tell (any more).
pub fn manifest_at(page: &NotebookFile, revision: Revision) -> Option<Manifest> {
    let (known, past) = {
        // The journal's end and the ledger belong together.
        let ledger = page.project.ledger(&page.key, GLANCE).ok()?;
        let known: Known = ledger.read()?;
        (known, page.project.events(&page.key))
    };
    let entries = past.filter_map(Event::into_change);
    walk_back(known.cells, known.revision, entries, revision)
}

/// `entries` come newest first, and lead from one to the next without a gap.
fn walk_back(
    mut cells: Manifest,
    mut at: Revision,
    mut entries: impl Iterator<Item = NotebookChange>,
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(cells: &[(u8, u8)]) -> Manifest {
        let mut list = Manifest::new();
        for (id, revision) in cells {
            let id = format!("cell{id}");
            if list.iter().all(|(known, _)| *known != id) {
                list.push((id, format!("{revision:010x}").parse().unwrap()));
            }
        }
        list
    }

    fn recorded(before: &Manifest, after: &Manifest) -> NotebookChange {
        NotebookChange {
            op: None,
            deed: None,
            before: steps::revision(before),
            after: steps::revision(after),
            changes: steps::between(before, after),
            forced: false,
            undoes: None,
            conflicts: 0,
            exact: None,
            overwritten: Vec::new(),
        }
    }

    proptest! {
        #[test]
        fn every_earlier_list_is_found_on_the_way_back(
            lists in prop::collection::vec(prop::collection::vec((0..9_u8, 0..4_u8), 0..9), 1..12),
        ) {
            let lists: Vec<_> = lists.iter().map(|cells| list(cells)).collect();
            let journal: Vec<_> = lists.windows(2).map(|two| recorded(&two[0], &two[1])).collect();
            let now = lists.last().unwrap();
            for wanted in &lists {
                let back = journal.iter().rev().cloned();
                let revision = steps::revision(wanted);
                let found = walk_back(now.clone(), steps::revision(now), back, revision);
                prop_assert_eq!(found.as_ref(), Some(wanted));
            }
            // One entry is lost: what lies before it is not known, and nothing wrong is told.
            for lost in 0..journal.len() {
                let back = journal.iter().enumerate().rev().filter(|(at, _)| *at != lost);
                let back = back.map(|(_, entry)| entry.clone());
                let revision = steps::revision(&lists[0]);
                let found = walk_back(now.clone(), steps::revision(now), back, revision);
                prop_assert!(found.is_none_or(|found| found == lists[0]));
            }
        }
    }
}
