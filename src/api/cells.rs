//! `cells`: lists the cells of a notebook, one row each.

use std::path::PathBuf;

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::envelope::Answer;
use super::problem::{Problem, ProblemKind};
use crate::editing::history::{self, steps};
use crate::editing::notebook_file::NotebookFile;
use crate::editing::running::running;
use crate::editing::view;
use crate::execution::stale::stale;
use crate::notebook::{Cell, CellSelector, CellType, ChangeKind, Document, Revision, first_line};
use crate::project::event::CellStep;

/// Which cells are listed, and how much of each.
#[derive(Clone, Debug)]
pub struct CellsRequest {
    /// The cells; an empty list selects all.
    pub cells: Vec<CellSelector>,
    /// Only cells that were added, edited, moved or removed since this revision of the notebook.
    pub since: Option<Revision>,
    /// How many characters of a cell's first line are in the answer.
    pub first_line: usize,
    /// The length, in characters, of the summary of a cell's outputs.
    pub outputs: usize,
}

impl Default for CellsRequest {
    fn default() -> Self {
        Self {
            cells: Vec::new(),
            since: None,
            first_line: 80,
            outputs: 60,
        }
    }
}

/// A notebook without its cells.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NotebookSummary {
    /// Its key in its project.
    pub notebook: String,
    /// The file.
    pub path: PathBuf,
    /// Its revision.
    pub revision: Revision,
    /// The version of its format.
    pub nbformat: [u64; 2],
    /// Whether its format is too old to be written.
    pub read_only: bool,
    /// The kernelspec that it names.
    pub kernelspec: Option<String>,
    /// How many cells it has.
    pub cell_count: usize,
}

impl NotebookSummary {
    /// Summarises a notebook.
    pub(super) fn of(page: &NotebookFile, document: &Document) -> Self {
        let (major, minor) = document.nbformat();
        Self {
            notebook: page.key.clone(),
            path: page.real.clone(),
            revision: document.revision(),
            nbformat: [major, minor],
            read_only: document.is_read_only(),
            kernelspec: document.metadata_string(&["kernelspec", "name"]),
            cell_count: document.cells().len(),
        }
    }
}

/// Cells of a notebook.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CellsAnswer {
    /// The notebook.
    #[serde(flatten)]
    pub notebook: NotebookSummary,
    /// A row for each cell.
    pub cells: Vec<CellRow>,
    /// The cells that were removed since the revision that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed: Option<Vec<RemovedCell>>,
}

impl Answer for CellsAnswer {}

/// A cell in a list.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CellRow {
    /// Its place, from 0.
    pub index: usize,
    /// Its id.
    pub id: String,
    /// Its type.
    #[serde(rename = "type")]
    pub cell_type: CellType,
    /// The number of its last execution.
    pub execution_count: Option<u64>,
    /// `running`; `stale` where its outputs are of an earlier source; `error` where they have one.
    pub state: Option<&'static str>,
    /// How its source begins.
    pub first_line: String,
    /// How many lines its source has.
    pub lines: usize,
    /// How many outputs it has.
    pub outputs: usize,
    /// What they say in short.
    pub outputs_in_short: String,
    /// Its revision.
    pub revision: Revision,
    /// What was done to it since the revision that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ChangeKind>,
    /// As much of its id as other requests need.
    #[serde(skip)]
    pub short_id: String,
}

/// A removed cell in a list.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RemovedCell {
    /// Its id.
    pub id: String,
    /// Where it was.
    pub index: usize,
    /// Its last revision.
    pub revision: Option<Revision>,
    /// How its source begins, where that is kept.
    pub first_line: Option<String>,
}

/// Lists cells.
///
/// # Errors
/// The notebook cannot be read, a cell does not exist, or the revision is not known.
pub async fn cells(caller: &Caller, request: CellsRequest) -> Result<CellsAnswer, Problem> {
    let page = caller.page().await?;
    blocking(caller, move |caller| listed(&page, caller, &request)).await
}

