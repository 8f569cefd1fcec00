//! `nb interrupt`: interrupts the kernel, or one job.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::Problem;
use crate::api::{self, InterruptJobRequest, InterruptRequest};
use crate::cli::Context;
use crate::cli::commands::Command;
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
}

impl Command for Interrupt {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        let is_notebook = |word: &mut String| word.ends_with(".ipynb");
        self.what.take_if(is_notebook).map(PathBuf::from)
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        if let Some(job) = self.what {
            let request = InterruptJobRequest {
                job,
                force: self.force,
            };
            let answer = api::interrupt_job(&context.caller, request).await?;
            let told = match answer.over {
                true => format!("job {0}: ended · nb wait {0}", answer.job),
                false => format!(
                    "job {0}: interrupted, and still runs · next: nb wait {0} | nb restart",
                    answer.job
                ),
            };
            let told = context.commands().complete(&told);
            return context.print(&answer, |_| print::line(&told));
        }
        let request =
            async |force| api::interrupt(&context.caller, InterruptRequest { force }).await;
        let answer = context.insist(self.force, request).await?;
        context.print(&answer, |answer| {
            let (notebook, mode) = (&answer.notebook, answer.mode);
            let mut told = format!("{notebook}: interrupted (by {mode})");
            if let Some(stopped) = &answer.stopped {
                told += &format!(" · {} ended", stopped.text);
            }
            match &answer.running {
                Some(it) if answer.goes_on => {
                    told += &format!(" · {} still runs · next: nb restart", it.text);
                }
                Some(it) => told += &format!(" · {} runs now", it.text),
                None => {}
            }
            print::line(&told)
        })
    }
}
