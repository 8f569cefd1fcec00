//! One operation undone, in a notebook that others may have changed since.
//!
//! An undo is a three-way merge: the base is the notebook as the operation left it, the file is the
//! notebook now, and the writer's version is the notebook as it was before the operation.

use std::collections::{HashMap, HashSet};

use super::exact_bytes::ExactBytes;
use crate::notebook::document::{Cell, CellType, Document, Revision};
use crate::notebook::edit::{Conflict, EditError};
use crate::notebook::json::Json;
use crate::notebook::merge::{merge, out_of_order};

/// The record of one operation that is to be undone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationUndo {
    /// The cells that it changed, made or removed.
    pub cells: Vec<TouchedCell>,
    /// The ids of all cells before it, in their order.
    pub before: Vec<String>,
    /// The ids of all cells after it, in their order.
    pub after: Vec<String>,
    /// The bytes that it changed, where they are kept.
    pub exact: Option<ExactBytes>,
}

/// A cell that an operation changed, made or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TouchedCell {
    /// The cell's id.
    pub cell: String,
    /// The cell before the operation; none for a new cell.
    pub before: Option<RememberedCell>,
    /// The cell after the operation; none for a removed cell.
    pub after: Option<RememberedCell>,
    /// Whether the operation brought back outputs that the cell did not have before.
    pub outputs_came: bool,
}

/// An earlier version of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RememberedCell {
    /// The version's revision.
    pub revision: Revision,
    /// The cell, if it is remembered; with outputs only if they would be lost otherwise.
    pub cell: Option<Json>,
}

/// A notebook with an operation undone.
#[derive(Clone, Debug)]
pub struct UndoneNotebook {
    /// The notebook.
    pub document: Document,
    /// The parts that could not be undone, as somebody has changed them since.
    pub conflicts: Vec<Conflict>,
}

/// Why an operation cannot be undone at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperationUndoError {
    /// A version of a cell that is needed is not remembered any more.
    #[error("what cell {cell} was as revision {revision} is not remembered any more")]
    Forgotten {
        /// The cell's id.
        cell: String,
        /// The revision that it had.
        revision: Revision,
    },
    /// The notebook cannot be edited.
    #[error(transparent)]
    Edit(#[from] EditError),
}

impl OperationUndo {
    /// Undoes the operation in a notebook. Cells that are still as the operation left them become
    /// what they were; changes by others since are merged by lines, or are conflicts. With `force`
    /// changes by others of the same cells are overwritten.
    ///
    /// # Errors
    /// A version that is needed is forgotten, or the format is only read.
    pub fn undo(&self, now: &Document, force: bool) -> Result<UndoneNotebook, OperationUndoError> {
        now.check_writable()?;
        let mut conflicts = Vec::new();
        let base = self.base(now, force)?;
        let mut wanted = base.clone();
        for touched in &self.cells {
            let at = place_of(&wanted, &touched.cell);
            match (&touched.before, &touched.after, at) {
                (Some(before), _, Some(at)) => {
                    if let Some(cell) = &before.cell {
                        wanted.restore_version(at, cell)?;
                    } else if !is_of(&wanted, at, before) {
                        return Err(touched.forgotten(before));
                    }
                    let cell = wanted.cells.get(at);
                    let code = cell.is_some_and(|cell| cell.cell_type() == CellType::Code);
                    if touched.outputs_came && code {
                        wanted.clear_outputs(at)?;
                    }
                }
                (None, Some(_), Some(at)) => {
                    wanted.remove(at)?;
                }
                // Somebody removed it since.
                (Some(before), Some(after), None) if !force => {
                    let text = |version: &RememberedCell| version.cell.as_ref().map(source_of);
                    conflicts.push(Conflict {
                        cell: Some(touched.cell.clone()),
                        field: "deleted".into(),
                        base: text(after),
                        yours: text(before),
                        ..Conflict::default()
                    });
                }
                _ => {}
            }
        }
        self.order_as_before(&mut wanted);
        let cells: HashMap<&str, &TouchedCell> = self
            .cells
            .iter()
            .map(|touched| (touched.cell.as_str(), touched))
            .collect();
        // A cell that is in the notebook now was brought back by somebody since.
        let there: HashSet<&str> = now.cells.iter().map(Cell::id).collect();
        // Cells that stood together come back together, each after the one before it.
        let mut next = None;
        for id in &self.before {
            let touched = cells.get(id.as_str());
            let gone = touched.filter(|touched| touched.after.is_none() || force);
            let gone = gone.filter(|touched| !there.contains(touched.cell.as_str()));
            let Some((touched, before)) = gone.and_then(|it| Some((it, it.before.as_ref()?)))
            else {
                next = None;
                continue;
            };
            let cell = before.cell.as_ref();
            let cell = cell.ok_or_else(|| touched.forgotten(before))?;
            let at = next.unwrap_or_else(|| self.place_before(&wanted, id));
            wanted.restore_cell(at, id, cell)?;
            next = Some(at + 1);
        }
        let merged = merge(&base, now, &wanted, &|_| false);
        conflicts.extend(merged.conflicts);
        let mut document = merged.document;
        if let Some(exact) = self.exact.as_ref().filter(|_| conflicts.is_empty()) {
            exact.put(now, &mut document);
        }
        Ok(UndoneNotebook {
            document,
            conflicts,
        })
    }

