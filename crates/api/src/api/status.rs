//! `status`: lists kernels, who is joined, and whether front ends find them.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::Serialize;

use super::caller::{Caller, on_own_thread, open_project};
use super::envelope::Answer;
use super::problem::{Problem, causes};
use super::sandbox::SandboxSummary;
use super::waiting::WaitingRequest;
use crate::activity::actor::Actor;
use crate::activity::labels::cell_with_actor;
use crate::hint;
use crate::hint::{Hint, Joint, Verb, nb};
use crate::kernel::variables::ProcessVariables;
use crate::lifecycle::all_kernels::{self, UnreachableKernel};
use crate::lifecycle::liveness::{Liveness, sandboxed};
use crate::lifecycle::server_connection;
use crate::lifecycle::status::{SessionStatus, status as status_of};
use crate::lifecycle::target::open_one;
use crate::project::event::RunningExecution;
use crate::project::joined::JoinedFrontEnd;
use crate::project::{ConnectionState, Ended, Project, ResourceLimits, Session, Status};
use crate::setup::serve::{self, Health, Level};
use crate::wire::Transport;

/// Returns the hint for a folder in which no notebook is open.
fn elsewhere() -> Hint {
    let all = nb(Verb::Status).without_notebook().option("--all");
    hint![open_one(), Joint::Or, all]
}

/// The kernels of a project.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatusAnswer {
    /// The project's folder.
    pub project: PathBuf,
    /// Its notebooks that have or had a kernel.
    pub sessions: Vec<KernelStatus>,
    /// Whether front ends find the kernels.
    pub spec: Health,
    /// Whether one notebook was asked about.
    #[serde(skip)]
    pub is_of_one: bool,
}

impl Answer for StatusAnswer {}

/// A notebook's kernel, and who uses it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KernelStatus {
    /// The notebook's key in its project.
    pub notebook: String,
    /// Its file.
    pub path: PathBuf,
    /// Whether the file is gone while its kernel runs.
    pub file_gone: bool,
    /// What the kernel does: `idle`, `busy`, `starting`, `died`, …
    pub state: &'static str,
    /// The status of the session in `state.json`.
    pub recorded: String,
    /// The cell that runs.
    pub running: Option<RunningCell>,
    /// The cells that wait at front ends' proxies, oldest first.
    pub waits: Vec<WaitingRequest>,
    /// Since when nothing has happened.
    pub idle_since: Option<Timestamp>,
    /// The notebook whose kernel this one uses.
    pub kernel_of: Option<String>,
    /// The other notebooks that use the kernel.
    pub shared_by: Vec<String>,
    /// The kernelspec's name.
    pub kernel: Option<String>,
    /// The kernel's process; of a kernel on a server, the process here that holds its connection.
    pub kernel_pid: Option<u32>,
    /// Which of the session's kernels it is.
    pub kernel_generation: u64,
    /// Its connection file.
    pub connection_file: PathBuf,
    /// How it is reached: `ipc` or `tcp`.
    pub transport: Transport,
    /// Its resident memory.
    pub memory_bytes: Option<u64>,
    /// What it may use.
    pub limits: ResourceLimits,
    /// After how many seconds without use it ends.
    pub idle_timeout: Option<u64>,
    /// Whether `nb` has started it.
    pub owned: bool,
    /// Where it runs, if not on this machine.
    pub remote: Option<ServerKernelStatus>,
    /// Its sandbox.
    pub sandbox: Option<SandboxSummary>,
    /// When it was started.
    pub started_at: Option<Timestamp>,
    /// How the last one ended.
    pub ended: Option<Ended>,
    /// The front ends that are joined.
    pub joined: Vec<JoinedFrontEnd>,
    /// All that is known of it.
    #[serde(skip)]
    pub known: SessionStatus,
}

impl KernelStatus {
    /// Makes the answer from a session's status.
    pub fn of(project: &Project, status: SessionStatus) -> Self {
        let session = &status.session;
        let running = status.running.as_ref();
        let running = running.filter(|_| status.busy == Some(true));
        Self {
            notebook: status.key.clone(),
            path: session.notebook.clone(),
            file_gone: is_gone(&status),
            state: state(&status),
            recorded: session.status.as_str().to_owned(),
            running: running.map(RunningCell::of),
            waits: WaitingRequest::all(project, status.waiting.clone()),
            idle_since: status.idle_since,
            kernel_of: status.kernel_of.clone(),
            shared_by: status.shared_by.clone(),
            kernel: session.kernelspec.as_ref().map(|spec| spec.name.clone()),
            kernel_pid: pid(&status),
            kernel_generation: session.generation,
            connection_file: session.connection_file.clone(),
            transport: session.transport,
            memory_bytes: status.memory_bytes,
            limits: session.settings.limits,
            idle_timeout: session.settings.idle_timeout,
            owned: session.is_owned(),
            remote: ServerKernelStatus::of(session, &status.liveness),
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
            "idle"
                | "busy"
                | "live"
                | "disconnected"
                | "starting"
                | "restarting"
                | "elsewhere"
                | "unchecked"
        )
    }
}

/// A cell that runs.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunningCell {
    /// Who asked for it.
    pub by: String,
    /// The cell's id; none for code outside the notebook.
    pub cell: Option<String>,
    /// The job that it belongs to; none for a front end's cell.
    pub job: Option<String>,
    /// Since when.
    pub since: Timestamp,
    /// Whose it is, in words.
    pub text: String,
    /// What a front end's cell asks the person there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
}

