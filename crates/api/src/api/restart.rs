//! `restart`: replaces a kernel by a new one.

use std::time::Instant;

use serde::Serialize;

use super::caller::Caller;
use super::envelope::Answer;
use super::problem::{Problem, ProblemKind};
use super::time::milliseconds;
use crate::hint;
use crate::hint::{Joint, Verb, nb};
use crate::lifecycle::consent::KernelAction;
use crate::lifecycle::open_error::OpenError;
use crate::lifecycle::restart::{TaskReport, begin_restart};
use crate::task::TaskProgram;

/// Which kernel is replaced.
#[derive(Clone, Debug, Default)]
pub struct RestartRequest {
    /// How many seconds to wait for the new kernel, which keeps starting after that; 0 is for ever.
    pub timeout: Option<f64>,
    /// Whether to replace the kernel even if that ends others' work.
    pub force: bool,
}

/// A new kernel in an old one's place.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RestartAnswer {
    /// The notebook's key in its project.
    pub notebook: String,
    /// The state of the session.
    pub status: String,
    /// The new kernel's process, if it runs on this machine.
    pub kernel_pid: Option<u32>,
    /// Which of the session's kernels it is.
    pub kernel_generation: u64,
    /// How long it took.
    pub took_ms: u64,
}

impl Answer for RestartAnswer {
    fn has_own_generation(&self) -> bool {
        true
    }
}

/// Replaces a kernel by a new one; its variables are lost.
///
/// # Errors
/// The restart would end others' work, no kernel runs, or the new one does not start.
pub async fn restart(caller: &Caller, request: RestartRequest) -> Result<RestartAnswer, Problem> {
    let timeout = caller.kernel_timeout(request.timeout)?;
    let target = caller.target().await?;
    let start = Instant::now();
    caller
        .consent(KernelAction::Restart, &target, request.force)
        .await?;
    let (project, key) = (&target.project, &target.key);
    let task_handle = begin_restart(project, key, caller.by(), timeout, TaskProgram::Own).await?;
    match task_handle.report().await.map_err(OpenError::from)? {
        TaskReport::Done(session) => Ok(RestartAnswer {
            notebook: target.notebook_key,
            status: session.status.as_str().to_owned(),
            kernel_pid: session.pid().filter(|_| session.as_remote().is_none()),
            kernel_generation: session.generation,
            took_ms: milliseconds(start.elapsed()),
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
            let notebook = &target.session.notebook;
            let log = nb(Verb::Log).option("--kernel").option("-n");
            Err(Problem::new(kind, message).lines(&lines).hint(hint![
                log.notebook(notebook),
                Joint::Or,
                nb(Verb::Open).notebook(notebook)
            ]))
        }
    }
}
