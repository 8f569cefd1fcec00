//! `nb watch`: says what becomes out of date, and runs it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::job::RunAnswer;
use crate::api::problem::Problem;
use crate::api::{self, ExecAnswer, StaleSnapshot, StaleWatch, WatchRequest};
use crate::cli::Context;
use crate::cli::args::take_notebook;
use crate::cli::commands::Command;
use crate::cli::commands::follow::Form;
use crate::cli::render::print;
use crate::cli::render::problem::report;
use crate::cli::terminal::CtrlC;

/// Say which cells become out of date as the notebook is edited and run, until Ctrl-C
///
/// A cell is out of date when it, or a cell that it depends on, was edited or run since its own last run: nb
/// graph shows why. With --run-stale these cells run as soon as they become so, with those that they need. Never
/// run are cells that were out of date when the watch began, as long as nothing concerns them anew; cells
/// tagged manual; cells in which somebody types in VS Code; and nothing while a cell of somebody else runs.
#[derive(Args, Debug)]
#[command(override_usage = "nb watch [OPTIONS] [NOTEBOOK]", after_help = EXAMPLES)]
pub(crate) struct Watch {
    /// The notebook
    #[arg(value_name = "NOTEBOOK", num_args = 0..=1)]
    pub(crate) words: Vec<String>,
    /// Run the cells that become out of date
    #[arg(long)]
    run_stale: bool,
    /// With --run-stale: only cells with this tag
    #[arg(long, value_name = "TAG", requires = "run_stale")]
    only: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  nb watch train.ipynb
  nb watch --run-stale                 an edit in VS Code runs what depends on it, once it is saved
  nb watch --run-stale --only plot";

impl Command for Watch {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        take_notebook(&mut self.words)
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let request = WatchRequest {
            runs_stale: self.run_stale,
            only: self.only.clone(),
        };
        let mut watch = StaleWatch::begin(&context.caller, request).await?;
        let ctrl_c = CtrlC::listen().map_err(|error| Problem::failed("wait for Ctrl-C", &error))?;
        loop {
            let snapshot = tokio::select! {
                snapshot = watch.next(&context.caller) => snapshot?,
                () = ctrl_c.pressed() => return Ok(ExitCode::SUCCESS),
            };
            let shown = match context.json {
                true => print::json(&snapshot),
                false => print::lines(lines(&snapshot)),
            };
            if shown.is_err() {
                return Ok(ExitCode::FAILURE);
            }
            if snapshot.to_run.is_empty() {
                continue;
            }
            let form = Form::default();
            let request = watch.request(&snapshot, context.outputs(&form));
            let watcher = context.watcher(&form);
            let ran = api::exec(&context.caller, request, &watcher).await;
            watcher.end();
            match ran {
                Ok(answer) => {
                    watch.has_run(&answer);
                    self.print(context, &answer)?;
                }
                // The kernel may have been restarted or shut down meanwhile.
                Err(problem) => {
                    report(&problem, context.json);
                }
            }
        }
    }
}

impl Watch {
    fn print(&self, context: &Context, answer: &ExecAnswer) -> Result<(), Problem> {
        match answer {
            _ if context.json => context.printed(&print::json(answer)).map(|_| ()),
            ExecAnswer::Job {
                job: RunAnswer::Followed(job),
                ..
            } => context.printed(&context.print_report(job)).map(|_| ()),
            _ => Ok(()),
        }
    }
}

fn lines(snapshot: &StaleSnapshot) -> Vec<String> {
    let at = print::moment(snapshot.at);
    let notebook = &snapshot.notebook;
    let mut lines = vec![match snapshot.stale.len() {
        0 => format!("{at} · {notebook}: no cell is stale"),
        count => format!("{at} · {notebook}: {} stale", print::count(count, "cell")),
    }];
    for cell in &snapshot.stale {
        let (index, id, line) = (cell.index, &cell.short_id, &cell.first_line);
        let line = line.trim_end();
        lines.push(format!("{index}  {id}  ({}) {line}", cell.stale.text));
    }
    if let Some(why) = &snapshot.waits_for {
        lines.push(format!("not run: {why}"));
    }
    lines
}
