//! Which cells of a notebook a request means, and in which order they run.

use std::collections::{BTreeSet, HashSet};

use serde::Serialize;

use super::cells::places;
use super::problem::editing::no_cell;
use super::problem::{Problem, ProblemKind};
use super::stale::analysis;
use crate::editing::notebook_file::NotebookFile;
use crate::execution::exec::{self, CellSelection};
use crate::graph::{Cancel, Cancelled, Doubt, Plan, PlanRequest, Stale};
use crate::hint;
use crate::hint::{Verb, nb};
use crate::notebook::{CellSelector, Document};
use crate::project::jobs::{JobCell, JobGoal};
use crate::stale::notebook_graph::{GraphError, NotebookGraph};
use crate::stale::witnessed::{NextRun, WitnessedNotebook};
use crate::witness::Uncertainty;

/// Which cells of a notebook run.
#[derive(Clone, Debug, Default)]
pub struct CellsToRun {
    /// The cells with these selectors.
    pub named: Vec<CellSelector>,
    /// All of them.
    pub all: bool,
    /// The cells from this one on.
    pub from: Option<CellSelector>,
    /// The cells up to this one.
    pub to: Option<CellSelector>,
    /// Of the selected cells, only those that show an error.
    pub failed: bool,
    /// Of the selected cells, only those with one of these tags.
    pub tags: Vec<String>,
    /// Of the selected cells, only those whose source differs from what the kernel last ran of them.
    pub changed: bool,
    /// Of the selected cells, only those that are out of date, and the cells whose values they need again. An edit
    /// of the notebook meanwhile ends the job.
    pub stale: bool,
    /// Also the cells out of date that the selected ones depend on.
    pub with_upstream: bool,
    /// Also all cells that depend on the selected ones.
    pub with_downstream: bool,
    /// Each cell is taken to depend on all cells above it, whatever their text says.
    pub assume_order: bool,
    /// Whether the cells and code that ran without error in the previous kernel run again, in the same
    /// order.
    pub replay: bool,
}

/// The values that may be others than after Restart & Run All, even when a plan has run.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Doubts {
    /// Their names. If any value may be another, only those for which there is another reason.
    pub doubtful: Vec<DoubtfulName>,
    /// Code ran that may write any name: every value may be another.
    pub any_name_is_doubtful: bool,
    /// The cells that may give other values, as the kernel says.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub doubtful_cells: Vec<DoubtfulCell>,
}

/// A cell that may give other values after a restart.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DoubtfulCell {
    /// Its index in the notebook.
    pub index: usize,
    /// Its id.
    pub id: String,
    /// Why, in words; none if only a cell above of which it reads a value is uncertain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The cells of a job.
#[derive(Debug, Default)]
pub(super) struct PlannedJob {
    /// The cells to run, in order.
    pub(super) cells: Vec<JobCell>,
    /// What further cells are for, if some may follow by what the kernel says of these.
    pub(super) goal: Option<JobGoal>,
    /// What is not certain when they have run, as far as it is known before.
    pub(super) doubts: Option<Doubts>,
}

/// A name whose value is not certain.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DoubtfulName {
    /// The name.
    pub name: String,
    /// Why, in words.
    pub why: &'static str,
}

impl CellsToRun {
    /// Returns the indices of the selected cells; `None` selects all.
    pub(super) fn places(&self, document: &Document) -> Result<Option<Vec<usize>>, Problem> {
        let filters =
            self.failed || self.changed || self.stale || self.replay || !self.tags.is_empty();
        let end = |cell: &Option<CellSelector>| match cell {
            Some(cell) => Ok::<_, Problem>(Some(document.find(cell)?)),
            None => Ok(None),
        };
        let (from, to) = (end(&self.from)?, end(&self.to)?);
        let is_part = from.is_some() || to.is_some();
        match (self.named.is_empty(), self.all || filters || is_part) {
            (true, false) => {
                let problem = no_cell("no cell is named");
                Err(problem.hint(hint![nb(Verb::Exec).option("--all"), " runs all cells"]))
            }
            (false, _) if self.all || is_part || self.replay => Err(Problem::new(
                ProblemKind::Usage,
                "cells are named twice: one by one, and as all, as a range or as a replay",
            )),
            (false, _) => Ok(Some(places(document, &self.named)?)),
            (true, true) if is_part => {
                let last = document.cells().len().saturating_sub(1);
                Ok(Some((from.unwrap_or(0)..=to.unwrap_or(last)).collect()))
            }
            (true, true) => Ok(None),
        }
    }

    /// Says whether the cells come from the graph: an edit of the notebook before they have run ends the job.
    pub(super) fn is_planned(&self) -> bool {
        self.stale || self.with_upstream || self.with_downstream
    }

    /// Says whether it is not an error if no cell is selected.
    pub(super) fn may_be_none(&self) -> bool {
        self.stale || self.changed || self.failed
    }

