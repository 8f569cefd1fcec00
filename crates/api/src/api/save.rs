//! `save`: has recorders write their outputs, and checks the notebook's file.

use std::convert::Infallible;
use std::path::PathBuf;

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::cells::NotebookSummary;
use super::envelope::Answer;
use super::problem::Problem;
use super::problem::editing::of_write;
use crate::editing::transaction;
use crate::execution::flush::{Flushed, flush};
use crate::notebook::Document;

/// A notebook whose file is whole.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SaveAnswer {
    /// The notebook.
    #[serde(flatten)]
    pub notebook: NotebookSummary,
    /// How long the file is.
    pub bytes: usize,
    /// What was finished, and what front ends would stumble over.
    pub notes: Vec<String>,
    /// What became of the outputs that recorders held.
    pub flushed: Vec<FlushedJob>,
    /// The path as it was named.
    #[serde(skip)]
    pub named: PathBuf,
}

impl Answer for SaveAnswer {}

/// What became of the outputs that a job's recorder held.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlushedJob {
    /// The job.
    pub job: String,
    /// Who asked for it.
    pub by: String,
    /// Whether its recorder has answered.
    pub answered: bool,
    /// The cells whose outputs were written.
    pub written: Vec<String>,
    /// Those whose outputs could not be written: the job keeps them.
    pub unwritten: Vec<UnwrittenCell>,
}

/// A cell whose outputs could not be written.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnwrittenCell {
    /// The cell.
    pub cell: String,
    /// Why.
    pub why: String,
}

impl FlushedJob {
    /// Says whether all the job's outputs are in the file.
    pub fn is_whole(&self) -> bool {
        self.answered && self.unwritten.is_empty()
    }
}

impl From<Flushed> for FlushedJob {
    fn from(flushed: Flushed) -> Self {
        let missed = flushed.missed.into_iter();
        let missed = missed.map(|(cell, why)| UnwrittenCell { cell, why });
        Self {
            job: flushed.job.id,
            by: flushed.job.by,
            answered: flushed.answered,
            written: flushed.written,
            unwritten: missed.collect(),
        }
    }
}

/// Has the outputs of running cells written, and checks that the file is whole. An earlier edit that was
/// left unfinished is finished.
///
/// # Errors
/// The recorders cannot be asked, or the notebook cannot be read or written.
pub async fn save(caller: &Caller) -> Result<SaveAnswer, Problem> {
    let file = caller.notebook_file().await?;
    let flushed = flush(&file.project, &file.key, || file.read().ok()).await;
    let flushed = flushed.map_err(|error| Problem::failed("ask the recorders", &error))?;
    let by = caller.by().to_owned();
    blocking(caller, move |_| {
        // An edit that changes nothing writes nothing, but finishes what is pending.
        let written = transaction::write(&file, &by, false, |document| {
            Ok::<_, Infallible>(document.clone())
        });
        let written = written.map_err(|error| of_write(&error))?;
        let document = written.after;
        let mut notes = written.notes;
        notes.extend(remarks(&document));
        Ok(SaveAnswer {
            notebook: NotebookSummary::of(&file, &document),
            bytes: document.chunks().map(<[u8]>::len).sum(),
            notes,
            flushed: flushed.into_iter().map(FlushedJob::from).collect(),
            named: file.path,
        })
    })
    .await
}

/// Returns notes on what front ends would fail on, or change by themselves.
fn remarks(document: &Document) -> Vec<String> {
    let (major, minor) = document.nbformat();
    if document.is_read_only() {
        return vec![format!(
            "format {major} is only read: `jupyter nbconvert --to notebook` makes it one of format 4"
        )];
    }
    let cells = document.cells().iter();
    let without = cells.filter(|cell| !cell.has_own_id()).count();
    // Formats before 4.5 have no cell ids.
    if without == 0 || minor < 5 {
        return Vec::new();
    }
    vec![format!(
        "{without} cells have no id of their own: nb fmt --write adds them"
    )]
}
