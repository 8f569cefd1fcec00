//! Operations that a process of their own does, which outlives whoever asked.
//!
//! The program starts itself again, detached, and is told the task ([`crate::program`] does it);
//! a report comes by a file, which the one who waits removes.

pub mod causes;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::kernel::process::Process;
use crate::kernel::process::detach::{Ahead, DetachError};
use crate::kernel::process::plan::{Plan, What};
use crate::project::{Project, Session, beneath};

/// Why a task was not begun, or has left no report.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The folder of the reports cannot be made.
    #[error("cannot write in {}", dir.display())]
    Folder {
        /// The project's folder.
        dir: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The process could not be started.
    #[error(transparent)]
    Detach(#[from] DetachError),
    /// Anything else.
    #[error("{0}")]
    Internal(String),
}

/// The word after which the task follows, and the path of its report.
pub(crate) const WORD: &str = "nb:task";

/// What is to be done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Restart a session's kernel.
    Restart {
        state_file: PathBuf,
        key: String,
        by: String,
        patience_ms: u64,
    },
    /// Run a job's cells and keep what they say.
    Record {
        state_file: PathBuf,
        /// The job's id.
        id: String,
    },
    /// Go on with a job whose cells the kernel has already.
    Resume {
        state_file: PathBuf,
        /// The job's id.
        id: String,
    },
    /// Note how a kernel ended, as its keeper has written it down.
    Ended {
        state_file: PathBuf,
        key: String,
        connection_file: PathBuf,
    },
    /// Tell how long nobody has used a kernel, or end it because of that.
    Unused {
        state_file: PathBuf,
        key: String,
        ends: bool,
    },
}

/// Returns the arguments with which this program does a task whose report nobody waits for.
pub(crate) fn arguments(task: &Task) -> Result<Vec<OsString>, TaskError> {
    let text = serde_json::to_string(task);
    let text = text.map_err(|error| TaskError::Internal(error.to_string()))?;
    Ok(vec![WORD.into(), text.into(), OsString::new()])
}

/// What a restart did, or why it failed, as the detached process reports it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Report {
    /// The new kernel is ready.
    Done(Box<Session>),
    /// It is not.
    Failed {
        /// What went wrong, with its causes.
        message: String,
        /// What the kernel wrote last.
        lines: Vec<String>,
        /// Whether the kernel is still starting.
        slow: bool,
    },
}

/// A task that was begun. It goes on whether or not anybody waits for it.
#[derive(Debug)]
pub struct Begun {
    process: Process,
    report: PathBuf,
}

impl Begun {
    /// Waits for the task's end and returns its report. May be cancelled at any await.
    pub async fn report(self) -> Result<Report, TaskError> {
        self.process.death().await;
        let report = beneath::read(&self.report, beneath::SMALL);
        let _ = beneath::remove_file(&self.report);
        report
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .ok_or_else(|| {
                TaskError::Internal("the restart ended without a word; see nb status".to_owned())
            })
    }
}

/// A task whose process is being made while it is found out whether it can be done. Dropped, it ends.
#[derive(Debug)]
pub(crate) struct Coming {
    ahead: Ahead,
    plan: Plan,
    report: PathBuf,
}

/// Begins a task in a process of its own.
pub(crate) async fn begin(project: &Project, task: &Task) -> Result<Begun, TaskError> {
    prepare(project, task)?.begin().await
}

/// Has the process of a task made.
pub(crate) fn prepare(project: &Project, task: &Task) -> Result<Coming, TaskError> {
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
    let plan = Plan {
        what: What::Own(vec![
            OsString::from(WORD),
            text.into(),
            report.clone().into_os_string(),
        ]),
        set: Vec::new(),
        remove: Vec::new(),
        clears: false,
        input: None,
        folder: project.root().to_owned(),
        log: project.dir().join("nb.log"),
        pid_file: folder.join(format!("{name}.pid")),
        needs: None,
        address_space: None,
        keep: None,
        keeper: None,
    };
    let ahead = Ahead::of(&plan)?;
    Ok(Coming {
        ahead,
        plan,
        report,
    })
}

impl Coming {
    /// Begins it.
    pub(crate) async fn begin(self) -> Result<Begun, TaskError> {
        let Self {
            ahead,
            plan,
            report,
        } = self;
        let pid_file = plan.pid_file.clone();
        let started = tokio::task::spawn_blocking(move || ahead.start(&plan));
        let process = started
            .await
            .map_err(|error| TaskError::Internal(error.to_string()))??;
        // The task needs no finding: its effect is in the state, under the session's lock.
        let _ = beneath::remove_file(&pid_file);
        Ok(Begun { process, report })
    }
}

/// Removes the reports that nobody fetched: whoever waited for them was killed.
pub(crate) fn sweep(project: &Project) {
    let entries = beneath::list(&project.dir().join("background"));
    for entry in entries.into_iter().flatten().flatten() {
        let modified = entry.metadata().and_then(|found| found.modified());
        let age = modified.ok().and_then(|at| at.elapsed().ok());
        if age.is_some_and(|age| age > UNFETCHED) {
            let _ = beneath::remove_file(&entry.path());
        }
    }
}

/// How old a report may become. Nobody waits longer for a restart.
const UNFETCHED: Duration = Duration::from_secs(24 * 3600);
