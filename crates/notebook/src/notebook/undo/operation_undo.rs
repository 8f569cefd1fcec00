//! Undoes one operation in a notebook that others may have changed since.
//!
//! An undo is a three-way merge: the base is the notebook as the operation left it, the file is the
//! notebook now, and the writer's version is the notebook as it was before the operation.

use std::collections::{HashMap, HashSet};

use super::exact_bytes::ExactBytes;
use crate::notebook::document::{Cell, CellType, Document, Revision};
use crate::notebook::edit::{Conflict, DocumentEditError};
use crate::notebook::json::Json;
use crate::notebook::merge::{MergedNotebook, merge, out_of_order, outputs_lost};

/// The record of one operation that is to be undone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationUndo {
    /// The cells that the operation changed, added or removed.
    pub cells: Vec<TouchedCell>,
    /// The ids of all cells before the operation, in their order.
    pub before: Vec<String>,
    /// The ids of all cells after the operation, in their order.
    pub after: Vec<String>,
    /// The bytes that the operation replaced, if they are stored.
    pub exact: Option<ExactBytes>,
}

/// A cell that an operation changed, added or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TouchedCell {
    /// The cell's id.
    pub cell: String,
    /// The cell before the operation; `None` for an added cell.
    pub before: Option<RememberedCell>,
    /// The cell after the operation; `None` for a removed cell.
    pub after: Option<RememberedCell>,
    /// Whether the operation restored outputs in a cell that had none before.
    pub outputs_came: bool,
}

/// An earlier version of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RememberedCell {
    /// The version's revision.
    pub revision: Revision,
    /// The cell, if it is stored; with outputs only if they would be lost otherwise.
    pub cell: Option<Json>,
}

/// Why an operation cannot be undone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperationUndoError {
    /// A version of a cell that is needed is no longer stored.
    #[error("what cell {cell} was as revision {revision} is not remembered any more")]
    Forgotten {
        /// The cell's id.
        cell: String,
        /// The revision that it had.
        revision: Revision,
    },
    /// The notebook cannot be edited.
    #[error(transparent)]
    Edit(#[from] DocumentEditError),
}

