//! `nb interrupt`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::fault::Fault;
use super::{Context, print};
use crate::ops;
use crate::ops::consent::Deed;
use crate::project::InterruptMode;

/// Interrupt what the kernel runs
///
/// By SIGINT or by message, as its kernelspec says. An idle kernel is not disturbed. What somebody
/// else runs is not interrupted without --force; at a terminal the question is put.
#[derive(Args, Debug)]
pub(super) struct Interrupt {
    /// The notebook; without it, the only open one
    notebook: Option<PathBuf>,
    /// Interrupt it even when somebody else asked for it
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl Interrupt {
    /// Runs the command.
    pub(super) async fn run(self, context: &Context) -> Result<ExitCode, Fault> {
        let target = context.target(self.notebook, "nb interrupt").await?;
        context
            .consent(Deed::Interrupt, &target, self.force, self.json)
            .await?;
        let mode =
            ops::interrupt::interrupt(&target.project, &target.key, &target.session, &context.by)
                .await?;
        let mode = if mode == InterruptMode::Signal {
            "signal"
        } else {
            "message"
        };
        let _ = if self.json {
            let generation = target.session.generation;
            context.answer(
                json!({ "notebook": target.notebook_key, "interrupted": true, "mode": mode, "kernel_generation": generation }),
            )
        } else {
            print::line(&format!("{}: interrupted (by {mode})", target.notebook_key))
        };
        Ok(ExitCode::SUCCESS)
    }
}
