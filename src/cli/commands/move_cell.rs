//! `nb move`: moves a cell.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::{Problem, ProblemKind};
use crate::cli::Context;
use crate::cli::args::cells::{CellOptions, CellPosition};
use crate::cli::args::take_notebook;
use crate::cli::commands::Command;
use crate::cli::commands::change::WriteOptions;
use crate::hint;
use crate::hint::{Verb, nb};
use crate::notebook::{CellSelector, Operation};

/// Move a cell: after or before another one, or to an index
///
/// The first word is the notebook if it ends in .ipynb, the next one the cell, the last one its
/// index in the end. The cell keeps its bytes, its outputs among them.
#[derive(Args, Debug)]
#[command(
    override_usage = "nb move [OPTIONS] [NOTEBOOK] CELL [INDEX]",
    after_help = EXAMPLES
)]
pub(crate) struct MoveCell {
    /// The notebook, the cell, and its index in the end
    #[arg(value_name = "CELL", allow_negative_numbers = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    cell_options: CellOptions,
    #[command(flatten)]
    position: CellPosition,
    /// Let it have this index in the end, from 0; -1 is the last
    #[arg(
        long,
        value_name = "INDEX",
        allow_negative_numbers = true,
        group = "place"
    )]
    to: Option<i64>,
    #[command(flatten)]
    writing: WriteOptions,
}

const EXAMPLES: &str = "\
Examples:
  nb move analysis.ipynb 3f2c --after 77de
  nb move 5 0                                    to the beginning
  nb move 3f2c --to -1                           to the end";

impl Command for MoveCell {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        take_notebook(&mut self.words)
    }

    async fn run(mut self, context: &Context) -> Result<ExitCode, Problem> {
        let cell = self.cell_options.one(&mut self.words)?;
        let operation = self.operation(cell)?;
        let request = self.writing.request(vec![operation]);
        context.edit(request, "move").await
    }
}

impl MoveCell {
    /// Parses the words into an operation, without reading the notebook.
    fn operation(&self, cell: CellSelector) -> Result<Operation, Problem> {
        let usage = |message: String| {
            Problem::new(ProblemKind::Usage, message).hint(hint![
                nb(Verb::Move).word("CELL").option("--after").word("CELL"),
                " | --before CELL | --to INDEX"
            ])
        };
        let placed = self.position.is_given() || self.to.is_some();
        let to = match (self.words.as_slice(), placed) {
            ([], true) => self.to,
            ([place], false) => {
                let index = place.parse().map_err(|_| {
                    usage(format!(
                        "{place:?} is not an index: use a number, or -1 for the last cell"
                    ))
                })?;
                Some(index)
            }
            _ => return Err(usage("name one place".to_owned())),
        };
        let (after, before) = self.position.selectors()?;
        Ok(Operation::Move {
            cell,
            if_rev: None,
            after,
            before,
            to,
        })
    }
}
