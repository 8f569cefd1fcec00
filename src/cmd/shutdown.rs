//! `nb shutdown`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::fault::Fault;
use super::{Context, print};
use crate::ops;
use crate::ops::consent::Deed;

/// End the kernel for good; `nb open` starts another
///
/// Asks the kernel, then SIGTERM, then SIGKILL to its process group. A kernel that another
/// program started is only let go. Where it would end somebody else's cell, or take the variables
/// of a person who is joined, it needs --force; at a terminal the question is put.
#[derive(Args, Debug)]
pub(super) struct Shutdown {
    /// The notebook; without it, the only open one
    notebook: Option<PathBuf>,
    /// End it even when that ends others' work
    #[arg(long)]
    force: bool,
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
        // A kernel of another program or notebook is only let go.
        if target.session.owned && target.session.kernel_of.is_none() {
            context
                .consent(Deed::Shutdown, &target, self.force, self.json)
                .await?;
        }
        let stopped =
            ops::shutdown::shutdown(&target.project, &target.notebook_key, &context.by, PATIENCE)
                .await?;
        let _ = if self.json {
            context.answer(json!({
                "notebook": target.notebook_key,
                "status": stopped.session.status.as_str(),
                "was_running": stopped.was_running,
                "let_go_of": stopped.let_go_of,
                "shared_with": stopped.shared_with,
                "notes": stopped.notes,
                "kernel_generation": stopped.session.generation,
                "took_ms": u64::try_from(stopped.took.as_millis()).unwrap_or(u64::MAX),
            }))
        } else if let Some(owner) = &stopped.let_go_of {
            let goes_on = if stopped.was_running {
                ", which goes on"
            } else {
                ""
            };
            print::line(&format!(
                "{}: let go of the kernel of {owner}{goes_on}",
                target.notebook_key
            ))
        } else if stopped.was_running {
            let shared = match stopped.shared_with.as_slice() {
                [] => String::new(),
                others => format!("; it was shared with {}", others.join(", ")),
            };
            print::line(&format!(
                "{}: its kernel was shut down in {}{shared}",
                target.notebook_key,
                print::took(stopped.took)
            ))
        } else if stopped.session.owned {
            print::line(&format!("{}: no kernel was running", target.notebook_key))
        } else {
            print::line(&format!(
                "{}: let go; its kernel was started by another program and goes on",
                target.notebook_key
            ))
        };
        if !self.json {
            stopped
                .notes
                .iter()
                .for_each(|note| print::note(&format!("note: {note}")));
        }
        Ok(ExitCode::SUCCESS)
    }
}
