//! Two versions of a notebook aligned: which cells are the same cell.

use std::collections::HashMap;
use std::hash::Hash;

use crate::notebook::document::{Cell, Document};
use crate::notebook::json::digest;

impl Document {
    /// Returns for each cell its place in another version of the notebook, whoever wrote that, if
    /// it is there: by the ids, and where there are none by what the cells say and where they stand.
    pub fn counterparts(&self, other: &Self) -> Vec<Option<usize>> {
        align(&self.cells, &other.cells, |_| false)
    }
}

/// Returns for each cell of `base` its place in a version that was made of it by edits, which keep
/// the ids, stand-ins among them.
pub(super) fn align_edited(base: &[Cell], edited: &[Cell]) -> Vec<Option<usize>> {
    let ids: HashMap<_, _> = places_by_id(edited, |_| true);
    base.iter()
        .map(|cell| ids.get(cell.id()).copied())
        .collect()
}

/// Returns for each cell of `base` its place in `other`, whoever wrote that, if it is there.
///
/// Cells are the same if they have the same id in the file, or in the records beside it. Where one
/// of two has none, the same type and source tell, wherever the cell stands now; then, for what was
/// edited too, the place beside a cell that is known. `is_new` says of a cell's id that no cell of `base` is meant.
pub(super) fn align(
    base: &[Cell],
    other: &[Cell],
    is_new: impl Fn(&str) -> bool,
) -> Vec<Option<usize>> {
    let mut pairs = Pairs {
        base,
        other,
        found: vec![None; base.len()],
        taken: other
            .iter()
            .map(|cell| (cell.own_id || cell.recorded_id) && is_new(cell.id()))
            .collect(),
    };
    let ids = places_by_id(other, Cell::has_own_id);
    let at_id = |cell: &Cell| ids.get(cell.id()).copied();
    for (index, cell) in base.iter().enumerate() {
        if cell.has_own_id() {
            pairs.join(index, at_id(cell));
        }
    }
    if base.iter().chain(other).all(Cell::has_own_id) {
        return pairs.found;
    }
    let named = |cell: &Cell| cell.own_id || cell.recorded_id;
    let named_there = places_by_id(other, named);
    for (index, cell) in base.iter().enumerate().filter(|(_, cell)| named(cell)) {
        pairs.join(index, named_there.get(cell.id()).copied());
    }
    if base.iter().chain(other).all(|cell| cell.recorded_id) {
        return pairs.found;
    }
    // `nb fmt` writes the stand-ins as ids: those are the same cells, unless others came before
    // them meanwhile; so the content must agree, or at last nothing speak for another cell.
    let content = |cells: &[Cell]| cells.iter().map(Cell::content).collect::<Vec<_>>();
    let (base_content, other_content) = (content(base), content(other));
    let written = base
        .iter()
        .any(|cell| !cell.has_own_id() && at_id(cell).is_some());
    for (index, cell) in base.iter().enumerate() {
        let at = at_id(cell);
        let there = at.and_then(|at| other_content.get(at));
        if there.is_some() && there == base_content.get(index) {
            pairs.join(index, at);
        }
    }
    // Cells that nobody touched are found by all their fields, then those that ran since by content.
    let all = |cells: &[Cell], content: &[[u8; 32]]| {
        let cells = cells.iter().zip(content);
        let all = cells.map(|(cell, content)| {
            let field = |name| digest(cell.raw(name).unwrap_or(b"null"));
            let fields = ["outputs", "execution_count", "metadata"].map(field);
            (*content, fields)
        });
        all.collect::<Vec<_>>()
    };
    pairs.join_equal(&all(base, &base_content), &all(other, &other_content));
    pairs.join_equal(&base_content, &other_content);
    for (index, cell) in base.iter().enumerate() {
        pairs.join(index, at_id(cell));
    }
    // An edited cell still stands after, or before, the same neighbour. If stand-ins were written as
    // ids, a cell with another id is a new one.
    for (cell, taken) in other.iter().zip(&mut pairs.taken) {
        *taken |= written && cell.has_own_id();
    }
    for index in 0..base.len() {
        let at = match index.checked_sub(1) {
            None => Some(0),
            Some(before) => pairs.found.get(before).copied().flatten().map(|at| at + 1),
        };
        pairs.join(index, at);
    }
    for index in (0..base.len()).rev() {
        let at = match pairs.found.get(index + 1) {
            None => other.len().checked_sub(1),
            Some(next) => next.and_then(|next| next.checked_sub(1)),
        };
        pairs.join(index, at);
    }
    pairs.found
}

/// The cells that were found to be the same.
struct Pairs<'a> {
    base: &'a [Cell],
    other: &'a [Cell],
    found: Vec<Option<usize>>,
    taken: Vec<bool>,
}

