//! Edits of one cell or of the list of cells, as splices of the bytes that they touch.

use std::collections::HashMap;

use super::error::DocumentEditError;
use crate::notebook::document::ids;
use crate::notebook::document::{
    Cell, CellType, Document, KernelspecMetadata, Revision, source_json,
};
use crate::notebook::json::{Json, Layout, Object, find_all, set_value_at};

/// The change that an edit made to a cell.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CellChange {
    /// The cell's id.
    pub cell: String,
    /// The cell's position now, or before it was removed.
    pub index: usize,
    /// The kind of change.
    #[serde(rename = "what")]
    pub kind: ChangeKind,
    /// The cell's revision before; none for a new cell.
    pub before: Option<Revision>,
    /// The cell's revision now; none for a removed cell.
    pub after: Option<Revision>,
}

/// The kinds of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// The cell was already as the edit would make it: no byte changed.
    Nothing,
    /// The cell is new.
    Inserted,
    /// The source, type or metadata changed.
    Edited,
    /// The cell has another position.
    Moved,
    /// The outputs, execution count or times changed.
    Outputs,
    /// The cell was removed.
    Removed,
}

/// A cell to insert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCell {
    /// An id that no cell of the notebook has; Jupyter makes ids of eight random hexadecimal digits.
    pub id: String,
    /// The type.
    pub cell_type: CellType,
    /// The source.
    pub source: String,
    /// The metadata, an object; `None` stands for an empty one.
    pub metadata: Option<Json>,
}

impl Document {
    /// Inserts a cell at `index`, written as Jupyter writes it in this file's style.
    ///
    /// # Errors
    /// The index is beyond the end, the id is not allowed or taken, or the metadata is not an object.
    pub fn insert(
        &mut self,
        index: usize,
        cell: &NewCell,
    ) -> Result<CellChange, DocumentEditError> {
        self.check_new(index, &cell.id, ids::is_valid(&cell.id))?;
        if cell.cell_type == CellType::Unknown {
            return Err(DocumentEditError::NoType);
        }
        let metadata = cell.metadata.as_ref().map_or(&b"{}"[..], Json::bytes);
        if !metadata.starts_with(b"{") {
            return Err(DocumentEditError::NotAnObject);
        }
        let text = self.new_text(cell, metadata);
        let object = Object::read(&text).expect("a cell is written as an object");
        let mut new = Cell::new(bytes::Bytes::new(), text.into(), object);
        new.id.clone_from(&cell.id);
        new.own_id = self.holds_ids();
        new.recorded_id = !new.own_id;
        Ok(self.put_new(index, new))
    }

    /// Checks whether a new cell with this id may be inserted at an index.
    pub(in crate::notebook) fn check_new(
        &self,
        index: usize,
        id: &str,
        is_valid: bool,
    ) -> Result<(), DocumentEditError> {
        self.check_writable()?;
        let cells = self.cells.len();
        if index > cells {
            return Err(DocumentEditError::OutOfRange { index, cells });
        }
        if !is_valid {
            return Err(DocumentEditError::BadId(id.to_owned()));
        }
        match self.position_by_id(id) {
            Some(_) => Err(DocumentEditError::TakenId(id.to_owned())),
            None => Ok(()),
        }
    }

    /// Inserts a new cell at an index.
    pub(in crate::notebook) fn put_new(&mut self, index: usize, cell: Cell) -> CellChange {
        self.put_cell(index, cell);
        CellChange {
            before: None,
            ..self.report(index, ChangeKind::Inserted, None)
        }
    }

    /// Removes a cell.
    ///
    /// # Errors
    /// There is no cell at the index.
    pub fn remove(&mut self, index: usize) -> Result<CellChange, DocumentEditError> {
        // A copy of its id becomes the id of the copy's cell if the cell that comes first is removed.
        if self.check(index)?.own_id {
            self.write_twins_ids(index);
        }
        let cell = self.take_cell(index);
        Ok(CellChange {
            index,
            kind: ChangeKind::Removed,
            before: Some(cell.revision()),
            after: None,
            cell: cell.id,
        })
    }

    /// Moves a cell to the position `to`.
    ///
    /// # Errors
    /// There is no cell at one of the indexes.
    pub fn move_cell(&mut self, from: usize, to: usize) -> Result<CellChange, DocumentEditError> {
        self.check(from)?;
        self.check(to)?;
        if from == to {
            return Ok(self.report(to, ChangeKind::Nothing, None));
        }
        self.write_twins_ids(from);
        self.shift_cell(from, to);
        Ok(self.report(to, ChangeKind::Moved, None))
    }

