//! The list of cells: what stands between them when one comes or goes.

use bytes::Bytes;

use super::cell::{Cell, CellType};
use super::document::Document;
use super::edit::NewCell;
use super::json::Json;
use super::source::written;

impl Document {
    /// Puts a cell at an index. What stands between cells belongs to the place, not to the cell.
    pub(super) fn put(&mut self, index: usize, mut cell: Cell) {
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

    /// Takes out the cell at an index, which there must be.
    pub(super) fn take(&mut self, index: usize) -> Cell {
        let cell = self.cells.remove(index);
        match self.cells.get_mut(0) {
            Some(first) if index == 0 => first.before.clone_from(&cell.before),
            Some(_) => {}
            None => self.close = Bytes::new(),
        }
        cell
    }

    /// Returns the text of a new cell, as Jupyter writes it: its fields sorted.
    pub(super) fn new_text(&self, cell: &NewCell, metadata: &[u8]) -> Vec<u8> {
        let layout = self.item_layout();
        let source = cell.source.as_bytes();
        let source = written(None, source, &layout.deeper(), self.style.lists);
        let code = cell.cell_type == CellType::Code;
        let [count, outputs]: [&[u8]; 2] = match code {
            true => [b"\"execution_count\":null,", b"\"outputs\":[],"],
            false => [b"", b""],
        };
        let word = Json::string(cell.cell_type.name());
        let id = Json::string(&cell.id);
        let text = [
            &b"{\"cell_type\":"[..],
            word.bytes(),
            b",",
            count,
            b"\"id\":",
            id.bytes(),
            b",\"metadata\":",
            metadata,
            b",",
            outputs,
            b"\"source\":",
            &source,
            b"}",
        ];
        layout.value(&text.concat())
    }
}
