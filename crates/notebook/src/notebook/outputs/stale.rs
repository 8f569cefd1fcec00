//! The note before outputs that come from an earlier source of their cell. Every front end shows it.

use super::accumulator::stream_output;
use crate::notebook::document::{Cell, joined_strings};
use crate::notebook::json::{Json, Object};

const NOTE: &str =
    "These are outputs of an earlier text of this cell, which was edited while it ran.\n";

/// Returns the note, an output that comes before outputs of an earlier source.
pub fn stale_note() -> Json {
    stream_output("stderr", NOTE)
}

impl Cell {
    /// Returns whether the note stands before the cell's outputs.
    pub fn has_stale_note(&self) -> bool {
        // Cells with the note have no count, and most cells without a count have no outputs.
        self.execution_count().is_none()
            && self.raw_outputs().first().is_some_and(|output| {
                let fields = Object::read(output);
                let text = fields.and_then(|fields| fields.get(output, "text"));
                text.is_some_and(|text| *joined_strings(text.of(output)) == *NOTE.as_bytes())
            })
    }
}
