//! Aligns two versions of a notebook: finds which of their cells are the same.

use std::collections::HashMap;
use std::hash::Hash;

use crate::notebook::document::{Cell, Document};
use crate::notebook::json::digest;

impl Document {
    /// Returns for each cell its position in another version of the notebook, which any program may have
    /// written; `None` if it is not there. Cells are matched by their ids, and without ids by content and
    /// position.
    pub fn counterparts(&self, other: &Self) -> Vec<Option<usize>> {
        align(&self.cells, &other.cells, |_| false)
    }
}

/// Returns for each cell of `base` its position in a version that was made from it by edits, which keep all
/// ids and stand-ins.
pub(super) fn align_edited(base: &[Cell], edited: &[Cell]) -> Vec<Option<usize>> {
    let ids: HashMap<_, _> = places_by_id(edited, |_| true);
    base.iter()
        .map(|cell| ids.get(cell.id()).copied())
        .collect()
}

/// Returns for each cell of `base` its position in `other`, which any program may have written; `None` if
/// it is not there.
///
/// Cells are the same if they have the same id in the file, or in the ledger. If one of them has no such
/// id, cells with equal type and source are the same, at any position. Otherwise, as for edited cells, they
/// are the same if they are beside a pair. `is_new` says whether an id of `other` is not one of `base`.
pub(super) fn align(
    base: &[Cell],
    other: &[Cell],
    is_new: impl Fn(&str) -> bool,
) -> Vec<Option<usize>> {
    let mut pairs = Pairs {
        base,
        other,
        matches: vec![None; base.len()],
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
        return pairs.matches;
    }
    let named = |cell: &Cell| cell.own_id || cell.recorded_id;
    let other_by_id = places_by_id(other, named);
    for (index, cell) in base.iter().enumerate().filter(|(_, cell)| named(cell)) {
        pairs.join(index, other_by_id.get(cell.id()).copied());
    }
    if base.iter().chain(other).all(|cell| cell.recorded_id) {
        return pairs.matches;
    }
    // `nb fmt` writes stand-ins into the file as ids. Equal ids then mean the same cell, unless other cells
    // were inserted before it meanwhile. So the content must agree too, or else no other cell may match
    // better.
    let content = |cells: &[Cell]| cells.iter().map(Cell::content).collect::<Vec<_>>();
    let (base_content, other_content) = (content(base), content(other));
    let written = base
        .iter()
        .any(|cell| !cell.has_own_id() && at_id(cell).is_some());
    for (index, cell) in base.iter().enumerate() {
        let at = at_id(cell);
        let other_cell = at.and_then(|at| other_content.get(at));
        if other_cell == base_content.get(index) {
            pairs.join(index, at);
        }
    }
    // Match unchanged cells by all their fields, then cells that ran since by their content.
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
    // An edited cell still follows, or precedes, the same neighbour. If stand-ins were written as ids, a
    // cell with another id is a new one.
    for (cell, taken) in other.iter().zip(&mut pairs.taken) {
        *taken |= written && cell.has_own_id();
    }
    for index in 0..base.len() {
        let at = match index.checked_sub(1) {
            None => Some(0),
            Some(before) => pairs
                .matches
                .get(before)
                .copied()
                .flatten()
                .map(|at| at + 1),
        };
        pairs.join(index, at);
    }
    for index in (0..base.len()).rev() {
        let at = match pairs.matches.get(index + 1) {
            None => other.len().checked_sub(1),
            Some(next) => next.and_then(|next| next.checked_sub(1)),
        };
        pairs.join(index, at);
    }
    pairs.matches
}

/// The pairs of cells that were found to be the same.
struct Pairs<'a> {
    base: &'a [Cell],
    other: &'a [Cell],
    matches: Vec<Option<usize>>,
    taken: Vec<bool>,
}

