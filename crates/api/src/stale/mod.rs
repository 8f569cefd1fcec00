//! Which cells of a notebook are out of date: the graph of its code, and what its kernel has run.

mod earlier_outputs;
mod facts;
mod known;
pub mod next_cell;
pub mod notebook_graph;
pub mod past;
mod runs;
pub mod witnessed;
