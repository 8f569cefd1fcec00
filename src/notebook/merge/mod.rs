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

pub use align::moved;
pub use diff::{
    CellDiff, CellSide, FieldDiff, Hunk, Line, OutputsDiff, changes, diff, diff_metadata,
};
pub use three_way::{Merged, merge};
