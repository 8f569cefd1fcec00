//! Versions of a notebook compared: aligned cell by cell, merged, told apart.

mod align;
mod cell;
mod diff;
mod fields;
#[cfg(test)]
mod laws;
mod lines;
mod other_size;
mod recall_ids;
mod split_join;
mod three_versions;
mod three_way;

pub use align::out_of_order;
pub use diff::{
    CellDiff, CellSide, DiffHunk, DiffLine, FieldDiff, OutputsDiff, changes, diff, diff_metadata,
};
pub use three_way::{MergedNotebook, merge};