    /// Returns the notebook as the operation left it, as far as its cells are still there; what came
    /// since is not in it.
    fn base(&self, now: &Document, force: bool) -> Result<Document, OperationUndoError> {
        let mut base = now.clone();
        if force {
            // The notebook now counts as what the operation left, so no change of others is kept.
            return Ok(base);
        }
        let left: HashSet<&str> = self.after.iter().map(String::as_str).collect();
        for at in (0..base.cells.len()).rev() {
            if base
                .cells
                .get(at)
                .is_some_and(|cell| !left.contains(cell.id()))
            {
                base.take_cell(at);
            }
        }
        base.arrange(&self.after);
        for touched in &self.cells {
            let (Some(after), Some(at)) = (&touched.after, place_of(&base, &touched.cell)) else {
                continue;
            };
            // Somebody may have undone the operation by hand already.
            let before = touched.before.as_ref();
            if is_of(&base, at, after) || before.is_some_and(|before| is_of(&base, at, before)) {
                continue;
            }
            let cell = after
                .cell
                .as_ref()
                .ok_or_else(|| touched.forgotten(after))?;
            base.restore_version(at, cell)?;
        }
        Ok(base)
    }

    /// Moves the cells back that the operation moved, where all else stands as it stands.
    fn order_as_before(&self, document: &mut Document) {
        let places: HashMap<&str, usize> = numbered(&self.after);
        let places: Vec<_> = self
            .before
            .iter()
            .map(|id| places.get(id.as_str()).copied())
            .collect();
        let moved = out_of_order(&places);
        let movers: Vec<&String> = self
            .before
            .iter()
            .zip(&moved)
            .filter(|(_, moved)| **moved)
            .map(|(id, _)| id)
            .collect();
        if movers.is_empty() {
            return;
        }
        let mut taken = HashMap::new();
        for id in &movers {
            if let Some(at) = place_of(document, id) {
                taken.insert(id.as_str(), document.take_cell(at));
            }
        }
        for id in movers {
            if let Some(cell) = taken.remove(id.as_str()) {
                let at = self.place_before(document, id);
                document.put_cell(at, cell);
            }
        }
    }

    /// Returns where a cell goes that stood somewhere before the operation: after the nearest cell
    /// before it that is there, else before the nearest one after it, else at the end.
    fn place_before(&self, document: &Document, id: &str) -> usize {
        position_beside(document, &self.before, id)
    }
}

/// Returns where a cell goes that stood among others: after the nearest of those before it that is
/// there, else before the nearest of those after it, else at the end.
pub fn position_beside(document: &Document, order: &[String], id: &str) -> usize {
    let there = document.positions_by_id();
    let stood = order.iter().position(|other| other == id);
    let (earlier, later) = order.split_at(stood.unwrap_or(order.len()));
    let place = |id: &String| there.get(id.as_str()).copied();
    let after = earlier.iter().rev().find_map(place).map(|at| at + 1);
    let before = || later.iter().find_map(place);
    after.or_else(before).unwrap_or(document.cells.len())
}

impl TouchedCell {
    fn forgotten(&self, version: &RememberedCell) -> OperationUndoError {
        OperationUndoError::Forgotten {
            cell: self.cell.clone(),
            revision: version.revision,
        }
    }
}

