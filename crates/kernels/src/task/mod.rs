//! Tasks in detached processes, which outlive the process that asked for them.
//!
//! This program runs itself, or `nb`, with a task as its argument (`program`, in the package of the programs, performs it);
//! the new process writes a report to a file, which the waiting process removes.

pub mod causes;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::kernel::process::Process;
use crate::kernel::process::detach::{DetachError, PreforkedProcess};
use crate::kernel::process::plan::{Executable, StartPlan};
use crate::project::{Project, Session, beneath};

/// Why a task was not started, or has written no report.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The folder of the reports cannot be made.
    #[error("cannot write in {}", dir.display())]
    Folder {
        /// The project's folder.
        dir: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The process could not be started.
    #[error(transparent)]
    Detach(#[from] DetachError),
    /// Any other error.
    #[error("{0}")]
    Internal(String),
}

/// The first argument of a task's process; the task and the path of its report follow.
pub const WORD: &str = "nb:task";

/// A task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Task {
    /// Make sure that a session's kernel runs, as `nb open` does.
    Open {
        /// The project's `state.json`.
        state_file: PathBuf,
        /// The notebook's path in its project.
        key: String,
        /// Who asked for it.
        by: String,
        /// How long the kernel may take to be ready, in milliseconds.
        timeout_ms: u64,
    },
    /// Restart a session's kernel.
    Restart {
        /// The project's `state.json`.
        state_file: PathBuf,
        /// The notebook's path in its project.
        key: String,
        /// Who asked for it.
        by: String,
        /// How long the kernel may take to be ready, in milliseconds.
        timeout_ms: u64,
    },
    /// Run a job's cells and record their outputs.
    Record {
        /// The project's `state.json`.
        state_file: PathBuf,
        /// The job's id.
        id: String,
    },
    /// Continue a job whose cells were already sent to the kernel.
    Resume {
        /// The project's `state.json`.
        state_file: PathBuf,
        /// The job's id.
        id: String,
    },
    /// Present the kernel of a session, which runs on a server, on the sockets of a connection file.
    Bridge {
        /// The project's `state.json`.
        state_file: PathBuf,
        /// The notebook's path in its project.
        key: String,
        /// The kernel's connection file.
        connection_file: PathBuf,
    },
    /// Record how a kernel ended, from its supervisor's record.
    Ended {
        /// The project's `state.json`.
        state_file: PathBuf,
        /// The notebook's path in its project.
        key: String,
        /// The kernel's connection file.
        connection_file: PathBuf,
    },
    /// Print for how long a kernel has been unused, or end it for that reason.
    Unused {
        /// The project's `state.json`.
        state_file: PathBuf,
        /// The notebook's path in its project.
        key: String,
        /// Whether it is ended if it is unused for long enough.
        ends: bool,
    },
}

/// Returns the arguments of this program for a task without a report.
pub fn arguments(task: &Task) -> Result<Vec<OsString>, TaskError> {
    let text = serde_json::to_string(task);
    let text = text.map_err(|error| TaskError::Internal(error.to_string()))?;
    Ok(vec![WORD.into(), text.into(), OsString::new()])
}

/// The report of a task that starts or restarts a kernel.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum TaskReport {
    /// The kernel is ready.
    Done(Box<Session>),
    /// It failed.
    Failed {
        /// The error, with its causes.
        message: String,
        /// The last lines of the kernel's log.
        lines: Vec<String>,
        /// Whether the kernel is still starting.
        slow: bool,
    },
}

/// A running task. It continues when this is dropped.
#[derive(Debug)]
pub struct TaskHandle {
    process: Process,
    report: PathBuf,
}

impl TaskHandle {
    /// Waits for the task's end and returns its report. May be cancelled at any await.
    pub async fn report(self) -> Result<TaskReport, TaskError> {
        self.process.death().await;
        let report = beneath::read_json(&self.report, beneath::SMALL);
        let _ = beneath::remove_file(&self.report);
        let none = "the process of the task ended without a report";
        report.ok_or_else(|| TaskError::Internal(none.to_owned()))
    }
}

/// The program that performs a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskProgram {
    /// This one.
    Own,
    /// `nb`, by its path: for what this program cannot do.
    Nb(PathBuf),
}

/// A task whose process waits for the command to start. The process ends if this is dropped.
#[derive(Debug)]
pub struct PreparedTask {
    preforked: PreforkedProcess,
    plan: StartPlan,
    report: PathBuf,
}

/// Starts a task in a process of its own.
pub async fn begin(
    project: &Project,
    task: &Task,
    program: TaskProgram,
) -> Result<TaskHandle, TaskError> {
    prepare(project, task, program)?.begin().await
}

/// Makes the process of a task, which waits for [`PreparedTask::begin`].
pub fn prepare(
    project: &Project,
    task: &Task,
    program: TaskProgram,
) -> Result<PreparedTask, TaskError> {
    let internal = |error: std::io::Error| TaskError::Internal(error.to_string());
    let folder = project
        .make_folder("background")
        .map_err(|source| TaskError::Folder {
            dir: project.dir().to_owned(),
            source,
        })?;
    let name = uuid::Uuid::new_v4().simple().to_string();
    let report = folder.join(format!("{name}.report"));
    let text = serde_json::to_string(task).map_err(|error| internal(error.into()))?;
    let arguments = [
        OsString::from(WORD),
        text.into(),
        report.clone().into_os_string(),
    ];
    let plan = StartPlan {
        executable: match program {
            TaskProgram::Own => Executable::ThisProgram(arguments.into()),
            TaskProgram::Nb(path) => Executable::Program(
                [path.into_os_string()]
                    .into_iter()
                    .chain(arguments)
                    .collect(),
            ),
        },
        set: Vec::new(),
        remove: Vec::new(),
        input: None,
        folder: project.root().to_owned(),
        log: project.dir().join("nb.log"),
        pid_file: folder.join(format!("{name}.pid")),
        needs: None,
        address_space: None,
        supervision: None,
        supervisor: None,
    };
    let preforked = PreforkedProcess::for_plan(&plan)?;
    Ok(PreparedTask {
        preforked,
        plan,
        report,
    })
}

impl PreparedTask {
    /// Starts the task.
    pub async fn begin(self) -> Result<TaskHandle, TaskError> {
        let Self {
            preforked,
            plan,
            report,
        } = self;
        let pid_file = plan.pid_file.clone();
        let started = tokio::task::spawn_blocking(move || preforked.start(&plan));
        let process = started
            .await
            .map_err(|error| TaskError::Internal(error.to_string()))??;
        // The pid file is not needed: the task's effect is in the state, under the session's lock.
        let _ = beneath::remove_file(&pid_file);
        Ok(TaskHandle { process, report })
    }
}

/// Removes old reports whose readers were killed.
pub fn sweep(project: &Project) {
    for file in beneath::paths(&project.dir().join("background")) {
        let modified = beneath::metadata(&file).and_then(|metadata| metadata.modified());
        let age = modified.ok().and_then(|at| at.elapsed().ok());
        if age.is_some_and(|age| age > UNFETCHED) {
            let _ = beneath::remove_file(&file);
        }
    }
}

/// The age at which an unread report is removed: no command waits longer for a restart.
const UNFETCHED: Duration = Duration::from_secs(24 * 3600);
