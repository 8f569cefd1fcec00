//! `export`: cells as plain text, which `insert` takes back.

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::cells::places;
use super::envelope::Answer;
use super::problem::Problem;
use crate::editing::view;
use crate::notebook::{CellSelector, Revision, write_percent};

/// Which cells are wanted.
#[derive(Clone, Debug, Default)]
pub struct ExportRequest {
    /// The cells; an empty list is all cells.
    pub cells: Vec<CellSelector>,
}

/// Cells as plain text.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExportAnswer {
    /// The notebook's key in its project.
    pub notebook: String,
    /// Its revision.
    pub revision: Revision,
    /// The cells in the percent format, without outputs.
    pub text: String,
}

impl Answer for ExportAnswer {}

/// Returns cells as plain text in the percent format. They count as seen by the caller.
///
/// # Errors
/// The notebook cannot be read, or a cell does not exist.
pub async fn export(caller: &Caller, request: ExportRequest) -> Result<ExportAnswer, Problem> {
    let file = caller.notebook_file().await?;
    blocking(caller, move |caller| {
        let view = view::open(&file, caller.by())?;
        let document = &view.document;
        let selected = match request.cells.is_empty() {
            true => (0..document.cells().len()).collect(),
            false => places(document, &request.cells)?,
        };
        let cells = selected
            .iter()
            .filter_map(|index| document.cells().get(*index));
        let cells: Vec<_> = cells.inspect(|cell| view.shown(cell)).collect();
        let answer = ExportAnswer {
            notebook: file.key.clone(),
            revision: document.revision(),
            text: write_percent(cells),
        };
        caller.has_shown(view);
        Ok(answer)
    })
    .await
}
