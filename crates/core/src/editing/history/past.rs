//! The cells of a notebook at an earlier revision.

use super::READ_TIMEOUT;
use super::ledger_content::LedgerContent;
use super::steps::{self, Manifest};
use crate::editing::notebook_file::NotebookFile;
use crate::notebook::Revision;
use crate::project::event::{Event, NotebookChange};

/// Returns the cells that a notebook had at an earlier revision; if it had that revision more than once, at
/// the last time. `None` if the journal does not reach back so far.
pub fn manifest_at(notebook: &NotebookFile, revision: Revision) -> Option<Manifest> {
    let (content, events) = {
        // The lock keeps the ledger and the journal's end consistent.
        let ledger = notebook.project.ledger(&notebook.key, READ_TIMEOUT).ok()?;
        let content: LedgerContent = ledger.read()?;
        (content, notebook.project.events(&notebook.key))
    };
    let entries = events.filter_map(Event::into_change);
    walk_back(content.cells, content.revision, entries, revision)
}

/// Returns the cells at the revision `target`. `entries` are newest first; each is undone in turn.
fn walk_back(
    mut cells: Manifest,
    mut at: Revision,
    mut entries: impl Iterator<Item = NotebookChange>,
    target: Revision,
) -> Option<Manifest> {
    while at != target {
        let entry = entries.next().filter(|entry| entry.after == at)?;
        cells = steps::back(&cells, &entry.changes);
        at = entry.before;
    }
    // If a line of the journal was lost, the cells may be others.
    (steps::revision(&cells) == target).then_some(cells)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(cells: &[(u8, u8)]) -> Manifest {
        let mut list = Manifest::new();
        for (id, revision) in cells {
            let id = format!("cell{id}");
            if list.iter().all(|(content, _)| *content != id) {
                list.push((id, format!("{revision:010x}").parse().unwrap()));
            }
        }
        list
    }

    fn recorded(before: &Manifest, after: &Manifest) -> NotebookChange {
        let [from, to] = [before, after].map(steps::revision);
        NotebookChange::of(from, to, steps::between(before, after))
    }

    proptest! {
        #[test]
        fn every_earlier_list_is_found_on_the_way_back(
            lists in prop::collection::vec(prop::collection::vec((0..9_u8, 0..4_u8), 0..9), 1..12),
        ) {
            let lists: Vec<_> = lists.iter().map(|cells| list(cells)).collect();
            let journal: Vec<_> = lists.windows(2).map(|two| recorded(&two[0], &two[1])).collect();
            let now = lists.last().unwrap();
            for target in &lists {
                let back = journal.iter().rev().cloned();
                let revision = steps::revision(target);
                let found = walk_back(now.clone(), steps::revision(now), back, revision);
                prop_assert_eq!(found.as_ref(), Some(target));
            }
            // With one entry lost, earlier lists are not known, and no wrong list is returned.
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
