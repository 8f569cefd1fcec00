//! Outputs of an earlier text of their cell: a line before them says so, in every front end.

use crate::notebook::document::{Cell, joined_strings};
use crate::notebook::json::{Json, Object};

const NOTE: &str =
    "These are outputs of an earlier text of this cell, which was edited while it ran.\n";

/// Returns the output that stands before outputs of another text than the cell has.
pub fn stale_note() -> Json {
    let text = Json::string(NOTE);
    let output = format!(
        "{{\"output_type\":\"stream\",\"name\":\"stderr\",\"text\":{}}}",
        text.text()
    );
    Json::parse(&output).expect("it is JSON")
}

impl Cell {
    /// Returns whether the cell's outputs are marked as those of an earlier text.
    pub fn has_stale_note(&self) -> bool {
        // With the mark goes the count; most cells that have none have no outputs.
        self.execution_count().is_none()
            && self.raw_outputs().first().is_some_and(|output| {
                let fields = Object::read(output);
                let text = fields.and_then(|fields| fields.get(output, "text"));
                text.is_some_and(|text| *joined_strings(text.of(output)) == *NOTE.as_bytes())
            })
    }
}
