//! `cell`: the sources, metadata and outputs of cells.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;

use super::caller::{Caller, blocking};
use super::cells::{NotebookSummary, places, state};
use super::envelope::Answer;
use super::output_files::OutputFiles;
use super::preview::{OutputPreviews, parsed};
use super::problem::{Problem, ProblemKind};
use super::scale::scaled;
use super::stale::{CellNames, StaleCell};
use crate::editing::export::Export;
use crate::editing::notebook_file::NotebookFile;
use crate::editing::running::running;
use crate::editing::view;
use crate::hint;
use crate::hint::{Verb, nb};
use crate::notebook::{Cell, CellSelector, CellType, Document, MimeData, Output, Revision};
use crate::stale::notebook_graph::{Analysis, NotebookGraph};

/// Which cells are shown, and how.
#[derive(Clone, Debug)]
pub struct CellRequest {
    /// The cells.
    pub cells: Vec<CellSelector>,
    /// Whether all cells are shown, also of a notebook that has none.
    pub all: bool,
    /// The form of the outputs.
    pub outputs: OutputForm,
}

/// The form of a cell's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputForm {
    /// Left out.
    Omitted,
    /// As the file has them.
    Raw,
    /// As previews: images and other data that is not text are written to files. About so many characters
    /// are shown of the outputs of all cells, and longer ones are written to files too; `None` is no limit.
    Previews(Option<usize>),
}

/// Cells with their outputs.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CellAnswer {
    /// The notebook.
    #[serde(flatten)]
    pub notebook: NotebookSummary,
    /// The cells.
    pub cells: Vec<ShownCell>,
    /// Why outputs could not be written to files.
    pub unwritten: Option<String>,
}

impl Answer for CellAnswer {}

/// A cell with its outputs.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShownCell {
    /// Its place, from 0.
    pub index: usize,
    /// Its id.
    pub id: String,
    /// As much of its id as other requests need.
    #[serde(skip)]
    pub short_id: String,
    /// Its type.
    #[serde(rename = "type")]
    pub cell_type: CellType,
    /// The number of its last execution.
    pub execution_count: Option<u64>,
    /// `running`; `stale` where it is out of date; `error` where its outputs have one.
    pub state: Option<&'static str>,
    /// Why it is out of date, if it is.
    pub stale: Option<StaleCell>,
    /// Its revision.
    pub revision: Revision,
    /// Its source.
    pub source: String,
    /// Its metadata.
    pub metadata: Option<Value>,
    /// The files in it, of Markdown.
    pub attachments: Vec<Attachment>,
    /// How many outputs it has.
    pub output_count: usize,
    /// They, or the beginnings of them.
    pub outputs: ShownOutputs,
    /// A hash of them; none where previews are returned.
    #[serde(skip)]
    pub outputs_digest: Option<[u8; 8]>,
}

/// A file in a cell of Markdown.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Attachment {
    /// Its name.
    pub name: String,
    /// Its forms.
    pub forms: Vec<MimeData>,
}

/// Outputs of a cell, in the form that was asked for.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum ShownOutputs {
    /// Left out: `null`.
    Omitted,
    /// As the file has them.
    Raw(Vec<Value>),
    /// As previews.
    Previews(#[cfg_attr(feature = "schema", schemars(with = "Vec<Value>"))] OutputPreviews),
}

/// Which output of which cell is returned.
#[derive(Clone, Debug)]
pub struct OutputRequest {
    /// The cell. The selectors must match exactly one.
    pub cells: Vec<CellSelector>,
    /// Which of its outputs, from 0.
    pub number: usize,
    /// The MIME type to return; `None` is the most informative one.
    pub mime: Option<String>,
    /// The longest side of an image, in pixels: a larger PNG or JPEG is scaled down.
    pub image_size: Option<u32>,
    /// Whether an image, or other data that is not text, is written to a file.
    pub to_file: bool,
}

/// One output, whole.
#[derive(Clone, Debug)]
pub enum OutputAnswer {
    /// A text.
    Text(Vec<u8>),
    /// Data that is not text.
    Bytes {
        /// Its MIME type.
        mime: String,
        /// The data.
        bytes: Vec<u8>,
    },
    /// Data that is not text, written to this file.
    File(PathBuf),
}

