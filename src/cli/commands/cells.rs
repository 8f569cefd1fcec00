//! `nb cells`: lists the cells of a notebook, one line each.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::api::problem::Problem;
use crate::api::{self, CellCondition, CellsAnswer, CellsRequest, ExportRequest};
use crate::cli::Context;
use crate::cli::args::cells::CellOptions;
use crate::cli::args::take_notebook;
use crate::cli::commands::Command;
use crate::cli::render::{columns, print};
use crate::notebook::Revision;
use crate::text::cells::{head, removed_text, write_rows};

/// How many lines are printed at a time: a long list is never in memory as a whole.
const PART: usize = 200;

/// List the cells, one line each
///
/// A line has the index, the id (as much of it as other commands need), the type, the execution count, the
/// beginning of the source, and what the outputs say in short. After the first line stands the number of lines
/// where there are more. `running`, `error` and `stale` stand after the count. A stale cell is out of date, for
/// the reason in parentheses: it, or a cell that it depends on, was edited or run since its own last run.
/// nb exec --stale runs all of them. --json has the whole ids, the revisions, and the names that each cell
/// reads and writes; what there is nothing to say of is left out.
#[derive(Args, Debug)]
#[command(override_usage = "nb cells [OPTIONS] [NOTEBOOK] [CELL]...", after_help = EXAMPLES)]
pub(crate) struct Cells {
    /// The notebook, and the cells if not all: an index (3, -1), an id, In[12], a range (2..5, 2..=5)
    #[arg(value_name = "CELL", allow_negative_numbers = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    cell_options: CellOptions,
    /// Only the cells that are new, edited, moved or removed since this revision of the notebook;
    /// running a cell is no change
    #[arg(long, value_name = "REV", conflicts_with_all = ["ids", "indexes"])]
    since: Option<Revision>,
    /// Only the cells that are out of date
    #[arg(long)]
    stale: bool,
    /// Only the cells that give a name a value which no cell reads
    #[arg(long)]
    unused: bool,
    /// Only the cells that read a name to which no cell above gives a value
    #[arg(long)]
    undefined: bool,
    /// Only the cells whose outputs have an error
    #[arg(long)]
    failed: bool,
    /// Print the cells in another form: `py` is what nb export prints, and nothing else
    #[arg(long, value_enum, conflicts_with_all = ["since", "stale", "unused", "undefined", "failed", "json"])]
    format: Option<CellsFormat>,
}

/// A form in which cells are printed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum CellsFormat {
    /// The whole sources, in the percent format
    Py,
}

const EXAMPLES: &str = "\
Examples:
  nb cells train.ipynb
  nb cells train.ipynb 10..20
  nb cells --since 8c1f09a2b3
  nb cells --stale                              what nb exec --stale would run, and why
  nb cells --format py                           all sources, as nb insert --cells reads them
  nb cells --failed                             those whose outputs have an error";

impl Command for Cells {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        take_notebook(&mut self.words)
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let cells = self.cell_options.selectors(&self.words)?;
        if let Some(CellsFormat::Py) = self.format {
            let answer = api::export(&context.caller, ExportRequest { cells }).await?;
            return context.print(&answer, |answer| {
                print::exact(print::source(&answer.text).as_bytes())
            });
        }
        // A wide terminal gets more text; for a narrow one each whole line is cut.
        let width = columns::of_terminal().filter(|_| !context.json);
        let at_least = |default: usize| width.map_or(default, |width| width.max(default));
        let default = CellsRequest::default();
        let only = [
            (self.stale, CellCondition::Stale),
            (self.unused, CellCondition::Unused),
            (self.undefined, CellCondition::Undefined),
            (self.failed, CellCondition::Failed),
        ];
        let only = only.iter().filter(|(is_set, _)| *is_set);
        let request = CellsRequest {
            cells,
            since: self.since,
            only: only.map(|(_, condition)| *condition).collect(),
            names: context.json,
            first_line: at_least(default.first_line),
            outputs: at_least(default.outputs),
            ..default
        };
        let answer = api::cells(&context.caller, request).await?;
        context.print(&answer, |answer| print_rows(answer, self.since, width))
    }
}

fn print_rows(
    answer: &CellsAnswer,
    since: Option<Revision>,
    width: Option<usize>,
) -> std::io::Result<()> {
    let mut lines = vec![head(answer, since)];
    let mut result = Ok(());
    write_rows(&answer.cells, width, |line| {
        lines.push(line.to_owned());
        if lines.len() >= PART && result.is_ok() {
            result = print::lines(lines.drain(..));
        }
    });
    lines.extend(answer.removed.iter().flatten().map(removed_text));
    result.and_then(|()| print::lines(lines))
}
