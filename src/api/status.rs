//! `status`: the kernels, who is joined, and whether front ends find them.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::Serialize;

use super::caller::{Caller, blocking};
use super::envelope::Answer;
use super::problem::{Problem, ProblemKind, causes};
use super::sandbox::SandboxSummary;
use crate::activity::company::{self, whose};
use crate::kernel::variables::ProcessVariables;
use crate::lifecycle::everywhere::{self, Left};
use crate::lifecycle::liveness::{Liveness, sandboxed};
use crate::lifecycle::serve::{self, Health, Level};
use crate::lifecycle::status::{SessionStatus, status as status_of};
use crate::lifecycle::target;
use crate::project::joined::Joined;
use crate::project::{Ended, Limits, Project, Status};

/// Of which notebook the status is wanted.
#[derive(Clone, Debug, Default)]
pub struct StatusRequest {
    /// The notebook; none is the one that the caller names, else all of the project.
    pub notebook: Option<PathBuf>,
}

/// The kernels of a project.
#[derive(Clone, Debug, Serialize)]
pub struct StatusAnswer {
    /// The project's folder.
    pub project: PathBuf,
    /// Its notebooks that have or had a kernel.
    pub sessions: Vec<KernelStatus>,
    /// Whether front ends find the kernels.
    pub spec: SpecStatus,
    /// Whether one notebook was asked about.
    #[serde(skip)]
    pub is_of_one: bool,
}

impl Answer for StatusAnswer {}

/// Whether the kernelspec "nb shared kernel" is installed.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase", tag = "state")]
pub enum SpecStatus {
    /// It is, and its program is this one.
    Good,
    /// It is not.
    Missing,
    /// It is out of date.
    Stale {
        /// Why.
        why: String,
    },
}

/// A notebook's kernel, and who uses it.
#[derive(Clone, Debug, Serialize)]
pub struct KernelStatus {
    /// The notebook's key in its project.
    pub notebook: String,
    /// Its file.
    pub path: PathBuf,
    /// Whether the file is gone while its kernel runs.
    pub file_gone: bool,
    /// What the kernel does: `idle`, `busy`, `starting`, `died`, …
    pub state: &'static str,
    /// What is recorded of the session.
    pub recorded: String,
    /// The cell that runs.
    pub running: Option<RunningCell>,
    /// Since when nothing has happened.
    pub idle_since: Option<Timestamp>,
    /// The notebook whose kernel this one uses.
    pub kernel_of: Option<String>,
    /// The other notebooks that use the kernel.
    pub shared_by: Vec<String>,
    /// The kernelspec's name.
    pub kernel: Option<String>,
    /// The kernel's process.
    pub kernel_pid: Option<u32>,
    /// Which of the session's kernels it is.
    pub kernel_generation: u64,
    /// Its connection file.
    pub connection_file: PathBuf,
    /// How it is reached: `ipc` or `tcp`.
    pub transport: &'static str,
    /// Its resident memory.
    pub memory_bytes: Option<u64>,
    /// What it may use.
    pub limits: Limits,
    /// After how many seconds without use it ends.
    pub idle_timeout: Option<u64>,
    /// Whether `nb` has started it.
    pub owned: bool,
    /// Its sandbox.
    pub sandbox: Option<SandboxSummary>,
    /// When it was started.
    pub started_at: Option<Timestamp>,
    /// How the last one ended.
    pub ended: Option<Ended>,
    /// The front ends that are joined.
    pub joined: Vec<Joined>,
    /// All that is known of it.
    #[serde(skip)]
    pub known: SessionStatus,
}

impl KernelStatus {
    /// Returns what is told of a session.
    pub fn of(status: SessionStatus) -> Self {
        let session = &status.session;
        let running = status.running.as_ref();
        let running = running.filter(|_| status.busy == Some(true));
        Self {
            notebook: status.key.clone(),
            path: session.notebook.clone(),
            file_gone: is_gone(&status),
            state: state(&status),
            recorded: session.status.as_str().to_owned(),
            running: running.map(|cell| RunningCell {
                by: company::name(cell.by.as_deref()).to_owned(),
                cell: cell.cell.clone(),
                since: cell.since,
                text: whose(cell),
            }),
            idle_since: status.idle_since,
            kernel_of: status.kernel_of.clone(),
            shared_by: status.shared_by.clone(),
            kernel: session.kernelspec.as_ref().map(|spec| spec.name.clone()),
            kernel_pid: pid(&status),
            kernel_generation: session.generation,
            connection_file: session.connection_file.clone(),
            transport: session.transport.as_str(),
            memory_bytes: status.memory_bytes,
            limits: session.settings.limits,
            idle_timeout: session.settings.idle_timeout,
            owned: session.is_owned(),
            sandbox: session.sandbox().map(SandboxSummary::of),
            started_at: session.started_at,
            ended: session.ended.clone(),
            joined: status.joined.clone(),
            known: status,
        }
    }

    /// Says whether the kernel runs, as far as is known.
    pub fn is_up(&self) -> bool {
        matches!(
            self.state,
            "idle" | "busy" | "live" | "starting" | "restarting" | "elsewhere" | "unchecked"
        )
    }
}

/// A cell that runs.
#[derive(Clone, Debug, Serialize)]
pub struct RunningCell {
    /// Who asked for it.
    pub by: String,
    /// Its id; none where it is no cell.
    pub cell: Option<String>,
    /// Since when.
    pub since: Timestamp,
    /// Whose it is, in words.
    pub text: String,
}

/// All kernels of the user that run.
#[derive(Clone, Debug, Serialize)]
pub struct AllKernelsAnswer {
    /// Those of projects.
    pub kernels: Vec<ProjectKernel>,
    /// Those of projects that were deleted.
    pub left: Vec<LeftKernel>,
    /// Projects that could not be looked into.
    pub unreadable: Vec<UnreadableProject>,
}

