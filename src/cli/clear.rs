//! `nb clear`: outputs removed.

use std::process::ExitCode;

use clap::Args;

use super::Context;
use super::change::Manner;
use super::fault::{Fault, Kind};
use super::which::Which;
use crate::notebook::Operation;

/// Remove the outputs and counts of cells, or of all cells
///
/// Sources stay as they are, and with them the revisions. `nb undo` brings the outputs back.
#[derive(Args, Debug)]
#[command(
    override_usage = "nb clear [OPTIONS] [NOTEBOOK] [CELL]...",
    after_help = EXAMPLES
)]
pub(super) struct Clear {
    /// The notebook, and the cells if not all: an index (3, -1), an id, In[12], a range (2..5, 2..=5)
    #[arg(value_name = "CELL", allow_negative_numbers = true)]
    pub(super) words: Vec<String>,
    #[command(flatten)]
    which: Which,
    /// Clear all cells, as without any
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    pub(super) manner: Manner,
}

const EXAMPLES: &str = "\
Examples:
  nb clear analysis.ipynb                        all cells
  nb clear 3f2c 5..=7";

impl Clear {
    /// Runs the command.
    pub(super) async fn run(mut self, context: &Context) -> Result<ExitCode, Fault> {
        let page = context.page(&mut self.words, "nb clear").await?;
        let cells = self.which.selectors(&self.words)?;
        if self.all && !cells.is_empty() {
            return Err(Fault::new(Kind::Usage, "name cells or say --all, not both"));
        }
        let operation = Operation::Clear { cells };
        context.edit(&page, &[operation], &self.manner, "clear")
    }
}
