//! `cells`: lists the cells of a notebook, one row each.

use std::collections::HashSet;
use std::path::PathBuf;

use regex::Regex;
use serde::Serialize;

use super::caller::{Caller, blocking};
use super::envelope::Answer;
use super::problem::{Problem, ProblemKind};
use super::search::pattern_or_text;
use super::stale::{CellNames, StaleCell, StaleReason, UndefinedName, strings};
use crate::editing::history::{self, steps};
use crate::editing::notebook_file::NotebookFile;
use crate::editing::running::running;
use crate::editing::view;
use crate::hint;
use crate::hint::{Verb, nb};
use crate::notebook::{Cell, CellSelector, CellType, ChangeKind, Document, Revision, first_line};
use crate::project::event::CellStep;
use crate::stale::notebook_graph::{Analysis, NotebookGraph};

/// Which cells are listed, and how much of each.
#[derive(Clone, Debug)]
pub struct CellsRequest {
    /// The cells; an empty list selects all.
    pub cells: Vec<CellSelector>,
    /// Only cells that were added, edited, moved or removed since this revision of the notebook.
    pub since: Option<Revision>,
    /// Only cells to which one of these applies; an empty list selects all.
    pub only: Vec<CellCondition>,
    /// Only cells in whose source this regular expression occurs; what is none is searched for as it stands.
    pub matching: Option<String>,
    /// Only Markdown cells that have a heading.
    pub outline: bool,
    /// Only cells from this index on.
    pub from: usize,
    /// How many characters all rows have at most, about: the list ends before the first one that is too many.
    pub room: Option<usize>,
    /// Whether the names that the cells read and write are in the answer even if the kernel has run nothing.
    pub names: bool,
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
            only: Vec::new(),
            matching: None,
            outline: false,
            from: 0,
            room: None,
            names: false,
            first_line: 80,
            outputs: 60,
        }
    }
}

impl CellsRequest {
    fn analysis(&self) -> Analysis {
        let is_analysed = |it: &CellCondition| *it != CellCondition::Failed;
        match self.names || self.only.iter().any(is_analysed) {
            true => Analysis::Whole,
            false => Analysis::IfRun,
        }
    }

    /// Returns the line that shows a cell in the list; `None` if it is not in the list.
    fn shown_line(&self, cell: &Cell, matching: Option<&Regex>) -> Option<String> {
        let source = cell.source();
        let shown = match matching {
            Some(pattern) => {
                let start = pattern.find(&source)?.start();
                &source[source[..start].rfind('\n').map_or(0, |end| end + 1)..]
            }
            None => &source,
        };
        if !self.outline {
            return Some(first_line(shown, self.first_line));
        }
        let is_markdown = cell.cell_type() == CellType::Markdown;
        let headings = is_markdown.then(|| headings(&source))?;
        (!headings.is_empty()).then(|| first_line(&headings.join(" · "), self.first_line))
    }
}

/// A property of code cells, by which a list is filtered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellCondition {
    /// It is out of date.
    Stale,
    /// It gives a name a value that no cell reads.
    Unused,
    /// It reads a name that has no value there.
    Undefined,
    /// Its outputs have an error.
    Failed,
}

/// How many characters a row has beside the cell's first line and its outputs, about.
const ROW: usize = 30;

/// A notebook without its cells.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernelspec: Option<String>,
    /// How many cells it has.
    pub cell_count: usize,
}

impl NotebookSummary {
    /// Summarises a notebook.
    pub(super) fn of(file: &NotebookFile, document: &Document) -> Self {
        let (major, minor) = document.nbformat();
        Self {
            notebook: file.key.clone(),
            path: file.real.clone(),
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CellsAnswer {
    /// The notebook.
    #[serde(flatten)]
    pub notebook: NotebookSummary,
    /// A row for each cell.
    pub cells: Vec<CellRow>,
    /// The cells that were removed since the revision that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed: Option<Vec<RemovedCell>>,
    /// How many further cells there was no room for, and the index of the first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more: Option<MoreCells>,
}

impl Answer for CellsAnswer {}

/// Cells that are not in a list.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MoreCells {
    /// How many.
    pub count: usize,
    /// The index of the first one.
    pub from: usize,
}

/// A cell in a list.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CellRow {
    /// Its place, from 0.
    pub index: usize,
    /// Its id.
    pub id: String,
    /// Its type.
    #[serde(rename = "type")]
    pub cell_type: CellType,
    /// The number of its last execution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_count: Option<u64>,
    /// `running`; `stale` where it is out of date; `error` where its outputs have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'static str>,
    /// Why it is out of date, if it is. As long as the kernel has run nothing, only a list of stale cells has this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale: Option<StaleCell>,
    /// The names that it reads from other cells.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<String>,
    /// The names that it gives a value.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<String>,
    /// The names that it gives a value and no cell reads, in a list of such cells.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unused: Vec<String>,
    /// The names that have no value where it reads them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undefined: Vec<UndefinedName>,
    /// How its source begins; where a text was searched for, its first line that has it, and in an outline its headings.
    pub first_line: String,
    /// How many lines its source has, if not one.
    #[serde(skip_serializing_if = "is_one")]
    pub lines: usize,
    /// How many outputs it has, if it has any.
    #[serde(skip_serializing_if = "is_none")]
    pub outputs: usize,
    /// What they say in short.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub outputs_in_short: String,
    /// Its revision.
    pub revision: Revision,
    /// What was done to it since the revision that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ChangeKind>,
    /// As much of its id as other requests need.
    #[serde(skip)]
    pub short_id: String,
    /// Why it is in the list, or out of date, in words.
    #[serde(skip)]
    pub note: String,
}

fn is_one(count: &usize) -> bool {
    *count == 1
}

fn is_none(count: &usize) -> bool {
    *count == 0
}

/// A removed cell in a list.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RemovedCell {
    /// Its id.
    pub id: String,
    /// Where it was.
    pub index: usize,
    /// Its last revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// How its source begins, where that is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_line: Option<String>,
}

