//! `nb fmt`: rewrites notebooks in Jupyter's own style.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::{Problem, ProblemKind};
use crate::api::{self, FormatAnswer, FormatRequest, FormattedNotebook};
use crate::cli::Context;
use crate::cli::commands::Command;
use crate::cli::render::{print, problem};
use crate::editing::format::Differences;

/// Put notebooks into Jupyter's own style, with their real kernelspec
///
/// Byte for byte what Python's nbformat writes: indent 1, sorted keys, text as lists of lines, no
/// escapes beyond what JSON needs; numbers keep their spelling. Cells get the ids that they lack, and
/// "nb shared kernel" gives way to the notebook's own kernelspec. Sources and outputs stay as they
/// are. Without --write nothing is written: the notebooks that differ are listed, and the exit code is
/// 1 where there is one, as formatters have it.
#[derive(Args, Debug)]
#[command(override_usage = "nb fmt [OPTIONS] [NOTEBOOK|FOLDER]...", after_help = EXAMPLES)]
pub(crate) struct Fmt {
    /// The notebooks; a folder stands for all below it
    #[arg(value_name = "NOTEBOOK")]
    pub(crate) paths: Vec<PathBuf>,
    /// List the notebooks that differ, and write nothing; as without it
    #[arg(long, conflicts_with = "write")]
    check: bool,
    /// Write the notebooks that differ
    #[arg(long)]
    write: bool,
    /// Do not wait while a front end's own cell runs in a notebook
    #[arg(long, requires = "write")]
    now: bool,
    /// Write a notebook although JupyterLab may have it open with jupyter-collaboration
    #[arg(long, requires = "write")]
    force: bool,
}

const EXAMPLES: &str = "\
Examples:
  nb fmt --check .
  nb fmt --write train.ipynb";

impl Command for Fmt {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        // The notebook stays among the paths to format.
        self.paths.first().cloned()
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let request = FormatRequest {
            paths: self.paths,
            write: self.write,
            now: self.now,
            force: self.force,
        };
        let answer = api::format(&context.caller, request).await?;
        print::notes(&answer.faults);
        context.print(&answer, show)?;
        let is_well = answer.failed == 0 && (answer.written || answer.differing == 0);
        let is_refused = |it: &FormattedNotebook| matches!(it, FormattedNotebook::Failed { error, .. } if error.kind == ProblemKind::Refused);
        Ok(match is_well {
            true => ExitCode::SUCCESS,
            false if answer.notebooks.iter().any(is_refused) => problem::code(ProblemKind::Refused),
            false => ExitCode::FAILURE,
        })
    }
}

fn show(answer: &FormatAnswer) -> std::io::Result<()> {
    for notebook in &answer.notebooks {
        show_one(notebook, answer.written)?;
    }
    let total = print::count(answer.notebooks.len(), "notebook");
    let differing = answer.differing;
    print::note(&match (answer.written, differing) {
        (true, _) => format!("{differing} of {total} written"),
        (false, 0) => format!("{total}: as Jupyter writes them"),
        (false, _) => format!("{differing} of {total} would change; nb fmt --write writes them"),
    });
    Ok(())
}

fn show_one(outcome: &FormattedNotebook, written: bool) -> std::io::Result<()> {
    match outcome {
        FormattedNotebook::Done {
            notebook,
            differences,
            notes,
        } => {
            if differences.differs {
                print::line(notebook)?;
            }
            let about = about(differences, written);
            let notes = notes.iter().map(ToString::to_string);
            for note in about.into_iter().chain(notes) {
                print::note(&format!("{notebook}: {note}"));
            }
        }
        FormattedNotebook::Failed { error, .. } => {
            problem::report(error, false);
        }
    }
    Ok(())
}

/// Returns notes on differences that are more than style.
fn about(differences: &Differences, written: bool) -> Vec<String> {
    let mut notes = Vec::new();
    let cells = match differences.ids {
        1 => "1 cell has".to_owned(),
        count => format!("{count} cells have"),
    };
    match (differences.ids, written) {
        (0, _) => {}
        (_, true) => notes.push(format!("{cells} got an id")),
        (_, false) => notes.push(format!("{cells} no id")),
    }
    if let Some(renamed) = &differences.kernelspec {
        let from = &renamed.from;
        notes.push(match (&renamed.to, written) {
            (Some(to), true) => format!("it names its own kernelspec {to} again, not {from}"),
            (Some(to), false) => format!("it names the kernelspec {from}; its own is {to}"),
            (None, _) => format!(
                "it names the kernelspec {from} still: which real kernel it had is not known; nb open starts one and knows"
            ),
        });
    }
    notes
}
