//! `nb save`: has recorders write their outputs, and checks the notebook's file.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::{Problem, ProblemKind};
use crate::api::{self, FlushedJob, SaveAnswer};
use crate::cli::Context;
use crate::cli::args::take_notebook;
use crate::cli::commands::Command;
use crate::cli::render::print;
use crate::hint::shell::quote;
use crate::notebook;

/// Smaller sizes are printed in bytes.
const SMALL: usize = 10_000;

/// Have running cells' outputs written, check that the file is whole, and print its revision
///
/// An edit is in the file when its command ends: nothing needs to be saved after it. Outputs of a cell
/// that runs go into the file every few seconds or seldom, and all at its end; nb save has what came so
/// far written now, and says of which cells. What an earlier command had to leave unfinished is finished
/// too; then the notebook is read as a front end would read it. Exits with 1 where outputs could not be
/// written: their job keeps them.
#[derive(Args, Debug)]
#[command(override_usage = "nb save [OPTIONS] [NOTEBOOK]")]
pub(crate) struct Save {
    /// The notebook; without it, the only open one
    #[arg(value_name = "NOTEBOOK")]
    pub(crate) words: Vec<String>,
}

impl Command for Save {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        take_notebook(&mut self.words)
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let other = self.words.iter().find(|word| !word.ends_with(".ipynb"));
        if let Some(word) = other {
            let message = format!("{word:?} is not a notebook: its name ends in .ipynb");
            return Err(Problem::new(ProblemKind::Usage, message));
        }
        let answer = api::save(&context.caller).await?;
        context.print(&answer, show)?;
        Ok(match answer.flushed.iter().all(FlushedJob::is_whole) {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    }
}

fn show(answer: &SaveAnswer) -> std::io::Result<()> {
    answer.flushed.iter().for_each(say);
    answer.notes.iter().for_each(|note| print::note(note));
    let notebook = &answer.notebook;
    let [major, minor] = notebook.nbformat;
    let bytes = match answer.bytes {
        bytes @ 0..SMALL => format!("{bytes} bytes"),
        bytes => notebook::size(bytes as u64),
    };
    print::line(&format!(
        "{}: revision {} · {} · format {major}.{minor} · {bytes}",
        quote(&answer.named),
        notebook.revision,
        print::count(notebook.cell_count, "cell"),
    ))
}

/// Prints what a recorder has written, and what it could not write.
fn say(flushed: &FlushedJob) {
    let FlushedJob { job, by, .. } = flushed;
    if !flushed.answered {
        let text = format!("job {job} ({by}): its recorder has not written its outputs in time");
        print::note(&format!("{text}; next: nb jobs {job} --write"));
        return;
    }
    for it in &flushed.unwritten {
        print::note(&format!(
            "job {job} ({by}): outputs of {} are not in the file: {}; they stay in the job: nb jobs {job} --write",
            it.cell, it.why
        ));
    }
    if flushed.unwritten.is_empty() {
        let _ = print::line(&match flushed.written.as_slice() {
            [] => format!("job {job} ({by}): all its outputs so far were in the file"),
            cells => format!(
                "job {job} ({by}): wrote its outputs of {}",
                cells.join(", ")
            ),
        });
    }
}
