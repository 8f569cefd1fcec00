//! `nb export`: prints cells as plain text.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::Problem;
use crate::api::{self, ExportRequest};
use crate::cli::Context;
use crate::cli::args::cells::CellOptions;
use crate::cli::args::take_notebook;
use crate::cli::commands::Command;
use crate::cli::render::print;

/// Print cells as plain text, without outputs
///
/// The text is in the percent format, which Jupytext and editors know: `# %%` begins a code cell,
/// `# %% [markdown]` a text cell. `nb insert --cells` reads it.
#[derive(Args, Debug)]
#[command(
    override_usage = "nb export [OPTIONS] [NOTEBOOK] [CELL]...",
    after_help = EXAMPLES
)]
pub(crate) struct Export {
    /// The notebook, and the cells if not all: an index (3, -1), an id, In[12], a range (2..5)
    #[arg(value_name = "CELL", allow_negative_numbers = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    cell_options: CellOptions,
}

const EXAMPLES: &str = "\
Examples:
  nb export analysis.ipynb > analysis.py
  nb export 2..5 | nb insert other.ipynb --cells -";

impl Command for Export {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        take_notebook(&mut self.words)
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let cells = self.cell_options.selectors(&self.words)?;
        let answer = api::export(&context.caller, ExportRequest { cells }).await?;
        context.print(&answer, |answer| {
            print::exact(print::source(&answer.text).as_bytes())
        })
    }
}
