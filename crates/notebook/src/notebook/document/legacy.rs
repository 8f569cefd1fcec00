//! Notebooks of format 2 and 3, which are only read: their cells are in worksheets.

use bytes::Bytes;

use super::cell::Cell;
use crate::notebook::json::{Object, Scanner, items};

/// Returns the cells of all worksheets, or the position of a value that is not a worksheet or a cell; `None`
/// if the file is of format 4 or later.
pub(in crate::notebook) fn cells(
    text: &Bytes,
    top: &Object,
    nbformat: u64,
) -> Option<Result<Vec<Cell>, usize>> {
    if nbformat >= 4 {
        return None;
    }
    let Some(sheets) = top.get(text, "worksheets") else {
        return Some(Ok(Vec::new()));
    };
    let mut cells = Vec::new();
    for sheet in items(sheets.of(text)) {
        let start = sheets.start + sheet.start;
        let sheet = sheet.of(sheets.of(text));
        let Some(object) = Object::read(sheet) else {
            return Some(Err(start));
        };
        let Some(list) = object.get(sheet, "cells") else {
            continue;
        };
        for cell in items(list.of(sheet)) {
            let start = start + list.start + cell.start;
            let end = start + (cell.end - cell.start);
            match Object::scan(&mut Scanner::new(text, start)) {
                Ok(object) => {
                    cells.push(Cell::new(Bytes::new(), text.slice(start..end), object));
                }
                Err(_) => return Some(Err(start)),
            }
        }
    }
    Some(Ok(cells))
}