/// Lists cells.
///
/// # Errors
/// The notebook cannot be read, a cell does not exist, or the revision is not known.
pub async fn cells(caller: &Caller, request: CellsRequest) -> Result<CellsAnswer, Problem> {
    let file = caller.notebook_file().await?;
    blocking(caller, move |caller| listed(&file, caller, &request)).await
}

fn listed(
    file: &NotebookFile,
    caller: &Caller,
    request: &CellsRequest,
) -> Result<CellsAnswer, Problem> {
    let view = view::open(file, caller.by())?;
    let document = &view.document;
    let since = match request.since {
        Some(revision) => Some(steps_since(
            file,
            document,
            revision,
            request.cells.is_empty(),
        )?),
        None => None,
    };
    let places = match (&since, request.cells.as_slice()) {
        (Some(steps), _) => existing_places(steps),
        (None, []) => (0..document.cells().len()).collect(),
        (None, selectors) => places(document, selectors)?,
    };
    let runs = running(file).and_then(|runs| runs.cell);
    let graph = NotebookGraph::of(file, document, request.analysis(), &caller.cancel);
    // Cells can be read where nothing of the project can.
    let if_run = |_| NotebookGraph::of(file, document, Analysis::IfRun, &caller.cancel);
    let graph = graph.or_else(if_run)?;
    let mut places = with_condition(document, &graph, places, &request.only);
    let matching = request
        .matching
        .as_deref()
        .map(pattern_or_text)
        .transpose()?;
    let shown = |cell: &Cell| request.shown_line(cell, matching.as_ref());
    places.retain(|place| *place >= request.from);
    if matching.is_some() || request.outline {
        places.retain(|place| document.cells().get(*place).and_then(shown).is_some());
    }
    let names = CellNames::of(document, &graph);
    let short = document.short_ids();
    let steps = since.as_deref().unwrap_or_default();
    let mut room = request.room;
    let rows = places.iter().enumerate().map_while(|(at, index)| {
        let cell = document.cells().get(*index)?;
        let outputs = cell.outputs_summary(request.outputs);
        let source = cell.source();
        let line = shown(cell)?;
        if let Some(left) = &mut room {
            let length = ROW + line.chars().count() + outputs.text.chars().count();
            if at > 0 && length > *left {
                return None;
            }
            *left = left.saturating_sub(length);
        }
        if line == *source {
            // The line is the whole source: the caller has seen the cell.
            view.shown(cell);
        }
        let own = steps.iter().filter(|step| step.cell == cell.id());
        let shows_not_run = graph.has_run() || request.only.contains(&CellCondition::Stale);
        let stale = names.stale_at(*index);
        let stale = stale.filter(|stale| shows_not_run || stale.why != StaleReason::NotRun);
        let graph_cell = graph.at(*index);
        let undefined = graph_cell
            .into_iter()
            .flat_map(|graph_cell| &graph_cell.undefined);
        Some(CellRow {
            index: *index,
            id: cell.id().to_owned(),
            cell_type: cell.cell_type(),
            execution_count: cell.execution_count(),
            state: state(
                cell,
                outputs.failed,
                stale.as_ref(),
                graph.has_run(),
                runs.as_deref(),
            ),
            note: String::new(),
            stale,
            reads: graph_cell.map_or_else(Vec::new, |it| strings(it.reads.keys())),
            writes: graph_cell.map_or_else(Vec::new, |it| strings(&it.writes)),
            unused: graph_cell
                .filter(|_| request.only.contains(&CellCondition::Unused))
                .map_or_else(Vec::new, |it| strings(&it.unused)),
            undefined: undefined.map(UndefinedName::of).collect(),
            lines: source.lines().count(),
            first_line: line,
            outputs: outputs.count,
            outputs_in_short: outputs.text,
            revision: cell.revision(),
            changes: own.map(|step| step.kind).collect(),
            short_id: (*short.get(*index)?).to_owned(),
        })
    });
    let mut rows: Vec<_> = rows.collect();
    for row in &mut rows {
        row.note = note(row, &request.only);
    }
    let answer = CellsAnswer {
        more: places.get(rows.len()).map(|from| MoreCells {
            count: places.len() - rows.len(),
            from: *from,
        }),
        cells: rows,
        notebook: NotebookSummary::of(file, document),
        removed: since
            .as_ref()
            .map(|steps| removed(file, steps, request.first_line)),
    };
    caller.has_shown(view);
    Ok(answer)
}

