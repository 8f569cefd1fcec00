//! Restores removed cells, and earlier versions of cells.

use bytes::Bytes;

use crate::notebook::document::{
    Cell, CellType, Document, EXECUTION_KEYS, metadata_digest, record_id, write_id,
};
use crate::notebook::edit::{CellChange, ChangeKind, DocumentEditError};
use crate::notebook::json::{Json, Layout, Object, digest, remove_value_at, set_value_at};

impl Document {
    /// Makes a notebook of these cells with these ids, for reading only; it is never written to a file.
    ///
    /// # Errors
    /// A value is not a cell.
    pub fn of_cells<'a>(
        cells: impl IntoIterator<Item = (&'a str, &'a Json)>,
    ) -> Result<Self, DocumentEditError> {
        let empty = r#"{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}"#;
        let mut document = Self::parse(empty).expect("this is a notebook");
        for (id, cell) in cells {
            let mut cell = read(cell)?;
            write_id(&mut cell, id, &document.style.cell);
            let index = document.cells.len();
            document.put_cell(index, cell);
        }
        Ok(document)
    }

    /// Restores a removed cell at `index`, with all its fields, in this file's style.
    ///
    /// # Errors
    /// The index is beyond the end, the id is not allowed or taken, or the value is not a cell.
    pub fn restore_cell(
        &mut self,
        index: usize,
        id: &str,
        cell: &Json,
    ) -> Result<CellChange, DocumentEditError> {
        // An id that Jupyter would not make is kept if the file had it.
        self.check_new(index, id, !id.is_empty())?;
        let mut cell = read(cell)?;
        let layout = self.item_layout();
        cell.rewrite(layout.value(&cell.text));
        match self.holds_ids() {
            true => write_id(&mut cell, id, &layout.deeper()),
            false => record_id(&mut cell, id),
        }
        Ok(self.put_new(index, cell))
    }

    /// Sets a cell's type, source, metadata and attachments to those of an earlier version. Its outputs
    /// stay; if it was not run and has none, it gets those of the version.
    ///
    /// # Errors
    /// There is no cell at the index, or the value is not a cell.
    pub fn restore_version(
        &mut self,
        index: usize,
        version: &Json,
    ) -> Result<CellChange, DocumentEditError> {
        let version = read(version)?;
        let lists = self.style.lists;
        let mut changed = self.change(index, ChangeKind::Edited, |cell, layout| {
            set_version(cell, &version, layout, lists);
        })?;
        if changed.kind == ChangeKind::Edited && changed.before == changed.after {
            changed.kind = ChangeKind::Outputs;
        }
        Ok(changed)
    }
}

impl Cell {
    /// Says whether the cell has results of an execution: outputs, or a count.
    pub fn has_run(&self) -> bool {
        self.execution_count().is_some() || !self.raw_outputs().is_empty()
    }
}

/// Reads a cell of another notebook.
fn read(cell: &Json) -> Result<Cell, DocumentEditError> {
    let text = Bytes::copy_from_slice(cell.bytes());
    let object = Object::read(&text).ok_or(DocumentEditError::NotACell)?;
    Ok(Cell::new(Bytes::new(), text, object))
}

fn set_version(cell: &mut Cell, version: &Cell, layout: &Layout, lists: bool) {
    match version.cell_type() {
        same if same == cell.cell_type() => {}
        // The file had this type, although no version of the format has it.
        CellType::Unknown => {
            if let Some(cell_type) = version.raw("cell_type") {
                cell.set("cell_type", cell_type, layout);
            }
        }
        other => cell.set_type(other, layout),
    }
    cell.set_source(&version.source_bytes(), layout, lists);
    if let Some(metadata) = metadata_as_it_was(cell, version, layout) {
        cell.set("metadata", &metadata, layout);
    }
    let attachments = |cell: &Cell| {
        let raw = cell.raw("attachments").filter(|raw| *raw != b"{}");
        raw.map(<[u8]>::to_vec)
    };
    match attachments(version) {
        earlier if earlier.as_deref().map(digest) == attachments(cell).as_deref().map(digest) => {}
        Some(earlier) => cell.set("attachments", &layout.value(&earlier), layout),
        None => cell.unset("attachments"),
    }
    if cell.cell_type() == CellType::Code && !cell.has_run() && version.has_run() {
        for name in ["outputs", "execution_count"] {
            if let Some(value) = version.raw(name) {
                cell.set(name, &layout.value(value), layout);
            }
        }
        for key in EXECUTION_KEYS {
            if let Some(times) = version.metadata(&[key]) {
                cell.set_metadata(&[key], Some(&times), layout);
            }
        }
    }
}

