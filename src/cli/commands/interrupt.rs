//! `nb interrupt`: the kernel, or one job.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::Problem;
use crate::api::{self, InterruptJobRequest, InterruptRequest};
use crate::cli::Context;
use crate::cli::args::first_notebook;
use crate::cli::commands::{Command, Group};
use crate::cli::render::print;

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
            let request = InterruptJobRequest {
                job: id.clone(),
                force: self.force,
            };
            let answer = api::interrupt_job(&context.caller, request).await?;
            let told = format!("job {0}: asked to end · nb wait {0}", answer.job);
            let _ = match self.json {
                true => context.answer(&answer),
                false => print::line(&context.commands().complete(&told)),
            };
            return Ok(ExitCode::SUCCESS);
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
