//! `nb split` and `nb join`: make two cells of one, and one of several.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::{Problem, ProblemKind};
use crate::cli::Context;
use crate::cli::args::cells::CellOptions;
use crate::cli::args::take_notebook;
use crate::cli::commands::Command;
use crate::cli::commands::change::WriteOptions;
use crate::notebook::{Operation, Revision};

/// Split a cell in two
///
/// The first cell keeps the id, the outputs stay with it.
#[derive(Args, Debug)]
#[command(
    override_usage = "nb split [OPTIONS] [NOTEBOOK] CELL LINE",
    after_help = SPLIT_EXAMPLES
)]
pub(crate) struct Split {
    /// The notebook, the cell, and the number of the line that begins the second cell (the first line is 1)
    #[arg(value_name = "CELL LINE", allow_negative_numbers = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    cell_options: CellOptions,
    /// Only if the cell still has this revision
    #[arg(long, value_name = "REVISION")]
    if_rev: Option<Revision>,
    #[command(flatten)]
    writing: WriteOptions,
}

const SPLIT_EXAMPLES: &str = "\
Examples:
  nb split analysis.ipynb 3f2c 12                line 12 begins the second cell";

impl Command for Split {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        take_notebook(&mut self.words)
    }

    async fn run(mut self, context: &Context) -> Result<ExitCode, Problem> {
        let cell = self.cell_options.one(&mut self.words)?;
        let usage =
            |message: String| Problem::new(ProblemKind::Usage, message).hint("nb split CELL LINE");
        let line = match self.words.as_slice() {
            [line] => line
                .parse::<usize>()
                .map_err(|_| usage(format!("{line:?} is not a line number")))?,
            _ => return Err(usage("one line number is wanted".to_owned())),
        };
        let line = line.checked_sub(1).filter(|line| *line > 0);
        let line =
            line.ok_or_else(|| usage("the second cell begins at line 2 or later".to_owned()))?;
        let operation = Operation::Split {
            cell,
            if_rev: self.if_rev,
            line,
            id: None,
        };
        let request = self.writing.request(vec![operation]);
        context.edit(request, "split").await
    }
}

/// Join cells that stand next to each other
///
/// The first cell gets the texts of all, and keeps its id.
#[derive(Args, Debug)]
#[command(
    override_usage = "nb join [OPTIONS] [NOTEBOOK] CELL...",
    after_help = JOIN_EXAMPLES
)]
pub(crate) struct Join {
    /// The notebook, and the cells: a range (2..5, 2..=5), or several names
    #[arg(value_name = "CELL", allow_negative_numbers = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    cell_options: CellOptions,
    #[command(flatten)]
    writing: WriteOptions,
}

const JOIN_EXAMPLES: &str = "\
Examples:
  nb join analysis.ipynb 3..=5
  nb join 3f2c 77de";

impl Command for Join {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        take_notebook(&mut self.words)
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let cells = self.cell_options.selectors(&self.words)?;
        let request = self.writing.request(vec![Operation::Join { cells }]);
        context.edit(request, "join").await
    }
}
