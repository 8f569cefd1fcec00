//! Edits of one cell or of the list of cells, as splices of the bytes that they touch.

use super::error::EditError;
use crate::notebook::document::ids;
use crate::notebook::document::{
    Cell, CellType, Document, KernelspecMetadata, Revision, source_json,
};
use crate::notebook::json::{Json, Layout, Object, encode, find_all, set_value_at};

/// The change that an edit made to a cell.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct CellChange {
    /// The cell's id.
    pub cell: String,
    /// The cell's position now, or before it was removed.
    pub index: usize,
    /// The kind of change.
    pub what: ChangeKind,
    /// The cell's revision before; none for a new cell.
    pub before: Option<Revision>,
    /// The cell's revision now; none for a removed cell.
    pub after: Option<Revision>,
}

/// The kinds of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
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
    /// An id that no cell of the notebook has; Jupyter takes eight random hexadecimal digits.
    pub id: String,
    /// The type.
    pub cell_type: CellType,
    /// The source.
    pub source: String,
    /// The metadata, an object; none stands for an empty one.
    pub metadata: Option<Json>,
}

impl Document {
    /// Inserts a cell so that it stands at `index`, written as Jupyter writes it in this file's
    /// style.
    ///
    /// # Errors
    /// The index is beyond the end, the id not allowed or taken, the metadata no object.
    pub fn insert(&mut self, index: usize, cell: &NewCell) -> Result<CellChange, EditError> {
        self.check_writable()?;
        if index > self.cells.len() {
            let cells = self.cells.len();
            return Err(EditError::OutOfRange { index, cells });
        }
        if !ids::is_valid(&cell.id) {
            return Err(EditError::BadId(cell.id.clone()));
        }
        if self.cells.iter().any(|other| other.id == cell.id) {
            return Err(EditError::TakenId(cell.id.clone()));
        }
        if cell.cell_type == CellType::Unknown {
            return Err(EditError::NoType);
        }
        let metadata = cell.metadata.as_ref().map_or(&b"{}"[..], Json::bytes);
        if !metadata.starts_with(b"{") {
            return Err(EditError::NotAnObject);
        }
        let text = self.new_text(cell, metadata);
        let object = Object::read(&text).expect("a cell is written as an object");
        let mut new = Cell::new(bytes::Bytes::new(), text.into(), object);
        new.id.clone_from(&cell.id);
        new.own_id = self.holds_ids();
        new.recorded_id = !new.own_id;
        let after = Some(new.revision());
        self.put_cell(index, new);
        Ok(CellChange {
            cell: cell.id.clone(),
            index,
            what: ChangeKind::Inserted,
            before: None,
            after,
        })
    }

    /// Removes a cell.
    ///
    /// # Errors
    /// There is none at the index.
    pub fn remove(&mut self, index: usize) -> Result<CellChange, EditError> {
        self.check(index)?;
        let cell = self.take_cell(index);
        Ok(CellChange {
            index,
            what: ChangeKind::Removed,
            before: Some(cell.revision()),
            after: None,
            cell: cell.id,
        })
    }

    /// Moves a cell so that it stands at `to` afterwards.
    ///
    /// # Errors
    /// There is no cell at one of the indexes.
    pub fn move_cell(&mut self, from: usize, to: usize) -> Result<CellChange, EditError> {
        self.check(from)?;
        self.check(to)?;
        if from != to {
            self.shift_cell(from, to);
        }
        let what = if from == to {
            ChangeKind::Nothing
        } else {
            ChangeKind::Moved
        };
        Ok(self.report(to, what, None))
    }

    /// Sets a cell's source; lines that stay at its beginning and its end keep their bytes.
    ///
    /// # Errors
    /// There is no cell at the index.
    pub fn set_source(&mut self, index: usize, source: &str) -> Result<CellChange, EditError> {
        self.set_source_bytes(index, source.as_bytes())
    }

    pub(in crate::notebook) fn set_source_bytes(
        &mut self,
        index: usize,
        source: &[u8],
    ) -> Result<CellChange, EditError> {
        let lists = self.style.lists;
        self.change(index, ChangeKind::Edited, |cell, layout| {
            if *cell.source_bytes() == *source && cell.raw("source").is_some() {
                return None;
            }
            let value = source_json(cell.raw("source"), source, layout, lists);
            Some(cell.with("source", &value, layout))
        })
    }