    /// Gives each cell that has the same id in the file as the cell at an index its own id there: which of
    /// them has the common one depends on their order.
    fn write_twins_ids(&mut self, index: usize) {
        let layout = self.style.cell.clone();
        let common = self.cells.get(index).map(ids::in_file).unwrap_or_default();
        let cells = self.cells.iter_mut().filter(|cell| !cell.own_id);
        for cell in cells.filter(|cell| !common.is_empty() && ids::in_file(cell) == common) {
            let id = cell.id.clone();
            ids::write_id(cell, &id, &layout);
        }
    }

    /// Sets a cell's source; unchanged lines at its beginning and its end keep their bytes.
    ///
    /// # Errors
    /// There is no cell at the index.
    pub fn set_source(
        &mut self,
        index: usize,
        source: &str,
    ) -> Result<CellChange, DocumentEditError> {
        self.set_source_bytes(index, source.as_bytes())
    }

    pub(in crate::notebook) fn set_source_bytes(
        &mut self,
        index: usize,
        source: &[u8],
    ) -> Result<CellChange, DocumentEditError> {
        let lists = self.style.lists;
        self.change(index, ChangeKind::Edited, |cell, layout| {
            if cell.raw("source").is_none() {
                let value = source_json(None, source, layout, lists);
                cell.set("source", &value, layout);
            }
            cell.set_source(source, layout, lists);
        })
    }

    /// Gives each cell what the cell of the same id and type in another version has besides its source.
    pub fn take_data(&mut self, other: &Self) {
        let others: HashMap<_, _> = other.cells.iter().map(|cell| (cell.id(), cell)).collect();
        for at in 0..self.cells.len() {
            let cell = &mut self.cells[at];
            let same = others.get(cell.id());
            let Some(other) = same.filter(|it| it.cell_type() == cell.cell_type()) else {
                continue;
            };
            if other.text == cell.text {
                continue;
            }
            let source = cell.source().into_owned();
            let mut new = Cell::clone(other);
            new.before = cell.before.clone();
            *cell = new;
            if cell.source() != source {
                let _ = self.set_source(at, &source);
            }
        }
    }

    /// Replaces a part of a cell's source. `old` must occur exactly once, unless `all` is set.
    ///
    /// # Errors
    /// `old` is empty, does not occur, or occurs more than once; there is no cell at the index.
    pub fn replace(
        &mut self,
        index: usize,
        old: &str,
        new: &str,
        all: bool,
    ) -> Result<CellChange, DocumentEditError> {
        let cell = self.check(index)?;
        if old.is_empty() {
            return Err(DocumentEditError::Empty);
        }
        let source = cell.source_bytes();
        let found = find_all(&source, old);
        match found.len() {
            0 => return Err(DocumentEditError::NotFound(cell.id.clone())),
            1 => {}
            _ if all => {}
            _ => {
                let line = |at: &usize| {
                    let before = source.get(..*at).unwrap_or_default();
                    1 + memchr::memchr_iter(b'\n', before).count()
                };
                return Err(DocumentEditError::Several {
                    cell: cell.id.clone(),
                    lines: found.iter().map(line).collect(),
                });
            }
        }
        let mut text = Vec::with_capacity(source.len());
        let mut at = 0;
        for start in found {
            text.extend_from_slice(source.get(at..start).unwrap_or_default());
            text.extend_from_slice(new.as_bytes());
            at = start + old.len();
        }
        text.extend_from_slice(source.get(at..).unwrap_or_default());
        self.set_source_bytes(index, &text)
    }

    /// Sets a cell's type. A code cell that becomes another type loses its outputs and count; a cell that
    /// becomes code loses its attachments.
    ///
    /// # Errors
    /// There is no cell at the index, or no such type.
    pub fn set_type(
        &mut self,
        index: usize,
        cell_type: CellType,
    ) -> Result<CellChange, DocumentEditError> {
        if cell_type == CellType::Unknown {
            return Err(DocumentEditError::NoType);
        }
        self.change(index, ChangeKind::Edited, |cell, layout| {
            if cell.cell_type() != cell_type {
                cell.set_type(cell_type, layout);
            }
        })
    }

    /// Sets a value of a cell's metadata by its path of keys; missing objects on the path are created.
    ///
    /// # Errors
    /// There is no cell at the index, or the path is empty.
    pub fn set_metadata(
        &mut self,
        index: usize,
        path: &[&str],
        value: &Json,
    ) -> Result<CellChange, DocumentEditError> {
        if path.is_empty() {
            return Err(DocumentEditError::NotAnObject);
        }
        self.change(index, ChangeKind::Edited, |cell, layout| {
            cell.set_metadata(path, Some(value), layout);
        })
    }

