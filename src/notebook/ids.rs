//! The ids of cells: those in the file, and stand-ins where it has none.

use std::collections::HashSet;

use sha2::{Digest as _, Sha256};

use super::cell::Cell;
use super::json::{decode, lossy};

/// Gives every cell its id. The first cell with an id keeps it; a cell without one, or with one
/// that is taken, gets a stand-in made from its position, which the first edit writes.
pub(super) fn assign(cells: &mut [Cell]) {
    for cell in cells.iter_mut() {
        let raw = cell.raw("id").filter(|raw| raw.starts_with(b"\""));
        cell.id = raw.map_or_else(String::new, |raw| lossy(decode(raw)).into_owned());
    }
    let mut taken: HashSet<&str> = HashSet::with_capacity(cells.len());
    let own = cells
        .iter()
        .map(|cell| !cell.id.is_empty() && taken.insert(&cell.id));
    let own: Vec<bool> = own.collect();
    let mut taken: HashSet<String> = match own.iter().all(|own| *own) {
        true => HashSet::new(),
        false => taken.into_iter().map(str::to_owned).collect(),
    };
    for (index, (cell, own)) in cells.iter_mut().zip(own).enumerate() {
        cell.own_id = own;
        if !own {
            cell.id = stand_in(index, &taken);
            taken.insert(cell.id.clone());
        }
    }
}

/// Returns whether the file format allows an id: up to 64 letters, digits, `-` and `_`.
pub(super) fn is_valid(id: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (1..=64).contains(&id.len()) && id.bytes().all(allowed)
}

/// Eight hexadecimal digits, as Jupyter's own ids have.
fn stand_in(index: usize, taken: &HashSet<String>) -> String {
    for salt in 0_u64.. {
        let hash = Sha256::digest(format!("cell {index} {salt}"));
        let id = hex::encode(hash.get(..4).unwrap_or_default());
        if !taken.contains(&id) {
            return id;
        }
    }
    unreachable!("a file has fewer cells than there are numbers")
}
