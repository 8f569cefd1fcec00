//! `nb interrupt`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::fault::Fault;
use super::{Context, print};
use crate::ops;
use crate::project::InterruptMode;

/// Interrupt what the kernel runs, whoever asked for it
///
/// By SIGINT or by message, as its kernelspec says. An idle kernel is not disturbed.
#[derive(Args, Debug)]
pub(super) struct Interrupt {
    /// The notebook; without it, the only open one
    notebook: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl Interrupt {
    /// Runs the command.
    pub(super) async fn run(self, context: &Context) -> Result<ExitCode, Fault> {
        let target = context.target(self.notebook, "nb interrupt").await?;
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
            print::json(
                &json!({ "notebook": target.key, "interrupted": true, "mode": mode, "kernel_generation": generation }),
            )
        } else {
            print::line(&format!("{}: interrupted (by {mode})", target.key))
        };
        Ok(ExitCode::SUCCESS)
    }
}