/// Returns a version's metadata, with the fields that running the present cell has written; `None` if the
/// cell has that metadata already.
fn metadata_as_it_was(cell: &Cell, version: &Cell, layout: &Layout) -> Option<Vec<u8>> {
    let raw = |cell: &Cell| cell.raw("metadata").unwrap_or(b"{}").to_vec();
    let (now, earlier) = (raw(cell), raw(version));
    if metadata_digest(&now) == metadata_digest(&earlier) {
        return None;
    }
    let mut new = layout.value(&earlier);
    let inner = layout.deeper();
    for key in EXECUTION_KEYS {
        let made = match cell.metadata(&[key]) {
            Some(value) => set_value_at(&new, &[key], &value, &inner),
            None => remove_value_at(&new, &[key]),
        };
        new = made.unwrap_or(new);
    }
    Some(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notebook::NewCell;

    const FILE: &str = r##"{
 "cells": [
  {
   "cell_type": "code",
   "execution_count": 3,
   "id": "a",
   "metadata": {
    "execution": {
     "iopub.status.idle": "2026"
    },
    "tags": [
     "t"
    ]
   },
   "outputs": [
    {
     "name": "stdout",
     "output_type": "stream",
     "text": [
      "1\n"
     ]
    }
   ],
   "source": [
    "print(1)\n",
    "1e-05"
   ]
  },
  {
   "cell_type": "markdown",
   "id": "b",
   "metadata": {},
   "source": [
    "# Title"
   ]
  }
 ],
 "metadata": {},
 "nbformat": 4,
 "nbformat_minor": 5
}
"##;

    fn open(text: &str) -> Document {
        Document::parse(text.to_owned()).unwrap()
    }

    fn json(document: &Document, index: usize) -> Json {
        Json::of_valid(&document.cells()[index].text)
    }

    fn text(document: &Document) -> String {
        String::from_utf8(document.to_bytes()).unwrap()
    }

    #[test]
    fn a_removed_cell_is_restored_byte_for_byte() {
        for index in [0, 1] {
            let mut document = open(FILE);
            let cell = json(&document, index);
            let id = document.cells()[index].id().to_owned();
            document.remove(index).unwrap();
            let changed = document.restore_cell(index, &id, &cell).unwrap();
            assert_eq!(
                (changed.kind, changed.index, changed.before),
                (ChangeKind::Inserted, index, None)
            );
            assert_eq!(text(&document), FILE);
            let taken = document.restore_cell(0, &id, &cell);
            assert_eq!(taken, Err(DocumentEditError::TakenId(id)));
        }
        let mut document = open(FILE);
        assert_eq!(
            document.restore_cell(0, "c", &Json::from(1)),
            Err(DocumentEditError::NotACell)
        );
        let cell = json(&document, 0);
        assert!(matches!(
            document.restore_cell(3, "c", &cell),
            Err(DocumentEditError::OutOfRange { .. })
        ));
        // A cell of a file without ids has no id of its own; the style is that of this file.
        let plain = Json::parse(r#"{"cell_type":"raw","metadata":{},"source":"x"}"#).unwrap();
        document.restore_cell(2, "c", &plain).unwrap();
        let new = ",\n  {\n   \"cell_type\": \"raw\",\n   \"id\": \"c\",\n   \"metadata\": {},\n   \"source\": \"x\"\n  }\n ],";
        assert_eq!(
            text(&document),
            FILE.replace("\n ],\n \"metadata\"", &format!("{new}\n \"metadata\""))
        );
    }

    #[test]
    fn a_version_comes_back_and_outputs_stay() {
        let mut document = open(FILE);
        let mut first = document.clone();
        first.clear_outputs(0).unwrap();
        let first = json(&first, 0);
        let revision = document.cells()[0].revision();
        document.set_source(0, "other").unwrap();
        document.set_metadata(0, &["tags"], &Json::from(1)).unwrap();
        document.set_metadata(0, &["x"], &Json::from(1)).unwrap();
        let changed = document.restore_version(0, &first).unwrap();
        assert_eq!(
            (changed.kind, changed.after),
            (ChangeKind::Edited, Some(revision))
        );
        assert_eq!(text(&document), FILE);
        assert_eq!(
            document.restore_version(0, &first).unwrap().kind,
            ChangeKind::Nothing
        );
    }

    #[test]
    fn outputs_come_back_where_there_are_none() {
        let mut document = open(FILE);
        let whole = json(&document, 0);
        document.clear_outputs(0).unwrap();
        let changed = document.restore_version(0, &whole).unwrap();
        assert_eq!(changed.kind, ChangeKind::Outputs);
        assert_eq!(text(&document), FILE);
        // A text cell has no outputs; restoring the type restores them.
        document.set_type(0, CellType::Markdown).unwrap();
        document.restore_version(0, &whole).unwrap();
        assert_eq!(text(&document), FILE);
        // Outputs of a run since then are the later ones.
        document.clear_outputs(0).unwrap();
        let execution = crate::notebook::CellExecution {
            execution_count: Some(9),
            ..Default::default()
        };
        document.set_execution(0, &execution).unwrap();
        document.restore_version(0, &whole).unwrap();
        assert_eq!(document.cells()[0].execution_count(), Some(9));
        assert_eq!(document.cells()[0].outputs().count(), 0);
    }

    #[test]
    fn equal_attachments_keep_their_bytes() {
        let file = r#"{"cells": [{"attachments":  {"a.png" : {"image/png": "AA=="}}, "cell_type": "markdown", "id": "a", "metadata": {}, "source": "x"}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}"#;
        let mut document = open(file);
        let version = r#"{"attachments":{"a.png":{"image/png":"AA=="}},"cell_type":"markdown","id":"a","metadata":{},"source":"y"}"#;
        document
            .restore_version(0, &Json::parse(version).unwrap())
            .unwrap();
        assert_eq!(text(&document), file.replace(r#""x""#, r#""y""#));
    }

    #[test]
    fn attachments_and_types_of_the_future_come_back() {
        let cell = r#"{"attachments":{"a.png":{"image/png":"AA=="}},"cell_type":"markdown","id":"a","metadata":{},"source":"x"}"#;
        let file =
            format!("{{\"cells\":[{cell}],\"metadata\":{{}},\"nbformat\":4,\"nbformat_minor\":5}}");
        let mut document = open(&file);
        let version = json(&document, 0);
        document.set_type(0, CellType::Code).unwrap();
        document.set_source(0, "y").unwrap();
        document.restore_version(0, &version).unwrap();
        assert_eq!(
            document.cells()[0].revision(),
            open(&file).cells()[0].revision()
        );
        let future = Json::parse(r#"{"cell_type":"sql","metadata":{},"source":"x"}"#).unwrap();
        document.restore_version(0, &future).unwrap();
        assert!(text(&document).contains(r#""cell_type":"sql""#));
    }

    #[test]
    fn cells_make_a_notebook_to_look_at() {
        let document = open(FILE);
        let cells = document.cells().iter().enumerate();
        let cells: Vec<_> = cells
            .map(|(index, cell)| (cell.id(), json(&document, index)))
            .collect();
        let again = Document::of_cells(cells.iter().map(|(id, cell)| (*id, cell))).unwrap();
        assert_eq!(again.revision(), document.revision());
        let mut other = again;
        let new = NewCell {
            id: "c".into(),
            cell_type: CellType::Raw,
            source: String::new(),
            metadata: None,
        };
        other.insert(2, &new).unwrap();
        assert_eq!(other.cells().len(), 3);
    }
}
