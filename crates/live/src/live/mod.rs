//! One notebook in one editor: the protocol, and the rule of compare and set.

pub mod activity;
mod cell_data;
mod document;
mod editor_cells;
pub mod protocol;
#[cfg(test)]
mod tests;

pub use document::{FileSnapshot, LiveDocument, UnsavedCell};
