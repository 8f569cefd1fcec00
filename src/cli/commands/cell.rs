//! `nb cell`: shows the sources, metadata and outputs of cells.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::Problem;
use crate::api::{self, CellRequest, OutputAnswer, OutputForm, OutputRequest};
use crate::cli::Context;
use crate::cli::args::cells::CellOptions;
use crate::cli::args::take_notebook;
use crate::cli::commands::Command;
use crate::cli::commands::follow::LIMIT;
use crate::cli::render::print;
use crate::text::cell::parts;

/// Show cells: their source and their outputs
///
/// The source is whole. Long outputs are cut in the middle; their whole text, images and what else
/// no terminal shows are written to files in .nb/outputs/, which the answer names. Such a file is
/// that output as it is now: it goes when .nb/ holds too much, and `nb cell` makes it anew.
#[derive(Args, Debug)]
#[command(override_usage = "nb cell [OPTIONS] [NOTEBOOK] CELL...", after_help = EXAMPLES)]
pub(crate) struct Cell {
    /// The notebook, and the cells: an index (3, -1), an id or its beginning, In[12], a range (2..5)
    #[arg(value_name = "CELL", allow_negative_numbers = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    cell_options: CellOptions,
    /// Print at most this many characters of a cell's outputs; 0 is no limit
    #[arg(long, value_name = "CHARACTERS", default_value_t = LIMIT)]
    limit: usize,
    /// Leave the outputs out
    #[arg(long, conflicts_with = "output")]
    no_outputs: bool,
    /// Print the source and nothing else: exactly its characters, and a newline where the last is none
    #[arg(long, conflicts_with_all = ["json", "output"])]
    source_only: bool,
    /// Print this output and nothing else, whole; an image is its bytes, on a terminal its file's path
    #[arg(long, value_name = "N", conflicts_with = "json")]
    output: Option<usize>,
    /// Which form of the output is meant: text/html, image/png, ...
    #[arg(long, value_name = "TYPE", requires = "output")]
    mime: Option<String>,
    /// Scale an image down until no side has more pixels
    #[arg(long, value_name = "PIXELS", requires = "output", value_parser = clap::value_parser!(u32).range(1..))]
    image_size: Option<u32>,
}

const EXAMPLES: &str = "\
Examples:
  nb cell train.ipynb 3f2c
  nb cell 2..5 --limit 500
  nb cell 0,3..5,77de --no-outputs
  nb cell 3f2c --source-only > cell.py
  nb cell -1 --output 0 > plot.png
  nb cell -1 --output 0 --image-size 600 > small.png";

impl Command for Cell {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        take_notebook(&mut self.words)
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let cells = self.cell_options.selectors(&self.words)?;
        if let Some(number) = self.output {
            let request = OutputRequest {
                cells,
                number,
                mime: self.mime,
                image_size: self.image_size,
                to_file: io::stdout().is_terminal(),
            };
            let output = api::output(&context.caller, request).await?;
            return context.printed(&print_output(context, output));
        }
        let limit = (self.limit > 0).then_some(self.limit);
        let is_raw = self.source_only || (context.json && limit.is_none());
        let request = CellRequest {
            cells,
            all: false,
            outputs: match is_raw {
                _ if self.no_outputs => OutputForm::Omitted,
                true => OutputForm::Raw,
                false => OutputForm::Previews(limit),
            },
        };
        let answer = api::cell(&context.caller, request).await?;
        if let Some(why) = &answer.unwritten {
            print::note(&format!(
                "note: outputs could not be written to files: {why}"
            ));
        }
        context.print(&answer, |answer| {
            if !self.source_only {
                return print::parts(&parts(answer));
            }
            let sources = answer.cells.iter().map(|cell| {
                let is_ended = cell.source.is_empty() || cell.source.ends_with('\n');
                cell.source.clone() + if is_ended { "" } else { "\n" }
            });
            print::exact(print::source(&sources.collect::<String>()).as_bytes())
        })
    }
}

/// Prints the whole of one output.
fn print_output(context: &Context, output: OutputAnswer) -> io::Result<()> {
    match output {
        OutputAnswer::Text(mut text) => {
            if text.last().is_some_and(|last| *last != b'\n') {
                text.push(b'\n');
            }
            print::exact(&text)
        }
        OutputAnswer::Bytes { bytes, .. } => print::exact(&bytes),
        OutputAnswer::File(path) => {
            let path = path
                .strip_prefix(&context.caller.working_dir)
                .unwrap_or(&path);
            print::line(&path.display().to_string())
        }
    }
}
