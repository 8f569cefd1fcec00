//! What cells have besides their texts: outputs, execution counts and metadata.
//!
//! An editor does not report these. What it has of them is known from the file that it has loaded or saved, and from
//! the requests that it has done.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::notebook::{Cell, CellType, Document, Json};

/// The data of all cells of a notebook, by their ids, and the notebook's own metadata.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NotebookData {
    pub(super) cells: HashMap<String, CellData>,
    pub(super) metadata: Metadata,
}

/// The metadata of a cell or of a notebook.
pub(super) type Metadata = Map<String, Value>;

/// The data of one cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CellData {
    pub(super) results: Results,
    pub(super) metadata: Metadata,
}

/// The results of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Results {
    /// A hash of the outputs; none if there are no outputs.
    outputs: Option<[u8; 8]>,
    execution_count: Option<u64>,
}

impl NotebookData {
    pub(super) fn of(notebook: &Document) -> Self {
        let cells = notebook.cells().iter();
        Self {
            cells: cells
                .map(|cell| (cell.id().to_owned(), CellData::of(cell)))
                .collect(),
            metadata: metadata(notebook.metadata(&[])),
        }
    }
}

impl CellData {
    fn of(cell: &Cell) -> Self {
        let has_outputs = cell.outputs().next().is_some();
        let results = match cell.cell_type() {
            CellType::Code => Results {
                outputs: has_outputs.then(|| cell.outputs_digest()),
                execution_count: cell.execution_count(),
            },
            _ => Results::default(),
        };
        Self {
            results,
            metadata: metadata(cell.metadata(&[])),
        }
    }
}

fn metadata(json: Option<Json>) -> Metadata {
    json.and_then(|json| serde_json::from_str(&json.text()).ok())
        .unwrap_or_default()
}

/// Returns the keys in which two versions differ, with the values of each; `None` if there are none.
pub(super) fn difference(was: &Metadata, now: &Metadata) -> Option<(Metadata, Metadata)> {
    let only = |some: &Metadata, other: &Metadata| -> Metadata {
        let differ = some
            .iter()
            .filter(|(key, value)| other.get(*key) != Some(value));
        differ
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    let (was, now) = (only(was, now), only(now, was));
    (!was.is_empty() || !now.is_empty()).then_some((was, now))
}

/// Returns a cell's outputs.
pub(super) fn outputs(cell: &Cell) -> Vec<Value> {
    let outputs = cell.outputs();
    outputs
        .filter_map(|json| serde_json::from_str(&json.text()).ok())
        .collect()
}
