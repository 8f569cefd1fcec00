//! The changes of a list of cells, as steps that can be applied forwards and backwards.

use std::collections::{HashMap, HashSet};

use crate::notebook::{ChangeKind, Document, Revision, out_of_order};
use crate::project::event::CellStep;

/// The ids and revisions of a notebook's cells, in order.
pub type Manifest = Vec<(String, Revision)>;

/// Returns the list of a document's cells.
pub fn manifest(document: &Document) -> Manifest {
    let cells = document.cells().iter();
    cells
        .map(|cell| (cell.id().to_owned(), cell.revision()))
        .collect()
}

/// Returns the list of a document's cells, if the document was made by an edit of `before` with the list
/// `known`. Only the cells that the edit touched are hashed.
pub(super) fn manifest_after(document: &Document, before: &Document, known: &Manifest) -> Manifest {
    let old = before.cells().iter().zip(known);
    let old: HashMap<_, _> = old
        .map(|(cell, known)| (cell.id(), (cell, known.1)))
        .collect();
    let cells = document.cells().iter().map(|cell| {
        let same = old.get(cell.id()).filter(|(old, _)| cell.is_untouched(old));
        let revision = same.map_or_else(|| cell.revision(), |(_, revision)| *revision);
        (cell.id().to_owned(), revision)
    });
    cells.collect()
}

/// Returns whether no cell's bytes were changed from one document to the other.
pub(super) fn is_untouched(one: &Document, other: &Document) -> bool {
    let (one, other) = (one.cells(), other.cells());
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|(one, other)| one.is_untouched(other))
}

/// Returns the revision of a notebook with these cells.
pub fn revision(cells: &Manifest) -> Revision {
    Revision::of_cells(cells.iter().map(|(id, revision)| (&**id, *revision)))
}

/// Returns the steps that lead from one list to another.
pub fn between(before: &Manifest, after: &Manifest) -> Vec<CellStep> {
    let places = |cells: &Manifest| -> HashMap<String, usize> {
        let cells = cells.iter().enumerate();
        cells.map(|(index, (id, _))| (id.clone(), index)).collect()
    };
    if before == after {
        return Vec::new();
    }
    let (old, new) = (places(before), places(after));
    let new_indices: Vec<_> = before.iter().map(|(id, _)| new.get(id).copied()).collect();
    let moved = out_of_order(&new_indices);
    let mut steps = Vec::new();
    for (from, (((cell, revision), to), moved)) in
        before.iter().zip(&new_indices).zip(moved).enumerate()
    {
        let after = to
            .and_then(|to| after.get(to))
            .map(|(_, revision)| *revision);
        if after == Some(*revision) && !moved {
            continue;
        }
        let step = CellStep {
            before: Some(*revision),
            ..CellStep::new(cell, ChangeKind::Removed, from)
        };
        let Some(to) = *to else {
            steps.push(step);
            continue;
        };
        if moved {
            steps.push(CellStep {
                kind: ChangeKind::Moved,
                index: to,
                from: Some(from),
                before: after,
                after,
                ..step.clone()
            });
        }
        if after != step.before {
            steps.push(CellStep {
                kind: ChangeKind::Edited,
                index: to,
                after,
                ..step
            });
        }
    }
    let inserted = after.iter().enumerate();
    let inserted = inserted.filter(|(_, (id, _))| !old.contains_key(id));
    steps.extend(inserted.map(|(index, (id, revision))| CellStep {
        after: Some(*revision),
        ..CellStep::new(id, ChangeKind::Inserted, index)
    }));
    steps
}

/// Returns the list before the steps, given the list after them.
pub fn back(after: &Manifest, steps: &[CellStep]) -> Manifest {
    followed(after, steps, true)
}

/// Returns the list after the steps, given the list before them.
pub fn forth(before: &Manifest, steps: &[CellStep]) -> Manifest {
    followed(before, steps, false)
}

