//! `nb restart`: replaces a kernel by a new one.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::Problem;
use crate::api::{self, RestartRequest};
use crate::cli::Context;
use crate::cli::args::time::seconds;
use crate::cli::commands::Command;
use crate::cli::render::print;
use crate::text::kernel::restarted;

/// Replace the kernel by a new one: its variables are gone
///
/// The new one uses the same connection file, and front ends that are joined go on with it. A
/// cell that runs ends with an error. Where that would end somebody else's cell, or take the
/// variables of a person who uses it, it needs --force; at a terminal the question is put.
#[derive(Args, Debug)]
pub(crate) struct Restart {
    /// The notebook; without it, the only open one
    pub(crate) notebook: Option<PathBuf>,
    /// Wait at most this long for the new kernel, which goes on starting; 0 is for ever [default: 45]
    #[arg(long, value_name = "SECONDS", env = "NB_TIMEOUT", value_parser = seconds)]
    timeout: Option<f64>,
    /// Restart it even when that ends others' work
    #[arg(long)]
    force: bool,
}

impl Command for Restart {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        self.notebook.take()
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let request = async |force| {
            let request = RestartRequest {
                timeout: self.timeout,
                force,
            };
            api::restart(&context.caller, request).await
        };
        let answer = context.with_confirmation(self.force, request).await?;
        context.print(&answer, |answer| print::line(&restarted(answer)))
    }
}