impl RunningCell {
    pub(super) fn of(cell: &RunningExecution) -> Self {
        Self {
            by: Actor::parse(cell.by.as_deref()).name(),
            cell: cell.cell.clone(),
            job: cell.job.clone(),
            since: cell.since,
            text: cell_with_actor(cell),
            prompt: cell.prompt.clone(),
        }
    }
}

/// All kernels of the user that run.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProjectKernel {
    /// The kernel.
    #[serde(flatten)]
    pub kernel: KernelStatus,
    /// The project's folder.
    pub project: PathBuf,
}

/// A kernel that runs although its project's `.nb` was removed or renamed.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

impl From<UnreachableKernel> for LeftKernel {
    fn from(left: UnreachableKernel) -> Self {
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnreadableProject {
    /// Its folder.
    pub project: PathBuf,
    /// Why.
    pub error: String,
}

/// Returns the status of the named notebook's kernel, or of all kernels of the project.
///
/// # Errors
/// There is no project, or its `state.json` cannot be read.
pub async fn status(caller: &Caller) -> Result<StatusAnswer, Problem> {
    on_own_thread(caller, ask).await
}

async fn ask(caller: Caller) -> Result<StatusAnswer, Problem> {
    let is_of_one = caller.named().is_some();
    let (project, statuses) = match is_of_one {
        true => {
            let target = caller.target().await?;
            let status = status_of(&target.project, &target.key, target.session).await?;
            let key = target.notebook_key;
            (target.project, vec![SessionStatus { key, ..status }])
        }
        false => {
            let project = open_project(&caller.working_dir, elsewhere())?;
            let statuses = all_kernels::of_project(&project).await?;
            let mut kernels = statuses.iter().filter(|it| it.kernel_of.is_none());
            if let (Some(only), None) = (kernels.next(), kernels.next()) {
                caller.set_target_notebook(&project, &only.key);
            }
            (project, statuses)
        }
    };
    Ok(StatusAnswer {
        project: project.root().to_owned(),
        sessions: statuses
            .into_iter()
            .map(|status| KernelStatus::of(&project, status))
            .collect(),
        spec: serve::health(&Level::User, &ProcessVariables)?,
        is_of_one,
    })
}

/// Returns all kernels of the user that run.
///
/// # Errors
/// None: the answer lists the projects that could not be read.
pub async fn status_everywhere(caller: &Caller) -> Result<AllKernelsAnswer, Problem> {
    on_own_thread(caller, ask_all).await
}

async fn ask_all(_: Caller) -> Result<AllKernelsAnswer, Problem> {
    let all = all_kernels::all_kernels().await;
    let kernels = all.sessions.into_iter().filter_map(|(project, status)| {
        let is_abandoned = status.abandoned;
        let kernel = KernelStatus::of(&project, status);
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
        left: all.unreachable.into_iter().map(LeftKernel::from).collect(),
        unreadable: unreadable.collect(),
    })
}

/// Says whether a kernel runs whose notebook was moved or deleted.
fn is_gone(status: &SessionStatus) -> bool {
    status.liveness.is_up() && matches!(status.session.notebook.try_exists(), Ok(false))
}

/// Returns the word that users see for the kernel's state.
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
        (Liveness::Disconnected, ..) => "disconnected",
        _ if is_unconnected(status) => "disconnected",
        (_, _, Some(true)) => "busy",
        (_, _, Some(false)) => "idle",
        (_, _, None) => "live",
    }
}

/// Says whether the connection to the server of a kernel is not there now.
fn is_unconnected(status: &SessionStatus) -> bool {
    let report = server_connection::report(&status.session);
    report.is_some_and(|report| report.state != ConnectionState::Connected)
}

/// A kernel on a server.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServerKernelStatus {
    /// The name of the server.
    pub server: String,
    /// The kernel's id there.
    pub kernel_id: String,
    /// The state of the connection.
    pub state: ConnectionState,
    /// Since when.
    pub since: Option<Timestamp>,
    /// How long the server took to answer a ping, in milliseconds.
    pub latency_ms: Option<u64>,
    /// Why it is not connected.
    pub problem: Option<String>,
}

impl ServerKernelStatus {
    pub(super) fn of(session: &Session, liveness: &Liveness) -> Option<Self> {
        let remote = session.as_remote()?;
        let report = server_connection::report(session);
        // Without a bridge there is no connection, whatever was reported last.
        let report = report.filter(|_| matches!(liveness, Liveness::Own(_)));
        let state = report.as_ref().map(|report| report.state);
        Some(Self {
            server: remote.server.clone(),
            kernel_id: remote.kernel_id.clone(),
            state: state.unwrap_or(ConnectionState::Disconnected),
            since: report.as_ref().map(|report| report.since),
            latency_ms: report.as_ref().and_then(|report| report.latency_ms),
            problem: report.and_then(|report| report.problem),
        })
    }
}

/// Returns the process id of the live kernel, as far as it is known.
fn pid(status: &SessionStatus) -> Option<u32> {
    match &status.liveness {
        Liveness::Own(process) => Some(process.pid),
        Liveness::Foreign | Liveness::OutOfReach => status.session.pid(),
        Liveness::Dead | Liveness::Disconnected => None,
    }
}
