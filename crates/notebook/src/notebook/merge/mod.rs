//! Aligns, merges and compares versions of a notebook, cell by cell.

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
pub(super) use cell::outputs_lost;
pub use diff::{
    CellDiff, CellSide, DiffHunk, DiffLine, FieldDiff, OutputsDiff, changed_lines, changes, diff,
    diff_metadata, diff_sources,
};
pub use lines::{merge_keeping_both, merge_texts, unite_texts};
pub use three_way::{MergedNotebook, merge};
