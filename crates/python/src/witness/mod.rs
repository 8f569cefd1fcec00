//! What each execution really read and changed, as the kernel says it, and which cells to run by that.
//!
//! The text of a cell does not show what `f(x)` changes. The witness is Python code that sees it in the kernel, and says
//! it in one message for each execution: its [`ExecutionFacts`]. [`WitnessedKernel`] compares the facts of the last runs
//! with what Restart & Run All would give, and says what to run next.

mod facts;
mod plan;
#[cfg(test)]
mod tests;

pub use facts::{ExecutionFacts, FactKind, FactWrite, Resource};
pub use plan::{RunCause, Uncertainty, WitnessStep, WitnessedKernel};