impl OperationUndo {
    /// Undoes the operation in a notebook. Cells that are still as the operation left them get their
    /// earlier version; later changes by others are merged by lines, or become conflicts. With `force`,
    /// others' changes of the same cells are overwritten.
    ///
    /// # Errors
    /// A version that is needed is no longer stored, or the format is read-only.
    pub fn undo(&self, now: &Document, force: bool) -> Result<MergedNotebook, OperationUndoError> {
        now.check_writable()?;
        let mut conflicts = Vec::new();
        let base = self.base(now, force)?;
        let mut undone = base.clone();
        for touched in &self.cells {
            let at = undone.position_by_id(&touched.cell);
            match (&touched.before, &touched.after, at) {
                (Some(before), _, Some(at)) => {
                    if let Some(cell) = &before.cell {
                        undone.restore_version(at, cell)?;
                    } else if !has_revision(&undone, at, before) {
                        return Err(touched.forgotten(before));
                    }
                    let cell = undone.cells.get(at);
                    let code = cell.is_some_and(|cell| cell.cell_type() == CellType::Code);
                    if touched.outputs_came && code {
                        undone.clear_outputs(at)?;
                    }
                }
                (None, Some(_), Some(at)) => {
                    undone.remove(at)?;
                }
                // The cell was removed since.
                (Some(before), Some(after), None) if !force => {
                    let text = |version: &RememberedCell| version.cell.as_ref()?.cell_source();
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
        self.order_as_before(&mut undone);
        let cells: HashMap<&str, &TouchedCell> = self
            .cells
            .iter()
            .map(|touched| (touched.cell.as_str(), touched))
            .collect();
        // A cell that is in the notebook now was restored since.
        let present: HashSet<&str> = now.cells.iter().map(Cell::id).collect();
        // Cells that were adjacent are restored together, each after the one before it.
        let mut next = None;
        for id in &self.before {
            let touched = cells.get(id.as_str());
            let to_restore = touched.filter(|touched| touched.after.is_none() || force);
            let to_restore = to_restore.filter(|touched| !present.contains(touched.cell.as_str()));
            let Some((touched, before)) = to_restore.and_then(|it| Some((it, it.before.as_ref()?)))
            else {
                next = None;
                continue;
            };
            let cell = before.cell.as_ref();
            let cell = cell.ok_or_else(|| touched.forgotten(before))?;
            let at = next.unwrap_or_else(|| position_beside(&undone, &self.before, id));
            undone.restore_cell(at, id, cell)?;
            next = Some(at + 1);
        }
        for touched in &self.cells {
            conflicts.extend(touched.leave_outputs(&base, now, &mut undone)?);
        }
        let merged = merge(&base, now, &undone, &|_| false);
        conflicts.extend(merged.conflicts);
        let mut document = merged.document;
        if let Some(exact) = self.exact.as_ref().filter(|_| conflicts.is_empty()) {
            exact.put(now, &mut document);
        }
        Ok(MergedNotebook {
            document,
            conflicts,
        })
    }

    /// Returns the notebook as the operation left it, as far as its cells still exist, without cells added
    /// later.
    fn base(&self, now: &Document, force: bool) -> Result<Document, OperationUndoError> {
        let mut base = now.clone();
        if force {
            // The present notebook counts as the one after the operation, so that others' changes are
            // overwritten.
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
            let (Some(after), Some(at)) = (&touched.after, base.position_by_id(&touched.cell))
            else {
                continue;
            };
            // The operation may have been undone by hand already.
            let before = touched.before.as_ref();
            if has_revision(&base, at, after)
                || before.is_some_and(|before| has_revision(&base, at, before))
            {
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

    /// Moves the cells back that the operation moved; other cells stay.
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
            if let Some(at) = document.position_by_id(id) {
                taken.insert(id.as_str(), document.take_cell(at));
            }
        }
        for id in movers {
            if let Some(cell) = taken.remove(id.as_str()) {
                let at = position_beside(document, &self.before, id);
                document.put_cell(at, cell);
            }
        }
    }
}

/// Returns the position for a cell of an earlier order: after the nearest cell before it that still exists,
/// else before the nearest one after it, else at the end.
pub fn position_beside(document: &Document, order: &[String], id: &str) -> usize {
    let positions = document.positions_by_id();
    let index = order.iter().position(|other| other == id);
    let (earlier, later) = order.split_at(index.unwrap_or(order.len()));
    let position = |id: &String| positions.get(id.as_str()).copied();
    let after = earlier.iter().rev().find_map(position).map(|at| at + 1);
    let before = || later.iter().find_map(position);
    after.or_else(before).unwrap_or(document.cells.len())
}

impl TouchedCell {
    /// Leaves the outputs of a cell that has run since the operation, and returns the outputs that do not come back
    /// as a conflict. Their times would not show the order: the clock of a machine that ran the cell may be ahead.
    fn leave_outputs(
        &self,
        base: &Document,
        now: &Document,
        undone: &mut Document,
    ) -> Result<Option<Conflict>, DocumentEditError> {
        let cells = base.cell_by_id(&self.cell).zip(now.cell_by_id(&self.cell));
        let has_run = cells.filter(|(base, now)| {
            base.outputs().next().is_none() && now.outputs().next().is_some()
        });
        let restored = undone.position_by_id(&self.cell);
        let restored = restored.and_then(|at| Some((at, undone.cells.get(at)?)));
        let Some(((base, now), (at, cell))) = has_run.zip(restored) else {
            return Ok(None);
        };
        let lost = outputs_lost(base, cell).map(|lost| Conflict {
            theirs: Some(now.outputs_line(200)),
            ..lost
        });
        if lost.is_some() {
            undone.clear_outputs(at)?;
        }
        Ok(lost)
    }

    fn forgotten(&self, version: &RememberedCell) -> OperationUndoError {
        OperationUndoError::Forgotten {
            cell: self.cell.clone(),
            revision: version.revision,
        }
    }
}

impl Document {
    /// Puts the cells into the order of a list of ids, which has all of them. The white space between cells
    /// stays where it is.
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

fn has_revision(document: &Document, at: usize, version: &RememberedCell) -> bool {
    let cell = document.cells.get(at);
    cell.is_some_and(|cell| cell.revision() == version.revision)
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

    /// Returns the record of the operation between two versions.
    fn undo_of(before: &Document, after: &Document) -> OperationUndo {
        let ids = |document: &Document| -> Vec<String> {
            let ids = document.cells().iter().map(Cell::id);
            ids.map(str::to_owned).collect()
        };
        let version = |document: &Document, id: &str, whole: bool| {
            let cell = document.cells().get(document.position_by_id(id)?)?;
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
            let cell = document
                .position_by_id(id)
                .and_then(|at| document.cells().get(at));
            cell.is_some_and(Cell::has_run)
        };
        let lost = |id: &str| ran(before, id) && !ran(after, id);
        let changes = changes(before, after).into_iter();
        let changes = changes.filter(|changed| changed.kind != ChangeKind::Moved);
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
        let undo_of = undo_of(&cells(before), &cells(after));
        let taken = undo_of.undo(&cells(now), force).unwrap();
        let conflicts = taken.conflicts.into_iter();
        let conflicts = conflicts.map(|it| format!("{} {}", it.cell.unwrap_or_default(), it.field));
        assert_whole(&taken.document);
        (in_words(&taken.document), conflicts.collect())
    }

    #[test]
    fn others_later_changes_stay() {
        for (before, after, now, want) in [
            ("a:1 b:2", "a:1 b:3", "a:1 b:3", "a:1 b:2"),
            // Changes beside it, in another line, and an undo by hand.
            ("a:1 b:2", "a:1 b:3", "h:h a:9 b:3", "h:h a:9 b:2"),
            ("a:x|y", "a:x|Y", "a:X|Y", "a:X|y"),
            ("a:1", "a:2", "a:1", "a:1"),
            // An added cell is removed, a removed one is restored beside its neighbour.
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
            // A cell that was moved again later stays at its last place.
            ("a:1 b:2 c:3", "c:3 a:1 b:2", "a:1 c:3 b:2", "a:1 c:3 b:2"),
            ("a:1 b:2 c:3", "c:3 a:1 b:2", "b:2 a:1 c:3", "b:2 a:1 c:3"),
            // A split, and a join.
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
    fn what_others_wrote_into_parts_of_a_split_or_join_stays() {
        for (before, after, now, want) in [
            ("a:x|y|z", "a:x|y n:z", "a:x|y n:zz", "a:x|y|zz"),
            ("a:x|y|z", "a:x|y n:z", "a:xx|y n:zz", "a:xx|y|zz"),
            ("a:x b:y|z", "a:x|y|z", "a:x|y|z|e", "a:x b:y|z|e"),
            ("a:x b:y|z", "a:x|y|z", "a:x|y|zz", "a:x b:y|zz"),
            ("a:x|w b:y|z", "a:x|w|y|z", "a:xx|w|y|zz", "a:xx|w b:y|zz"),
        ] {
            assert_eq!(
                back(before, after, now, false),
                (want.into(), vec![]),
                "{before} / {after} / {now}"
            );
        }
    }

    #[test]
    fn cells_with_one_id_are_told_apart_by_an_edit_and_its_undo() {
        let cell = |source: &str| {
            format!(
                r#"{{"cell_type": "code", "id": "same", "metadata": {{}}, "outputs": [], "execution_count": null, "source": "{source}"}}"#
            )
        };
        let file = format!(
            r#"{{"cells": [{}, {}, {}], "metadata": {{}}, "nbformat": 4, "nbformat_minor": 5}}"#,
            cell("x"),
            cell("y").replace("same", "other"),
            cell("z")
        );
        let before = open(file.as_bytes());
        let twin = before.cells()[2].id().to_owned();
        let read_again = |document: &Document| open(&document.to_bytes());
        for edit in [
            |document: &mut Document| document.remove(0).map(drop),
            |document: &mut Document| document.move_cell(0, 2).map(drop),
            |document: &mut Document| document.move_cell(2, 0).map(drop),
        ] {
            let mut after = before.clone();
            edit(&mut after).unwrap();
            assert_whole(&after);
            let now = read_again(&after);
            let source = |id: &str| now.cell_by_id(id).map(|cell| cell.source().into_owned());
            assert_eq!(source(&twin).as_deref(), Some("z"));
            assert_ne!(source("same").as_deref(), Some("z"));
            let taken = undo_of(&before, &after).undo(&now, false).unwrap();
            assert_eq!(taken.conflicts, []);
            assert_whole(&taken.document);
            assert_eq!(String::from_utf8(taken.document.to_bytes()).unwrap(), file);
        }
    }

    #[test]
    fn a_removed_cell_with_the_id_of_another_does_not_take_the_id_when_it_comes_back_before_that_one()
     {
        let cell = |id: &str, source: &str| {
            format!(
                r#"{{"cell_type": "raw", "id": "{id}", "metadata": {{}}, "source": "{source}"}}"#
            )
        };
        let file = format!(
            r#"{{"cells": [{}, {}, {}], "metadata": {{}}, "nbformat": 4, "nbformat_minor": 5}}"#,
            cell("same", "x"),
            cell("other", "y"),
            cell("same", "z")
        );
        let before = open(file.as_bytes());
        let mut after = before.clone();
        after.remove(2).unwrap();
        let mut now = open(&after.to_bytes());
        now.move_cell(0, 1).unwrap();
        let taken = undo_of(&before, &after).undo(&now, false).unwrap();
        let again = open(&taken.document.to_bytes());
        let sources: Vec<_> = again.cells().iter().map(Cell::source).collect();
        assert_eq!(
            sources.iter().position(|source| source == "z"),
            Some(1),
            "{sources:?}"
        );
        let same = again
            .cell_by_id("same")
            .map(|cell| cell.source().into_owned());
        assert_eq!(same.as_deref(), Some("x"));
    }

    #[test]
    fn incompatible_changes_are_a_conflict_unless_forced() {
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
        // The texts of a cell that was removed since are in the conflict only.
        let undo_of = undo_of(&cells("a:1 b:2"), &cells("a:1 b:x"));
        let taken = undo_of.undo(&cells("a:1"), false).unwrap();
        let texts = [&taken.conflicts[0].base, &taken.conflicts[0].yours];
        assert_eq!(texts.map(Option::as_deref), [Some("x"), Some("2")]);
    }

    #[test]
    fn a_missing_version_is_an_error_only_if_it_is_needed() {
        let mut undo_of = undo_of(&cells("a:1"), &cells("a:2"));
        undo_of.cells[0].after.as_mut().unwrap().cell = None;
        // The notebook still has what the operation left, so no stored version is needed.
        assert!(undo_of.undo(&cells("a:2"), false).is_ok());
        let forgotten = undo_of.undo(&cells("a:3"), false).unwrap_err();
        assert!(matches!(forgotten, OperationUndoError::Forgotten { .. }));
        undo_of.cells[0].before.as_mut().unwrap().cell = None;
        assert!(undo_of.undo(&cells("a:2"), false).is_err());
    }

    /// One operation, with the edits that the command line offers.
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
            let mut undos = Vec::new();
            let mut number = 0;
            for operations in &steps {
                let before = now.clone();
                for (kind, at, to) in operations {
                    number += 1;
                    now = step(&now, *kind, *at, *to, number);
                }
                undos.push((undo_of(&before, &now), before));
            }
            let last = now.clone();
            let mut redo = Vec::new();
            for (undo, before) in undos.iter().rev() {
                let taken = undo.undo(&now, false).unwrap();
                prop_assert_eq!(&taken.conflicts, &[]);
                assert_whole(&taken.document);
                // Every byte is as before.
                prop_assert_eq!(taken.document.to_bytes(), before.to_bytes());
                redo.push(undo_of(&now, &taken.document));
                now = taken.document;
            }
            prop_assert_eq!(now.revision(), first.revision());
            let meaning_of = |document: &Document| {
                let mut value = meaning(document);
                let cells = value["cells"].take();
                let Some(cells) = cells.as_array() else { return Vec::new() };
                let mut cells = cells.clone();
                for (cell, own) in cells.iter_mut().zip(document.cells()) {
                    // The first edit writes missing ids.
                    cell["id"] = own.id().into();
                    cell["source"] = own.source().into();
                    if !own.has_run() {
                        // Times without outputs remain if another program cleared the outputs.
                        cell["metadata"].as_object_mut().unwrap().remove("execution");
                    }
                }
                cells
            };
            prop_assert_eq!(meaning_of(&now), meaning_of(&first));
            // Redo all of them.
            for undo_of in redo.iter().rev() {
                let taken = undo_of.undo(&now, false).unwrap();
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
            let undo_of = undo_of(&first, &done);
            let mut now = done;
            for (number, (kind, at, to)) in others.iter().enumerate() {
                now = step(&now, *kind, *at, *to, number + 100);
            }
            let touched = |id: &str| undo_of.cells.iter().any(|cell| cell.cell == id);
            let taken = undo_of.undo(&now, false).unwrap();
            assert_whole(&taken.document);
            for cell in now.cells().iter().filter(|cell| !touched(cell.id())) {
                let kept = taken.document.cell_by_id(cell.id());
                prop_assert_eq!(kept.map(|kept| &kept.text), Some(&cell.text));
            }
            // If nobody touched the cell since, it is as before the operation.
            for cell in &undo_of.cells {
                let left = cell.after.as_ref().map(|after| after.revision);
                let now_at = now.cell_by_id(&cell.cell);
                if now_at.map(Cell::revision) == left {
                    let is = taken.document.cell_by_id(&cell.cell);
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
        let taken = undo_of(&before, &after).undo(&now, false).unwrap();
        let counts = taken.document.cells().iter().map(Cell::execution_count);
        assert_eq!(counts.collect::<Vec<_>>(), [Some(1), Some(7)]);
        // A machine whose clock was ahead had run it. Then it was no code for a while, and ran again.
        let mut dated = before.clone();
        let ahead = CellExecution {
            times: Json::parse(r#"{"iopub.status.busy":"2126-01-01T10:00:00Z"}"#).ok(),
            ..ran(2)
        };
        dated.set_execution(1, &ahead).unwrap();
        let mut after = dated.clone();
        after.set_type(1, CellType::Markdown).unwrap();
        let mut now = after.clone();
        now.set_type(1, CellType::Code).unwrap();
        now.set_source(1, "3").unwrap();
        let today = CellExecution {
            times: Json::parse(r#"{"iopub.status.busy":"2026-01-01T10:00:00Z"}"#).ok(),
            ..ran(7)
        };
        now.set_execution(1, &today).unwrap();
        let taken = undo_of(&dated, &after).undo(&now, false).unwrap();
        assert_eq!(taken.document.cells()[1].execution_count(), Some(7));
        assert_eq!(taken.conflicts.len(), 1, "{:?}", taken.conflicts);
        let texts = [&taken.conflicts[0].yours, &taken.conflicts[0].theirs];
        assert_eq!(texts.map(Option::as_deref), [Some("stdout: x"); 2]);
        // The same for a cell that was removed.
        let mut after = before.clone();
        after.remove(0).unwrap();
        let taken = undo_of(&before, &after).undo(&after, false).unwrap();
        assert_eq!(taken.document.to_bytes(), before.to_bytes());
    }
}
