//! `nb mv`: moves a notebook.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::{Problem, ProblemKind};
use crate::api::{self, MoveAnswer, MoveRequest};
use crate::cli::Context;
use crate::cli::commands::Command;
use crate::cli::render::print;
use crate::hint;
use crate::hint::{Verb, nb};

/// Move or rename a notebook, with its kernel and its history
///
/// The kernel goes on, with its variables and the cell that it runs, whose outputs arrive in the moved file.
/// Jobs, nb undo, nb log and nb restore know the notebook under its new name. No file is overwritten. Where
/// another program has renamed the file, the same command moves the kernel and the history after it.
/// Cells are moved by nb move.
#[derive(Args, Debug)]
#[command(override_usage = "nb mv [OPTIONS] FROM TO", after_help = EXAMPLES)]
pub(crate) struct Mv {
    /// The notebook, and its new path or the folder that it goes into
    #[arg(value_name = "FROM TO", num_args = 0..=2)]
    pub(crate) words: Vec<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  nb mv draft.ipynb analysis.ipynb
  nb mv analysis.ipynb reports/";

impl Command for Mv {
    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let [from, to] = self.words.as_slice() else {
            let text = "a notebook and its new name are wanted";
            return Err(Problem::new(ProblemKind::Usage, text).hint("nb mv FROM.ipynb TO.ipynb"));
        };
        if from.extension().is_none_or(|it| it != "ipynb") {
            let text = format!(
                "{:?} is not a notebook: its name ends in .ipynb",
                from.display()
            );
            return Err(Problem::new(ProblemKind::Usage, text).hint(hint![
                "a cell: ",
                nb(Verb::Move).word("CELL").option("--after").word("CELL"),
                " | a word in the text: nb replace OLD NEW"
            ]));
        }
        let request = MoveRequest {
            from: from.clone(),
            to: to.clone(),
        };
        let answer = api::move_to(&context.caller, request).await?;
        context.print(&answer, show)
    }
}

fn show(answer: &MoveAnswer) -> std::io::Result<()> {
    answer.notes.iter().for_each(|note| print::note(note));
    let done = match answer.was_renamed {
        true => "had been renamed: its history has moved, too",
        false => "moved",
    };
    let kernel = match (answer.kernel_runs, answer.kernel_pid) {
        (true, Some(pid)) => format!("; its kernel goes on (pid {pid})"),
        (true, None) => "; its kernel goes on".to_owned(),
        (false, _) => String::new(),
    };
    print::line(&format!(
        "{} → {}: {done}{kernel}",
        answer.from, answer.notebook
    ))
}
