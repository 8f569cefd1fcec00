//! `graph`: what depends on what in a notebook, and which cells are out of date.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::cells::{NotebookSummary, places};
use super::envelope::Answer;
use super::problem::{Problem, ProblemKind};
use super::stale::{CellNames, FIRST_LINE, StaleCell, UndefinedName, analysis, strings};
use crate::editing::view;
use crate::graph::{GraphCell, Unknown};
use crate::hint;
use crate::hint::{Verb, nb};
use crate::notebook::{CellSelector, Document, first_line};
use crate::stale::notebook_graph::NotebookGraph;

/// Which part of a notebook's graph is returned.
#[derive(Clone, Debug, Default)]
pub struct GraphRequest {
    /// These cells, all that they depend on, and all that depend on them; an empty list selects all cells.
    pub cells: Vec<CellSelector>,
    /// Each cell is taken to depend on all cells above it, whatever their text says.
    pub assume_order: bool,
}

/// What depends on what in a notebook.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphAnswer {
    /// The notebook.
    #[serde(flatten)]
    pub notebook: NotebookSummary,
    /// Whether the kernel has run something. Until then no cell is up to date, and none is out of date either.
    pub kernel_has_run: bool,
    /// The code cells, without blank ones.
    pub cells: Vec<GraphRow>,
    /// What its authors may want to change: cells that depend on each other, several that give a name its value.
    pub advice: Vec<String>,
}

impl Answer for GraphAnswer {}

/// A cell of a graph.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphRow {
    /// Its place in the notebook, from 0.
    pub index: usize,
    /// Its id.
    pub id: String,
    /// How its source begins.
    pub first_line: String,
    /// Why it is out of date, if it is.
    pub stale: Option<StaleCell>,
    /// The names that it reads from other cells.
    pub reads: Vec<NameRead>,
    /// The names that it gives a value.
    pub writes: Vec<String>,
    /// The names of other cells whose object it may change.
    pub changes: Vec<String>,
    /// The names that it deletes.
    pub deletes: Vec<String>,
    /// The names that have no value where it reads them.
    pub undefined: Vec<UndefinedName>,
    /// The names that it gives a value and no cell reads.
    pub unused: Vec<String>,
    /// What its text does not show.
    pub unknown: Vec<UnknownEffect>,
    /// Why its text is not understood.
    pub problem: Option<UnknownEffect>,
    /// As much of its id as other requests need.
    #[serde(skip)]
    pub short_id: String,
}

/// A name that a cell reads.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NameRead {
    /// The name.
    pub name: String,
    /// The ids of the cells that make its value: several, where some may leave it as it was.
    pub from: Vec<String>,
    /// As much of these ids as other requests need.
    #[serde(skip)]
    pub short_from: Vec<String>,
}

/// Something that a cell's text does not show.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnknownEffect {
    /// The line of the cell, from 1.
    pub line: usize,
    /// What it is.
    pub text: String,
}

/// Says what depends on what.
///
/// # Errors
/// The notebook or the project's state cannot be read, a cell does not exist, or it is no code.
pub async fn graph(caller: &Caller, request: GraphRequest) -> Result<GraphAnswer, Problem> {
    let file = caller.notebook_file().await?;
    blocking(caller, move |caller| {
        let document = view::open(&file, caller.by())?.document;
        let analysis = analysis(request.assume_order);
        let graph = NotebookGraph::of(&file, &document, analysis, &caller.cancel)?;
        let names = CellNames::of(&document, &graph);
        let selected = selected(&document, &graph, &request.cells)?;
        let cells = graph.cells().enumerate();
        let cells = cells.filter(|(at, _)| selected.contains(at));
        let rows = cells.filter_map(|(_, (place, cell))| names.row(place, cell));
        Ok(GraphAnswer {
            cells: rows.collect(),
            advice: names.advice(&selected),
            kernel_has_run: graph.has_run(),
            notebook: NotebookSummary::of(&file, &document),
        })
    })
    .await
}