fn followed(cells: &Manifest, steps: &[CellStep], is_back: bool) -> Manifest {
    let (goes, comes) = match is_back {
        true => (ChangeKind::Inserted, ChangeKind::Removed),
        false => (ChangeKind::Removed, ChangeKind::Inserted),
    };
    let then = |step: &CellStep| if is_back { step.before } else { step.after };
    let of_kind = |kind| steps.iter().filter(move |step| step.kind == kind);
    let leave = of_kind(goes).chain(of_kind(ChangeKind::Moved));
    let leave: HashSet<&str> = leave.map(|step| &*step.cell).collect();
    let now: HashMap<_, _> = cells.iter().map(|(id, its)| (&**id, *its)).collect();
    let edited = of_kind(ChangeKind::Edited).filter_map(|step| Some((&*step.cell, then(step)?)));
    let edited: HashMap<_, _> = edited.collect();
    let revision = |id: &str| edited.get(id).or_else(|| now.get(id)).copied();
    let stay = cells.iter().filter(|(id, _)| !leave.contains(&**id));
    let stay = stay.filter_map(|(id, _)| Some((id.clone(), revision(id)?)));
    let come = steps.iter().filter_map(|step| match step.kind {
        ChangeKind::Moved => {
            let index = if is_back { step.from? } else { step.index };
            Some((index, (step.cell.clone(), revision(&step.cell)?)))
        }
        kind if kind == comes => Some((step.index, (step.cell.clone(), then(step)?))),
        _ => None,
    });
    placed(stay.collect(), come.collect())
}

/// Inserts cells so that each has its position in the whole list.
fn placed(stay: Manifest, mut come: Vec<(usize, (String, Revision))>) -> Manifest {
    come.sort_by_key(|(index, _)| *index);
    let mut cells = Vec::with_capacity(stay.len() + come.len());
    let mut stay = stay.into_iter();
    for (index, cell) in come {
        let missing = index.saturating_sub(cells.len());
        cells.extend(stay.by_ref().take(missing));
        cells.push(cell);
    }
    cells.extend(stay);
    cells
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rev(number: u8) -> Revision {
        format!("{number:010x}").parse().unwrap()
    }

    fn list(words: &str) -> Manifest {
        let words = words.split_whitespace();
        let cell = |word: &str| {
            let (id, revision) = word.split_at(1);
            (id.to_owned(), rev(revision.parse().unwrap()))
        };
        words.map(cell).collect()
    }

    #[test]
    fn few_steps_tell_what_became_of_it() {
        let steps = between(&list("a1 b1 c1 d1"), &list("d1 a1 x1 c2"));
        let texts: Vec<_> = steps
            .iter()
            .map(|step| (&*step.cell, step.kind, step.index, step.from))
            .collect();
        assert_eq!(
            texts,
            [
                ("b", ChangeKind::Removed, 1, None),
                ("c", ChangeKind::Edited, 3, None),
                ("d", ChangeKind::Moved, 0, Some(3)),
                ("x", ChangeKind::Inserted, 2, None),
            ]
        );
        assert_eq!(between(&list("a1 b1"), &list("a1 b1")), []);
    }

    /// Changes a list in a random way: (what, which, where).
    fn changed(cells: &mut Manifest, (kind, which, to): (u8, usize, usize), fresh: &mut u8) {
        *fresh += 1;
        let at = which % cells.len().max(1);
        match kind % 4 {
            0 => cells.insert(to % (cells.len() + 1), (format!("n{fresh}"), rev(*fresh))),
            _ if cells.is_empty() => {}
            1 => drop(cells.remove(at)),
            2 => cells[at].1 = rev(*fresh),
            _ => {
                let cell = cells.remove(at);
                cells.insert(to % (cells.len() + 1), cell);
            }
        }
    }

    proptest! {
        #[test]
        fn steps_lead_back_and_forth(
            writes in prop::collection::vec(
                prop::collection::vec((any::<u8>(), any::<usize>(), any::<usize>()), 1..6), 1..12),
        ) {
            let mut cells = list("a1 b1 c1 d1 e1");
            let (mut lists, mut journal, mut fresh) = (vec![cells.clone()], Vec::new(), 1);
            for write in writes {
                for change in write {
                    changed(&mut cells, change, &mut fresh);
                }
                let steps = between(lists.last().unwrap(), &cells);
                prop_assert_eq!(&forth(lists.last().unwrap(), &steps), &cells);
                journal.push(steps);
                lists.push(cells.clone());
            }
            for (steps, earlier) in journal.iter().zip(&lists).rev() {
                cells = back(&cells, steps);
                prop_assert_eq!(&cells, earlier);
            }
        }
    }
}
