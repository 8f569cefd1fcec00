//! `shutdown`: kernels ended for good, one or those that nobody uses.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::caller::Caller;
use super::envelope::Answer;
use super::problem::{Problem, ProblemKind, causes};
use crate::lifecycle;
use crate::lifecycle::consent::KernelAction;
use crate::lifecycle::everywhere::{self, Kernels};
use crate::lifecycle::idle::{self, Done, IdleOutcome};
use crate::project::Project;

/// How long another `nb` may hold the session's lock.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which kernel is ended.
#[derive(Clone, Debug, Default)]
pub struct ShutdownRequest {
    /// The notebook, where not the one that the caller means.
    pub notebook: Option<PathBuf>,
    /// End it even when that ends others' work.
    pub force: bool,
}

/// A session without a kernel.
#[derive(Clone, Debug, Serialize)]
pub struct ShutdownAnswer {
    /// The notebook's key in its project.
    pub notebook: String,
    /// The state of the session.
    pub status: String,
    /// Whether a kernel was running.
    pub was_running: bool,
    /// The notebook whose kernel was shared, and goes on.
    pub let_go_of: Option<String>,
    /// The notebooks that shared the kernel and have none now either.
    pub shared_with: Vec<String>,
    /// What the user should know.
    pub notes: Vec<String>,
    /// Which of the session's kernels it was.
    pub kernel_generation: u64,
    /// How long it took.
    pub took_ms: u64,
    /// Whether `nb` had started the kernel.
    #[serde(skip)]
    pub is_owned: bool,
}

impl Answer for ShutdownAnswer {
    fn tells_generation(&self) -> bool {
        true
    }
}

/// Which unused kernels are ended.
#[derive(Clone, Copy, Debug)]
pub struct ShutdownIdleRequest {
    /// Those that nobody has used for so long.
    pub age: Duration,
    /// Those of all the user's projects, not only of the one of the working directory.
    pub all: bool,
    /// Only tell what would be ended.
    pub dry_run: bool,
    /// Also those that a front end has joined.
    pub force: bool,
}

/// What became of unused kernels.
#[derive(Clone, Debug, Serialize)]
pub struct ShutdownIdleAnswer {
    /// The kernels.
    pub kernels: Vec<IdleKernel>,
    /// Whether it is only what would be done.
    pub dry_run: bool,
    /// Why projects could not be looked into.
    pub unreadable: Vec<String>,
}

impl Answer for ShutdownIdleAnswer {}

/// What became of one kernel.
#[derive(Clone, Debug, Serialize)]
pub struct IdleKernel {
    /// Its project's folder.
    pub project: PathBuf,
    /// Its notebook's key there.
    pub notebook: String,
    /// Its process.
    pub kernel_pid: Option<u32>,
    /// Which of the session's kernels it is.
    pub kernel_generation: Option<u64>,
    /// Since when nobody uses it.
    pub idle_since: Option<Timestamp>,
    /// Its memory.
    pub memory_bytes: Option<u64>,
    /// What was done: `ended`, `kept` or `failed`.
    pub done: &'static str,
    /// Why it goes on.
    pub why: Option<String>,
}

/// Ends a kernel for good. One that another program or notebook has started is only let go.
///
/// # Errors
/// It would end others' work, or the kernel cannot be ended from here.
pub async fn shutdown(
    caller: &Caller,
    request: ShutdownRequest,
) -> Result<ShutdownAnswer, Problem> {
    let target = caller.target(request.notebook).await?;
    // A kernel of another program or notebook is only let go.
    if target.session.is_owned() && !target.is_shared() {
        caller
            .consent(KernelAction::Shutdown, &target, request.force)
            .await?;
    }
    let (project, key) = (&target.project, &target.notebook_key);
    let stopped = lifecycle::shutdown::shutdown(project, key, caller.by(), PATIENCE).await?;
    Ok(ShutdownAnswer {
        notebook: target.notebook_key,
        status: stopped.session.status.as_str().to_owned(),
        was_running: stopped.was_running,
        let_go_of: stopped.let_go_of,
        shared_with: stopped.shared_with,
        notes: stopped.notes,
        kernel_generation: stopped.session.generation,
        took_ms: u64::try_from(stopped.took.as_millis()).unwrap_or(u64::MAX),
        is_owned: stopped.session.is_owned(),
    })
}

/// Ends the kernels that nobody has used for some time.
///
/// # Errors
/// There is no project here, or what it remembers cannot be read.
pub async fn shutdown_idle(
    caller: &Caller,
    request: ShutdownIdleRequest,
) -> Result<ShutdownIdleAnswer, Problem> {
    let kernels = if request.all {
        everywhere::everywhere().await
    } else {
        let project = Project::find(&caller.here).ok_or_else(|| {
            let here = caller.here.display();
            Problem::new(
                ProblemKind::NoKernel,
                format!("no notebook is open in {here}"),
            )
            .hint("for all your projects: nb shutdown --idle AGE --all")
        })?;
        let found = everywhere::of_project(&project).await?;
        let found = found.into_iter().map(|status| (project.clone(), status));
        Kernels {
            found: found.collect(),
            ..Kernels::default()
        }
    };
    let unreadable = kernels.unreadable.iter();
    let unreadable = unreadable.map(|(_, error)| causes(error)).collect();
    let options = idle::IdleOptions {
        age: request.age,
        force: request.force,
        dry_run: request.dry_run,
        by: caller.by().to_owned(),
    };
    let outcomes = idle::end_idle(kernels, &options).await;
    Ok(ShutdownIdleAnswer {
        kernels: outcomes.into_iter().map(idle_kernel).collect(),
        dry_run: request.dry_run,
        unreadable,
    })
}

fn idle_kernel(outcome: IdleOutcome) -> IdleKernel {
    let (done, why) = match outcome.done {
        Done::Ended => ("ended", None),
        Done::Kept(why) => ("kept", Some(why)),
        Done::Failed(error) => ("failed", Some(causes(&error))),
    };
    IdleKernel {
        project: outcome.root,
        notebook: outcome.notebook,
        kernel_pid: outcome.pid,
        kernel_generation: outcome.generation,
        idle_since: outcome.idle_since,
        memory_bytes: outcome.memory_bytes,
        done,
        why,
    }
}
