//! Three versions of a notebook, aligned cell by cell.

use std::collections::HashMap;

use super::align::{align, align_edited, inverse};
use crate::notebook::document::{Cell, Document};

/// Three versions of a notebook, and for each cell its position in the others.
pub(super) struct ThreeVersions<'a> {
    pub(super) base: &'a Document,
    pub(super) file: &'a Document,
    pub(super) writer: &'a Document,
    /// For each cell of the base, its position in the file and in the writer's version.
    pub(super) in_file: Vec<Option<usize>>,
    pub(super) in_writer: Vec<Option<usize>>,
    /// For each cell of the file and of the writer's version, its position in the base.
    pub(super) of_file: Vec<Option<usize>>,
    pub(super) of_writer: Vec<Option<usize>>,
    /// The position in the writer's version by the position in the file, for cells that both sides inserted
    /// with the same id, as in a merge that is repeated.
    pub(super) inserted_by_both: HashMap<usize, usize>,
}

impl<'a> ThreeVersions<'a> {
    pub(super) fn of(base: &'a Document, file: &'a Document, writer: &'a Document) -> Self {
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

    /// Returns the positions in the base and in the writer's version of a cell of the file.
    pub(super) fn counterparts_of_file(&self, at: usize) -> (Option<usize>, Option<usize>) {
        let base = position(&self.of_file, at);
        let writer = match base {
            Some(base) => position(&self.in_writer, base),
            None => self.inserted_by_both.get(&at).copied(),
        };
        (base, writer)
    }

    /// Returns the file's version of a cell of the base, and its position.
    pub(super) fn file_cell(&self, base: usize) -> Option<(usize, &'a Cell)> {
        let at = position(&self.in_file, base)?;
        Some((at, self.file.cells.get(at)?))
    }

    /// Returns the writer's version of a cell of the base, and its position.
    pub(super) fn writer_cell(&self, base: usize) -> Option<(usize, &'a Cell)> {
        let at = position(&self.in_writer, base)?;
        Some((at, self.writer.cells.get(at)?))
    }
}

/// Returns the position that a list of positions has for a cell.
pub(super) fn position(positions: &[Option<usize>], cell: usize) -> Option<usize> {
    positions.get(cell).copied().flatten()
}
