//! `nb graph`: which cells depend on which.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::api::problem::Problem;
use crate::api::{self, GraphRequest};
use crate::cli::Context;
use crate::cli::args::cells::CellOptions;
use crate::cli::args::take_notebook;
use crate::cli::commands::Command;
use crate::cli::render::print;
use crate::text::{diagram, graph};

/// Show which cells depend on which, and which are out of date
///
/// The order is the notebook's own: a cell reads what the last cell above it wrote, as after Restart & Run
/// All. Each cell has a line with its index and id, and below it the names that it reads (with the cells that
/// give them), writes, changes in place and deletes, and what its code does not show. Nothing is run.
#[derive(Args, Debug)]
#[command(override_usage = "nb graph [OPTIONS] [NOTEBOOK] [CELL]...", after_help = EXAMPLES)]
pub(crate) struct Graph {
    /// The notebook, and the cells whose part of the graph is meant: what they depend on and what depends on
    /// them
    #[arg(value_name = "CELL", allow_negative_numbers = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    cell_options: CellOptions,
    /// The form
    #[arg(long, value_enum, default_value_t = GraphFormat::Text)]
    format: GraphFormat,
    /// Take each cell to depend on all cells above it: for languages whose code nb does not read
    #[arg(long)]
    assume_order: bool,
}

/// The form of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum GraphFormat {
    /// Lines of text
    Text,
    /// The same as --json
    Json,
    /// A flowchart, which GitHub and JupyterLab show in Markdown
    Mermaid,
}

const EXAMPLES: &str = "\
Examples:
  nb graph train.ipynb
  nb graph 3f2c                       what it depends on, and what depends on it
  nb graph --format mermaid > graph.mmd";

impl Command for Graph {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        take_notebook(&mut self.words)
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let request = GraphRequest {
            cells: self.cell_options.selectors(&self.words)?,
            assume_order: self.assume_order,
        };
        let answer = api::graph(&context.caller, request).await?;
        let text = match self.format {
            GraphFormat::Json => return context.printed(&context.print_json(&answer)),
            GraphFormat::Text => {
                return context.print(&answer, |answer| print::lines(graph::lines(answer)));
            }
            GraphFormat::Mermaid => diagram::mermaid(&answer),
        };
        context.print(&answer, |_| print::raw(text.as_bytes()))
    }
}
