//! The bytes that an operation changed, so that its undo gives the same bytes back.
//!
//! A cell that is restored from its content may be written in another style than before. So if a cell still
//! has exactly the bytes that the operation wrote, its earlier bytes are restored.

use std::collections::HashMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::notebook::document::{Cell, Document, ids};
use crate::notebook::json::Object;

/// The bytes of a file that an operation replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExactBytes {
    /// The file's style: the bytes of removed cells fit only a file of the same style.
    style: String,
    cells: Vec<ExactCell>,
    /// The bytes between the cells, if the operation changed the list of cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    between: Option<Between>,
}

/// The earlier bytes of one cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ExactCell {
    id: String,
    /// The cell after the operation; `None` if the operation removed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left: Option<CellAfter>,
    /// The bytes that the operation replaced; all bytes of a removed cell.
    was: String,
}

/// A cell after an operation: its hash, and how many bytes at its beginning and its end did not change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CellAfter {
    hash: String,
    head: usize,
    tail: usize,
}

/// The white space and commas of the list of cells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Between {
    cells: Vec<String>,
    was: Vec<String>,
    close: String,
    left: String,
}

impl ExactBytes {
    /// Returns the bytes that an operation replaced; `None` if it replaced none.
    pub fn of(before: &Document, after: &Document) -> Option<Self> {
        // Bytes of cells in another format do not fit the rest of the file.
        if before.nbformat != after.nbformat {
            return None;
        }
        let left: HashMap<&str, &Bytes> = after
            .cells
            .iter()
            .map(|cell| (cell.id.as_str(), &cell.text))
            .collect();
        let same_list = before.cells.len() == after.cells.len()
            && before
                .cells
                .iter()
                .zip(&after.cells)
                .all(|(a, b)| a.id == b.id);
        let mut cells = Vec::new();
        for cell in &before.cells {
            let replaced = match left.get(cell.id.as_str()) {
                // Copies of a document share the bytes that were not edited.
                Some(new) if new.as_ptr_range() == cell.text.as_ptr_range() => continue,
                Some(new) if **new == cell.text => continue,
                Some(new) => changed(&cell.text, new),
                None => Some((None, &cell.text[..])),
            };
            let (left, was) = replaced?;
            cells.push(ExactCell {
                id: cell.id.clone(),
                left,
                was: std::str::from_utf8(was).ok()?.to_owned(),
            });
        }
        if cells.is_empty() && same_list {
            return None;
        }
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let between = (!same_list).then(|| Between {
            cells: before.cells.iter().map(|cell| cell.id.clone()).collect(),
            was: before.cells.iter().map(|cell| text(&cell.before)).collect(),
            close: text(&before.close),
            left: between(after),
        });
        Some(Self {
            style: style(before),
            cells,
            between,
        })
    }

    /// Restores the earlier bytes of cells in a notebook in which the operation was undone, where they say
    /// the same as the cells that the undo made; `now` is the notebook before the undo.
    pub(super) fn put(&self, now: &Document, document: &mut Document) {
        let same_style = style(now) == self.style;
        for exact in &self.cells {
            let cell_now = now.cell_by_id(&exact.id);
            let text = match (&exact.left, cell_now) {
                (Some(left), Some(cell)) if hash(&cell.text) == left.hash => {
                    let tail = cell.text.len().checked_sub(left.tail);
                    let ends = cell.text.get(..left.head).zip(tail);
                    let ends = ends.and_then(|(head, tail)| Some((head, cell.text.get(tail..)?)));
                    let Some((head, tail)) = ends else { continue };
                    [head, exact.was.as_bytes(), tail].concat()
                }
                (None, None) if same_style => exact.was.clone().into_bytes(),
                _ => continue,
            };
            // Another program may have changed the stored bytes.
            let Some(object) = Object::read(&text) else {
                continue;
            };
            let earlier = Cell::new(Bytes::new(), text.into(), object);
            let Some(at) = document.position_by_id(&exact.id) else {
                continue;
            };
            let (before, rest) = document.cells.split_at_mut(at);
            let Some(cell) = rest.first_mut() else {
                continue;
            };
            let id = ids::in_file(&earlier);
            let is_own = id == cell.id;
            // The merge may have put text into the cell that others have written, for example into another
            // part of a cell that was split. And the id of another cell is only a copy while that cell comes
            // first.
            if earlier.revision() != cell.revision()
                || !(is_own || id.is_empty() || before.iter().any(|cell| cell.id == id))
            {
                continue;
            }
            cell.rewrite(earlier.text.to_vec());
            cell.own_id = is_own;
            cell.recorded_id = !is_own;
        }
        if let Some(was) = self.between.as_ref()
            && between(now) == was.left
            && document.cells.len() == was.cells.len()
            && document
                .cells
                .iter()
                .zip(&was.cells)
                .all(|(cell, id)| cell.id == *id)
        {
            for (cell, before) in document.cells.iter_mut().zip(&was.was) {
                cell.before = before.clone().into();
            }
            document.close = was.close.clone().into();
        }
    }
}

