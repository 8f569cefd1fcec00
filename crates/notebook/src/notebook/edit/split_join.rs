//! Splits a cell in two, and joins several into one.

use super::cells::{CellChange, ChangeKind, NewCell};
use super::error::DocumentEditError;
use crate::notebook::document::{Cell, CellType, Document};

impl Document {
    /// Splits a cell in two before a line, counted from 0. The first part keeps the id; the second gets
    /// `id`, and the type and metadata of the first. Both lose the outputs, which were those of the whole
    /// cell.
    ///
    /// # Errors
    /// There is no cell at the index, or no text before or after the line.
    pub fn split(
        &mut self,
        index: usize,
        line: usize,
        id: &str,
    ) -> Result<[CellChange; 2], DocumentEditError> {
        let cell = self.check(index)?;
        let source = cell.source_bytes();
        let lines: Vec<_> = source.split_inclusive(|byte| *byte == b'\n').collect();
        if line == 0 || line >= lines.len() {
            return Err(DocumentEditError::NoSuchLine {
                cell: cell.id.clone(),
                line,
                lines: lines.len(),
            });
        }
        let (first, second) = lines.split_at(line);
        let (mut first, second) = (first.concat(), second.concat());
        // The newline at the split is now the border between the cells.
        if first.ends_with(b"\n") {
            first.pop();
        }
        if first.ends_with(b"\r") {
            first.pop();
        }
        let new = NewCell {
            id: id.to_owned(),
            cell_type: cell.cell_type(),
            source: String::new(),
            metadata: cell
                .metadata(&[])
                .filter(|metadata| metadata.bytes().starts_with(b"{")),
        };
        let mut edited = self.clone();
        edited.insert(index + 1, &new)?;
        edited.remove_metadata(index + 1, &["execution"])?;
        let second = CellChange {
            kind: ChangeKind::Inserted,
            before: None,
            ..edited.set_source_bytes(index + 1, &second)?
        };
        let mut first = edited.set_source_bytes(index, &first)?;
        if edited
            .cells
            .get(index)
            .is_some_and(|cell| cell.cell_type() == CellType::Code)
        {
            edited.clear_outputs(index)?;
        }
        first.kind = ChangeKind::Edited;
        *self = edited;
        Ok([first, second])
    }

    /// Joins `count` adjacent cells, from `index` on, with a newline between their sources. The first keeps
    /// id, type and metadata; its outputs are removed.
    ///
    /// # Errors
    /// There are fewer cells, or `count` is less than two.
    pub fn join(
        &mut self,
        index: usize,
        count: usize,
    ) -> Result<Vec<CellChange>, DocumentEditError> {
        self.check(index)?;
        if count < 2 {
            return Err(DocumentEditError::NothingToJoin);
        }
        self.check(index.saturating_add(count - 1))?;
        let sources: Vec<_> = self
            .cells
            .iter()
            .skip(index)
            .take(count)
            .map(Cell::source_bytes)
            .collect();
        let source = sources.join(&b"\n"[..]);
        drop(sources);
        let mut changes = vec![self.set_source_bytes(index, &source)?];
        if self.check(index)?.cell_type() == CellType::Code {
            self.clear_outputs(index)?;
        }
        for _ in 1..count {
            changes.push(self.remove(index + 1)?);
        }
        Ok(changes)
    }
}