    /// Replaces a part of a cell's source: `old` must stand there exactly once, unless `all`.
    ///
    /// # Errors
    /// `old` is empty, not there, or there more than once; there is no cell at the index.
    pub fn replace(
        &mut self,
        index: usize,
        old: &str,
        new: &str,
        all: bool,
    ) -> Result<CellChange, EditError> {
        let cell = self.check(index)?;
        if old.is_empty() {
            return Err(EditError::Empty);
        }
        let source = cell.source_bytes();
        let found = find_all(&source, old);
        match found.len() {
            0 => return Err(EditError::NotFound(cell.id.clone())),
            1 => {}
            _ if all => {}
            count => {
                let cell = cell.id.clone();
                return Err(EditError::Several { cell, count });
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

    /// Makes a cell one of another type. Outputs and counts go when it is no code any more, and
    /// attachments when it becomes code, which has none.
    ///
    /// # Errors
    /// There is no cell at the index, or no such type.
    pub fn set_type(&mut self, index: usize, cell_type: CellType) -> Result<CellChange, EditError> {
        if cell_type == CellType::Unknown {
            return Err(EditError::NoType);
        }
        self.change(index, ChangeKind::Edited, |cell, layout| {
            (cell.cell_type() != cell_type).then(|| cell.as_type(cell_type, layout))
        })
    }

    /// Sets a value of a cell's metadata by its keys from the outside in; objects that are missing
    /// on the way are made.
    ///
    /// # Errors
    /// There is no cell at the index; there are no keys.
    pub fn set_metadata(
        &mut self,
        index: usize,
        path: &[&str],
        value: &Json,
    ) -> Result<CellChange, EditError> {
        if path.is_empty() {
            return Err(EditError::NotAnObject);
        }
        self.change(index, ChangeKind::Edited, |cell, layout| {
            cell.with_metadata(path, value, layout)
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
    ) -> Result<CellChange, EditError> {
        self.change(index, ChangeKind::Edited, |cell, layout| {
            cell.without_metadata(path, layout)
        })
    }

    /// Sets a value of the notebook's own metadata by its keys, and says whether that changed it.
    ///
    /// # Errors
    /// There are no keys, or the format is only read.
    pub fn set_notebook_metadata(
        &mut self,
        path: &[&str],
        value: &Json,
    ) -> Result<bool, EditError> {
        self.check_writable()?;
        if path.is_empty() {
            return Err(EditError::NotAnObject);
        }
        let old = self
            .frame
            .raw("metadata")
            .filter(|raw| raw.starts_with(b"{"));
        let layout = self.style.top.deeper();
        let new = set_value_at(old.unwrap_or(b"{}"), path, value, &layout);
        Ok(self.set_frame_metadata(new.as_deref()))
    }

    /// Names a kernelspec in the notebook's metadata, and says whether that changed it; an empty
    /// language leaves what is there.
    ///
    /// # Errors
    /// The format is only read.
    pub fn set_kernelspec(&mut self, spec: &KernelspecMetadata<'_>) -> Result<bool, EditError> {
        let mut changed = false;
        for (name, value) in spec.fields() {
            changed |= self.set_notebook_metadata(&["kernelspec", name], &Json::string(value))?;
        }
        Ok(changed)
    }

    pub(in crate::notebook) fn set_frame_metadata(&mut self, new: Option<&[u8]>) -> bool {
        if let Some(new) = new {
            self.frame = self.frame.with("metadata", new, &self.style.top);
        }
        new.is_some()
    }

    /// Returns whether the file's format has ids of cells: from 4.5 on. In an older one an id is a
    /// field too many, which nbformat's schema forbids.
    pub(in crate::notebook) fn holds_ids(&self) -> bool {
        self.nbformat.1 >= 5
    }

    /// Writes the ids that stand-ins stand for, and raises the version to the first that has ids.
    pub(in crate::notebook) fn settle(&mut self) {
        let layout = self.style.cell.clone();
        for cell in self.cells.iter_mut().filter(|cell| !cell.own_id) {
            let mut id = Vec::new();
            encode(&mut id, cell.id.as_bytes(), layout.ascii);
            cell.set("id", &id, &layout);
            cell.own_id = true;
            cell.recorded_id = false;
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

    /// Changes one cell's bytes by what `edit` makes of them; none is no change.
    pub(in crate::notebook) fn change(
        &mut self,
        index: usize,
        what: ChangeKind,
        edit: impl FnOnce(&Cell, &Layout) -> Option<Vec<u8>>,
    ) -> Result<CellChange, EditError> {
        let cell = self.check(index)?;
        let before = cell.revision();
        let layout = cell.object.layout(&cell.text, &self.style.cell);
        let Some(text) = edit(cell, &layout) else {
            return Ok(self.report(index, ChangeKind::Nothing, Some(before)));
        };
        if let Some(cell) = self.cells.get_mut(index) {
            cell.rewrite(text);
        }
        Ok(self.report(index, what, Some(before)))
    }

    fn report(&self, index: usize, what: ChangeKind, before: Option<Revision>) -> CellChange {
        let cell = self.cells.get(index);
        let after = cell.map(Cell::revision);
        CellChange {
            cell: cell.map(|cell| cell.id.clone()).unwrap_or_default(),
            index,
            what,
            before: before.or(after),
            after,
        }
    }

    pub(in crate::notebook) fn check_writable(&self) -> Result<(), EditError> {
        match self.is_read_only() {
            true => Err(EditError::ReadOnly(self.nbformat.0)),
            false => Ok(()),
        }
    }

    /// Returns a cell that may be edited.
    pub(in crate::notebook) fn check(&self, index: usize) -> Result<&Cell, EditError> {
        self.check_writable()?;
        self.cells.get(index).ok_or(EditError::OutOfRange {
            index,
            cells: self.cells.len(),
        })
    }
}