/// Shows cells. They count as seen by the caller.
///
/// # Errors
/// The notebook cannot be read, or a cell does not exist.
pub async fn cell(caller: &Caller, request: CellRequest) -> Result<CellAnswer, Problem> {
    let file = caller.notebook_file().await?;
    blocking(caller, move |caller| {
        let view = view::open(&file, caller.by())?;
        let document = &view.document;
        let places = match request.all {
            true => (0..document.cells().len()).collect(),
            false => named(document, &request.cells)?,
        };
        let runs = running(&file).and_then(|runs| runs.cell);
        let graph = NotebookGraph::of(&file, document, Analysis::IfRun, &caller.cancel)?;
        let names = CellNames::of(document, &graph);
        let short = document.short_ids();
        let mut files = OutputFiles::of(&file, &caller.working_dir);
        let cells = places.iter();
        let cells: Vec<_> = cells.filter_map(|at| document.cells().get(*at)).collect();
        let mut previews = match request.outputs {
            OutputForm::Previews(limit) => {
                let in_short = limit.is_some() && !caller.is_person;
                OutputPreviews::of(&mut files, &cells, limit, in_short)
            }
            OutputForm::Omitted | OutputForm::Raw => Vec::new(),
        }
        .into_iter();
        let cells = places.iter().zip(cells).map(|(index, cell)| {
            view.shown(cell);
            let outputs = match (request.outputs, previews.next()) {
                (OutputForm::Previews(_), Some(previews)) => ShownOutputs::Previews(previews),
                (OutputForm::Raw, _) => {
                    ShownOutputs::Raw(cell.outputs().map(|output| parsed(&output)).collect())
                }
                _ => ShownOutputs::Omitted,
            };
            let stale = names.stale_at(*index);
            let has_run = graph.has_run();
            let failed = cell.outputs_summary(0).failed;
            let state = state(cell, failed, stale.as_ref(), has_run, runs.as_deref());
            let short_id = short.get(*index).copied().unwrap_or_default();
            shown(*index, short_id, cell, state, stale, outputs)
        });
        let answer = CellAnswer {
            cells: cells.collect(),
            notebook: NotebookSummary::of(&file, document),
            unwritten: files.problem.map(|error| error.to_string()),
        };
        caller.has_shown(view);
        Ok(answer)
    })
    .await
}

/// Returns one output of a cell, whole.
///
/// # Errors
/// The notebook cannot be read, the cell, the output or its MIME type does not exist, or the file cannot be
/// written.
pub async fn output(caller: &Caller, request: OutputRequest) -> Result<OutputAnswer, Problem> {
    let file = caller.notebook_file().await?;
    blocking(caller, move |caller| {
        let document = view::open(&file, caller.by())?.document;
        let places = named(&document, &request.cells)?;
        let cell = match places.as_slice() {
            [place] => document.cells().get(*place),
            _ => None,
        };
        let not_one_cell = || Problem::new(ProblemKind::Usage, "--output is of one cell");
        one_output(&file, cell.ok_or_else(not_one_cell)?, &request)
    })
    .await
}

fn named(document: &Document, cells: &[CellSelector]) -> Result<Vec<usize>, Problem> {
    if cells.is_empty() {
        let problem = Problem::new(ProblemKind::Usage, "which cell is meant?");
        return Err(problem.hint(hint![nb(Verb::Cells), " lists them"]));
    }
    places(document, cells)
}

