//! `nb rm`: removes cells.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::editing::no_cell;
use crate::api::problem::{Problem, ProblemKind};
use crate::cli::Context;
use crate::cli::args::cells::CellOptions;
use crate::cli::args::take_notebook;
use crate::cli::commands::Command;
use crate::cli::commands::change::WriteOptions;
use crate::notebook::{CellSelector, Operation, Revision};

/// Remove cells
///
/// Several cells and ranges are named as they stand before any is removed. A cell that others have
/// changed since you saw it is shown and stays (exit code 5), and all others with it: the next try
/// works. `nb undo` brings removed cells back, with their outputs.
#[derive(Args, Debug)]
#[command(override_usage = "nb rm [OPTIONS] [NOTEBOOK] CELL...", after_help = EXAMPLES)]
pub(crate) struct Rm {
    /// The notebook, and the cells: an index (3, -1), an id, In[12], a range (2..5, 2..=5)
    #[arg(value_name = "CELL", allow_negative_numbers = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    cell_options: CellOptions,
    /// A range as START:END
    #[arg(short = 'r', long = "range", hide = true, value_parser = range)]
    ranges: Vec<CellSelector>,
    /// Only if the cell still has this revision
    #[arg(long, value_name = "REVISION")]
    if_rev: Option<Revision>,
    #[command(flatten)]
    writing: WriteOptions,
}

const EXAMPLES: &str = "\
Examples:
  nb rm analysis.ipynb 3f2c
  nb rm 2 5 -1                                   cells 2, 5 and the last
  nb rm 2..5                                     cells 2, 3 and 4
  nb rm -c 1234                                  the cell with the id 1234";

impl Command for Rm {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        take_notebook(&mut self.words)
    }

    async fn run(mut self, context: &Context) -> Result<ExitCode, Problem> {
        let mut cells = self.cell_options.selectors(&self.words)?;
        cells.append(&mut self.ranges);
        match (cells.len(), self.if_rev) {
            (0, _) => return Err(no_cell("name a cell")),
            (2.., Some(_)) => {
                return Err(Problem::new(ProblemKind::Usage, "--if-rev is for one cell"));
            }
            _ => {}
        }
        let operation = Operation::Remove {
            cells,
            if_rev: self.if_rev,
        };
        let request = self.writing.request(vec![operation]);
        context.edit(request, "rm").await
    }
}

/// Parses a range in nb-cli's notation.
fn range(word: &str) -> Result<CellSelector, String> {
    let range = word.replacen(':', "..", 1).parse();
    range.map_err(|error: crate::notebook::SelectError| error.to_string())
}
