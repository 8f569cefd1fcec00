//! `nb demo`: shows on this machine what `nb` is for.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use owo_colors::{AnsiColors, OwoColorize};
use tokio::signal::unix::{SignalKind, signal};

use crate::api::outputs::plain;
use crate::api::problem::{Problem, ProblemKind, causes};
use crate::cli::commands::{Command, MakeParser};
use crate::cli::render::problem;
use crate::demo::{self, DemoError, DemoOptions, NOTEBOOK, Step, StepActor};

/// Show an agent and a front end at work on one kernel
///
/// Everything happens in a folder of its own with its own kernelspecs; nothing is left running.
/// The first time, where no Python has ipykernel, an environment is made in the user's cache.
#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// Leave the project and its kernel in this folder, and tell how to join
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// The Python to use; it must have ipykernel
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
}

impl Command for Demo {
    fn alone(&self, _make_parser: MakeParser) -> Option<ExitCode> {
        Some(match self.play() {
            Ok(Some(folder)) => {
                let _ = write!(anstream::stdout(), "{}", how_to_join(&folder));
                ExitCode::SUCCESS
            }
            Ok(None) => ExitCode::SUCCESS,
            Err(DemoError::Interrupted) => {
                eprintln!("nb: interrupted; nothing is left running");
                ExitCode::from(130)
            }
            Err(error) => {
                let kind = match error {
                    DemoError::NotEmpty(_) => ProblemKind::Usage,
                    _ => ProblemKind::Failed,
                };
                let problem = Problem::new(kind, causes(&error)).all_hints(error.hint());
                problem::report(&problem, false)
            }
        })
    }
}

impl Demo {
    fn play(&self) -> Result<Option<PathBuf>, DemoError> {
        let options = DemoOptions {
            keep: self.keep.clone(),
            python: self.python.clone(),
        };
        let python = demo::find_python(&options, &mut |line| eprintln!("{line}"))?;
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(async {
                // Install the handlers before anything is started that a signal must clean up.
                let mut interrupt = signal(SignalKind::interrupt())?;
                let mut terminate = signal(SignalKind::terminate())?;
                let stop = async {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                    }
                };
                let mut print_step = |step: &Step| {
                    let _ = write_step(&mut anstream::stdout().lock(), step);
                };
                demo::demo(&options, &python, stop, &mut print_step).await
            })
    }
}

/// How many lines of a step's result are shown.
const LINES: usize = 12;

/// The column at which a step's own text begins.
const INDENT: usize = 18;

/// Writes a step, with its result below it:
/// `  1.20 s  agent   $ nb open demo.ipynb  (812 ms)`.
fn write_step(to: &mut impl Write, step: &Step) -> io::Result<()> {
    let (actor, colour) = match step.actor {
        StepActor::Demo => ("demo", AnsiColors::BrightBlack),
        StepActor::Agent => ("agent", AnsiColors::Cyan),
        StepActor::Human => ("human", AnsiColors::Green),
    };
    let at = format!("{:>6.2} s", step.at.as_secs_f64());
    let actor = format!("{actor:<6}");
    write!(to, "{at}  {}  {}", actor.color(colour), step.action)?;
    if step.took > Duration::ZERO {
        let took = format!("({} ms)", step.took.as_millis());
        write!(to, "  {}", took.bright_black())?;
    }
    writeln!(to)?;
    for line in step.output.iter().take(LINES) {
        writeln!(to, "{:INDENT$}{}", "", plain(line))?;
    }
    if step.output.len() > LINES {
        writeln!(
            to,
            "{:INDENT$}… {} more lines",
            "",
            step.output.len() - LINES
        )?;
    }
    to.flush()
}

/// Returns the lines that say how to join a project that was kept.
fn how_to_join(folder: &Path) -> String {
    let notebook = folder.join(NOTEBOOK);
    let (folder, notebook) = (folder.display(), notebook.display());
    format!(
        "\nThe kernel is live and waits for you in {folder}\n\
         VS Code:     code {folder}, open {NOTEBOOK}, then Select Kernel, Jupyter Kernel…, \
         nb shared kernel\n\
         \x20            (the folder's .env names its kernelspecs)\n\
         JupyterLab:  JUPYTER_PATH={folder}/jupyter jupyter lab {notebook}, then choose the \
         kernel nb shared kernel\n\
         Agent:       nb run {notebook} 'print(name, numbers)'\n\
         Done:        nb shutdown {notebook} && rm -r {folder}\n"
    )
}
