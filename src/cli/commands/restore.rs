//! `nb restore`: brings back an earlier version of a cell, or a deleted cell.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::{Problem, ProblemKind};
use crate::api::{self, RestoreAnswer, RestoreRequest};
use crate::cli::Context;
use crate::cli::args::cells::CellOptions;
use crate::cli::args::take_notebook;
use crate::cli::commands::Command;
use crate::cli::commands::change::WriteOptions;
use crate::cli::render::conflict::with_repeat;
use crate::cli::render::print;

/// Bring back an earlier version of a cell, or a deleted cell
///
/// nb remembers what each cell was whenever one of its commands looked or wrote: also what people
/// saved from an editor, and what an editor's Overwrite wiped out. Without a revision it is the
/// version before the present one; nb log NOTEBOOK CELL lists them. A deleted cell, named by its id,
/// comes back beside the cell that it stood beside. Outputs stay as they are; a cell that has none
/// gets those of the version, where they are remembered.
#[derive(Args, Debug)]
#[command(override_usage = "nb restore [OPTIONS] [NOTEBOOK] CELL[@REVISION]", after_help = EXAMPLES)]
pub(crate) struct Restore {
    /// [NOTEBOOK] CELL[@REVISION]
    #[arg(num_args = 0..=2, value_name = "WORDS", allow_negative_numbers = true, hide = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    cell_options: CellOptions,
    /// The revision to bring back; a beginning is enough
    #[arg(long, value_name = "REVISION")]
    rev: Option<String>,
    #[command(flatten)]
    writing: WriteOptions,
}

const EXAMPLES: &str = "\
Examples:
  nb restore train.ipynb 3f2c          what the cell was before its last change
  nb restore train.ipynb 3f2c@9f8e     what it was as that revision
  nb restore 77de                      a deleted cell
  nb log train.ipynb --deleted         which there are";

impl Command for Restore {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        take_notebook(&mut self.words)
    }

    async fn run(mut self, context: &Context) -> Result<ExitCode, Problem> {
        let mut revision = self.rev.take();
        if let Some(word) = self.words.first_mut()
            && let Some((cell, after)) = word.rsplit_once('@')
        {
            revision = revision.or_else(|| Some(after.to_owned()));
            *word = cell.to_owned();
        }
        let cell = self.cell_options.one(&mut self.words)?;
        if let Some(word) = self.words.first() {
            let message = format!("one cell is restored at a time; {word:?} is one word too many");
            return Err(Problem::new(ProblemKind::Usage, message)
                .hint("a revision follows an @: 3f2c@9f8e"));
        }
        let request = RestoreRequest {
            cell,
            revision,
            policy: self.writing.policy(),
        };
        let answer = api::restore(&context.caller, request).await;
        let mut answer = answer.map_err(|problem| with_repeat(problem, "restore"))?;
        let code = context.take_error(&mut answer.edit, "restore");
        context.print(&answer, |answer| {
            print::line(&text(answer))?;
            context.print_edit(&answer.edit)
        })?;
        Ok(code)
    }
}

fn text(answer: &RestoreAnswer) -> String {
    let (cell, revision) = (&answer.cell, answer.cell_revision);
    let version = &answer.restored;
    let when = version.at.map(|at| {
        let by = version.by.as_deref().map(|by| format!(" by {by}"));
        format!(", made{} {}", by.unwrap_or_default(), print::moment(at))
    });
    let when = when.unwrap_or_default();
    match answer.was_deleted {
        true => format!("deleted cell {cell} is back as revision {revision}{when}"),
        false => format!("cell {cell} is revision {revision} again{when}"),
    }
}
