//! `nb restart`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use crate::api::problem::{Problem, ProblemKind};
use crate::cli::Context;
use crate::cli::commands::{Command, Group};
use crate::cli::render::print;
use crate::kernel::shell::quote;
use crate::lifecycle::consent::KernelAction;
use crate::lifecycle::restart::{TaskReport, restart};
use crate::lifecycle::target::Target;
use crate::project::Session;

/// Replace the kernel by a new one: its variables are gone
///
/// The new one uses the same connection file, and front ends that are joined go on with it. A
/// cell that runs ends with an error. Where that would end somebody else's cell, or take the
/// variables of a person who is joined, it needs --force; at a terminal the question is put.
#[derive(Args, Debug)]
pub(crate) struct Restart {
    /// The notebook; without it, the only open one
    pub(crate) notebook: Option<PathBuf>,
    /// Wait at most this long for the new kernel, which goes on starting; 0 is for ever [default: 45]
    #[arg(long, value_name = "SECONDS", env = "NB_TIMEOUT")]
    timeout: Option<f64>,
    /// Restart it even when that ends others' work
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl Command for Restart {
    const NAME: &'static str = "restart";
    const GROUP: Group = Group::Kernel;

    fn notebook(&self) -> Option<PathBuf> {
        self.notebook.clone()
    }

    fn json(&self) -> bool {
        self.json
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let patience = context.caller.patience(self.timeout)?;
        let target = context.target(self.notebook).await?;
        let began = Instant::now();
        let session = replaced(context, &target, self.force, self.json, patience).await?;
        let _ = if self.json {
            context.answer(&json!({
                "notebook": target.notebook_key,
                "status": session.status.as_str(),
                "kernel_pid": session.pid(),
                "kernel_generation": session.generation,
                "took_ms": u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            }))
        } else {
            let pid = session
                .pid()
                .map(|pid| format!(", pid {pid}"))
                .unwrap_or_default();
            print::line(&format!(
                "{}: restarted in {} (generation {}{pid}); its variables are gone",
                target.notebook_key,
                print::took(began.elapsed()),
                session.generation
            ))
        };
        Ok(ExitCode::SUCCESS)
    }
}

/// Asks whoever must be asked, and replaces the kernel by a new one.
pub(crate) async fn replaced(
    context: &Context,
    target: &Target,
    force: bool,
    json: bool,
    patience: Duration,
) -> Result<Session, Problem> {
    context
        .consent(KernelAction::Restart, target, force, json)
        .await?;
    match restart(&target.project, &target.key, context.by(), patience).await? {
        TaskReport::Done(session) => Ok(*session),
        TaskReport::Failed {
            message,
            lines,
            slow,
        } => {
            let kind = if slow {
                ProblemKind::StillRunning
            } else {
                ProblemKind::NoKernel
            };
            Err(Problem::new(kind, message).lines(&lines).hint(format!(
                "nb log --kernel -n {0} | nb open {0}",
                quote(&target.session.notebook)
            )))
        }
    }
}
