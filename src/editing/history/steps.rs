//! What became of a list of cells, as steps that lead back as well as forth.

use std::collections::{HashMap, HashSet};

use crate::notebook::{ChangeKind, Document, Revision, out_of_order};
use crate::project::event::CellStep;

/// The cells of a notebook in their order: id and revision.
pub type Manifest = Vec<(String, Revision)>;

/// Returns the list of a document's cells.
pub fn manifest(document: &Document) -> Manifest {
    let cells = document.cells().iter();
    cells
        .map(|cell| (cell.id().to_owned(), cell.revision()))
        .collect()
}

/// Returns the list of a document's cells that was made by an edit of one whose list is known: only
/// what the edit touched is looked at.
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

/// Whether two documents have the same cells, untouched.
pub(super) fn is_untouched(one: &Document, other: &Document) -> bool {
    let (one, other) = (one.cells(), other.cells());
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|(one, other)| one.is_untouched(other))
}

/// Returns the revision of a notebook of these cells.
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
    let there: Vec<_> = before.iter().map(|(id, _)| new.get(id).copied()).collect();
    let moved = out_of_order(&there);
    let mut steps = Vec::new();
    for (from, (((cell, revision), to), moved)) in before.iter().zip(&there).zip(moved).enumerate()
    {
        let after = to
            .and_then(|to| after.get(to))
            .map(|(_, revision)| *revision);
        if after == Some(*revision) && !moved {
            continue;
        }
        let step = CellStep {
            cell: cell.clone(),
            what: ChangeKind::Removed,
            index: from,
            from: None,
            before: Some(*revision),
            after: None,
            kept: None,
            came: false,
        };
        let Some(to) = *to else {
            steps.push(step);
            continue;
        };
        if moved {
            steps.push(CellStep {
                what: ChangeKind::Moved,
                index: to,
                from: Some(from),
                before: after,
                after,
                ..step.clone()
            });
        }
        if after != step.before {
            steps.push(CellStep {
                what: ChangeKind::Edited,
                index: to,
                after,
                ..step
            });
        }
    }
    let inserted = after.iter().enumerate();
    let inserted = inserted.filter(|(_, (id, _))| !old.contains_key(id));
    steps.extend(inserted.map(|(index, (id, revision))| CellStep {
        cell: id.clone(),
        what: ChangeKind::Inserted,
        index,
        from: None,
        before: None,
        after: Some(*revision),
        kept: None,
        came: false,
    }));
    steps
}

/// Returns the list that the steps led from, given the one that they led to.
pub fn back(after: &Manifest, steps: &[CellStep]) -> Manifest {
    let gone = ids(steps, &[ChangeKind::Inserted, ChangeKind::Moved]);
    let revisions = steps.iter().filter(|step| step.what == ChangeKind::Edited);
    let revisions: HashMap<_, _> = revisions
        .filter_map(|step| Some((&*step.cell, step.before?)))
        .collect();
    let now: HashMap<_, _> = after.iter().map(|(id, its)| (&**id, *its)).collect();
    let of = |id: &str| revisions.get(id).or_else(|| now.get(id)).copied();
    let stay = after.iter().filter(|(id, _)| !gone.contains(&**id));
    let stay = stay.filter_map(|(id, _)| Some((id.clone(), of(id)?)));
    let come = steps.iter().filter_map(|step| match step.what {
        ChangeKind::Removed => Some((step.index, (step.cell.clone(), step.before?))),
        ChangeKind::Moved => Some((step.from?, (step.cell.clone(), of(&step.cell)?))),
        _ => None,
    });
    placed(stay.collect(), come.collect())
}

/// Returns the list that the steps lead to.
pub fn forth(before: &Manifest, steps: &[CellStep]) -> Manifest {
    let gone = ids(steps, &[ChangeKind::Removed, ChangeKind::Moved]);
    let revisions = steps.iter().filter(|step| step.what == ChangeKind::Edited);
    let revisions: HashMap<_, _> = revisions
        .filter_map(|step| Some((&*step.cell, step.after?)))
        .collect();
    let then: HashMap<_, _> = before.iter().map(|(id, its)| (&**id, *its)).collect();
    let of = |id: &str| revisions.get(id).or_else(|| then.get(id)).copied();
    let stay = before.iter().filter(|(id, _)| !gone.contains(&**id));
    let stay = stay.filter_map(|(id, _)| Some((id.clone(), of(id)?)));
    let come = steps.iter().filter_map(|step| match step.what {
        ChangeKind::Inserted => Some((step.index, (step.cell.clone(), step.after?))),
        ChangeKind::Moved => Some((step.index, (step.cell.clone(), of(&step.cell)?))),
        _ => None,
    });
    placed(stay.collect(), come.collect())
}

fn ids<'a>(steps: &'a [CellStep], what: &[ChangeKind]) -> HashSet<&'a str> {
    let steps = steps.iter().filter(|step| what.contains(&step.what));
    steps.map(|step| &*step.cell).collect()
}

/// Puts cells at their places of the whole list; the others fill the rest in their order.
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
        let said: Vec<_> = steps
            .iter()
            .map(|step| (&*step.cell, step.what, step.index, step.from))
            .collect();
        assert_eq!(
            said,
            [
                ("b", ChangeKind::Removed, 1, None),
                ("c", ChangeKind::Edited, 3, None),
                ("d", ChangeKind::Moved, 0, Some(3)),
                ("x", ChangeKind::Inserted, 2, None),
            ]
        );
        assert_eq!(between(&list("a1 b1"), &list("a1 b1")), []);
    }

    /// What happens to a list: (what, which, where).
    fn changed(cells: &mut Manifest, (what, which, to): (u8, usize, usize), fresh: &mut u8) {
        *fresh += 1;
        let at = which % cells.len().max(1);
        match what % 4 {
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
