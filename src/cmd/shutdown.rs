//! `nb shutdown`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::fault::Fault;
use super::{Context, print};
use crate::ops;

/// End the kernel for good; `nb open` starts another
///
/// Asks the kernel, then SIGTERM, then SIGKILL to its process group. A kernel that another
/// program started is only let go.
#[derive(Args, Debug)]
pub(super) struct Shutdown {
    /// The notebook; without it, the only open one
    notebook: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// How long another `nb` may hold the session's lock.
const PATIENCE: Duration = Duration::from_secs(30);

impl Shutdown {
    /// Runs the command.
    pub(super) async fn run(self, context: &Context) -> Result<ExitCode, Fault> {
        let target = context.target(self.notebook, "nb shutdown").await?;
        let stopped =
            ops::shutdown::shutdown(&target.project, &target.key, &context.by, PATIENCE).await?;
        let _ = if self.json {
            print::json(&json!({
                "notebook": target.key,
                "status": stopped.session.status.as_str(),
                "was_running": stopped.was_running,
                "kernel_generation": stopped.session.generation,
                "took_ms": u64::try_from(stopped.took.as_millis()).unwrap_or(u64::MAX),
            }))
        } else if stopped.was_running {
            print::line(&format!(
                "{}: its kernel was shut down in {}",
                target.key,
                print::took(stopped.took)
            ))
        } else if stopped.session.owned {
            print::line(&format!("{}: no kernel was running", target.key))
        } else {
            print::line(&format!(
                "{}: let go; its kernel was started by another program and goes on",
                target.key
            ))
        };
        Ok(ExitCode::SUCCESS)
    }
}