fn one_output(
    file: &NotebookFile,
    cell: &Cell,
    request: &OutputRequest,
) -> Result<OutputAnswer, Problem> {
    let (id, number) = (cell.id(), request.number);
    let count = cell.outputs().count();
    let Some(raw) = cell.outputs().nth(number) else {
        let text = format!("cell {id} has no output {number}: it has {count}, from 0");
        return Err(Problem::new(ProblemKind::Failed, text));
    };
    let output = Output::read(&raw);
    let Some(mime) = request.mime.as_deref().or_else(|| preferred_mime(&output)) else {
        return Ok(OutputAnswer::Text(output.text.into_bytes()));
    };
    let form = Output::form(&raw, mime).ok_or_else(|| {
        let has: Vec<_> = output.data.iter().map(|data| data.mime.as_str()).collect();
        let text = format!("output {number} of cell {id} has no {mime}");
        Problem::new(ProblemKind::Failed, text).hint(match has.as_slice() {
            [] => format!("it is plain text: --output {number} alone prints it"),
            has => format!("it has {}", has.join(", ")),
        })
    })?;
    let mut forms = output.data.iter();
    if !forms.any(|data| data.mime == mime && data.is_media()) {
        return Ok(OutputAnswer::Text(form.bytes));
    }
    let (bytes, name) = match request.image_size {
        Some(size) => {
            let scaled = scaled(&form.bytes, size).map_err(|error| {
                let text = format!("output {number} of cell {id} cannot be scaled: {error}");
                Problem::new(ProblemKind::Failed, text)
            });
            (scaled?, format!("{number}-{size}"))
        }
        None => (form.bytes, number.to_string()),
    };
    if !request.to_file {
        let mime = mime.to_owned();
        return Ok(OutputAnswer::Bytes { mime, bytes });
    }
    let path = Export::of(file).write(id, &name, &form.ending, &bytes);
    let path = path.map_err(|error| Problem::failed("write the output to a file", &error))?;
    Ok(OutputAnswer::File(path))
}

/// Returns the most informative MIME type of an output; `None` for output that is only text.
fn preferred_mime(output: &Output) -> Option<&str> {
    let media = output.data.iter().find(|data| data.is_media());
    let text = ["text/markdown", "text/plain", "text/latex", "text/html"];
    let text = text
        .iter()
        .find_map(|mime| output.data.iter().find(|data| data.mime == *mime));
    let found = media.or(text).or(output.data.first());
    found.map(|data| data.mime.as_str())
}

fn shown(
    index: usize,
    short_id: &str,
    cell: &Cell,
    state: Option<&'static str>,
    stale: Option<StaleCell>,
    outputs: ShownOutputs,
) -> ShownCell {
    let attachments = cell.attachments().into_iter();
    let attachments = attachments.map(|(name, forms)| Attachment { name, forms });
    ShownCell {
        index,
        id: cell.id().to_owned(),
        short_id: short_id.to_owned(),
        cell_type: cell.cell_type(),
        execution_count: cell.execution_count(),
        state,
        stale,
        revision: cell.revision(),
        source: cell.source().into_owned(),
        metadata: cell.metadata(&[]).map(|metadata| parsed(&metadata)),
        attachments: attachments.collect(),
        output_count: cell.outputs().count(),
        outputs_digest: match outputs {
            ShownOutputs::Previews(_) => None,
            ShownOutputs::Omitted | ShownOutputs::Raw(_) => Some(cell.outputs_digest()),
        },
        outputs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::caller::CallerSettings;
    use crate::api::{CellsRequest, cells};
    use crate::editing::seen::SeenCells;

    const NOTEBOOK: &str = r#"{"cells": [{"cell_type": "code", "id": "3f2c9a1e", "metadata": {},
        "source": "x", "outputs": [], "execution_count": null}],
        "metadata": {}, "nbformat": 4, "nbformat_minor": 5}"#;

    /// A command may be killed, or its pipe closed, before it has printed anything.
    #[tokio::test]
    async fn cells_are_seen_once_they_are_printed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ipynb");
        std::fs::write(&path, NOTEBOOK).unwrap();
        let file = NotebookFile::of(&path).unwrap();
        let revision = file.read().unwrap().cells()[0].revision();
        for name in ["ada", "bob"] {
            let settings = CallerSettings {
                notebook: Some(path.clone()),
                name: Some(name.to_owned()),
                on_terminal: false,
                working_dir: folder.path().to_owned(),
                command: "nb cell".to_owned(),
                progress: |_| {},
                gets_json: false,
                has_own_thread: name == "ada",
            };
            let caller = Caller::of(settings).unwrap();
            match name {
                "ada" => {
                    let request = CellRequest {
                        cells: vec![CellSelector::Index(0)],
                        all: false,
                        outputs: OutputForm::Raw,
                    };
                    cell(&caller, request).await.unwrap();
                }
                _ => drop(cells(&caller, CellsRequest::default()).await.unwrap()),
            }
            let has_seen = || SeenCells::of(&file, caller.by()).has("3f2c9a1e", revision);
            assert!(!has_seen(), "{name}");
            caller.delivered(&caller.meanwhile());
            assert!(has_seen(), "{name}");
        }
    }
}
