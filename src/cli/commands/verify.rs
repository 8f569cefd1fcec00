//! `nb verify`: runs notebooks in a fresh kernel, and compares what they give with what they show.

use std::cell::{OnceCell, RefCell};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::Problem;
use crate::api::{
    self, NotebookVerdict, VerifyAnswer, VerifyObserver, VerifyOutcome, VerifyProgress,
    VerifyRequest,
};
use crate::cli::Context;
use crate::cli::args::sandbox::{LastingSandbox, Sandboxing, seconds};
use crate::cli::commands::Command;
use crate::cli::render::progress::Progress;
use crate::cli::render::{print, problem};
use crate::cli::terminal::CtrlC;
use crate::text::verify::{VerifyRoom, parts};

/// Run notebooks from the top in a fresh kernel, and say whether they give what they show
///
/// The fresh kernel is of the same kernelspec and environment as the notebook's own, which goes on
/// undisturbed. It runs in a private copy of the project's folder: files up to 10 MB, 200 MB in all;
/// larger ones are links, and a cell that changes one is named. Nothing of the notebook is changed.
/// If outputs differ, the cells run once more: what differs between the two fresh runs is not
/// comparable, all else is compared exactly. A cell that differs says why, as far as its past is
/// known. As with Restart & Run All, the first cell that fails ends the run; one that asks for input
/// fails. Tags: nb-skip, nb-any-output, raises-exception. Exit codes: 0 all the same, 3 a cell
/// failed, 8 outputs differ.
#[derive(Args, Debug)]
#[command(override_usage = "nb verify [OPTIONS] [NOTEBOOK|FOLDER]...", after_help = EXAMPLES)]
pub(crate) struct Verify {
    /// The notebooks; a folder stands for all below it
    #[arg(value_name = "NOTEBOOK")]
    paths: Vec<PathBuf>,
    /// Start this kernelspec; without it, the one of the notebook's own kernel
    #[arg(long, value_name = "NAME", conflicts_with = "python")]
    kernel: Option<String>,
    /// Start this Python; it needs ipykernel
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Run each notebook in its own folder: what its cells write stays
    #[arg(long)]
    in_place: bool,
    /// Interrupt each cell after this long, which fails then
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    max_time: Option<f64>,
    #[command(flatten)]
    sandbox: Sandboxing,
}

const EXAMPLES: &str = "\
Examples:
  nb verify analysis.ipynb
  nb verify notebooks --max-time 600
  nb verify downloaded.ipynb --sandbox";

/// What of the answer is printed.
const ROOM: VerifyRoom = VerifyRoom {
    cells: usize::MAX,
    lines: 20,
    width: 200,
    reasons: 3,
};

/// The exit codes if the command was interrupted, if a cell failed, and if outputs differ.
const INTERRUPTED: u8 = 130;
const FAILED: u8 = 3;
const DIFFERS: u8 = 8;

impl Command for Verify {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        // The notebook stays among the paths.
        self.paths.first().cloned()
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let request = VerifyRequest {
            paths: self.paths,
            kernel: self.kernel,
            python: self.python,
            confinement: self
                .sandbox
                .requested_confinement(&LastingSandbox::default()),
            max_time: self.max_time,
            in_place: self.in_place,
        };
        let watcher = VerifyWatcher {
            progress: Progress::new(std::io::stdout().is_terminal() && !context.json),
            is_quiet: context.json,
            ctrl_c: OnceCell::new(),
            begun: RefCell::default(),
        };
        let answer = api::verify(&context.caller, request, &watcher).await;
        watcher.progress.clear();
        let answer = answer?;
        print::notes(&answer.faults);
        context.print(&answer, |answer| print::parts(&parts(answer, ROOM)))?;
        Ok(code(&answer))
    }
}

/// Returns the exit code: that of the worst notebook.
fn code(answer: &VerifyAnswer) -> ExitCode {
    let has = |verdict: NotebookVerdict| {
        let mut all = answer.notebooks.iter();
        all.any(|it| matches!(it, VerifyOutcome::Done(it) if it.verdict == verdict))
    };
    let failed = answer.notebooks.iter().find_map(|it| match it {
        VerifyOutcome::Failed { error, .. } => Some(problem::code(error.kind)),
        VerifyOutcome::Done(_) => None,
    });
    match failed {
        _ if answer.stopped => ExitCode::from(INTERRUPTED),
        _ if has(NotebookVerdict::Failed) => ExitCode::from(FAILED),
        _ if has(NotebookVerdict::Differs) => ExitCode::from(DIFFERS),
        Some(code) => code,
        None if answer.faults.is_empty() => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    }
}

/// Shows which cell runs, and ends the command on Ctrl-C.
struct VerifyWatcher {
    progress: Progress,
    /// Whether nothing is printed but the answer.
    is_quiet: bool,
    ctrl_c: OnceCell<CtrlC>,
    /// The notebook whose beginning was printed last.
    begun: RefCell<String>,
}

impl VerifyObserver for VerifyWatcher {
    fn begins(&self, progress: &VerifyProgress<'_>) {
        let (at, of) = progress.cell;
        let notebook = progress.notebook;
        if self.progress.is_seen() {
            let again = if progress.is_again { "again, " } else { "" };
            let line = progress.line;
            self.progress
                .say(&format!("{notebook} · {again}{at} of {of} · {line}"));
        } else if !self.is_quiet && *self.begun.borrow() != notebook {
            notebook.clone_into(&mut self.begun.borrow_mut());
            print::note(&format!(
                "{notebook}: {} in a fresh kernel",
                print::count(of, "cell")
            ));
        }
    }

    async fn stopped(&self) {
        if self.ctrl_c.get().is_none() {
            match CtrlC::listen() {
                Ok(ctrl_c) => drop(self.ctrl_c.set(ctrl_c)),
                Err(error) => print::note(&format!("nb: cannot handle Ctrl-C: {error}")),
            }
        }
        match self.ctrl_c.get() {
            Some(ctrl_c) => ctrl_c.pressed().await,
            None => std::future::pending().await,
        }
    }
}
