//! `nb rm`: cells removed.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::{Problem, ProblemKind};
use crate::cli::Context;
use crate::cli::args::cells::{Which, missing};
use crate::cli::args::{first_notebook, take_notebook};
use crate::cli::commands::change::Manner;
use crate::cli::commands::{Command, Group};
use crate::notebook::{CellSelector, Operation, Revision};

/// Remove cells
///
/// Several cells and ranges are named as they stand before any is removed. A cell that is not what
/// you saw last is shown and stays (exit code 5), and all others with it: the next try works. `nb
/// undo` brings removed cells back, with their outputs.
#[derive(Args, Debug)]
#[command(override_usage = "nb rm [OPTIONS] [NOTEBOOK] CELL...", after_help = EXAMPLES)]
pub(crate) struct Rm {
    /// The notebook, and the cells: an index (3, -1), an id, In[12], a range (2..5, 2..=5)
    #[arg(value_name = "CELL", allow_negative_numbers = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    which: Which,
    /// A range as START:END
    #[arg(short = 'r', long = "range", hide = true, value_parser = range)]
    ranges: Vec<CellSelector>,
    /// Only if the cell still has this revision
    #[arg(long, value_name = "REVISION")]
    if_rev: Option<Revision>,
    #[command(flatten)]
    pub(crate) manner: Manner,
}

const EXAMPLES: &str = "\
Examples:
  nb rm analysis.ipynb 3f2c
  nb rm 2 5 -1                                   cells 2, 5 and the last
  nb rm 2..5                                     cells 2, 3 and 4
  nb rm -c 1234                                  the cell with the id 1234";

impl Command for Rm {
    const NAME: &'static str = "rm";
    const ALIASES: &'static [&'static str] = &["remove", "delete"];
    const GROUP: Group = Group::Notebook;
    const IS_FIRST: bool = true;

    fn notebook(&self) -> Option<PathBuf> {
        first_notebook(&self.words)
    }

    fn json(&self) -> bool {
        self.manner.json
    }

    async fn run(mut self, context: &Context) -> Result<ExitCode, Problem> {
        let notebook = take_notebook(&mut self.words);
        let mut cells = self.which.selectors(&self.words)?;
        cells.append(&mut self.ranges);
        match (cells.len(), self.if_rev) {
            (0, _) => return Err(missing("a cell is wanted")),
            (2.., Some(_)) => {
                return Err(Problem::new(ProblemKind::Usage, "--if-rev is for one cell"));
            }
            _ => {}
        }
        let operation = Operation::Remove {
            cells,
            if_rev: self.if_rev,
        };
        let request = self.manner.request(notebook, vec![operation]);
        context.edit(request, self.manner.json, "rm").await
    }
}

/// Reads a range as nb-cli writes them.
fn range(word: &str) -> Result<CellSelector, String> {
    let range = word.replacen(':', "..", 1).parse();
    range.map_err(|error: crate::notebook::SelectError| error.to_string())
}
