//! Python code as a structure, and the graph of a notebook's cells.
//!
//! | module | holds | imports |
//! |---|---|---|
//! | [`code`] | Python code as a structure: what it does, as far as its text shows. Pure | – |
//! | [`graph`] | which cells of a notebook depend on which, which are out of date, and which to run. Pure | code |
//! | [`witness`] | what each execution really changed, as the kernel says it, and which cells to run by that. Pure | – |
//!
//! No code is run. What the text does not show counts as unknown, and a cell with unknown effects as one that may change
//! any name. The work on one notebook is bounded, whatever its code.

pub mod code;
pub mod graph;
pub mod witness;