/// Returns the cells of the graph that a request is about.
fn selected(
    document: &Document,
    graph: &NotebookGraph,
    selectors: &[CellSelector],
) -> Result<BTreeSet<usize>, Problem> {
    if selectors.is_empty() {
        return Ok((0..graph.graph.cells().len()).collect());
    }
    let named = places(document, selectors)?.into_iter();
    let named: BTreeSet<_> = named.filter_map(|place| graph.cell_at(place)).collect();
    if named.is_empty() {
        let text = "none of these cells is code";
        return Err(Problem::new(ProblemKind::Usage, text)
            .hint(hint![nb(Verb::Graph), " shows all that are"]));
    }
    Ok(&graph.graph.upstream(&named) | &graph.graph.downstream(&named))
}

impl CellNames<'_> {
    fn row(&self, place: usize, cell: &GraphCell) -> Option<GraphRow> {
        let shown = self.document.cells().get(place)?;
        let reads = cell.reads.iter().map(|(name, from)| NameRead {
            name: name.to_string(),
            from: from.iter().map(|cell| self.id(*cell)).collect(),
            short_from: from
                .iter()
                .map(|cell| self.short_id(*cell).to_owned())
                .collect(),
        });
        let undefined = cell.undefined.iter().map(UndefinedName::of);
        let unknown = cell.unknown.iter().map(|(line, unknown)| UnknownEffect {
            line: *line,
            text: unknown_text(unknown),
        });
        let problem = cell.problem.as_ref().map(|problem| UnknownEffect {
            line: problem.line,
            text: problem.message.clone(),
        });
        Some(GraphRow {
            index: place,
            id: shown.id().to_owned(),
            first_line: first_line(&shown.source(), FIRST_LINE),
            stale: self.stale_at(place),
            reads: reads.collect(),
            writes: strings(&cell.writes),
            changes: strings(&cell.changes),
            deletes: strings(&cell.deletes),
            undefined: undefined.collect(),
            unused: strings(&cell.unused),
            unknown: unknown.collect(),
            problem,
            short_id: (*self.short.get(place)?).to_owned(),
        })
    }

    /// Returns what the authors of these cells may want to change.
    fn advice(&self, selected: &BTreeSet<usize>) -> Vec<String> {
        let mut advice = Vec::new();
        let cells = self.graph.graph.cells();
        let mut writers: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, cell) in cells.iter().enumerate() {
            for name in cell.writes.iter().filter(|name| !name.starts_with('_')) {
                writers.entry(name.as_str()).or_default().push(at);
            }
        }
        for at in selected {
            let Some(cell) = cells.get(*at) else { continue };
            for name in cell.undefined.keys() {
                let below = writers.get(name.as_str()).into_iter().flatten();
                let Some(below) = below.copied().find(|below| below > at) else {
                    continue;
                };
                let (reader, writer) = (self.short_id(*at), self.short_id(below));
                let depends = self
                    .graph
                    .graph
                    .upstream(&BTreeSet::from([below]))
                    .contains(at);
                advice.push(match depends {
                    true => format!(
                        "{reader} and {writer} depend on each other: {reader} reads {name}, which {writer} below it gives"
                    ),
                    false => format!(
                        "{reader} reads {name}, which only {writer} below it gives: Restart & Run All fails there"
                    ),
                });
            }
        }
        // What a module gives is the same wherever it is imported.
        let reads = cells.iter().flat_map(|cell| &cell.reads);
        let read = reads.filter(|(_, from)| !from.is_empty());
        let read: HashSet<_> = read.map(|(name, _)| name.as_str()).collect();
        for (name, writers) in &writers {
            // A cell that reads the name before it writes it builds on the cell above.
            let anew = writers.iter().filter(|at| {
                let cell = cells.get(**at);
                cell.is_some_and(|cell| !cell.reads.contains_key(*name))
            });
            let anew: Vec<_> = anew.copied().collect();
            let is_selected = || anew.iter().any(|at| selected.contains(at));
            if anew.len() > 1 && is_selected() && read.contains(*name) {
                let ids: Vec<_> = anew.iter().map(|at| self.short_id(*at)).collect();
                advice.push(format!(
                    "{name} gets its value in {}: its readers depend on which of them ran last",
                    joined(&ids)
                ));
            }
        }
        advice
    }
}

/// Joins names: `a`, `a and b`, `a, b and c`.
fn joined(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

fn unknown_text(unknown: &Unknown) -> String {
    match unknown {
        Unknown::AnyName(what) => format!("{what} may read or write any name"),
        Unknown::Outside(what) => format!("{what} may give another result each time"),
        Unknown::SameObject(one, other) => format!("a change of {one} may be one of {other}"),
    }
}
