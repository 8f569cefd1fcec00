//! `status --watch`: reads the status of a project's kernels again and again.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Serialize;

use super::caller::{Caller, open_project};
use super::problem::Problem;
use super::status::{ELSEWHERE, KernelStatus};
use crate::lifecycle::all_kernels;
use crate::lifecycle::status::{SessionStatus, status, status_from_journal};
use crate::project::{Project, StateError};

/// How often a kernel is asked whether it is busy; in between, the journal says so. Each request causes
/// iopub messages, which every client receives.
const ASK: Duration = Duration::from_secs(10);

/// How often a kernel is asked while it runs something that the journal does not know.
const ASK_AGAIN: Duration = Duration::from_secs(3);

/// A repeated reading of the status of a project's kernels, or of one notebook's kernel.
#[derive(Debug)]
pub struct StatusWatch {
    project: Project,
    /// The key of the only session to watch, and the name of the notebook that was requested.
    only: Option<(String, String)>,
    /// When the kernels were last asked.
    asked_at: Option<Instant>,
    /// The connection files of kernels that were then busy with something that the journal does not know.
    unknown: Vec<PathBuf>,
}

/// The kernels at one moment.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StatusSnapshot {
    /// When they were looked at.
    pub at: Timestamp,
    /// The project's folder.
    pub project: PathBuf,
    /// The notebooks that have or had a kernel.
    pub sessions: Vec<KernelStatus>,
}

impl StatusWatch {
    /// Begins to watch, without reading any status yet.
    ///
    /// # Errors
    /// There is no project, or its `state.json` cannot be read.
    pub async fn begin(caller: &Caller) -> Result<Self, Problem> {
        let (project, only) = match caller.named() {
            Some(_) => {
                let target = caller.target().await?;
                (target.project, Some((target.key, target.notebook_key)))
            }
            None => (open_project(&caller.working_dir, ELSEWHERE)?, None),
        };
        Ok(Self {
            project,
            only,
            asked_at: None,
            unknown: Vec::new(),
        })
    }

    /// Reads the status of the kernels. May be dropped halfway.
    ///
    /// # Errors
    /// The project's `state.json` cannot be read.
    pub async fn snapshot(&mut self) -> Result<StatusSnapshot, Problem> {
        let timeout = match self.unknown.is_empty() {
            true => ASK,
            false => ASK_AGAIN,
        };
        let asks_kernels = self.asked_at.is_none_or(|at| at.elapsed() >= timeout);
        let statuses = self.statuses(asks_kernels).await;
        let mut statuses = statuses.map_err(|error| Problem::failed("look", &error))?;
        if asks_kernels {
            self.asked_at = Some(Instant::now());
            let unknown = statuses.iter();
            let unknown = unknown.filter(|it| it.busy == Some(true) && it.running.is_none());
            let files = unknown.map(|it| it.session.connection_file.clone());
            self.unknown = files.collect();
        } else {
            for it in &mut statuses {
                if it.busy == Some(false) && self.unknown.contains(&it.session.connection_file) {
                    it.busy = Some(true);
                }
            }
        }
        Ok(StatusSnapshot {
            at: Timestamp::now(),
            project: self.project.root().to_owned(),
            sessions: statuses
                .into_iter()
                .map(|status| KernelStatus::of(&self.project, status))
                .collect(),
        })
    }

    async fn statuses(&self, asks_kernels: bool) -> Result<Vec<SessionStatus>, StateError> {
        let Some((key, name)) = &self.only else {
            return match asks_kernels {
                true => all_kernels::of_project(&self.project).await,
                false => all_kernels::of_project_from_journal(&self.project).await,
            };
        };
        let Some(session) = self.project.state()?.session(key) else {
            return Ok(Vec::new());
        };
        let found = match asks_kernels {
            true => status(&self.project, key, session).await?,
            false => status_from_journal(&self.project, key, session).await?,
        };
        Ok(vec![SessionStatus {
            key: name.clone(),
            ..found
        }])
    }
}
