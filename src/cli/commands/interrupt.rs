//! `nb interrupt`: the kernel, or one job.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::activity::company::is_same;
use crate::api::problem::{Problem, ProblemKind};
use crate::api::{self, InterruptRequest};
use crate::cli::Context;
use crate::cli::args::first_notebook;
use crate::cli::commands::{Command, Group};
use crate::cli::render::print;
use crate::cli::render::report::what;
use crate::execution::follow::taken;
use crate::project::jobs::{Ask, JobFolder, JobState};

/// Interrupt what the kernel runs, or one job
///
/// The kernel by SIGINT or by message, as its kernelspec says; an idle one is not disturbed. A job
/// that waits for its turn leaves the queue, and whatever the kernel runs goes on. What somebody else
/// asked for is not interrupted without --force; at a terminal the question is put.
#[derive(Args, Debug)]
pub(crate) struct Interrupt {
    /// A job, by the beginning of its id; or the notebook whose kernel is meant, if not the only one
    #[arg(value_name = "JOB|NOTEBOOK")]
    pub(crate) what: Option<String>,
    /// Interrupt it even when somebody else asked for it
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl Command for Interrupt {
    const NAME: &'static str = "interrupt";
    const GROUP: Group = Group::Kernel;

    fn notebook(&self) -> Option<PathBuf> {
        first_notebook(self.what.as_slice())
    }

    fn json(&self) -> bool {
        self.json
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let is_job = |word: &&String| !word.ends_with(".ipynb");
        if let Some(id) = self.what.as_ref().filter(is_job) {
            let folder = context.caller.project_of(None)?.job(id)?;
            return self.job(context, &folder).await;
        }
        let notebook = first_notebook(self.what.as_slice());
        let request = async |force| {
            let notebook = notebook.clone();
            api::interrupt(&context.caller, InterruptRequest { notebook, force }).await
        };
        let answer = context.insist(self.force, self.json, request).await?;
        let _ = match self.json {
            true => context.answer(&answer),
            false => print::line(&format!(
                "{}: interrupted (by {})",
                answer.notebook, answer.mode
            )),
        };
        Ok(ExitCode::SUCCESS)
    }
}

impl Interrupt {
    /// Interrupts a job, or takes it out of the queue.
    async fn job(&self, context: &Context, folder: &JobFolder) -> Result<ExitCode, Problem> {
        let job = folder.read()?;
        let id = &job.id;
        if job.state == JobState::Done {
            return Err(Problem::new(
                ProblemKind::Refused,
                format!("job {id} is over"),
            ));
        }
        if !is_same(&job.by, context.by()) && !self.force {
            let text = format!("job {id} is {}'s: {}", job.by, what(&job));
            return Err(
                Problem::new(ProblemKind::Refused, text).hint(format!("nb interrupt {id} --force"))
            );
        }
        if !folder.has_recorder() {
            let text = format!("nobody records job {id} any more: its recorder was killed");
            return Err(Problem::new(ProblemKind::Failed, text)
                .hint("nb interrupt interrupts what the kernel runs"));
        }
        let by = context.by().to_owned();
        let asked = folder.ask(&Ask::Interrupt { by });
        asked.map_err(|error| Problem::failed("ask the recorder to interrupt", &error))?;
        taken(folder).await;
        let _ = if self.json {
            context.answer(&json!({ "job": id, "interrupted": true }))
        } else {
            let told = format!("job {id}: asked to end · nb wait {id}");
            print::line(&context.commands().complete(&told))
        };
        Ok(ExitCode::SUCCESS)
    }
}
