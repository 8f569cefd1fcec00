//! Answers and problems as plain text, for people at a terminal and for agents.

pub(crate) mod cell;
pub(crate) mod cells;
pub(crate) mod diagram;
pub(crate) mod diff;
pub(crate) mod edit;
pub(crate) mod event;
pub(crate) mod graph;
pub(crate) mod kernel;
pub(crate) mod log;
pub(crate) mod meanwhile;
pub(crate) mod open;
pub(crate) mod problem;
pub(crate) mod report;
pub(crate) mod sandbox;
pub(crate) mod vars;

/// Formats a count: `1 line`, `3 lines`.
pub(crate) fn count(count: usize, unit: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural}")
}
