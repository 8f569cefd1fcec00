//! `nb rm`: cells removed.

use std::process::ExitCode;

use clap::Args;

use super::Context;
use super::change::Manner;
use super::fault::{Fault, Kind};
use super::which::{Which, missing};
use crate::notebook::{Operation, Revision, Selector};

/// Remove cells
///
/// Several cells and ranges are named as they stand before any is removed. A cell that is not what
/// you saw last is shown and stays (exit code 5), and all others with it: the next try works. `nb
/// undo` brings removed cells back, with their outputs.
#[derive(Args, Debug)]
#[command(override_usage = "nb rm [OPTIONS] [NOTEBOOK] CELL...", after_help = EXAMPLES)]
pub(super) struct Rm {
    /// The notebook, and the cells: an index (3, -1), an id, In[12], a range (2..5, 2..=5)
    #[arg(value_name = "CELL", allow_negative_numbers = true)]
    pub(super) words: Vec<String>,
    #[command(flatten)]
    which: Which,
    /// A range as START:END
    #[arg(short = 'r', long = "range", hide = true, value_parser = range)]
    ranges: Vec<Selector>,
    /// Only if the cell still has this revision
    #[arg(long, value_name = "REVISION")]
    if_rev: Option<Revision>,
    #[command(flatten)]
    pub(super) manner: Manner,
}

const EXAMPLES: &str = "\
Examples:
  nb rm analysis.ipynb 3f2c
  nb rm 2 5 -1                                   cells 2, 5 and the last
  nb rm 2..5                                     cells 2, 3 and 4
  nb rm -c 1234                                  the cell with the id 1234";

impl Rm {
    /// Runs the command.
    pub(super) async fn run(mut self, context: &Context) -> Result<ExitCode, Fault> {
        let page = context.page(&mut self.words, "nb rm").await?;
        let mut cells = self.which.selectors(&self.words)?;
        cells.append(&mut self.ranges);
        match (cells.len(), self.if_rev) {
            (0, _) => return Err(missing("a cell is wanted")),
            (2.., Some(_)) => {
                return Err(Fault::new(Kind::Usage, "--if-rev is for one cell"));
            }
            _ => {}
        }
        let operation = Operation::Remove {
            cells,
            if_rev: self.if_rev,
        };
        context.edit(&page, &[operation], &self.manner, "rm")
    }
}

/// Reads a range as nb-cli writes them.
fn range(word: &str) -> Result<Selector, String> {
    let range = word.replacen(':', "..", 1).parse();
    range.map_err(|error: crate::notebook::SelectError| error.to_string())
}