impl Answer for AllKernelsAnswer {}

/// A kernel, and its project.
#[derive(Clone, Debug, Serialize)]
pub struct ProjectKernel {
    /// The kernel.
    #[serde(flatten)]
    pub kernel: KernelStatus,
    /// The project's folder.
    pub project: PathBuf,
}

/// A kernel that runs while its project is gone.
#[derive(Clone, Debug, Serialize)]
pub struct LeftKernel {
    /// The project's folder, as it was.
    pub project: PathBuf,
    /// The notebook's file, as it was.
    pub path: PathBuf,
    /// Always `left`.
    pub state: &'static str,
    /// Its process.
    pub kernel_pid: u32,
    /// When it was started.
    pub started_at: Option<Timestamp>,
    /// Its memory.
    pub memory_bytes: Option<u64>,
}

impl From<Left> for LeftKernel {
    fn from(left: Left) -> Self {
        Self {
            memory_bytes: left.process.memory_bytes(),
            kernel_pid: left.process.pid,
            project: left.root,
            path: left.kernel.notebook,
            state: "left",
            started_at: left.kernel.started_at,
        }
    }
}

/// A project that could not be looked into.
#[derive(Clone, Debug, Serialize)]
pub struct UnreadableProject {
    /// Its folder.
    pub project: PathBuf,
    /// Why.
    pub error: String,
}

/// Returns the kernels of a project, or of one notebook.
///
/// # Errors
/// There is no project, or what it remembers cannot be read.
pub async fn status(caller: &Caller, request: StatusRequest) -> Result<StatusAnswer, Problem> {
    let given = request.notebook.or_else(|| caller.notebook.clone());
    let named = target::named(given.as_deref(), &ProcessVariables);
    let is_of_one = named.is_some();
    let (project, statuses) = match named {
        Some(notebook) => {
            let target = caller.target(Some(notebook)).await?;
            let status = status_of(&target.project, &target.key, target.session).await?;
            let key = target.notebook_key;
            (target.project, vec![SessionStatus { key, ..status }])
        }
        None => {
            let project = caller.project_here()?;
            let statuses = everywhere::of_project(&project).await?;
            let mut kernels = statuses.iter().filter(|it| it.kernel_of.is_none());
            if let (Some(only), None) = (kernels.next(), kernels.next()) {
                caller.concerns(&project, &only.key);
            }
            (project, statuses)
        }
    };
    blocking(move || {
        Ok(StatusAnswer {
            project: project.root().to_owned(),
            sessions: statuses.into_iter().map(KernelStatus::of).collect(),
            spec: match serve::health(&Level::User, &ProcessVariables)? {
                Health::Good => SpecStatus::Good,
                Health::Missing => SpecStatus::Missing,
                Health::Stale(why) => SpecStatus::Stale { why },
            },
            is_of_one,
        })
    })
    .await
}

/// Returns all kernels of the user that run.
///
/// # Errors
/// None: what could not be looked into is part of the answer.
pub async fn status_everywhere(_: &Caller) -> Result<AllKernelsAnswer, Problem> {
    let all = everywhere::everywhere().await;
    let kernels = all.found.into_iter().filter_map(|(project, status)| {
        let is_abandoned = status.abandoned;
        let kernel = KernelStatus::of(status);
        (kernel.is_up() || is_abandoned).then(|| ProjectKernel {
            kernel,
            project: project.root().to_owned(),
        })
    });
    let unreadable = all.unreadable.into_iter();
    let unreadable = unreadable.map(|(project, error)| UnreadableProject {
        project,
        error: causes(&error),
    });
    Ok(AllKernelsAnswer {
        kernels: kernels.collect(),
        left: all.left.into_iter().map(LeftKernel::from).collect(),
        unreadable: unreadable.collect(),
    })
}

impl Caller {
    /// Returns the project at or above the working directory.
    pub(crate) fn project_here(&self) -> Result<Project, Problem> {
        Project::find(&self.here).ok_or_else(|| {
            let text = format!("no notebook is open in {}", self.here.display());
            Problem::new(ProblemKind::NoKernel, text)
                .hint("nb open NOTEBOOK.ipynb | nb status --all")
        })
    }
}

/// Says whether a kernel runs whose notebook was moved or deleted.
fn is_gone(status: &SessionStatus) -> bool {
    let runs = matches!(status.liveness, Liveness::Own(_) | Liveness::Foreign);
    runs && matches!(status.session.notebook.try_exists(), Ok(false))
}

/// Returns what a person calls the kernel's state.
fn state(status: &SessionStatus) -> &'static str {
    match (&status.liveness, &status.session.status, status.busy) {
        (_, Status::Stopped, _) => "stopped",
        (Liveness::OutOfReach, Status::Died, _) => "died",
        (Liveness::OutOfReach, ..) if sandboxed(status.session.transport).is_some() => "unchecked",
        (Liveness::OutOfReach, ..) => "elsewhere",
        (_, Status::Starting | Status::Restarting, _) if status.abandoned => "half started",
        (_, Status::Starting, _) => "starting",
        (_, Status::Restarting, _) => "restarting",
        (Liveness::Dead, ..) | (_, Status::Died, _) => "died",
        (_, _, Some(true)) => "busy",
        (_, _, Some(false)) => "idle",
        (_, _, None) => "live",
    }
}

/// Returns the process of the kernel that lives, as far as that is known.
fn pid(status: &SessionStatus) -> Option<u32> {
    match &status.liveness {
        Liveness::Own(process) => Some(process.pid),
        Liveness::Foreign | Liveness::OutOfReach => status.session.pid(),
        Liveness::Dead => None,
    }
}
