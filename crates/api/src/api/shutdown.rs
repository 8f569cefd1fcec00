//! `shutdown`: ends kernels for good, one or all unused ones.

use std::time::Duration;

use serde::Serialize;

use super::caller::{Caller, open_project};
use super::envelope::Answer;
use super::problem::{Problem, ProblemKind, causes};
use super::time::milliseconds;
use crate::hint;
use crate::hint::{Verb, nb};
use crate::lifecycle;
use crate::lifecycle::all_kernels::{self, Kernels};
use crate::lifecycle::consent::KernelAction;
use crate::lifecycle::idle::{self, IdleKernel};
use crate::lifecycle::server_connection;
use crate::project::Status;
use crate::remote::kernels::UserServers;

/// How long to wait while another `nb` holds the session's lock.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Which kernel is ended.
#[derive(Clone, Debug, Default)]
pub struct ShutdownRequest {
    /// Whether to end the kernel even if that ends others' work.
    pub force: bool,
    /// Whether a kernel on a server goes on running there.
    pub detach: bool,
}

/// A session without a kernel.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Whether a kernel goes on running on its server.
    #[serde(rename = "still_runs")]
    pub goes_on_there: bool,
    /// Whether `nb` had started the kernel.
    #[serde(rename = "started_by_nb")]
    pub is_owned: bool,
}

impl Answer for ShutdownAnswer {
    fn has_own_generation(&self) -> bool {
        true
    }
}

/// Which unused kernels are ended.
#[derive(Clone, Copy, Debug)]
pub struct ShutdownIdleRequest {
    /// How long the kernels must have been unused.
    pub age: Duration,
    /// Whether kernels of all the user's projects are ended, not only those of the working directory's
    /// project.
    pub all: bool,
    /// Whether to list only what would be ended.
    pub dry_run: bool,
    /// Whether kernels that a front end has joined are ended too.
    pub force: bool,
}

/// What became of unused kernels.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShutdownIdleAnswer {
    /// The kernels.
    pub kernels: Vec<IdleKernel>,
    /// Whether it is only what would be done.
    pub dry_run: bool,
    /// Why projects could not be looked into.
    pub unreadable: Vec<String>,
}

impl Answer for ShutdownIdleAnswer {}

/// Ends a kernel for good. A kernel that another program or notebook started is only released.
///
/// # Errors
/// That would end others' work, or the kernel cannot be ended from here.
pub async fn shutdown(
    caller: &Caller,
    request: ShutdownRequest,
) -> Result<ShutdownAnswer, Problem> {
    let target = caller.target().await?;
    // A kernel of another program or notebook is only released.
    if request.detach && target.session.as_remote().is_none() {
        let text = format!("the kernel of {} runs on this machine", target.notebook_key);
        return Err(Problem::new(ProblemKind::Usage, text)
            .hint("without nb shutdown it goes on running as it is"));
    }
    if target.session.is_owned() && !target.is_shared() && !request.detach {
        if !request.force
            && target.session.status == Status::Live
            && let Some(lost) = server_connection::lost(&target.session)
        {
            let name = &target.notebook_key;
            let shutdown = |option| {
                let shutdown = nb(Verb::Shutdown).option(option);
                shutdown.notebook(&target.session.notebook)
            };
            let text = format!("{name}: refused, since its kernel would go on there: {lost}");
            return Err(Problem::new(ProblemKind::Refused, text)
                .hint(hint![
                    "to leave it to ",
                    nb(Verb::Open),
                    ": ",
                    shutdown("--detach")
                ])
                .hint(hint!["to give it up: ", shutdown("--force")]));
        }
        caller
            .consent(KernelAction::Shutdown, &target, request.force)
            .await?;
    }
    let (project, key) = (&target.project, &target.notebook_key);
    let stopped = lifecycle::shutdown::shutdown(
        &UserServers,
        project,
        key,
        caller.by(),
        TIMEOUT,
        request.detach,
    )
    .await?;
    Ok(ShutdownAnswer {
        notebook: target.notebook_key,
        status: stopped.session.status.as_str().to_owned(),
        was_running: stopped.was_running,
        let_go_of: stopped.let_go_of,
        shared_with: stopped.shared_with,
        notes: stopped.notes,
        kernel_generation: stopped.session.generation,
        took_ms: milliseconds(stopped.took),
        goes_on_there: stopped
            .session
            .as_remote()
            .is_some_and(|remote| request.detach || !remote.owned),
        is_owned: stopped.session.is_owned(),
    })
}

/// Ends the kernels that have been unused for at least the given time.
///
/// # Errors
/// There is no project here, or its `state.json` cannot be read.
pub async fn shutdown_idle(
    caller: &Caller,
    request: ShutdownIdleRequest,
) -> Result<ShutdownIdleAnswer, Problem> {
    let kernels = if request.all {
        all_kernels::all_kernels().await
    } else {
        let all = nb(Verb::Shutdown).without_notebook().option("--idle");
        let all = all.word("AGE").option("--all");
        let hint = hint!["for all your projects: ", all];
        let project = open_project(&caller.working_dir, hint)?;
        let statuses = all_kernels::of_project(&project).await?;
        let statuses = statuses.into_iter().map(|status| (project.clone(), status));
        Kernels {
            sessions: statuses.collect(),
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
    Ok(ShutdownIdleAnswer {
        kernels: idle::end_idle(&UserServers, kernels, &options).await,
        dry_run: request.dry_run,
        unreadable,
    })
}