impl Pairs<'_> {
    /// Takes equal cells for the same: the first of them for the first of them there, and so on.
    fn join_equal<T: Eq + Hash>(&mut self, base: &[T], other: &[T]) {
        let mut places: HashMap<_, Vec<usize>> = HashMap::new();
        for (index, key) in other.iter().enumerate().rev() {
            if self.taken.get(index) == Some(&false) {
                places.entry(key).or_default().push(index);
            }
        }
        for (index, key) in base.iter().enumerate() {
            if let Some(places) = places.get_mut(key)
                && self.join(index, places.last().copied())
            {
                places.pop();
            }
        }
    }

    /// Takes two cells for the same, if they can be and neither has been found before: with ids of
    /// one kind, of the file or of the records, they are equal, and they are of one type unless their ids are the same.
    fn join(&mut self, index: usize, at: Option<usize>) -> bool {
        let Some(at) = at else { return false };
        let Some((a, b)) = self.base.get(index).zip(self.other.get(at)) else {
            return false;
        };
        let decided = (a.own_id && b.own_id) || (a.recorded_id && b.recorded_id);
        let may = match decided {
            true => a.id() == b.id(),
            false => a.id() == b.id() || a.cell_type() == b.cell_type(),
        };
        match (self.found.get_mut(index), self.taken.get_mut(at)) {
            (Some(found @ None), Some(taken @ false)) if may => {
                *found = Some(at);
                *taken = true;
                true
            }
            _ => false,
        }
    }
}

fn places_by_id(cells: &[Cell], which: impl Fn(&Cell) -> bool) -> HashMap<&str, usize> {
    let cells = cells.iter().enumerate();
    let cells = cells.filter(|(_, cell)| which(cell));
    cells.map(|(index, cell)| (cell.id(), index)).collect()
}

/// Returns which of the places are out of order: those that are not in a longest rising sequence.
pub fn out_of_order(places: &[Option<usize>]) -> Vec<bool> {
    // For each length of a rising sequence, the item that ends one lowest.
    let mut ends: Vec<(usize, usize)> = Vec::new();
    let mut before: Vec<Option<usize>> = vec![None; places.len()];
    for (item, place) in places.iter().enumerate() {
        let Some(place) = *place else { continue };
        let length = ends.partition_point(|(end, _)| *end < place);
        if let Some(before) = before.get_mut(item) {
            let shorter = length.checked_sub(1).and_then(|length| ends.get(length));
            *before = shorter.map(|(_, item)| *item);
        }
        match ends.get_mut(length) {
            Some(end) => *end = (place, item),
            None => ends.push((place, item)),
        }
    }
    let mut moved: Vec<_> = places.iter().map(Option::is_some).collect();
    let mut at = ends.last().map(|(_, item)| *item);
    while let Some(item) = at {
        if let Some(moved) = moved.get_mut(item) {
            *moved = false;
        }
        at = before.get(item).copied().flatten();
    }
    moved
}

/// Returns the map the other way round, for `length` places.
pub(super) fn inverse(places: &[Option<usize>], length: usize) -> Vec<Option<usize>> {
    let mut inverse = vec![None; length];
    for (from, to) in places.iter().enumerate() {
        if let Some(slot) = to.and_then(|to| inverse.get_mut(to)) {
            *slot = Some(from);
        }
    }
    inverse
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notebook::Document;

    fn cells(words: &str) -> Document {
        let cell = |word: &str| match word.split_once(':') {
            Some((id, source)) => {
                format!(r#"{{"cell_type":"code","id":"{id}","source":"{source}"}}"#)
            }
            None => format!(r#"{{"cell_type":"code","source":"{word}"}}"#),
        };
        let cells: Vec<_> = words.split(' ').map(cell).collect();
        Document::parse(format!("{{\"cells\":[{}]}}", cells.join(","))).unwrap()
    }

    fn aligned(base: &str, other: &str) -> Vec<Option<usize>> {
        align(cells(base).cells(), cells(other).cells(), |_| false)
    }

    #[test]
    fn ids_decide_and_then_the_content_and_the_place() {
        assert_eq!(aligned("a:x b:y", "b:y c:x a:z"), [Some(2), Some(0)]);
        assert_eq!(aligned("x y z", "y q x"), [Some(2), Some(0), Some(1)]);
        assert_eq!(aligned("x y z", "new x Y z"), [Some(1), Some(2), Some(3)]);
        assert_eq!(aligned("x x y", "x y"), [Some(0), None, Some(1)]);
        // Of cells with one source, outputs tell which is which.
        let ran =
            |count: &str| format!(r#"{{"cell_type":"code","source":"","outputs":[{count}]}}"#);
        let [first, second] = ["1", "2"].map(ran);
        let open = |text: &str| Document::parse(format!("{{\"cells\":[{text}]}}")).unwrap();
        let (both, one) = (open(&format!("{first},{second}")), open(&second));
        assert_eq!(align(both.cells(), one.cells(), |_| false), [None, Some(0)]);
        // An editor that knows no ids dropped them.
        assert_eq!(aligned("a:x b:y", "x Y"), [Some(0), Some(1)]);
        assert_eq!(aligned("a:x", "b:x"), [None]);
    }

    #[test]
    fn once_ids_were_written_another_id_is_another_cell_whatever_was_edited() {
        let base = cells("x y");
        let first = base.cells()[0].id();
        let other = format!("{first}:edited new-cell:z");
        assert_eq!(
            align(base.cells(), cells(&other).cells(), |_| false),
            [Some(0), None]
        );
    }

    #[test]
    fn as_few_as_possible_have_moved() {
        let places =
            |list: &[usize]| out_of_order(&list.iter().copied().map(Some).collect::<Vec<_>>());
        assert_eq!(places(&[0, 1, 2]), [false; 3]);
        assert_eq!(places(&[3, 0, 1, 2]), [true, false, false, false]);
        assert_eq!(places(&[1, 2, 3, 0]), [false, false, false, true]);
        assert_eq!(
            out_of_order(&[None, Some(1), None, Some(0)])
                .iter()
                .filter(|moved| **moved)
                .count(),
            1
        );
    }
}
