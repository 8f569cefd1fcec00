//! `nb undo`: undoes an edit.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::{Problem, ProblemKind};
use crate::api::{self, UndoAnswer, UndoRequest, in_words};
use crate::cli::Context;
use crate::cli::args::take_notebook;
use crate::cli::commands::Command;
use crate::cli::commands::change::WriteOptions;
use crate::cli::render::conflict::{indented, with_repeat};
use crate::cli::render::print;

/// Take an edit back: your last one, or the one that OP names
///
/// Every command that changes cells prints its OP (eight hexadecimal digits, of which a beginning is
/// enough); nb log lists them. Cells become what they were before it, removed ones come back with
/// their outputs, moved ones go back. What others did since stays: where it is in other lines, both
/// are kept; where it is in the same ones, nothing is done (exit code 5). An undo has an OP of its
/// own: nb undo OP of that one does the edit again. Said several times without OP, it goes further
/// back; where somebody's save has dropped your last edits, it names them and touches nothing else.
#[derive(Args, Debug)]
#[command(override_usage = "nb undo [OPTIONS] [NOTEBOOK] [OP]", after_help = EXAMPLES)]
pub(crate) struct Undo {
    /// [NOTEBOOK] [OP]
    #[arg(num_args = 0..=2, value_name = "WORDS", hide = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    writing: WriteOptions,
}

const EXAMPLES: &str = "\
Examples:
  nb undo                      the last thing you did in the only open notebook
  nb undo train.ipynb 8a7b     that one
  nb log train.ipynb           which there are";

impl Command for Undo {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        take_notebook(&mut self.words)
    }

    async fn run(mut self, context: &Context) -> Result<ExitCode, Problem> {
        let op = self.words.pop();
        if !self.words.is_empty() {
            let message = "one edit is taken back at a time";
            return Err(Problem::new(ProblemKind::Usage, message));
        }
        let request = UndoRequest {
            op,
            policy: self.writing.policy(),
        };
        let answer = api::undo(&context.caller, request).await;
        let mut answer = answer.map_err(|problem| match problem.hints.is_empty() {
            true => with_repeat(problem, "undo"),
            // The problem already says how to insist.
            false => problem,
        })?;
        let code = context.take_error(&mut answer.edit, "undo");
        context.print(&answer, |answer| show(context, answer))?;
        Ok(code)
    }
}

fn show(context: &Context, answer: &UndoAnswer) -> std::io::Result<()> {
    let undone = in_words(&answer.undone);
    print::line(&match answer.edit.changes.is_empty() {
        true => format!("nothing is left to take back of {undone}"),
        false => format!("took back {undone}"),
    })?;
    context.print_edit(&answer.edit)?;
    for it in &answer.merged {
        let cell = &it.cell;
        let head = format!("cell {cell} keeps what others changed since; it is now:");
        print::lines(std::iter::once(head).chain(indented(&it.source)))?;
    }
    Ok(())
}
