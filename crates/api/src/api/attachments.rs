//! The files in a cell of Markdown.

use serde::Serialize;
use serde_json::Value;

use super::caller::{Caller, blocking};
use super::cells::places;
use super::envelope::Answer;
use super::problem::Problem;
use crate::editing::view;
use crate::notebook::CellSelector;

/// The attachments of a cell.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttachmentsAnswer {
    /// As the notebook has them: by their names, each with its data by MIME type, in base64.
    pub attachments: Value,
}

impl Answer for AttachmentsAnswer {}

/// Reads the attachments of a cell.
///
/// # Errors
/// The notebook cannot be read, or has no such cell.
pub async fn attachments(
    caller: &Caller,
    cell: CellSelector,
) -> Result<AttachmentsAnswer, Problem> {
    let file = caller.notebook_file().await?;
    blocking(caller, move |caller| {
        let document = view::open(&file, caller.by())?.document;
        let places = places(&document, &[cell])?;
        let cell = places.first().and_then(|at| document.cells().get(*at));
        let raw = cell.and_then(|cell| cell.raw_attachments());
        Ok(AttachmentsAnswer {
            attachments: raw
                .and_then(|raw| serde_json::from_slice(raw).ok())
                .unwrap_or_else(|| Value::Object(serde_json::Map::new())),
        })
    })
    .await
}
