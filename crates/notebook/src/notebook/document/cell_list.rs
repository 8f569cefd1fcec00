//! The list of cells, and the white space between them when a cell is added or removed.

use bytes::Bytes;

use super::cell::{Cell, CellType};
use super::lossless::Document;
use super::source::source_json;
use crate::notebook::edit::NewCell;
use crate::notebook::json::Json;

impl Document {
    /// Inserts a cell at an index. The white space between cells belongs to the position, not to the cell.
    pub(in crate::notebook) fn put_cell(&mut self, index: usize, mut cell: Cell) {
        if self.cells.is_empty() {
            let layout = self.item_layout();
            cell.before = layout.lead.clone().into();
            self.close = layout.close().to_owned().into();
        } else {
            let between = self.between();
            cell.before = match self.cells.get_mut(0) {
                Some(first) if index == 0 => std::mem::replace(&mut first.before, between),
                _ => between,
            };
        }
        self.cells.insert(index.min(self.cells.len()), cell);
    }

    /// Removes the cell at an index, which must exist.
    pub(in crate::notebook) fn take_cell(&mut self, index: usize) -> Cell {
        let cell = self.cells.remove(index);
        match self.cells.get_mut(0) {
            Some(first) if index == 0 => first.before.clone_from(&cell.before),
            Some(_) => {}
            None => self.close = Bytes::new(),
        }
        cell
    }

    /// Moves the cell at one index to another; both must exist. The white space between cells stays where
    /// it is.
    pub(in crate::notebook) fn shift_cell(&mut self, from: usize, to: usize) {
        let between: Vec<_> = self.cells.iter().map(|cell| cell.before.clone()).collect();
        let cell = self.cells.remove(from);
        self.cells.insert(to, cell);
        for (cell, before) in self.cells.iter_mut().zip(between) {
            cell.before = before;
        }
    }

    /// Returns the text of a new cell as Jupyter writes it, with sorted fields.
    pub(in crate::notebook) fn new_text(&self, cell: &NewCell, metadata: &[u8]) -> Vec<u8> {
        let layout = self.item_layout();
        let source = cell.source.as_bytes();
        let source = source_json(None, source, &layout.deeper(), self.style.lists);
        let is_code = cell.cell_type == CellType::Code;
        let fields = [
            ("cell_type", Some(Json::string(cell.cell_type.name()))),
            ("execution_count", is_code.then(|| Json::of_valid(b"null"))),
            ("id", self.holds_ids().then(|| Json::string(&cell.id))),
            ("metadata", Some(Json::of_valid(metadata))),
            ("outputs", is_code.then(|| Json::list([]))),
            ("source", Some(Json::of_valid(&source))),
        ];
        let fields = fields.iter();
        let fields = fields.filter_map(|(name, value)| Some((*name, value.as_ref()?)));
        layout.value(Json::object(fields).bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_between_cells_stays_when_a_cell_moves() {
        let file = |cells: [&str; 3]| {
            let [a, b, c] = cells;
            format!(
                "{{\"cells\": [ {{\"id\": \"{a}\"}} , {{\"id\": \"{b}\"}},\n{{\"id\": \"{c}\"}}], \"nbformat_minor\": 5}}"
            )
        };
        let document = Document::parse(file(["a", "b", "c"])).unwrap();
        for (from, to, want) in [
            (0, 2, ["b", "c", "a"]),
            (2, 0, ["c", "a", "b"]),
            (1, 2, ["a", "c", "b"]),
        ] {
            let mut moved = document.clone();
            moved.move_cell(from, to).unwrap();
            assert_eq!(moved.to_bytes(), file(want).as_bytes());
        }
    }
}
