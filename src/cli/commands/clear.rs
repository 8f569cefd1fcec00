//! `nb clear`: removes outputs.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::{Problem, ProblemKind};
use crate::cli::Context;
use crate::cli::args::cells::CellOptions;
use crate::cli::args::take_notebook;
use crate::cli::commands::Command;
use crate::cli::commands::change::WriteOptions;
use crate::notebook::Operation;

/// Remove the outputs and counts of cells, or of all cells
///
/// Sources stay as they are, and with them the revisions. `nb undo` brings the outputs back.
#[derive(Args, Debug)]
#[command(
    override_usage = "nb clear [OPTIONS] [NOTEBOOK] [CELL]...",
    after_help = EXAMPLES
)]
pub(crate) struct Clear {
    /// The notebook, and the cells if not all: an index (3, -1), an id, In[12], a range (2..5, 2..=5)
    #[arg(value_name = "CELL", allow_negative_numbers = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    cell_options: CellOptions,
    /// Clear all cells, as without any
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    writing: WriteOptions,
}

const EXAMPLES: &str = "\
Examples:
  nb clear analysis.ipynb                        all cells
  nb clear 3f2c 5..=7";

impl Command for Clear {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        take_notebook(&mut self.words)
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let cells = self.cell_options.selectors(&self.words)?;
        if self.all && !cells.is_empty() {
            return Err(Problem::new(
                ProblemKind::Usage,
                "name cells or say --all, not both",
            ));
        }
        let operation = Operation::Clear { cells };
        let request = self.writing.request(vec![operation]);
        context.edit(request, "clear").await
    }
}