/// Returns the indices of the cells to which one of the conditions applies; without a condition, of all.
fn with_condition(
    document: &Document,
    graph: &NotebookGraph,
    places: Vec<usize>,
    only: &[CellCondition],
) -> Vec<usize> {
    let has_failed = |place: usize| {
        let cell = document.cells().get(place);
        cell.is_some_and(|cell| cell.outputs_summary(0).failed)
    };
    let applies = |place: &usize| {
        graph.at(*place).is_some_and(|cell| {
            only.iter().any(|condition| match condition {
                CellCondition::Stale => cell.stale.is_some(),
                CellCondition::Unused => !cell.unused.is_empty(),
                CellCondition::Undefined => !cell.undefined.is_empty(),
                CellCondition::Failed => has_failed(*place),
            })
        })
    };
    let places = places.into_iter();
    places
        .filter(|place| only.is_empty() || applies(place))
        .collect()
}

/// Returns why a cell is out of date, and what a filter has found in it.
fn note(row: &CellRow, only: &[CellCondition]) -> String {
    let mut notes = Vec::new();
    let stale = row.stale.as_ref();
    let is_shown = row.state == Some("stale") || only.contains(&CellCondition::Stale);
    notes.extend(stale.filter(|_| is_shown).map(|stale| stale.text.clone()));
    if only.contains(&CellCondition::Unused) && !row.unused.is_empty() {
        notes.push(format!("unused: {}", row.unused.join(", ")));
    }
    if only.contains(&CellCondition::Undefined) {
        let undefined = row.undefined.iter();
        notes.extend(undefined.map(|it| format!("line {}: {} has no value", it.line, it.name)));
    }
    notes.join("; ")
}

/// Returns the indices of the selected cells, each once, in the order of the selectors.
pub(crate) fn places(
    document: &Document,
    selectors: &[CellSelector],
) -> Result<Vec<usize>, Problem> {
    let mut places = Vec::new();
    let mut seen = HashSet::new();
    for selector in selectors {
        let selected = document.select(selector)?;
        places.extend(selected.filter(|place| seen.insert(*place)));
    }
    Ok(places)
}

/// Returns the changes to cells since a revision of the notebook.
fn steps_since(
    file: &NotebookFile,
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
    let earlier = history::manifest_at(file, revision).ok_or_else(|| {
        let text = format!("nothing is known of revision {revision} of {}", file.key);
        Problem::new(ProblemKind::Failed, text).hint(hint![
            "a notebook's revision is on the first line of ",
            nb(Verb::Cells),
            ", and in every answer"
        ])
    })?;
    Ok(steps::between(&earlier, &now))
}

/// Returns the indices of the changed cells that still exist.
fn existing_places(steps: &[CellStep]) -> Vec<usize> {
    let existing = steps.iter().filter(|step| step.kind != ChangeKind::Removed);
    let mut places: Vec<_> = existing.map(|step| step.index).collect();
    places.sort_unstable();
    places.dedup();
    places
}

/// Returns the headings of a Markdown text: lines that begin with `#`, outside of blocks of code.
fn headings(text: &str) -> Vec<&str> {
    let mut is_code = false;
    let lines = text.lines().filter(|line| {
        is_code ^= line.trim_start().starts_with("```");
        let level = line.len() - line.trim_start_matches('#').len();
        !is_code && (1..=6).contains(&level) && line[level..].starts_with(' ')
    });
    lines.map(str::trim_end).collect()
}

fn removed(file: &NotebookFile, steps: &[CellStep], limit: usize) -> Vec<RemovedCell> {
    let removed = steps.iter().filter(|step| step.kind == ChangeKind::Removed);
    let removed = removed.map(|step| {
        let source = step
            .before
            .and_then(|before| history::version_source(file, before));
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
    stale: Option<&StaleCell>,
    kernel_has_run: bool,
    runs: Option<&str>,
) -> Option<&'static str> {
    // As long as the kernel has run nothing, the outputs in the file are those of the last one. A cell that was
    // never run has none that could be out of date.
    let stale = stale.filter(|stale| {
        let has_run = || cell.execution_count().is_some() || cell.outputs().next().is_some();
        stale.why != StaleReason::NotRun || (kernel_has_run && has_run())
    });
    match (runs, stale) {
        (Some(id), _) if id == cell.id() => Some("running"),
        (_, Some(stale)) if stale.why != StaleReason::Failed => Some("stale"),
        _ => failed.then_some("error"),
    }
}
