//! `restart`: a kernel replaced by a new one.

use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;

use super::caller::Caller;
use super::envelope::Answer;
use super::problem::{Problem, ProblemKind};
use crate::kernel::shell::quote;
use crate::lifecycle::consent::KernelAction;
use crate::lifecycle::restart::{TaskReport, restart as replace};

/// Which kernel is replaced.
#[derive(Clone, Debug, Default)]
pub struct RestartRequest {
    /// The notebook, where not the one that the caller means.
    pub notebook: Option<PathBuf>,
    /// For how many seconds to wait for the new kernel, which goes on starting; 0 is for ever.
    pub timeout: Option<f64>,
    /// Replace it even when that ends others' work.
    pub force: bool,
}

/// A new kernel in an old one's place.
#[derive(Clone, Debug, Serialize)]
pub struct RestartAnswer {
    /// The notebook's key in its project.
    pub notebook: String,
    /// The state of the session.
    pub status: String,
    /// The new kernel's process.
    pub kernel_pid: Option<u32>,
    /// Which of the session's kernels it is.
    pub kernel_generation: u64,
    /// How long it took.
    pub took_ms: u64,
}

impl Answer for RestartAnswer {
    fn tells_generation(&self) -> bool {
        true
    }
}

/// Replaces a kernel by a new one: its variables are gone.
///
/// # Errors
/// It would end others' work, no kernel runs, or the new one does not start.
pub async fn restart(caller: &Caller, request: RestartRequest) -> Result<RestartAnswer, Problem> {
    let patience = caller.patience(request.timeout)?;
    let target = caller.target(request.notebook).await?;
    let began = Instant::now();
    caller
        .consent(KernelAction::Restart, &target, request.force)
        .await?;
    match replace(&target.project, &target.key, caller.by(), patience).await? {
        TaskReport::Done(session) => Ok(RestartAnswer {
            notebook: target.notebook_key,
            status: session.status.as_str().to_owned(),
            kernel_pid: session.pid(),
            kernel_generation: session.generation,
            took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        }),
        TaskReport::Failed {
            message,
            lines,
            slow,
        } => {
            let kind = match slow {
                true => ProblemKind::StillRunning,
                false => ProblemKind::NoKernel,
            };
            let notebook = quote(&target.session.notebook);
            Err(Problem::new(kind, message).lines(&lines).hint(format!(
                "nb log --kernel -n {notebook} | nb open {notebook}"
            )))
        }
    }
}
