//! The ids of cells: those in the file, and stand-ins for cells without one.

use std::collections::HashSet;

use sha2::{Digest as _, Sha256};

use super::cell::Cell;
use crate::notebook::json::{Layout, decode, encode, lossy};

/// Gives every cell an id. A cell without one in the file, or with one that an earlier cell has, gets a
/// stand-in made from its position.
pub(in crate::notebook) fn assign(cells: &mut [Cell]) {
    read(cells);
    for cell in cells.iter_mut().filter(|cell| !cell.own_id) {
        cell.id.clear();
        cell.recorded_id = false;
    }
    fill(cells, HashSet::new(), &|index, _| format!("cell {index}"));
}

/// Gives ids to cells that have none in the file: the id in `names`, or a stand-in where that is `None`.
/// `reserved` are ids of other cells that may come back, and are not used.
pub(in crate::notebook) fn name(
    cells: &mut [Cell],
    names: Vec<Option<String>>,
    reserved: HashSet<String>,
) {
    let mut taken: HashSet<String> = cells
        .iter()
        .filter(|cell| cell.own_id)
        .map(|cell| cell.id.clone())
        .collect();
    for (cell, name) in cells.iter_mut().zip(names) {
        if cell.own_id {
            continue;
        }
        let name = name.filter(|name| !name.is_empty() && taken.insert(name.clone()));
        cell.id = name.unwrap_or_default();
        cell.recorded_id = true;
    }
    // The hash includes the revision: a deleted cell may have had the same position, and this cell must not
    // get its id and history.
    fill(cells, reserved, &|index, cell| {
        format!("cell {index} {}", cell.revision())
    });
}

/// Reads the ids in the file; cells without one keep the ids that they have.
pub(in crate::notebook) fn read(cells: &mut [Cell]) {
    let mut taken: HashSet<String> = HashSet::with_capacity(cells.len());
    for cell in cells {
        let id = in_file(cell);
        cell.own_id = !id.is_empty() && taken.insert(id.clone());
        if cell.own_id {
            cell.id = id;
            cell.recorded_id = false;
        }
    }
}

/// Returns the id that a cell has in the file; an empty string if it has none.
pub(in crate::notebook) fn in_file(cell: &Cell) -> String {
    let raw = cell.raw("id").filter(|raw| raw.starts_with(b"\""));
    raw.map_or_else(String::new, |raw| lossy(decode(raw)).into_owned())
}

/// Gives stand-ins to cells without an id.
fn fill(cells: &mut [Cell], mut taken: HashSet<String>, seed: &dyn Fn(usize, &Cell) -> String) {
    if cells.iter().all(|cell| !cell.id.is_empty()) {
        return;
    }
    taken.extend(cells.iter().map(|cell| cell.id.clone()));
    for (index, cell) in cells.iter_mut().enumerate() {
        if cell.id.is_empty() {
            cell.id = stand_in(&seed(index, cell), &taken);
            taken.insert(cell.id.clone());
        }
    }
}

/// Says whether the file format allows an id: up to 64 letters, digits, `-` and `_`.
pub(in crate::notebook) fn is_valid(id: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (1..=64).contains(&id.len()) && id.bytes().all(allowed)
}

/// Returns an id of eight hexadecimal digits, the form of Jupyter's own ids.
fn stand_in(seed: &str, taken: &HashSet<String>) -> String {
    for salt in 0_u64.. {
        let hash = Sha256::digest(format!("{seed} {salt}"));
        let id = hex::encode(hash.get(..4).unwrap_or_default());
        if !taken.contains(&id) {
            return id;
        }
    }
    unreachable!("a file has fewer cells than there are numbers")
}

/// Sets a cell's id in a notebook whose format has no ids.
pub(in crate::notebook) fn record_id(cell: &mut Cell, id: &str) {
    if cell.raw("id").is_some() {
        cell.unset("id");
    }
    id.clone_into(&mut cell.id);
    cell.own_id = false;
    cell.recorded_id = true;
}

/// Sets a cell's id and writes it into the cell.
pub(in crate::notebook) fn write_id(cell: &mut Cell, id: &str, layout: &Layout) {
    if in_file(cell) != id {
        let mut word = Vec::new();
        encode(&mut word, id.as_bytes(), layout.ascii);
        cell.set("id", &word, layout);
    }
    cell.id = id.to_owned();
    cell.own_id = true;
    cell.recorded_id = false;
}
