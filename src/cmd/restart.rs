//! `nb restart`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use super::fault::{Fault, Kind};
use super::{Context, print};
use crate::ops::restart::{Report, restart};

/// Replace the kernel by a new one on the same sockets: its variables are gone
///
/// Front ends that are joined go on with the new kernel. A cell that runs ends with an error.
#[derive(Args, Debug)]
pub(super) struct Restart {
    /// The notebook
    notebook: Option<PathBuf>,
    /// Wait at most this long for the new kernel; it goes on starting
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 45.0,
        env = "NB_TIMEOUT"
    )]
    timeout: f64,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl Restart {
    /// Runs the command.
    pub(super) async fn run(self, context: &Context) -> Result<ExitCode, Fault> {
        let patience = Duration::try_from_secs_f64(self.timeout).map_err(|_| {
            Fault::new(
                Kind::Usage,
                format!("{} is no number of seconds", self.timeout),
            )
        })?;
        let target = context.target(self.notebook, "nb restart").await?;
        let began = Instant::now();
        let session = match restart(&target.project, &target.key, &context.by, patience).await? {
            Report::Done(session) => session,
            Report::Failed {
                message,
                lines,
                slow,
            } => {
                let kind = if slow {
                    Kind::StillRunning
                } else {
                    Kind::NoKernel
                };
                return Err(Fault::new(kind, message)
                    .lines(&lines)
                    .hint("nb log --kernel; nb open starts it again"));
            }
        };
        let _ = if self.json {
            print::json(&json!({
                "notebook": target.key,
                "status": session.status.as_str(),
                "kernel_pid": session.pid,
                "kernel_generation": session.generation,
                "took_ms": u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            }))
        } else {
            let pid = session
                .pid
                .map(|pid| format!(", pid {pid}"))
                .unwrap_or_default();
            print::line(&format!(
                "{}: restarted in {} (kernel {}{pid}); its variables are gone",
                target.key,
                print::took(began.elapsed()),
                session.generation
            ))
        };
        Ok(ExitCode::SUCCESS)
    }
}