    /// Removes a value of a cell's metadata.
    ///
    /// # Errors
    /// There is no cell at the index.
    pub fn remove_metadata(
        &mut self,
        index: usize,
        path: &[&str],
    ) -> Result<CellChange, DocumentEditError> {
        self.change(index, ChangeKind::Edited, |cell, layout| {
            cell.set_metadata(path, None, layout);
        })
    }

    /// Sets a value of the notebook's own metadata by its path of keys, and returns whether that changed it.
    ///
    /// # Errors
    /// The path is empty, or the format is read-only.
    pub fn set_notebook_metadata(
        &mut self,
        path: &[&str],
        value: &Json,
    ) -> Result<bool, DocumentEditError> {
        self.check_writable()?;
        if path.is_empty() {
            return Err(DocumentEditError::NotAnObject);
        }
        let old = self
            .frame
            .raw("metadata")
            .filter(|raw| raw.starts_with(b"{"));
        let layout = self.style.top.deeper();
        let new = set_value_at(old.unwrap_or(b"{}"), path, value, &layout);
        Ok(self.set_frame_metadata(new.as_deref()))
    }

    /// Names a kernelspec in the notebook's metadata, and returns whether that changed it; an empty
    /// language is not written.
    ///
    /// # Errors
    /// The format is read-only.
    pub fn set_kernelspec(
        &mut self,
        spec: &KernelspecMetadata<'_>,
    ) -> Result<bool, DocumentEditError> {
        let mut changed = false;
        for (name, value) in spec.fields() {
            changed |= self.set_notebook_metadata(&["kernelspec", name], &Json::string(value))?;
        }
        Ok(changed)
    }

    /// Sets the notebook's own metadata to an object that is already in the file's layout; `None` changes
    /// nothing. Returns whether an object was given.
    pub(in crate::notebook) fn set_frame_metadata(&mut self, new: Option<&[u8]>) -> bool {
        if let Some(new) = new {
            self.frame = self.frame.with("metadata", new, &self.style.top);
        }
        new.is_some()
    }

    /// Says whether the file's format has cell ids, as formats from 4.5 on have. nbformat's schema forbids
    /// them in older formats.
    pub(in crate::notebook) fn holds_ids(&self) -> bool {
        self.nbformat.1 >= 5
    }

    /// Writes stand-ins into the file as ids, and raises the version to the first one that has ids.
    pub(in crate::notebook) fn settle(&mut self) {
        let layout = self.style.cell.clone();
        for cell in self.cells.iter_mut().filter(|cell| !cell.own_id) {
            let id = cell.id.clone();
            ids::write_id(cell, &id, &layout);
        }
        if self.nbformat.1 < 5 {
            for (name, value) in [("nbformat", &b"4"[..]), ("nbformat_minor", b"5")] {
                if self.frame.raw(name) != Some(value) {
                    self.frame = self.frame.with(name, value, &self.style.top);
                }
            }
            self.nbformat.1 = 5;
        }
    }

    /// Changes one cell; it counts as unchanged if its bytes stay the same.
    pub(in crate::notebook) fn change(
        &mut self,
        index: usize,
        kind: ChangeKind,
        edit: impl FnOnce(&mut Cell, &Layout),
    ) -> Result<CellChange, DocumentEditError> {
        let cell = self.check(index)?;
        let before = cell.revision();
        let layout = cell.object.layout(&cell.text, &self.style.cell);
        let mut new = cell.clone();
        edit(&mut new, &layout);
        let changed = self
            .cells
            .get_mut(index)
            .filter(|cell| cell.text != new.text);
        let kind = match changed {
            Some(cell) => {
                *cell = new;
                kind
            }
            None => ChangeKind::Nothing,
        };
        Ok(self.report(index, kind, Some(before)))
    }

    fn report(&self, index: usize, kind: ChangeKind, before: Option<Revision>) -> CellChange {
        let cell = self.cells.get(index);
        let after = cell.map(Cell::revision);
        CellChange {
            cell: cell.map(|cell| cell.id.clone()).unwrap_or_default(),
            index,
            kind,
            before: before.or(after),
            after,
        }
    }

    pub(in crate::notebook) fn check_writable(&self) -> Result<(), DocumentEditError> {
        match self.is_read_only() {
            true => Err(DocumentEditError::ReadOnly(self.nbformat.0)),
            false => Ok(()),
        }
    }

    /// Returns the cell at an index, if it may be edited.
    pub(in crate::notebook) fn check(&self, index: usize) -> Result<&Cell, DocumentEditError> {
        self.check_writable()?;
        self.cells.get(index).ok_or(DocumentEditError::OutOfRange {
            index,
            cells: self.cells.len(),
        })
    }
}
