//! `nb run`: runs scratch code on the shared kernel.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::{Problem, ProblemKind};
use crate::api::{self, PeekRequest, PeekStatus, RunRequest};
use crate::cli::Context;
use crate::cli::args::source;
use crate::cli::args::take_notebook;
use crate::cli::commands::Command;
use crate::cli::commands::follow::{FollowLimits, Form};
use crate::cli::render::print;
use crate::cli::terminal::CtrlC;
use crate::hint;
use crate::hint::{Verb, nb};

/// Run code on the notebook's kernel, outside the notebook
///
/// The variables stay in the kernel; the notebook is not changed. The code runs when others' cells are
/// done, as a job like those of nb exec: ending this command, or being killed, loses nothing (nb wait
/// goes on). Off a terminal it waits 45 s at most; exit code 4 then says that the job goes on.
#[derive(Args, Debug)]
#[command(override_usage = "nb run [OPTIONS] [NOTEBOOK] CODE", after_help = EXAMPLES)]
pub(crate) struct Run {
    /// The code, or `-` to read it from stdin; a notebook may stand before it. Code that begins with a dash
    /// stands behind `--`
    #[arg(required = true, num_args = 1..=2, value_name = "CODE")]
    pub(crate) words: Vec<String>,
    /// Run it beside the cell that runs, without history: a look at once, or the word that it cannot be
    ///
    /// A kernel that runs a cell is asked on a subshell, which needs ipykernel 7; elsewhere this ends with
    /// 4 and says whose cell runs. On an idle kernel the code just runs. It is no job.
    #[arg(long, conflicts_with_all = ["detach", "max_time", "stream", "events"])]
    peek: bool,
    /// Interrupt the code when it runs longer than this, 0 is never
    #[arg(long, value_name = "SECONDS")]
    max_time: Option<f64>,
    /// Begin and do not wait: nb wait follows it
    #[arg(short, long)]
    detach: bool,
    #[command(flatten)]
    limits: FollowLimits,
    #[command(flatten)]
    form: Form,
}

const EXAMPLES: &str = "\
Examples:
  nb run 'df.describe()'
  nb run train.ipynb - < script.py
  nb run --stream --timeout 0 'train()'
  nb run --peek 'losses[-3:]'         while a cell runs
  nb run -d 'train()'; nb wait --until 'epoch 10'";

impl Command for Run {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        // A single word is code.
        (self.words.len() > 1).then(|| take_notebook(&mut self.words))?
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let code = self.code()?;
        if self.peek {
            return self.peek(context, code).await;
        }
        let follow = context.follow_options(&self.limits, &self.form, None);
        let request = RunRequest {
            code,
            max_time: self.max_time,
            follow: (!self.detach).then_some(follow),
        };
        let watcher = context.watcher(&self.form);
        let answer = api::run(&context.caller, request, &watcher).await;
        watcher.end();
        let answer = answer?;
        context.end_of_run(&answer, &answer, &self.form)
    }
}

impl Run {
    async fn peek(&self, context: &Context, code: String) -> Result<ExitCode, Problem> {
        let ctrl_c = CtrlC::listen().map_err(|error| Problem::failed("handle Ctrl-C", &error))?;
        let request = PeekRequest {
            code,
            timeout: self.limits.timeout,
            limit: self.limits.limit(),
            outputs: context.outputs(&self.form),
        };
        let answer = api::peek(&context.caller, request, ctrl_c.pressed()).await?;
        context.print(&answer, |answer| match (&answer.text, answer.over) {
            (Some(text), _) => print::both(text),
            (None, Some(false)) => {
                print::note(
                    "the code does not heed the interrupt, and goes on; nb restart ends it",
                );
                Ok(())
            }
            (None, _) => {
                print::note("interrupted");
                Ok(())
            }
        })?;
        Ok(ExitCode::from(match answer.status {
            PeekStatus::Ok => 0,
            PeekStatus::Error => 3,
            PeekStatus::Interrupted => 130,
        }))
    }

    fn code(&self) -> Result<String, Problem> {
        let [code] = self.words.as_slice() else {
            let text = "one piece of code is wanted; put it in quotes";
            return Err(Problem::new(ProblemKind::Usage, text));
        };
        if code.ends_with(".ipynb") && Path::new(code).is_file() {
            let text = format!("{code} is a notebook, and there is no code to run");
            let all = nb(Verb::Exec).notebook(Path::new(code)).option("--all");
            return Err(Problem::new(ProblemKind::Usage, text).hint(hint!["its cells: ", all]));
        }
        match code.as_str() {
            "-" => source::stdin(),
            code => Ok(code.to_owned()),
        }
    }
}
