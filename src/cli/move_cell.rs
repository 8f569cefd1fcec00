//! `nb move`: a cell moved.

use std::process::ExitCode;

use clap::Args;

use super::Context;
use super::change::Manner;
use super::fault::{Fault, Kind};
use super::which::{Beside, Which};
use crate::notebook::{Operation, Selector};

/// Move a cell: after or before another one, or to an index
///
/// The first word is the notebook if it ends in .ipynb, the next one the cell, the last one its
/// index in the end. The cell keeps its bytes, its outputs among them.
#[derive(Args, Debug)]
#[command(
    override_usage = "nb move [OPTIONS] [NOTEBOOK] CELL [INDEX]",
    after_help = EXAMPLES
)]
pub(super) struct MoveCell {
    /// The notebook, the cell, and its index in the end
    #[arg(value_name = "CELL", allow_negative_numbers = true)]
    pub(super) words: Vec<String>,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    beside: Beside,
    /// Let it have this index in the end, from 0; -1 is the last
    #[arg(
        long,
        value_name = "INDEX",
        allow_negative_numbers = true,
        group = "place"
    )]
    to: Option<i64>,
    #[command(flatten)]
    pub(super) manner: Manner,
}

const EXAMPLES: &str = "\
Examples:
  nb move analysis.ipynb 3f2c --after 77de
  nb move 5 0                                    to the beginning
  nb move 3f2c --to -1                           to the end";

impl MoveCell {
    /// Runs the command.
    pub(super) async fn run(mut self, context: &Context) -> Result<ExitCode, Fault> {
        let page = context.page(&mut self.words, "nb move").await?;
        let cell = self.which.one(&mut self.words)?;
        let operation = self.meant(cell)?;
        context.edit(&page, &[operation], &self.manner, "move")
    }

    /// Reads what the words mean, without the notebook and the cell.
    fn meant(&self, cell: Selector) -> Result<Operation, Fault> {
        let usage = |message: String| {
            Fault::new(Kind::Usage, message)
                .hint("nb move CELL --after CELL | --before CELL | --to INDEX")
        };
        let placed = self.beside.is_given() || self.to.is_some();
        let to = match (self.words.as_slice(), placed) {
            ([], true) => self.to,
            ([place], false) => {
                let index = place.parse().map_err(|_| {
                    usage(format!(
                        "{place:?} is no index: a number, or -1 from the end"
                    ))
                })?;
                Some(index)
            }
            _ => return Err(usage("one place is wanted".to_owned())),
        };
        let (after, before) = self.beside.selectors()?;
        Ok(Operation::Move {
            cell,
            after,
            before,
            to,
        })
    }
}
