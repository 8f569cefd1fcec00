//! The cells of an editor as a notebook that is made from another one.

use std::collections::{HashMap, HashSet};

use super::protocol::EditorCell;
use crate::notebook::{CellType, Document, DocumentEditError, NewCell};

/// The names of an editor's cells, and the ids that these cells have in the notebooks that are merged.
#[derive(Clone, Debug, Default)]
pub(super) struct CellNames {
    ids: HashMap<String, String>,
    names: HashMap<String, String>,
    /// The ids that were chosen here, since the editor knows none.
    chosen: HashSet<String>,
}

impl CellNames {
    pub(super) fn id(&self, name: &str) -> Option<&str> {
        self.ids.get(name).map(String::as_str)
    }

    pub(super) fn name(&self, id: &str) -> Option<&str> {
        self.names.get(id).map(String::as_str)
    }

    /// Says whether a cell's id was chosen here.
    pub(super) fn is_chosen(&self, id: &str) -> bool {
        self.chosen.contains(id)
    }

    pub(super) fn insert(&mut self, name: &str, id: &str) {
        self.ids.insert(name.to_owned(), id.to_owned());
        self.names.insert(id.to_owned(), name.to_owned());
    }

    pub(super) fn remove(&mut self, id: &str) {
        self.chosen.remove(id);
        if let Some(name) = self.names.remove(id) {
            self.ids.remove(&name);
        }
    }

    /// Gives a cell another id.
    pub(super) fn rename(&mut self, id: &str, new_id: &str) {
        if let Some(name) = self.names.remove(id) {
            self.insert(&name, new_id);
            if self.chosen.remove(id) {
                self.chosen.insert(new_id.to_owned());
            }
        }
    }
}

/// Returns the notebook that has an editor's cells, made from `reference` by edits, and the cells' names in it.
///
/// Cells are found by the names that were `known` before, then by their ids, and those without an id, or with the id of
/// another one, by their text and by their neighbours.
///
/// # Errors
/// The notebook cannot be edited, or an editor's cell has no type.
pub(super) fn with_cells(
    reference: &Document,
    cells: &[EditorCell],
    known: &CellNames,
) -> Result<(Document, CellNames), DocumentEditError> {
    let mut document = reference.clone();
    let mut names = CellNames::default();
    let found = found_in(reference, cells, known);
    let stays: HashSet<_> = found.iter().flatten().copied().collect();
    for at in (0..reference.cells().len()).rev() {
        if !stays.contains(&at) {
            document.remove(at)?;
        }
    }
    for (place, (cell, found)) in cells.iter().zip(&found).enumerate() {
        let known = found.and_then(|at| Some(reference.cells().get(at)?.id().to_owned()));
        match known {
            Some(id) => {
                let at = document.position_by_id(&id).unwrap_or(place);
                document.move_cell(at, place)?;
                put_text(&mut document, place, cell)?;
                if cell.id.as_ref() != Some(&id) {
                    names.chosen.insert(id.clone());
                }
                names.insert(&cell.cell, &id);
            }
            None => insert(&mut document, &mut names, place, cell, reference)?,
        }
    }
    Ok((document, names))
}

/// Gives a cell the text and the type that it has in the editor.
fn put_text(
    document: &mut Document,
    at: usize,
    cell: &EditorCell,
) -> Result<(), DocumentEditError> {
    let is_other_type = |it: &crate::notebook::Cell| it.cell_type() != cell.cell_type;
    if cell.cell_type != CellType::Unknown && document.cells().get(at).is_some_and(is_other_type) {
        document.set_type(at, cell.cell_type)?;
    }
    if document
        .cells()
        .get(at)
        .is_some_and(|it| it.source() != cell.source)
    {
        document.set_source(at, &cell.source)?;
    }
    Ok(())
}

/// Inserts a cell that only the editor has. It keeps the id that it has there, if no cell of the notebook or of
/// `others` has that one.
pub(super) fn insert(
    document: &mut Document,
    names: &mut CellNames,
    at: usize,
    cell: &EditorCell,
    others: &Document,
) -> Result<(), DocumentEditError> {
    let mut new = NewCell {
        id: cell.id.clone().unwrap_or_default(),
        cell_type: cell.cell_type,
        source: cell.source.clone(),
        metadata: None,
    };
    let is_taken = |id: &str| names.names.contains_key(id) || others.cell_by_id(id).is_some();
    let has_id = !new.id.is_empty() && !is_taken(&new.id);
    if !has_id || document.insert(at, &new).is_err() {
        let free = (0..).map(|number| format!("new-{number}"));
        let mut free = free.filter(|id| !is_taken(id) && document.cell_by_id(id).is_none());
        new.id = free.next().unwrap_or_default();
        document.insert(at, &new)?;
        names.chosen.insert(new.id.clone());
    }
    names.insert(&cell.cell, &new.id);
    Ok(())
}

/// Returns for each cell of an editor its position in a notebook.
fn found_in(notebook: &Document, cells: &[EditorCell], known: &CellNames) -> Vec<Option<usize>> {
    let mut free: Vec<bool> = notebook.cells().iter().map(|_| true).collect();
    let mut found: Vec<Option<usize>> = vec![None; cells.len()];
    let mut take = |found: &mut Option<usize>, at: Option<usize>| {
        if let Some(at) = at
            && let Some(free @ true) = free.get_mut(at)
            && found.is_none()
        {
            *free = false;
            *found = Some(at);
        }
    };
    for (cell, found) in cells.iter().zip(&mut found) {
        let known = known.id(&cell.cell);
        take(found, known.and_then(|id| notebook.position_by_id(id)));
    }
    for (cell, found) in cells.iter().zip(&mut found) {
        let by_id = cell.id.as_ref().and_then(|id| notebook.position_by_id(id));
        take(found, by_id);
    }
    // Cells without an id: equal texts in their order, then what follows a pair, in a notebook without ids.
    let mut by_text: HashMap<_, Vec<usize>> = HashMap::new();
    for (at, cell) in notebook.cells().iter().enumerate().rev() {
        let text = (cell.cell_type(), cell.source().into_owned());
        by_text.entry(text).or_default().push(at);
    }
    for (cell, found) in cells.iter().zip(&mut found) {
        if let Some(places) = by_text.get_mut(&(cell.cell_type, cell.source.clone())) {
            while found.is_none()
                && let Some(at) = places.pop()
            {
                take(found, Some(at));
            }
        }
    }
    for index in 0..cells.len() {
        let after = match index.checked_sub(1) {
            None => Some(0),
            Some(before) => found.get(before).copied().flatten().map(|at| at + 1),
        };
        let has_id = |at: &usize| {
            notebook
                .cells()
                .get(*at)
                .is_some_and(|cell| cell.has_own_id())
        };
        if let Some(found) = found.get_mut(index) {
            take(found, after.filter(|at| !has_id(at)));
        }
    }
    found
}
