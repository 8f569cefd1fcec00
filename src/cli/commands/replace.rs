//! `nb replace`: replaces a text wherever it is in a notebook.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::{Problem, ProblemKind};
use crate::api::{self, ReplaceRequest};
use crate::cli::Context;
use crate::cli::args::cells::CellOptions;
use crate::cli::args::take_notebook;
use crate::cli::commands::Command;
use crate::cli::commands::change::WriteOptions;
use crate::cli::render::conflict::with_repeat;
use crate::cli::render::print;

/// Replace a text in all cells, or in those that are named
///
/// The texts are taken as they are, with --regex OLD is a regular expression and $1 in NEW its first
/// group. All occurrences are replaced in one edit, which `nb undo` takes back.
#[derive(Args, Debug)]
#[command(
    override_usage = "nb replace [OPTIONS] [NOTEBOOK] OLD NEW [CELL]...",
    after_help = EXAMPLES
)]
pub(crate) struct Replace {
    /// The notebook, the text, the new text, and the cells if not all: an index, an id, a range (2..5)
    #[arg(value_name = "OLD NEW", allow_negative_numbers = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    cell_options: CellOptions,
    /// Replace whole words only: `lr` and not `plr`
    #[arg(short, long)]
    word: bool,
    /// OLD is a regular expression
    #[arg(short = 'E', long)]
    regex: bool,
    #[command(flatten)]
    writing: WriteOptions,
}

const EXAMPLES: &str = "\
Examples:
  nb replace analysis.ipynb lr learning_rate --word
  nb replace 'df.append(' 'pd.concat(' 3..7
  nb replace --regex 'plot\\((\\w+)\\)' 'show($1)'";

impl Command for Replace {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        take_notebook(&mut self.words)
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let [old, new, cells @ ..] = self.words.as_slice() else {
            let message = "two texts are wanted: the old one and the new one";
            return Err(
                Problem::new(ProblemKind::Usage, message).hint("nb replace OLD NEW [CELL]...")
            );
        };
        let request = ReplaceRequest {
            old: old.clone(),
            new: new.clone(),
            cells: self.cell_options.selectors(cells)?,
            is_regex: self.regex,
            is_word: self.word,
            policy: self.writing.policy(),
        };
        let answer = api::replace(&context.caller, request).await;
        let mut answer = answer.map_err(|problem| with_repeat(problem, "replace"))?;
        let code = context.take_error(&mut answer.edit, "replace");
        context.print(&answer, |answer| {
            let occurrences = print::count(answer.replaced, "occurrence");
            print::line(&format!("replaced {occurrences}"))?;
            context.print_edit(&answer.edit)
        })?;
        Ok(code)
    }
}
