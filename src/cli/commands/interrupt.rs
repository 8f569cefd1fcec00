//! `nb interrupt`: interrupts the kernel, or one job.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::Problem;
use crate::api::{self, InterruptJobRequest, InterruptRequest};
use crate::cli::Context;
use crate::cli::commands::Command;
use crate::cli::render::print;
use crate::text::kernel::{interrupted, interrupted_job};

/// Interrupt what the kernel runs, or one job
///
/// The kernel by SIGINT or by message, as its kernelspec says; an idle one is not disturbed. A job
/// that waits for its turn leaves the queue, and whatever the kernel runs goes on. What somebody else
/// asked for is not interrupted without --force; at a terminal the question is put.
#[derive(Args, Debug)]
pub(crate) struct Interrupt {
    /// A job, by the beginning of its id; or the notebook whose kernel is meant, if not the only one
    #[arg(value_name = "JOB|NOTEBOOK")]
    pub(crate) job_or_notebook: Option<String>,
    /// Interrupt it even when somebody else asked for it
    #[arg(long)]
    force: bool,
}

impl Command for Interrupt {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        let is_notebook = |word: &mut String| word.ends_with(".ipynb");
        self.job_or_notebook.take_if(is_notebook).map(PathBuf::from)
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        if let Some(job) = self.job_or_notebook {
            let request = InterruptJobRequest {
                job,
                force: self.force,
            };
            let answer = api::interrupt_job(&context.caller, request).await?;
            let text = context.commands().complete(&interrupted_job(&answer));
            return context.print(&answer, |_| print::line(&text));
        }
        let request =
            async |force| api::interrupt(&context.caller, InterruptRequest { force }).await;
        let answer = context.with_confirmation(self.force, request).await?;
        context.print(&answer, |answer| {
            print::line(&context.commands().complete(&interrupted(answer)))
        })
    }
}
