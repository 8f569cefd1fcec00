//! `exec --plan`: which cells a request would run, and why.

use std::collections::BTreeSet;

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::cells::NotebookSummary;
use super::envelope::Answer;
use super::exec::CellsToRun;
use super::graph::{CellNames, StaleCell};
use super::problem::Problem;
use crate::editing::notebook_file::NotebookFile;
use crate::editing::view;
use crate::execution::exec::{self, CellSelection};
use crate::execution::notebook_graph::NotebookGraph;
use crate::graph::{Doubt, Plan, PlanRequest, Stale, Why};
use crate::notebook::{Document, first_line};
use crate::project::jobs::JobCell;

/// How many characters of a cell's first line are in the answer.
const FIRST_LINE: usize = 60;

/// What a request would run.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlanAnswer {
    /// The notebook.
    #[serde(flatten)]
    pub notebook: NotebookSummary,
    /// The cells, in the order in which they would run.
    pub plan: Vec<PlannedRow>,
    /// What is not certain when these cells have run.
    #[serde(flatten)]
    pub doubts: Doubts,
}

/// The values that may be others than after Restart & Run All, even when a plan has run.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Doubts {
    /// Their names. If any value may be another, only those for which there is another reason.
    pub doubtful: Vec<DoubtfulName>,
    /// Code ran that may write any name: every value may be another.
    pub any_name_is_doubtful: bool,
}

impl Answer for PlanAnswer {}

/// A cell that would run.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    /// As much of its id as other requests need.
    #[serde(skip)]
    pub short_id: String,
}

/// A name whose value is not certain.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DoubtfulName {
    /// The name.
    pub name: String,
    /// Why, in words.
    pub why: &'static str,
}

/// Says which cells a request would run, and why. Nothing runs.
///
/// # Errors
/// The notebook or the project's state cannot be read, or a cell does not exist.
pub async fn plan(caller: &Caller, cells: CellsToRun) -> Result<PlanAnswer, Problem> {
    let page = caller.page().await?;
    blocking(caller, move |caller| {
        let document = view::open(&page, caller.by())?.document;
        let graph = NotebookGraph::of(&page, &document, cells.assume_order)?;
        let selection = cells.selection(cells.places(&document)?);
        let plan = cells.plan(&document, &graph, &selection);
        let names = CellNames::of(&document, &graph);
        let rows = plan.cells.iter().filter_map(|planned| {
            let place = graph.place(planned.cell)?;
            let cell = document.cells().get(place)?;
            let stale = match &planned.why {
                Why::Stale(_) => names.stale_at(place),
                Why::Asked | Why::Restores(_) | Why::Reads { .. } => None,
            };
            Some(PlannedRow {
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
            doubts: Doubts::of(&plan),
            notebook: NotebookSummary::of(&page, &document),
        })
    })
    .await
}

impl Doubts {
    fn of(plan: &Plan) -> Self {
        // If every value may be another, this is no news of a name.
        let is_news = |doubt: &Doubt| !plan.is_any_doubtful || *doubt != Doubt::Unknown;
        let doubtful = plan.doubtful.iter().filter(|(_, doubt)| is_news(doubt));
        let doubtful = doubtful.map(|(name, doubt)| DoubtfulName {
            name: name.to_string(),
            why: doubt_text(*doubt),
        });
        Self {
            doubtful: doubtful.collect(),
            any_name_is_doubtful: plan.is_any_doubtful,
        }
    }
}

impl CellsToRun {
    /// Says whether the cells are planned: an edit of the notebook meanwhile ends the job.
    pub(super) fn is_planned(&self) -> bool {
        self.stale || self.with_upstream || self.with_downstream
    }

    /// Says whether it is no mistake if there are none.
    pub(super) fn may_be_none(&self) -> bool {
        self.stale || self.changed || self.failed
    }

    /// Returns the cells to run, in order; of the cells at these positions, `None` is all of them. If only stale
    /// ones are, it also returns what is not certain after that.
    pub(super) fn job(
        &self,
        page: &NotebookFile,
        document: &Document,
        places: Option<Vec<usize>>,
    ) -> Result<(Vec<JobCell>, Option<Doubts>), Problem> {
        let mut selection = self.selection(places);
        let mut doubts = None;
        if self.is_planned() || self.changed {
            let graph = NotebookGraph::of(page, document, self.assume_order)?;
            let plan = self.plan(document, &graph, &selection);
            doubts = self.stale.then(|| Doubts::of(&plan));
            let cells = plan.cells.iter();
            let places = cells.filter_map(|planned| graph.place(planned.cell));
            selection = CellSelection {
                places: Some(places.collect()),
                skips: selection.skips,
                ..CellSelection::default()
            };
        }
        Ok((exec::cells(document, &selection), doubts))
    }

    fn selection(&self, places: Option<Vec<usize>>) -> CellSelection {
        CellSelection {
            places,
            skips: self.named.is_empty(),
            failed: self.failed,
            tags: self.tags.clone(),
        }
    }

    fn plan(&self, document: &Document, graph: &NotebookGraph, which: &CellSelection) -> Plan {
        let selected = exec::cells(document, which);
        let places = selected.iter().filter_map(|cell| cell.index);
        let cells = places.filter_map(|place| graph.cell_at(place));
        let is_changed = |cell: &usize| {
            let stale = graph.graph.cells().get(*cell).map(|cell| &cell.stale);
            matches!(
                stale,
                Some(Some(Stale::NotRun | Stale::Edited | Stale::Unheard))
            )
        };
        let cells: BTreeSet<_> = cells
            .filter(|cell| !self.changed || is_changed(cell))
            .collect();
        graph.graph.plan(&PlanRequest {
            cells,
            only_stale: self.stale,
            with_upstream: self.with_upstream,
            with_downstream: self.with_downstream,
        })
    }
}

impl CellNames<'_> {
    fn why(&self, place: usize, why: &Why) -> String {
        match why {
            Why::Asked => "asked for".to_owned(),
            // A cell that is up to date now may become stale by the plan itself.
            Why::Stale(stale) => match self.stale_at(place) {
                Some(stale) => stale.text,
                None => self.becomes_stale(stale),
            },
            Why::Restores(name) => format!("{name} is needed as it leaves it"),
            Why::Reads { name, cell } => {
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

fn doubt_text(doubt: Doubt) -> &'static str {
    match doubt {
        Doubt::Unknown => "what made it depends on something that the code does not show",
        Doubt::Left => {
            "no cell gives it a value: it is left from an earlier run or from other code"
        }
        Doubt::Unread => "several cells give it a value and no cell reads it",
        Doubt::Earlier => "an earlier run may have left it",
    }
}
