//! Why cells are out of date, in words.

use serde::Serialize;

use crate::graph::{Name, Stale, StaleCause};
use crate::notebook::Document;
use crate::stale::notebook_graph::{Analysis, NotebookGraph};

/// How many characters of a cell's first line are in an answer about the graph.
pub(super) const FIRST_LINE: usize = 60;

/// Why a cell is out of date.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StaleCell {
    /// The reason in one word.
    pub why: StaleReason,
    /// The name whose value is another one now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The id of the cell that gives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
    /// All of it, in words.
    pub text: String,
}

/// Why a cell is out of date, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StaleReason {
    /// The present kernel has not run it.
    NotRun,
    /// The present kernel has not run it, and its outputs come from an earlier version of its code.
    EarlierOutputs,
    /// It was edited since it ran.
    Edited,
    /// Its last run failed.
    Failed,
    /// How its last run ended, or its text then, is not known.
    UnknownEnd,
    /// A cell whose name it reads is out of date.
    NeedsStale,
    /// A cell whose name it reads ran after it.
    RanAfter,
    /// When it ran, a name that it reads had the value of another cell.
    OtherCell,
    /// When it ran, a name that it reads had a value that no cell above gives it.
    OtherValue,
}

/// A name that has no value where a cell reads it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UndefinedName {
    /// The name.
    pub name: String,
    /// The line of the cell, from 1.
    pub line: usize,
}

impl UndefinedName {
    pub(super) fn of((name, line): (&Name, &usize)) -> Self {
        Self {
            name: name.to_string(),
            line: *line,
        }
    }
}

/// The cells of a notebook's graph, by their ids.
pub(super) struct CellNames<'a> {
    pub(super) document: &'a Document,
    pub(super) graph: &'a NotebookGraph,
    pub(super) short: Vec<&'a str>,
}

impl<'a> CellNames<'a> {
    pub(super) fn of(document: &'a Document, graph: &'a NotebookGraph) -> Self {
        Self {
            document,
            graph,
            short: document.short_ids(),
        }
    }

    /// Returns the whole id of a cell of the graph.
    pub(super) fn id(&self, cell: usize) -> String {
        let place = self.graph.place(cell);
        let cell = place.and_then(|place| self.document.cells().get(place));
        cell.map(|cell| cell.id().to_owned()).unwrap_or_default()
    }

    /// Returns the short id of a cell of the graph.
    pub(super) fn short_id(&self, cell: usize) -> &'a str {
        let place = self.graph.place(cell);
        let short = place.and_then(|place| self.short.get(place));
        short.copied().unwrap_or_default()
    }

    /// Returns why the cell at an index of the notebook is out of date.
    pub(super) fn stale_at(&self, place: usize) -> Option<StaleCell> {
        let stale = self.graph.at(place)?.stale.as_ref()?;
        self.stale(stale, self.graph.has_earlier_outputs(place))
    }

    fn stale(&self, stale: &Stale, has_earlier_outputs: bool) -> Option<StaleCell> {
        if *stale == Stale::NotRun && has_earlier_outputs {
            return Some(StaleCell {
                why: StaleReason::EarlierOutputs,
                name: None,
                cell: None,
                text: "its outputs come from an earlier version of its code".to_owned(),
            });
        }
        let (why, text) = match stale {
            Stale::NotRun => (StaleReason::NotRun, "the kernel has not run it".to_owned()),
            Stale::Edited => (StaleReason::Edited, "edited since it ran".to_owned()),
            Stale::Failed => (StaleReason::Failed, "its last run failed".to_owned()),
            Stale::UnknownEnd => {
                let text = "how its last run ended is not known";
                (StaleReason::UnknownEnd, text.to_owned())
            }
            Stale::Needs {
                name,
                cell,
                because,
            } => {
                let cell = self.short_id(*cell);
                match because {
                    StaleCause::IsStale => (
                        StaleReason::NeedsStale,
                        format!("{cell}, which defines {name}, is stale"),
                    ),
                    StaleCause::RanAfter => (
                        StaleReason::RanAfter,
                        format!("{cell} ran after it: {name}"),
                    ),
                    StaleCause::WasOther => (
                        StaleReason::OtherCell,
                        format!("when it ran, {name} was not what {cell} gives"),
                    ),
                }
            }
            Stale::OtherValue(name) => (
                StaleReason::OtherValue,
                format!("when it ran, {name} had a value that no cell above gives"),
            ),
        };
        let (name, cell) = match stale {
            Stale::Needs { name, cell, .. } => (Some(name), Some(self.id(*cell))),
            Stale::OtherValue(name) => (Some(name), None),
            _ => (None, None),
        };
        Some(StaleCell {
            why,
            name: name.map(ToString::to_string),
            cell,
            text,
        })
    }
}

/// Returns what of a notebook's code is read for a graph or a plan.
pub(super) fn analysis(assume_order: bool) -> Analysis {
    match assume_order {
        true => Analysis::InOrder,
        false => Analysis::Whole,
    }
}

/// Returns names as strings.
pub(super) fn strings<'a>(names: impl IntoIterator<Item = &'a Name>) -> Vec<String> {
    names.into_iter().map(ToString::to_string).collect()
}