fn listed(
    page: &NotebookFile,
    caller: &Caller,
    request: &CellsRequest,
) -> Result<CellsAnswer, Problem> {
    let view = view::open(page, caller.by())?;
    let document = &view.document;
    let since = match request.since {
        Some(revision) => Some(since(page, document, revision, request.cells.is_empty())?),
        None => None,
    };
    let places = match (&since, request.cells.as_slice()) {
        (Some(steps), _) => still_there(steps),
        (None, []) => (0..document.cells().len()).collect(),
        (None, selectors) => places(document, selectors)?,
    };
    let short = document.short_ids();
    let runs = running(page).and_then(|runs| runs.cell);
    let stale = stale(page, document, &places);
    let steps = since.as_deref().unwrap_or_default();
    let rows = places.iter().filter_map(|index| {
        let cell = document.cells().get(*index)?;
        let glance = cell.outputs_summary(request.outputs);
        let source = cell.source();
        let line = first_line(&source, request.first_line);
        if line == *source {
            // The line is the whole source: the caller has seen the cell.
            view.shown(cell);
        }
        let own = steps.iter().filter(|step| step.cell == cell.id());
        Some(CellRow {
            index: *index,
            id: cell.id().to_owned(),
            cell_type: cell.cell_type(),
            execution_count: cell.execution_count(),
            state: state(cell, glance.failed, stale.contains(index), runs.as_deref()),
            lines: source.lines().count(),
            first_line: line,
            outputs: glance.count,
            outputs_in_short: glance.text,
            revision: cell.revision(),
            changes: own.map(|step| step.what).collect(),
            short_id: (*short.get(*index)?).to_owned(),
        })
    });
    let answer = CellsAnswer {
        cells: rows.collect(),
        notebook: NotebookSummary::of(page, document),
        removed: since
            .as_ref()
            .map(|steps| removed(page, steps, request.first_line)),
    };
    caller.has_shown(view);
    Ok(answer)
}

/// Returns the indices of the selected cells, each once, in the order of the selectors.
pub(crate) fn places(
    document: &Document,
    selectors: &[CellSelector],
) -> Result<Vec<usize>, Problem> {
    let mut places = Vec::new();
    for selector in selectors {
        for place in document.select(selector)? {
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    Ok(places)
}

/// Returns the changes to cells since a revision of the notebook.
fn since(
    page: &NotebookFile,
    document: &Document,
    revision: Revision,
    is_alone: bool,
) -> Result<Vec<CellStep>, Problem> {
    if !is_alone {
        let text = "--since lists what has changed, whichever cells that are";
        return Err(Problem::new(ProblemKind::Usage, text));
    }
    let now = steps::manifest(document);
    if steps::revision(&now) == revision {
        return Ok(Vec::new());
    }
    let then = history::manifest_at(page, revision).ok_or_else(|| {
        let text = format!("nothing is known of revision {revision} of {}", page.key);
        Problem::new(ProblemKind::Failed, text)
            .hint("a notebook's revision is on the first line of nb cells, and in every answer")
    })?;
    Ok(steps::between(&then, &now))
}

/// Returns the indices of the changed cells that still exist.
fn still_there(steps: &[CellStep]) -> Vec<usize> {
    let there = steps.iter().filter(|step| step.what != ChangeKind::Removed);
    let mut places: Vec<_> = there.map(|step| step.index).collect();
    places.sort_unstable();
    places.dedup();
    places
}

fn removed(page: &NotebookFile, steps: &[CellStep], limit: usize) -> Vec<RemovedCell> {
    let removed = steps.iter().filter(|step| step.what == ChangeKind::Removed);
    let removed = removed.map(|step| {
        let source = step
            .before
            .and_then(|before| history::version_source(page, before));
        RemovedCell {
            id: step.cell.clone(),
            index: step.index,
            revision: step.before,
            first_line: source.map(|source| first_line(&source, limit)),
        }
    });
    removed.collect()
}

/// Returns the state of a cell's last execution; `runs` is the id of the cell that runs now.
pub(super) fn state(
    cell: &Cell,
    failed: bool,
    stale: bool,
    runs: Option<&str>,
) -> Option<&'static str> {
    match runs {
        Some(id) if id == cell.id() => Some("running"),
        // Neither the error nor the values come from the present source.
        _ if stale => Some("stale"),
        _ => failed.then_some("error"),
    }
}