impl Document {
    /// Puts the cells in the order of a list of ids, which names all of them; what stands between
    /// two cells belongs to the place.
    fn arrange(&mut self, order: &[String]) {
        let numbers = numbered(order);
        let number = |cell: &Cell| numbers.get(cell.id()).copied();
        if self.cells.is_sorted_by_key(number) {
            return;
        }
        let between: Vec<_> = self.cells.iter().map(|cell| cell.before.clone()).collect();
        self.cells.sort_by_key(number);
        for (cell, before) in self.cells.iter_mut().zip(between) {
            cell.before = before;
        }
    }
}

fn numbered(ids: &[String]) -> HashMap<&str, usize> {
    ids.iter().map(String::as_str).zip(0..).collect()
}

fn place_of(document: &Document, id: &str) -> Option<usize> {
    document.cells.iter().position(|cell| cell.id() == id)
}

fn is_of(document: &Document, at: usize, version: &RememberedCell) -> bool {
    let cell = document.cells.get(at);
    cell.is_some_and(|cell| cell.revision() == version.revision)
}

fn source_of(cell: &Json) -> String {
    cell.cell_source().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::notebook::CellExecution;
    use crate::notebook::ChangeKind;
    use crate::notebook::NewCell;
    use crate::notebook::changes;
    use crate::notebook::json::Layout;
    use crate::notebook::tests::fixtures::{cells, in_words};
    use crate::notebook::tests::laws::{assert_whole, meaning, notebook, open};

    /// What was done between two versions, with what is remembered of it.
    fn deed(before: &Document, after: &Document) -> OperationUndo {
        let ids = |document: &Document| -> Vec<String> {
            let ids = document.cells().iter().map(Cell::id);
            ids.map(str::to_owned).collect()
        };
        let version = |document: &Document, id: &str, whole: bool| {
            let cell = document.cells().get(place_of(document, id)?)?;
            let mut bare = cell.clone();
            for (name, value) in [("outputs", &b"[]"[..]), ("execution_count", b"null")] {
                if bare.raw(name).is_some() {
                    bare.set(name, value, &Layout::default());
                }
            }
            Some(RememberedCell {
                revision: cell.revision(),
                cell: Some(Json::of_valid(match whole {
                    true => &cell.text,
                    false => &bare.text,
                })),
            })
        };
        let ran = |document: &Document, id: &str| {
            let cell = place_of(document, id).and_then(|at| document.cells().get(at));
            cell.is_some_and(Cell::has_run)
        };
        let lost = |id: &str| ran(before, id) && !ran(after, id);
        let changes = changes(before, after).into_iter();
        let changes = changes.filter(|changed| changed.what != ChangeKind::Moved);
        OperationUndo {
            cells: changes
                .map(|changed| TouchedCell {
                    before: version(before, &changed.cell, lost(&changed.cell)),
                    after: version(after, &changed.cell, false),
                    outputs_came: !ran(before, &changed.cell) && ran(after, &changed.cell),
                    cell: changed.cell,
                })
                .collect(),
            before: ids(before),
            after: ids(after),
            exact: ExactBytes::of(before, after),
        }
    }

    fn back(before: &str, after: &str, now: &str, force: bool) -> (String, Vec<String>) {
        let deed = deed(&cells(before), &cells(after));
        let taken = deed.undo(&cells(now), force).unwrap();
        let conflicts = taken.conflicts.into_iter();
        let conflicts = conflicts.map(|it| format!("{} {}", it.cell.unwrap_or_default(), it.field));
        assert_whole(&taken.document);
        (in_words(&taken.document), conflicts.collect())
    }

    #[test]
    fn what_others_did_since_stays() {
        for (before, after, now, want) in [
            ("a:1 b:2", "a:1 b:3", "a:1 b:3", "a:1 b:2"),
            // Beside it, in another line, and by hand already.
            ("a:1 b:2", "a:1 b:3", "h:h a:9 b:3", "h:h a:9 b:2"),
            ("a:x|y", "a:x|Y", "a:X|Y", "a:X|y"),
            ("a:1", "a:2", "a:1", "a:1"),
            // A new cell goes, a removed one comes back beside its neighbour.
            ("a:1", "a:1 n:2", "a:1 n:2 h:h", "a:1 h:h"),
            ("a:1 b:2 c:3", "a:1 c:3", "a:1 h:h c:3", "a:1 h:h b:2 c:3"),
            ("a:1 b:2 c:3", "c:3", "h:h c:3", "h:h a:1 b:2 c:3"),
            ("a:1 b:2", "", "h:h", "h:h a:1 b:2"),
            ("a:1 b:2", "b:2", "b:2 a:x", "b:2 a:x"),
            // Moves.
            (
                "a:1 b:2 c:3",
                "c:3 a:1 b:2",
                "c:3 a:1 h:h b:2",
                "a:1 h:h b:2 c:3",
            ),
            ("a:1 b:2 c:3", "b:2 c:3 a:1", "c:4 a:1", "a:1 c:4"),
            // One made two, and two made one.
            ("a:x|y", "a:x n:y", "a:x n:y h:h", "a:x|y h:h"),
            ("a:x b:y", "a:x|y", "a:X|y", "a:X b:y"),
        ] {
            assert_eq!(
                back(before, after, now, false),
                (want.into(), vec![]),
                "{before} / {after} / {now}"
            );
        }
    }

    #[test]
    fn what_does_not_go_together_is_a_conflict_unless_forced() {
        for (before, after, now, conflict, forced) in [
            ("a:1 b:2", "a:2 b:2", "a:h b:2", "a source", "a:1 b:2"),
            ("a:1", "a:1 n:2", "a:1 n:h", "n deleted", "a:1"),
            (
                "a:1 b:2 c:3",
                "a:1 b:x c:3",
                "a:1 c:3",
                "b deleted",
                "a:1 b:2 c:3",
            ),
        ] {
            let (_, conflicts) = back(before, after, now, false);
            assert_eq!(conflicts, [conflict], "{before} / {after} / {now}");
            assert_eq!(back(before, after, now, true), (forced.into(), vec![]));
        }
    }

    #[test]
    fn what_is_forgotten_is_said_where_it_is_needed() {
        let mut deed = deed(&cells("a:1"), &cells("a:2"));
        deed.cells[0].after.as_mut().unwrap().cell = None;
        // What stands there is what it left: it need not be remembered.
        assert!(deed.undo(&cells("a:2"), false).is_ok());
        let forgotten = deed.undo(&cells("a:3"), false).unwrap_err();
        assert!(matches!(forgotten, OperationUndoError::Forgotten { .. }));
        deed.cells[0].before.as_mut().unwrap().cell = None;
        assert!(deed.undo(&cells("a:2"), false).is_err());
    }

    /// One operation, with what the command line can do.
    fn step(document: &Document, kind: u8, at: usize, to: usize, number: usize) -> Document {
        let mut new = document.clone();
        let _ = match kind {
            0 => {
                let cell = NewCell {
                    id: format!("new-{number}"),
                    cell_type: [CellType::Code, CellType::Raw][to % 2],
                    source: format!("new\n{number}"),
                    metadata: None,
                };
                new.insert(at.min(new.cells().len()), &cell).map(|_| ())
            }
            1 => new.remove(at).map(|_| ()),
            2 => new.move_cell(at, to).map(|_| ()),
            3 => new
                .set_source(at, &format!("{number}\nedited {to}"))
                .map(|_| ()),
            4 => new
                .set_metadata(at, &["own", "x"], &Json::from(number as u64))
                .map(|_| ()),
            5 => {
                let types = [CellType::Code, CellType::Markdown, CellType::Raw];
                new.set_type(at, types[to % 3]).map(|_| ())
            }
            6 => new.clear_outputs(at).map(|_| ()),
            7 => new.split(at, 1, &format!("split-{number}")).map(|_| ()),
            _ => new.join(at, 2 + to % 2).map(|_| ()),
        };
        new
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn operations_taken_back_in_reverse_leave_nothing(
            written in any::<bool>().prop_flat_map(notebook),
            steps in proptest::collection::vec(
                proptest::collection::vec((0..9_u8, 0..7_usize, 0..7_usize), 1..4), 1..6),
        ) {
            let first = open(&written.text);
            let mut now = first.clone();
            let mut deeds = Vec::new();
            let mut number = 0;
            for operations in &steps {
                let before = now.clone();
                for (kind, at, to) in operations {
                    number += 1;
                    now = step(&now, *kind, *at, *to, number);
                }
                deeds.push((deed(&before, &now), before));
            }
            let last = now.clone();
            let mut redo = Vec::new();
            for (deed_of, before) in deeds.iter().rev() {
                let taken = deed_of.undo(&now, false).unwrap();
                prop_assert_eq!(&taken.conflicts, &[]);
                assert_whole(&taken.document);
                // Not a byte is another than it was.
                prop_assert_eq!(taken.document.to_bytes(), before.to_bytes());
                redo.push(deed(&now, &taken.document));
                now = taken.document;
            }
            prop_assert_eq!(now.revision(), first.revision());
            let meaning_of = |document: &Document| {
                let mut value = meaning(document);
                let cells = value["cells"].take();
                let Some(cells) = cells.as_array() else { return Vec::new() };
                let mut cells = cells.clone();
                for (cell, own) in cells.iter_mut().zip(document.cells()) {
                    // Ids that were missing are written by the first edit.
                    cell["id"] = own.id().into();
                    cell["source"] = own.source().into();
                    if !own.has_run() {
                        // Times without outputs are left over from clearing them elsewhere.
                        cell["metadata"].as_object_mut().unwrap().remove("execution");
                    }
                }
                cells
            };
            prop_assert_eq!(meaning_of(&now), meaning_of(&first));
            // And done again.
            for deed_of in redo.iter().rev() {
                let taken = deed_of.undo(&now, false).unwrap();
                prop_assert_eq!(&taken.conflicts, &[]);
                now = taken.document;
            }
            prop_assert_eq!(now.revision(), last.revision());
            prop_assert_eq!(meaning_of(&now), meaning_of(&last));
            prop_assert_eq!(now.to_bytes(), last.to_bytes());
        }

        #[test]
        fn what_was_done_since_in_other_cells_stays(
            written in notebook(true), at in 0..6_usize, to in 0..6_usize, kind in 0..7_u8,
            others in proptest::collection::vec((0..7_u8, 0..7_usize, 0..7_usize), 0..5),
        ) {
            let first = open(&written.text);
            let done = step(&first, kind, at, to, 0);
            let deed_of = deed(&first, &done);
            let mut now = done;
            for (number, (kind, at, to)) in others.iter().enumerate() {
                now = step(&now, *kind, *at, *to, number + 100);
            }
            let touched = |id: &str| deed_of.cells.iter().any(|cell| cell.cell == id);
            let taken = deed_of.undo(&now, false).unwrap();
            assert_whole(&taken.document);
            for cell in now.cells().iter().filter(|cell| !touched(cell.id())) {
                let kept = place_of(&taken.document, cell.id()).and_then(|at| taken.document.cells().get(at));
                prop_assert_eq!(kept.map(|kept| &kept.text), Some(&cell.text));
            }
            // Nobody touched it since: it is what it was.
            for cell in &deed_of.cells {
                let left = cell.after.as_ref().map(|after| after.revision);
                let now_at = place_of(&now, &cell.cell).and_then(|at| now.cells().get(at));
                if now_at.map(Cell::revision) == left {
                    let is = place_of(&taken.document, &cell.cell).and_then(|at| taken.document.cells().get(at));
                    prop_assert_eq!(is.map(Cell::revision), cell.before.as_ref().map(|it| it.revision));
                }
            }
        }
    }

    #[test]
    fn outputs_come_back_unless_the_cell_ran_since() {
        let mut before = cells("a:1 b:2");
        let ran = |count| CellExecution {
            outputs: vec![
                Json::parse(r#"{"output_type":"stream","name":"stdout","text":"x"}"#).unwrap(),
            ],
            execution_count: Some(count),
            times: None,
        };
        before.set_execution(0, &ran(1)).unwrap();
        before.set_execution(1, &ran(2)).unwrap();
        let mut after = before.clone();
        after.clear_outputs(0).unwrap();
        after.clear_outputs(1).unwrap();
        let mut now = after.clone();
        now.set_execution(1, &ran(7)).unwrap();
        let taken = deed(&before, &after).undo(&now, false).unwrap();
        let counts = taken.document.cells().iter().map(Cell::execution_count);
        assert_eq!(counts.collect::<Vec<_>>(), [Some(1), Some(7)]);
        // So they do with a cell that was removed.
        let mut after = before.clone();
        after.remove(0).unwrap();
        let taken = deed(&before, &after).undo(&after, false).unwrap();
        assert_eq!(taken.document.to_bytes(), before.to_bytes());
    }
}