    /// Returns the cells to run, in order; of the cells at these positions, `None` is all of them. If only stale
    /// ones are, it also returns what is not certain after that.
    pub(super) fn job(
        &self,
        file: &NotebookFile,
        document: &Document,
        places: Option<Vec<usize>>,
        cancel: &Cancel,
    ) -> Result<PlannedJob, Problem> {
        if let Some((goal, witnessed)) = self.witnessed(file, document, places.clone())? {
            return Ok(match witnessed.next() {
                NextRun::Nothing(uncertainty) => PlannedJob {
                    doubts: Some(Doubts::of_kernel(document, uncertainty)),
                    ..PlannedJob::default()
                },
                next @ NextRun::Cell(..) => PlannedJob {
                    cells: next.job_cell(document).into_iter().collect(),
                    goal: Some(goal),
                    doubts: None,
                },
            });
        }
        let mut selection = self.selection(places);
        let mut doubts = None;
        if self.is_planned() || self.changed {
            let graph = NotebookGraph::of(file, document, analysis(self.assume_order), cancel)?;
            let plan = self.plan(document, &graph, &selection, cancel)?;
            doubts = self.stale.then(|| Doubts::of(&plan));
            let cells = plan.cells.iter();
            let places = cells.filter_map(|planned| graph.place(planned.cell));
            selection = CellSelection {
                places: Some(places.collect()),
                skips: selection.skips,
                ..CellSelection::default()
            };
        }
        Ok(PlannedJob {
            cells: exec::cells(document, &selection),
            goal: None,
            doubts,
        })
    }

    /// Returns which cells are to be up to date, if what the kernel says may decide what runs for that.
    fn goal(&self, document: &Document, places: Option<Vec<usize>>) -> Option<JobGoal> {
        let has_more = self.with_upstream || self.with_downstream || self.assume_order;
        if !self.stale || self.changed || has_more || self.replay {
            return None;
        }
        let is_part = !self.named.is_empty()
            || self.from.is_some()
            || self.to.is_some()
            || self.failed
            || !self.tags.is_empty();
        let only = is_part.then(|| {
            let cells = exec::cells(document, &self.selection(places)).into_iter();
            cells.filter_map(|cell| cell.cell).collect()
        });
        Some(JobGoal { only })
    }

    /// Returns which cells are to be up to date, and what the kernel has run and said, if that decides what runs.
    pub(super) fn witnessed(
        &self,
        file: &NotebookFile,
        document: &Document,
        places: Option<Vec<usize>>,
    ) -> Result<Option<(JobGoal, WitnessedNotebook)>, Problem> {
        let Some(goal) = self.goal(document, places) else {
            return Ok(None);
        };
        let only = goal.only.as_deref();
        let witnessed = WitnessedNotebook::of(file, document, only, &HashSet::new());
        let witnessed = witnessed.map_err(GraphError::from)?;
        Ok(witnessed.map(|witnessed| (goal, witnessed)))
    }

    pub(super) fn selection(&self, places: Option<Vec<usize>>) -> CellSelection {
        CellSelection {
            places,
            skips: self.named.is_empty(),
            failed: self.failed,
            tags: self.tags.clone(),
        }
    }

    pub(super) fn plan(
        &self,
        document: &Document,
        graph: &NotebookGraph,
        selection: &CellSelection,
        cancel: &Cancel,
    ) -> Result<Plan, Cancelled> {
        let selected = exec::cells(document, selection);
        let places = selected.iter().filter_map(|cell| cell.index);
        let cells = places.filter_map(|place| graph.cell_at(place));
        let is_changed = |cell: &usize| {
            let stale = graph.graph.cells().get(*cell).map(|cell| &cell.stale);
            matches!(
                stale,
                Some(Some(Stale::NotRun | Stale::Edited | Stale::UnknownEnd))
            )
        };
        let cells: BTreeSet<_> = cells
            .filter(|cell| !self.changed || is_changed(cell))
            .collect();
        let request = PlanRequest {
            cells,
            only_stale: self.stale,
            with_upstream: self.with_upstream,
            with_downstream: self.with_downstream,
        };
        graph.graph.plan(&request, cancel)
    }
}

impl Doubts {
    /// Returns what is not certain when the kernel has what Restart & Run All would give it, as far as it says.
    pub(super) fn of_kernel(document: &Document, uncertainty: Uncertainty) -> Self {
        let Uncertainty {
            is_any,
            mut cells,
            files,
            left,
            ..
        } = uncertainty;
        for (index, files) in files {
            cells.entry(index).or_default().extend(files);
        }
        let doubtful_cells = cells.into_iter().filter_map(|(index, reasons)| {
            let reasons: Vec<_> = reasons.into_iter().collect();
            Some(DoubtfulCell {
                index,
                id: document.cells().get(index)?.id().to_owned(),
                why: (!reasons.is_empty()).then(|| format!("depends on {}", reasons.join(", "))),
            })
        });
        let left = left.into_iter().map(|name| DoubtfulName {
            name,
            why: doubt_text(Doubt::Left),
        });
        Self {
            doubtful: left.collect(),
            any_name_is_doubtful: is_any,
            doubtful_cells: doubtful_cells.collect(),
        }
    }

    pub(super) fn of(plan: &Plan) -> Self {
        // If any value may be another, an entry for each name says nothing new.
        let is_listed = |doubt: &Doubt| !plan.is_any_doubtful || *doubt != Doubt::Unknown;
        let doubtful = plan.doubtful.iter().filter(|(_, doubt)| is_listed(doubt));
        let doubtful = doubtful.map(|(name, doubt)| DoubtfulName {
            name: name.to_string(),
            why: doubt_text(*doubt),
        });
        Self {
            doubtful: doubtful.collect(),
            any_name_is_doubtful: plan.is_any_doubtful,
            doubtful_cells: Vec::new(),
        }
    }
}

fn doubt_text(doubt: Doubt) -> &'static str {
    match doubt {
        Doubt::Unknown => "it was computed from something that cannot be seen in the code",
        Doubt::Left => {
            "no cell gives it a value: it is left from an earlier run or from other code"
        }
        Doubt::Unread => "several cells give it a value and no cell reads it",
        Doubt::Earlier => "an earlier run may have left it",
    }
}
