//! Operations that a process of their own does, which outlives whoever asked.
//!
//! The program starts itself again, detached, with the job as its argument; the job's report
//! comes by a file, which the one who waits removes.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::causes::with_causes;
use super::open_error::OpenError;
use super::recorder;
use super::restart::{self, Report};
use crate::kernel::detach::{self, Plan};
use crate::kernel::process::Process;
use crate::project::{Project, save};

const WORD: &str = "nb:job";

/// What is to be done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Job {
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
}

/// Runs this process's job, if that is what it was started for. Called first in every `main`.
pub fn entry() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != OsStr::new(WORD) {
        return None;
    }
    let (Some(job), Some(report)) = (arguments.next(), arguments.next()) else {
        return Some(ExitCode::from(2));
    };
    Some(perform(&job, Path::new(&report)))
}

fn perform(job: &OsStr, report: &Path) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let (Ok(job), Ok(runtime)) = (serde_json::from_slice(job.as_encoded_bytes()), runtime) else {
        return ExitCode::FAILURE;
    };
    match job {
        Job::Restart {
            state_file,
            key,
            by,
            patience_ms,
        } => {
            let done = runtime.block_on(async {
                let project = Project::of_state_file(&state_file)
                    .map_err(|error| OpenError::Internal(error.to_string()))?;
                restart::perform(&project, &key, &by, Duration::from_millis(patience_ms)).await
            });
            let (answer, code) = match done {
                Ok(session) => (Report::Done(Box::new(session)), ExitCode::SUCCESS),
                Err(error) => (failed(&error), ExitCode::FAILURE),
            };
            // Nobody may be waiting; then the state says what became of it.
            let _ = serde_json::to_vec(&answer).map(|text| save::replace(report, &text));
            code
        }
        Job::Record { state_file, id } => {
            let done = runtime.block_on(async {
                let project = Project::of_state_file(&state_file)?;
                let folder = project.job(&id).map_err(std::io::Error::other)?;
                recorder::perform(&project, &folder).await
            });
            match done {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    // It goes to the project's own log.
                    eprintln!("job {id} cannot be recorded: {}", with_causes(&error));
                    ExitCode::FAILURE
                }
            }
        }
    }
}

fn failed(error: &OpenError) -> Report {
    let message = with_causes(error);
    let lines = match error {
        OpenError::Died { lines, .. } => lines.clone(),
        _ => Vec::new(),
    };
    Report::Failed {
        message,
        lines,
        slow: matches!(error, OpenError::Slow { .. }),
    }
}

/// A job that was begun. It goes on whether or not anybody waits for it.
#[derive(Debug)]
pub struct Begun {
    process: Process,
    report: PathBuf,
}

impl Begun {
    /// Waits for the job's end and returns its report. May be cancelled at any await.
    pub async fn report(self) -> Result<Report, OpenError> {
        self.process.death().await;
        let report = std::fs::read(&self.report);
        let _ = std::fs::remove_file(&self.report);
        report
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .ok_or_else(|| {
                OpenError::Internal("the restart ended without a word; see nb status".to_owned())
            })
    }
}

/// Begins a job in a process of its own.
pub(super) async fn begin(project: &Project, job: &Job) -> Result<Begun, OpenError> {
    let internal = |error: std::io::Error| OpenError::Internal(error.to_string());
    let folder = project
        .make_folder("background")
        .map_err(|source| OpenError::Lock {
            dir: project.dir().to_owned(),
            source,
        })?;
    let name = uuid::Uuid::new_v4().simple().to_string();
    let report = folder.join(format!("{name}.report"));
    let text = serde_json::to_string(job).map_err(|error| internal(error.into()))?;
    let plan = Plan {
        argv: vec![
            detach::own_program().map_err(internal)?,
            OsString::from(WORD),
            text.into(),
            report.clone().into_os_string(),
        ],
        set: Vec::new(),
        remove: Vec::new(),
        folder: project.root().to_owned(),
        log: project.dir().join("nb.log"),
        pid_file: folder.join(format!("{name}.pid")),
        needs: None,
    };
    let pid_file = plan.pid_file.clone();
    let started = tokio::task::spawn_blocking(move || detach::start(&plan));
    let process = started
        .await
        .map_err(|error| OpenError::Internal(error.to_string()))??;
    // The job needs no finding: its effect is in the state, under the session's lock.
    let _ = std::fs::remove_file(pid_file);
    Ok(Begun { process, report })
}

/// Removes the reports that nobody fetched: whoever waited for them was killed.
pub(super) fn sweep(project: &Project) {
    let entries = std::fs::read_dir(project.dir().join("background"));
    for entry in entries.into_iter().flatten().flatten() {
        let modified = entry.metadata().and_then(|found| found.modified());
        let age = modified.ok().and_then(|at| at.elapsed().ok());
        if age.is_some_and(|age| age > UNFETCHED) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// How old a report may become. Nobody waits longer for a restart.
const UNFETCHED: Duration = Duration::from_secs(24 * 3600);
