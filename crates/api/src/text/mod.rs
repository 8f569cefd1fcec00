//! Answers and problems as plain text, for people at a terminal and for agents.

pub mod cell;
pub mod cells;
pub mod diagram;
pub mod diff;
pub mod edit;
pub mod event;
pub mod graph;
pub mod kernel;
pub mod log;
pub mod meanwhile;
pub mod open;
pub mod packages;
pub mod problem;
pub mod report;
pub mod sandbox;
pub mod vars;
pub mod verify;

use crate::notebook::{own_line, visible_line};

/// A part of an answer's text. A line of `nb` and the texts of others are parts of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A line of `nb` where outputs or sources can stand: it begins with the mark that these cannot have.
    Own(String),
    /// A line of an answer that has no outputs and no sources.
    Row(String),
    /// An output or a source, of any number of lines, with all characters visible.
    Others(String),
}

impl Part {
    /// Returns the part as text that ends with a newline.
    pub fn text(&self) -> String {
        match self {
            Self::Own(line) => own_line(line) + "\n",
            Self::Row(line) => format!("{}\n", visible_line(line)),
            Self::Others(text) if text.is_empty() || text.ends_with('\n') => text.clone(),
            Self::Others(text) => format!("{text}\n"),
        }
    }
}

/// Formats a count: `1 line`, `3 lines`.
pub fn count(count: usize, unit: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural}")
}
