//! `exec --plan`: which cells a request would run, and why.

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::cells::NotebookSummary;
use super::envelope::Answer;
use super::graph::NameRead;
use super::problem::Problem;
use super::selection::{CellsToRun, Doubts};
use super::stale::{CellNames, FIRST_LINE, StaleCell, analysis};
use crate::editing::view;
use crate::graph::{RunReason, Stale};
use crate::notebook::first_line;
use crate::stale::notebook_graph::NotebookGraph;
use crate::stale::witnessed::NextRun;
use crate::witness::RunCause;

/// What a request would run.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlanAnswer {
    /// The notebook.
    #[serde(flatten)]
    pub notebook: NotebookSummary,
    /// The cells, in the order in which they would run.
    pub plan: Vec<PlannedRow>,
    /// Whether the cells follow from what the kernel said of each run, and not from the text alone: further ones may
    /// follow from what these change.
    pub by_kernel: bool,
    /// What is not certain when these cells have run.
    #[serde(flatten)]
    pub doubts: Doubts,
}

impl Answer for PlanAnswer {}

/// A cell that would run.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlannedRow {
    /// Its place in the notebook, from 0.
    pub index: usize,
    /// Its id.
    pub id: String,
    /// How its source begins.
    pub first_line: String,
    /// Why it would run, in words.
    pub why: String,
    /// Why it is out of date, if that is the reason.
    pub stale: Option<StaleCell>,
    /// The name that it reads from another cell, if that is the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads: Option<NameRead>,
    /// As much of its id as other requests need.
    #[serde(skip)]
    pub short_id: String,
}

/// Says which cells a request would run, and why. Nothing runs.
///
/// # Errors
/// The notebook or the project's state cannot be read, or a cell does not exist.
pub async fn plan(caller: &Caller, cells: CellsToRun) -> Result<PlanAnswer, Problem> {
    let file = caller.notebook_file().await?;
    blocking(caller, move |caller| {
        let document = view::open(&file, caller.by())?.document;
        let analysis = analysis(cells.assume_order);
        let graph = NotebookGraph::of(&file, &document, analysis, &caller.cancel)?;
        let names = CellNames::of(&document, &graph);
        let places = cells.places(&document)?;
        if let Some((_, witnessed)) = cells.witnessed(&file, &document, places.clone())? {
            let planned = witnessed.planned();
            return Ok(PlanAnswer {
                plan: planned
                    .iter()
                    .filter_map(|(place, cause)| names.planned_by_kernel(*place, cause))
                    .collect(),
                by_kernel: true,
                doubts: match witnessed.next() {
                    NextRun::Nothing(uncertainty) => Doubts::of_kernel(&document, uncertainty),
                    NextRun::Cell(..) => Doubts::default(),
                },
                notebook: NotebookSummary::of(&file, &document),
            });
        }
        let selection = cells.selection(places);
        let plan = cells.plan(&document, &graph, &selection, &caller.cancel)?;
        let rows = plan.cells.iter().filter_map(|planned| {
            let place = graph.place(planned.cell)?;
            let cell = document.cells().get(place)?;
            let stale = match &planned.why {
                RunReason::Stale(_) => names.stale_at(place),
                RunReason::Requested | RunReason::Restores(_) | RunReason::Reads { .. } => None,
            };
            let reads = match (&planned.why, &stale) {
                (RunReason::Reads { name, cell }, _)
                | (RunReason::Stale(Stale::Needs { name, cell, .. }), None) => Some(NameRead {
                    name: name.to_string(),
                    from: vec![names.id(*cell)],
                    short_from: vec![names.short_id(*cell).to_owned()],
                }),
                _ => None,
            };
            Some(PlannedRow {
                reads,
                index: place,
                id: cell.id().to_owned(),
                first_line: first_line(&cell.source(), FIRST_LINE),
                why: names.why(place, &planned.why),
                stale,
                short_id: names.short_id(planned.cell).to_owned(),
            })
        });
        Ok(PlanAnswer {
            plan: rows.collect(),
            by_kernel: false,
            doubts: Doubts::of(&plan),
            notebook: NotebookSummary::of(&file, &document),
        })
    })
    .await
}

impl CellNames<'_> {
    /// Returns the row of a cell that would run by what the kernel said.
    fn planned_by_kernel(&self, place: usize, cause: &RunCause) -> Option<PlannedRow> {
        let cell = self.document.cells().get(place)?;
        let stale = self.stale_at(place);
        let why = stale.as_ref().map(|stale| stale.text.clone());
        let needed = || match cause {
            RunCause::Read { name, .. } => format!("{name} becomes another value"),
            _ => "another cell needs what it gives".to_owned(),
        };
        Some(PlannedRow {
            index: place,
            id: cell.id().to_owned(),
            first_line: first_line(&cell.source(), FIRST_LINE),
            why: why.unwrap_or_else(needed),
            stale,
            reads: None,
            short_id: self
                .short
                .get(place)
                .copied()
                .unwrap_or_default()
                .to_owned(),
        })
    }

    fn why(&self, place: usize, why: &RunReason) -> String {
        match why {
            RunReason::Requested => "asked for".to_owned(),
            // A cell that is up to date now may become stale by the plan itself.
            RunReason::Stale(stale) => match self.stale_at(place) {
                Some(stale) => stale.text,
                None => self.becomes_stale(stale),
            },
            RunReason::Restores(name) => format!("{name} is needed as it leaves it"),
            RunReason::Reads { name, cell } => {
                format!("reads {name} from {}", self.short_id(*cell))
            }
        }
    }

    fn becomes_stale(&self, stale: &Stale) -> String {
        match stale {
            Stale::Needs { name, cell, .. } => {
                format!("{} gives {name} anew", self.short_id(*cell))
            }
            _ => "it becomes stale".to_owned(),
        }
    }
}
