//! Three versions of a notebook, aligned cell by cell.

use std::collections::HashMap;

use super::align::{align, align_edited, inverse};
use crate::notebook::document::Document;

/// Three versions of a notebook, and for each cell its position in the others.
pub(in crate::notebook) struct ThreeVersions<'a> {
    pub(in crate::notebook) base: &'a Document,
    pub(in crate::notebook) file: &'a Document,
    pub(in crate::notebook) writer: &'a Document,
    /// For each cell of the base its position in the file, and in the writer's version.
    pub(in crate::notebook) in_file: Vec<Option<usize>>,
    pub(in crate::notebook) in_writer: Vec<Option<usize>>,
    /// For each cell of the file, and of the writer's version, its position in the base.
    pub(in crate::notebook) of_file: Vec<Option<usize>>,
    pub(in crate::notebook) of_writer: Vec<Option<usize>>,
    /// For cells that both sides inserted with one id, as in a merge that is made again: the position
    /// in the writer's version by that in the file.
    pub(in crate::notebook) inserted_by_both: HashMap<usize, usize>,
}

impl<'a> ThreeVersions<'a> {
    pub(in crate::notebook) fn of(
        base: &'a Document,
        file: &'a Document,
        writer: &'a Document,
    ) -> Self {
        let in_writer = align_edited(&base.cells, &writer.cells);
        let of_writer = inverse(&in_writer, writer.cells.len());
        let new_cells = writer.cells.iter().enumerate().zip(&of_writer);
        let new_cells = new_cells.filter(|(_, of)| of.is_none());
        let new_ids: HashMap<_, _> = new_cells
            .map(|((index, cell), _)| (cell.id(), index))
            .collect();
        let in_file = align(&base.cells, &file.cells, |id| new_ids.contains_key(id));
        let of_file = inverse(&in_file, file.cells.len());
        let inserted = file.cells.iter().enumerate();
        let inserted = inserted.filter(|(_, cell)| cell.own_id || cell.recorded_id);
        let inserted_by_both = inserted
            .filter_map(|(index, cell)| Some((index, *new_ids.get(cell.id())?)))
            .collect();
        Self {
            base,
            file,
            writer,
            in_file,
            in_writer,
            of_file,
            of_writer,
            inserted_by_both,
        }
    }
}