/// Returns the hash of a cell after an operation with the lengths of its unchanged parts, and the bytes that
/// the operation replaced.
fn changed<'a>(old: &'a [u8], new: &[u8]) -> Option<(Option<CellAfter>, &'a [u8])> {
    let is_char_start = |text: &[u8], at: usize| {
        text.get(at)
            .is_none_or(|byte| byte & 0b1100_0000 != 0b1000_0000)
    };
    let mut head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    while !is_char_start(old, head) {
        head -= 1;
    }
    let longest_tail = old.len().min(new.len()) - head;
    let pairs = old.iter().rev().zip(new.iter().rev());
    let mut tail = pairs.take(longest_tail).take_while(|(a, b)| a == b).count();
    while !is_char_start(old, old.len() - tail) {
        tail -= 1;
    }
    let left = CellAfter {
        hash: hash(new),
        head,
        tail,
    };
    Some((Some(left), old.get(head..old.len() - tail)?))
}

/// Returns a file's style, without that of its cells.
fn style(document: &Document) -> String {
    let top = &document.style.top;
    format!(
        "{:?} {:?} {:?} {:?}",
        document.nbformat, top.lead, top.unit, top.colon
    )
}

fn between(document: &Document) -> String {
    let mut parts = Sha256::new();
    for cell in &document.cells {
        parts.update(&cell.before);
        parts.update(b"\0");
    }
    parts.update(&document.close);
    hex::encode(parts.finalize())
}

fn hash(text: &[u8]) -> String {
    hex::encode(Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notebook::tests::fixtures::cells;

    /// Returns a notebook with this text between its cells' braces.
    fn spaced(cells: &str) -> Document {
        let text = format!(
            r#"{{"cells": [{cells}], "metadata": {{}}, "nbformat": 4, "nbformat_minor": 5}}"#
        );
        Document::parse(text).unwrap()
    }

    fn cell(id: &str) -> String {
        format!(r#"{{"cell_type": "raw", "id": "{id}", "metadata": {{}}, "source": ""}}"#)
    }

    #[test]
    fn a_replaced_text_begins_and_ends_at_whole_characters() {
        // The first two share their first byte, the others their last one.
        for (old, new) in [("é", "è"), ("é", "ĩ"), ("aéb", "aĩb")] {
            let (before, after) = (cells(&format!("a:{old}")), cells(&format!("a:{new}")));
            let exact = ExactBytes::of(&before, &after).expect("it was replaced");
            assert_eq!(
                exact.cells[0].was,
                old.trim_matches(['a', 'b']),
                "{old} {new}"
            );
            let mut undone = after.clone();
            undone.set_source(0, old).unwrap();
            exact.put(&after, &mut undone);
            assert_eq!(undone.to_bytes(), before.to_bytes());
        }
    }

    #[test]
    fn the_space_between_cells_comes_back_also_where_only_the_end_of_the_list_changed() {
        let (a, b) = (cell("a"), cell("b"));
        let before = spaced(&format!(" {a}  "));
        let after = spaced(&format!(" {a},\n{b}\n"));
        let exact = ExactBytes::of(&before, &after).expect("the list changed");
        let mut undone = after.clone();
        undone.remove(1).unwrap();
        exact.put(&after, &mut undone);
        assert_eq!(undone.to_bytes(), before.to_bytes());
    }

    #[test]
    fn the_space_before_a_removed_cell_comes_back_unless_others_have_changed_the_space_since() {
        let (a, b, c) = (cell("a"), cell("b"), cell("c"));
        let before = spaced(&format!("{a} ,\n{b}  ,\n\n{c}"));
        let mut after = before.clone();
        after.remove(1).unwrap();
        let exact = ExactBytes::of(&before, &after).expect("a cell was removed");
        let undone = |now: &Document| {
            let mut undone = now.clone();
            undone.put_cell(1, before.cells[1].clone());
            let whole = undone.to_bytes();
            exact.put(now, &mut undone);
            (whole, undone.to_bytes())
        };
        assert_eq!(undone(&after).1, before.to_bytes());
        let now = spaced(&format!("{a}\n\n\n,{c}"));
        let (whole, bytes) = undone(&now);
        assert_eq!(bytes, whole);
    }

    #[test]
    fn the_bytes_of_a_removed_cell_stay_out_of_a_file_of_another_style() {
        let before = cells("a:1 b:2");
        let after = cells("a:1");
        let exact = ExactBytes::of(&before, &after).expect("a cell was removed");
        let narrow = |document: &Document| {
            let value: serde_json::Value = serde_json::from_slice(&document.to_bytes()).unwrap();
            Document::parse(value.to_string()).unwrap()
        };
        let now = narrow(&after);
        let mut undone = narrow(&before);
        exact.put(&now, &mut undone);
        assert_eq!(undone.to_bytes(), narrow(&before).to_bytes());
        // In a file of the same style they come back.
        let mut undone = before.clone();
        undone.set_source(1, "x").unwrap();
        undone.set_source(1, "2").unwrap();
        exact.put(&after, &mut undone);
        assert_eq!(undone.to_bytes(), before.to_bytes());
    }
}
