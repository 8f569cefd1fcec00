//! Where a client last saw each cell. An index that means another cell by now is refused, if a cell is to be changed.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::api::problem::{Problem, ProblemKind};
use crate::notebook::{CellSelector, Operation};

/// How many notebooks are remembered. Of others an index is not checked.
const NOTEBOOKS_MAX: usize = 64;

/// The ids of the cells that a client saw last, by notebook and index.
#[derive(Debug, Default)]
pub(super) struct Positions(Mutex<HashMap<PathBuf, BTreeMap<usize, String>>>);

impl Positions {
    fn notebooks(&self) -> MutexGuard<'_, HashMap<PathBuf, BTreeMap<usize, String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers all cells of a notebook, in order.
    pub(super) fn set(&self, notebook: &Path, ids: impl Iterator<Item = String>) {
        let mut notebooks = self.notebooks();
        if notebooks.len() < NOTEBOOKS_MAX || notebooks.contains_key(notebook) {
            notebooks.insert(notebook.to_owned(), ids.enumerate().collect());
        }
    }

    /// Remembers one cell.
    pub(super) fn see(&self, notebook: &Path, index: usize, id: &str) {
        let mut notebooks = self.notebooks();
        if notebooks.len() < NOTEBOOKS_MAX || notebooks.contains_key(notebook) {
            let seen = notebooks.entry(notebook.to_owned()).or_default();
            seen.insert(index, id.to_owned());
        }
    }

    /// Says whether operations name cells by their indices in a notebook of which the client has seen no cell: it may have
    /// seen them before the server was started.
    pub(super) fn are_guesses(&self, notebook: &Path, operations: &[Operation]) -> bool {
        let mut cells = operations.iter().flat_map(|it| changed_cells(it).0);
        cells.any(|it| matches!(it, CellSelector::Index(_)))
            && !self.notebooks().contains_key(notebook)
    }

    /// Checks the indices of operations on a notebook whose cells have these ids now. After a refusal they count as
    /// seen. Indices behind an operation that changes the order are not checked.
    ///
    /// # Errors
    /// An index means another cell than the client saw there.
    pub(super) fn check(
        &self,
        notebook: &Path,
        operations: &[Operation],
        ids: &[String],
    ) -> Result<(), Problem> {
        let moved = {
            let notebooks = self.notebooks();
            let Some(seen) = notebooks.get(notebook) else {
                return Ok(());
            };
            let moves = |it: &&Operation| changed_cells(it).1;
            let unmoved = operations.iter().take_while(|it| !moves(it));
            let first_move = operations.iter().find(moves);
            let cells = unmoved.chain(first_move);
            let indices = cells.flat_map(|it| changed_cells(it).0);
            let indices = indices.filter_map(|cell| match cell {
                CellSelector::Index(index) => usize::try_from(*index).ok(),
                _ => None,
            });
            let mut moved = indices.filter_map(|index| {
                let (seen, now) = (seen.get(&index)?, ids.get(index)?);
                (seen != now).then(|| (index, seen.clone(), now.clone()))
            });
            moved.next()
        };
        let Some((index, seen, now)) = moved else {
            return Ok(());
        };
        self.set(notebook, ids.iter().cloned());
        let text = format!("index {index} is cell {now} now, and was {seen} when you saw it");
        let hint = match ids.iter().position(|id| *id == seen) {
            Some(place) => format!("name the cell by its id; {seen} has index {place} now"),
            None => format!("name the cell by its id; {seen} is no longer there"),
        };
        Err(Problem::new(ProblemKind::Conflict, text).hint(hint))
    }
}

/// Returns the cells that an operation changes, and whether it changes the indices of others.
fn changed_cells(operation: &Operation) -> (&[CellSelector], bool) {
    use std::slice::from_ref;
    match operation {
        Operation::Insert { .. } => (&[], true),
        Operation::Edit { cell, .. }
        | Operation::Replace { cell, .. }
        | Operation::Append { cell, .. } => (from_ref(cell), false),
        Operation::Clear { cells } => (cells, false),
        Operation::Move { cell, .. } | Operation::Split { cell, .. } => (from_ref(cell), true),
        Operation::Remove { cells, .. } | Operation::Join { cells } => (cells, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_means_another_cell_by_now_is_refused_once() {
        let positions = Positions::default();
        let notebook = Path::new("a.ipynb");
        let ids = |ids: &str| ids.chars().map(String::from).collect::<Vec<_>>();
        let operations = |list: &str| Operation::read_list(list).unwrap();
        let remove = operations(r#"[{"op": "remove", "cell": 1}]"#);
        let check =
            |operations: &[Operation], now: &str| positions.check(notebook, operations, &ids(now));
        check(&remove, "bcd").unwrap();
        assert!(positions.are_guesses(notebook, &remove));
        positions.set(notebook, ids("abcd").into_iter());
        check(&remove, "abd").unwrap();
        assert!(!positions.are_guesses(notebook, &remove));
        // It is behind an insertion, or counts from the end.
        for list in [
            r#"[{"op": "insert", "at": 0, "source": ""}, {"op": "remove", "cell": 1}]"#,
            r#"[{"op": "remove", "cell": -1}]"#,
            r#"[{"op": "remove", "cell": "abc"}]"#,
        ] {
            check(&operations(list), "bcd").unwrap();
        }
        let refused = check(&remove, "bcd").unwrap_err();
        assert_eq!(refused.kind, ProblemKind::Conflict);
        assert_eq!(
            refused.message,
            "index 1 is cell c now, and was b when you saw it"
        );
        check(&remove, "bcd").unwrap();
        positions.see(notebook, 1, "x");
        check(&remove, "bcd").unwrap_err();
    }
}