impl Pairs<'_> {
    /// Pairs equal cells in their order.
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

    /// Pairs two cells, if they can be the same and neither is paired yet. If both have an id in the file,
    /// or both in the ledger, these must be equal; otherwise ids or types must be.
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
        match (self.matches.get_mut(index), self.taken.get_mut(at)) {
            (Some(matched @ None), Some(taken @ false)) if may => {
                *matched = Some(at);
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

/// Returns which of the positions are out of order: those that are not in a longest increasing subsequence.
pub fn out_of_order(places: &[Option<usize>]) -> Vec<bool> {
    // For each length of an increasing subsequence, the item with the lowest last position.
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

/// Returns the inverse of a map between positions, for `length` positions.
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
    use std::collections::HashSet;

    use super::*;
    use crate::notebook::Document;
    use crate::notebook::document::ids;

    /// A notebook of cells `source`, `id:source` or, of Markdown, `source!`.
    fn cells(words: &str) -> Document {
        let cell = |word: &str| {
            let (id, source) = word.split_once(':').unwrap_or(("", word));
            let kind = match source.ends_with('!') {
                true => "markdown",
                false => "code",
            };
            let id = match id {
                "" => String::new(),
                id => format!(r#""id":"{id}","#),
            };
            format!(r#"{{"cell_type":"{kind}",{id}"source":"{source}"}}"#)
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
        // An editor that does not know ids has dropped them.
        assert_eq!(aligned("a:x b:y", "x Y"), [Some(0), Some(1)]);
        assert_eq!(aligned("a:x", "b:x"), [None]);
        // Two ids of the file that differ are two cells, also between the same neighbours.
        assert_eq!(aligned("x a:q z", "x b:y z"), [Some(0), None, Some(2)]);
        assert_eq!(aligned("x q z", "x b:y z"), [Some(0), Some(1), Some(2)]);
        let pairs = cells("a:x b:y").counterparts(&cells("b:y c:x a:z"));
        assert_eq!(pairs, [Some(2), Some(0)]);
    }

    #[test]
    fn among_cells_with_the_same_source_the_other_fields_decide() {
        let open = |cells: &[String]| {
            Document::parse(format!("{{\"cells\":[{}]}}", cells.join(","))).unwrap()
        };
        for field in ["outputs", "execution_count", "metadata"] {
            let cell = |value: u8| {
                let value = match field {
                    "outputs" => format!("[{value}]"),
                    "metadata" => format!("{{\"k\":{value}}}"),
                    _ => value.to_string(),
                };
                format!(r#"{{"cell_type":"code","source":"","{field}":{value}}}"#)
            };
            let [first, second, third] = [1, 2, 3].map(cell);
            let base = open(&[first, second.clone()]);
            let align = |other: &[String]| align(base.cells(), open(other).cells(), |_| false);
            assert_eq!(
                align(std::slice::from_ref(&second)),
                [None, Some(0)],
                "{field}"
            );
            // The other cell of that source has changed, and is found nevertheless.
            let moved = [second, third.clone()];
            assert_eq!(align(&moved), [Some(1), Some(0)], "{field}");
            let new = r#"{"cell_type":"code","source":"new"}"#.to_owned();
            let moved = [new, third.clone(), third];
            assert_eq!(align(&moved), [Some(1), Some(2)], "{field}");
        }
    }

    #[test]
    fn equal_cells_are_paired_in_their_order() {
        for (base, other, want) in [
            ("x", "x x", &[Some(0)][..]),
            ("x x q", "x q x", &[Some(0), Some(2), Some(1)]),
            (
                "x x x q r",
                "x q x r x",
                &[Some(0), Some(2), Some(4), Some(1), Some(3)],
            ),
            // A cell that is known by its id takes no place from them.
            ("a:x x", "a:X new x", &[Some(0), Some(2)]),
        ] {
            assert_eq!(aligned(base, other), want, "{base} / {other}");
        }
    }

    #[test]
    fn an_edited_cell_is_known_by_its_neighbours_and_type() {
        for (base, other, want) in [
            ("x", "X new", &[Some(0)][..]),
            ("a:x y", "n! X y", &[Some(1), Some(2)]),
            ("a:t! x", "n X", &[None, Some(1)]),
            ("a:t! x y", "n X y", &[None, Some(1), Some(2)]),
            ("a:t! w x y", "n W X y", &[None, Some(1), Some(2), Some(3)]),
            ("a:x!", "X", &[None]),
            // The type of the cell at this position has changed.
            ("x!", "X", &[Some(0)]),
            // Not all cells have an id in the file.
            ("a:x q z", "a:x b:y z", &[Some(0), Some(1), Some(2)]),
        ] {
            assert_eq!(aligned(base, other), want, "{base} / {other}");
        }
    }

    #[test]
    fn ids_of_the_ledger_decide_as_those_of_the_file_do() {
        // Ids before `=` are in the ledger.
        let recorded = |words: &str| {
            let names = words.split(' ').map(|word| word.split_once('='));
            let names = names.map(|name| name.map(|(name, _)| name.to_owned()));
            let sources = words
                .split(' ')
                .map(|word| word.rsplit('=').next().unwrap());
            let mut document = cells(&sources.collect::<Vec<_>>().join(" "));
            ids::name(&mut document.cells, names.collect(), HashSet::new());
            document
        };
        for (base, other, want) in [
            ("a=x", "a=y", &[Some(0)][..]),
            ("a=x", "b=x", &[None]),
            ("a=x", "b=x c:z!", &[None]),
            ("a=x", "a=y c:x", &[Some(0)]),
            ("a:x", "b=y a=z n=x", &[Some(1)]),
        ] {
            let (base, other) = (recorded(base), recorded(other));
            assert_eq!(align(base.cells(), other.cells(), |_| false), want);
        }
        // Only one of them has ids in the ledger.
        for (base, other) in [
            (recorded("a=x b=y"), cells("y x")),
            (cells("x y"), recorded("b=y a=x")),
        ] {
            let found = align(base.cells(), other.cells(), |_| false);
            assert_eq!(found, [Some(1), Some(0)]);
        }
    }

    #[test]
    fn a_stand_in_that_was_written_counts_where_the_content_agrees_or_no_cell_fits_better() {
        let ids = cells("x y");
        let [s, t] = [0, 1].map(|at| ids.cells()[at].id());
        for (base, other, want) in [
            // Other cells were inserted before it.
            ("x", format!("{s}:new {t}:x"), &[Some(1)][..]),
            ("x x", format!("{t}:x {s}:x"), &[Some(1), Some(0)]),
            // Only some ids were written.
            ("x y", format!("{s}:x Y"), &[Some(0), Some(1)]),
        ] {
            assert_eq!(aligned(base, &other), want, "{base} / {other}");
        }
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
