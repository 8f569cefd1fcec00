//! Follows the notebooks that pages have requested, and sends their events and outputs to all pages.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

use super::callers::Callers;
use super::feed::{Feed, PageMessage};
use crate::api::caller::Caller;
use crate::api::envelope::Meanwhile;
use crate::api::job::{FollowOptions, FollowedState, JobEvent, JobObserver, OutputsAs};
use crate::api::problem::Problem;
use crate::api::{self, EventFollower, EventsRequest, JobsRequest, ListedJob, WaitRequest};
use crate::notebook::{Json, OutputAccumulator, OutputChange};
use crate::project::event::EventKind;
use crate::project::jobs::JobPrompt;
use crate::project::{FolderWatch, Project};

/// How many projects, folders and running jobs are followed at most, each. Others are not reported.
const FOLLOWED_MAX: usize = 64;

/// The pause between two checks of a folder, where the system reports no changes.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// How often outputs are sent at most.
const OUTPUT_INTERVAL: Duration = Duration::from_millis(100);

/// About how many bytes of text of a running cell are shown. At its end the page gets what the file has.
const CELL_BYTES_MAX: usize = 256 << 10;

/// The pause between two checks whether a prompt was answered.
const PROMPT_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Follows notebooks.
pub(super) struct NotebookFollower {
    callers: Callers,
    feed: Arc<Feed>,
    followed: Mutex<FollowedSet>,
}

/// The followed projects, folders and jobs.
#[derive(Default)]
struct FollowedSet {
    /// The roots of projects.
    projects: HashSet<PathBuf>,
    /// The names of notebooks, by folder.
    folders: HashMap<PathBuf, BTreeSet<String>>,
    jobs: HashSet<String>,
    /// The cells that run, by job.
    running: HashMap<String, RunningCell>,
}

/// A cell that runs, with the outputs that the pages have.
#[derive(Default)]
struct RunningCell {
    notebook: String,
    cell: String,
    outputs: Vec<Value>,
}

impl FollowedSet {
    /// Notes that a job runs a cell now.
    fn runs(&mut self, job: &str, notebook: &str, cell: &str) -> &mut RunningCell {
        let running = self.running.entry(job.to_owned()).or_default();
        if running.cell != cell {
            *running = RunningCell {
                notebook: notebook.to_owned(),
                cell: cell.to_owned(),
                ..RunningCell::default()
            };
        }
        running
    }
}

impl NotebookFollower {
    pub(super) fn new(callers: Callers, feed: Arc<Feed>) -> Self {
        Self {
            callers,
            feed,
            followed: Mutex::default(),
        }
    }

    fn set(&self) -> MutexGuard<'_, FollowedSet> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what a running cell has output until now, and the number of the last message; no outputs if the cell is not
    /// followed.
    pub(super) fn outputs_until_now(
        &self,
        notebook: &str,
        cell: &str,
    ) -> (u64, Option<Vec<Value>>) {
        // No output is sent meanwhile.
        let set = self.set();
        let mut cells = set.running.values();
        let found = cells.find(|it| it.notebook == notebook && it.cell == cell);
        (self.feed.number(), found.map(|it| it.outputs.clone()))
    }

    /// Sends what has changed of the outputs of a job's cell.
    fn send_outputs(&self, job: &str, notebook: &str, cell: &str, now: Vec<Value>) {
        let mut set = self.set();
        let before = &mut set.runs(job, notebook, cell).outputs;
        let same = before
            .iter()
            .zip(&now)
            .take_while(|(one, other)| one == other);
        let from = same.count();
        if from == now.len() && from == before.len() {
            return;
        }
        let outputs = now[from..].to_vec();
        *before = now;
        self.feed.send(&PageMessage::Output {
            notebook: notebook.to_owned(),
            cell: cell.to_owned(),
            from,
            outputs,
        });
    }

    /// Follows a notebook, from now on. Must be called on the worker.
    ///
    /// # Errors
    /// Its project cannot be used.
    pub(super) async fn follow(self: &Arc<Self>, notebook: &Path) -> Result<(), Problem> {
        let is_new = self.follow_file(notebook);
        let caller = self.callers.caller(Some(notebook.to_owned()))?;
        self.follow_project(&caller).await?;
        if is_new {
            self.follow_open_jobs(&caller, notebook).await?;
        }
        Ok(())
    }

    /// Follows the jobs that have begun before.
    async fn follow_open_jobs(
        self: &Arc<Self>,
        caller: &Caller,
        notebook: &Path,
    ) -> Result<(), Problem> {
        let Some(id) = self.callers.id_of(notebook) else {
            return Ok(());
        };
        let request = JobsRequest { all: false };
        for ListedJob { job, .. } in api::jobs(caller, request).await?.jobs {
            let mut cells = job.cells.iter().filter(|it| it.status.is_none());
            let Some(cell) = cells.next().and_then(|it| it.cell.as_deref()) else {
                continue;
            };
            self.follow_job(&job.id, &id, Some(cell), notebook.to_owned());
        }
        Ok(())
    }

    async fn follow_project(self: &Arc<Self>, caller: &Caller) -> Result<(), Problem> {
        let root = caller.project.as_ref().map(Project::root);
        if root.is_some_and(|root| self.set().projects.contains(root)) {
            return Ok(());
        }
        let events = api::events(caller, EventsRequest::default()).await?;
        let Some(target) = caller.target_notebook() else {
            return Ok(());
        };
        let project = target.project.clone();
        {
            let projects = &mut self.set().projects;
            if projects.len() >= FOLLOWED_MAX || !projects.insert(project.root().to_owned()) {
                return Ok(());
            }
        }
        tokio::task::spawn_local(self.clone().pass_events(project, events));
        Ok(())
    }

    /// Follows a notebook's file; returns whether it was not followed before.
    fn follow_file(self: &Arc<Self>, notebook: &Path) -> bool {
        let (Some(folder), Some(name)) = (notebook.parent(), notebook.file_name()) else {
            return false;
        };
        let name = name.to_string_lossy().into_owned();
        let folders = &mut self.set().folders;
        if let Some(names) = folders.get_mut(folder) {
            names.insert(name)
        } else if folders.len() < FOLLOWED_MAX {
            folders.insert(folder.to_owned(), BTreeSet::from([name]));
            let watch = FolderWatch::begin(&[folder], POLL_INTERVAL);
            tokio::task::spawn_local(self.clone().pass_changes(folder.to_owned(), watch));
            true
        } else {
            false
        }
    }

    /// Reports changed files of a folder.
    async fn pass_changes(self: Arc<Self>, folder: PathBuf, mut watch: FolderWatch) {
        loop {
            let mut changed = BTreeSet::new();
            let mut any_file = false;
            // Read again for each change: further notebooks may have been requested meanwhile.
            let followed_names = || {
                let set = self.set();
                set.folders.get(&folder).cloned().unwrap_or_default()
            };
            let is_relevant = |name: Option<&str>| match name {
                Some(name) => {
                    let is_followed = followed_names().contains(name);
                    changed.extend(is_followed.then(|| name.to_owned()));
                    is_followed
                }
                None => {
                    any_file = true;
                    true
                }
            };
            watch.changed(is_relevant).await;
            if any_file {
                changed = followed_names();
            }
            for name in changed {
                if let Some(notebook) = self.callers.id_of(&folder.join(name)) {
                    self.feed.send(&PageMessage::Changed { notebook });
                }
            }
        }
    }

    /// Reports the events of a project, and follows the jobs that begin.
    async fn pass_events(self: Arc<Self>, project: Project, mut events: EventFollower) {
        loop {
            let event = events.next().await;
            let path = project.notebook(event.notebook());
            let Some(notebook) = self.callers.id_of(&path) else {
                continue;
            };
            if let EventKind::Requested(start) = &event.kind
                && let Some(job) = &start.job
            {
                self.follow_job(job, &notebook, start.cell.as_deref(), path);
            }
            let event = Box::new(event);
            self.feed.send(&PageMessage::Event { notebook, event });
        }
    }

    /// Follows a job, which runs a cell now.
    fn follow_job(self: &Arc<Self>, job: &str, notebook: &str, cell: Option<&str>, path: PathBuf) {
        let is_new = {
            let mut set = self.set();
            let is_new = set.jobs.len() < FOLLOWED_MAX && set.jobs.insert(job.to_owned());
            if let Some(cell) = cell.filter(|_| set.jobs.contains(job)) {
                set.runs(job, notebook, cell);
            }
            is_new
        };
        if !is_new {
            return;
        }
        let (follower, job) = (self.clone(), job.to_owned());
        let notebook = notebook.to_owned();
        tokio::task::spawn_local(async move {
            if let Err(problem) = pass_outputs(&follower, &job, &notebook, path).await {
                tracing::warn!(problem = problem.message, "a job is no longer followed");
            }
            let mut set = follower.set();
            set.jobs.remove(&job);
            set.running.remove(&job);
        });
    }
}

/// Reports the outputs and questions of a job until it is over.
async fn pass_outputs(
    follower: &NotebookFollower,
    job: &str,
    notebook: &str,
    path: PathBuf,
) -> Result<(), Problem> {
    let caller = follower.callers.caller(Some(path))?;
    let collector = OutputCollector::default();
    let send = || {
        for (cell, outputs) in collector.take() {
            follower.send_outputs(job, notebook, &cell, outputs);
        }
    };
    let mut reported_prompt: Option<(Option<String>, JobPrompt)> = None;
    let mut all = true;
    loop {
        let request = WaitRequest {
            job: Some(job.to_owned()),
            all: std::mem::take(&mut all),
            follow: FollowOptions {
                timeout: Some(0.0),
                outputs: OutputsAs::Events,
                ..FollowOptions::default()
            },
        };
        let answer = {
            let mut wait = pin!(api::wait(&caller, request, &collector));
            loop {
                match timeout(OUTPUT_INTERVAL, &mut wait).await {
                    Ok(answer) => break answer?,
                    Err(_) => send(),
                }
            }
        };
        send();
        // The next wait begins where this one ended.
        let reader = caller.clone();
        let delivery = tokio::task::spawn_blocking(move || reader.delivered(&Meanwhile::default()));
        delivery
            .await
            .map_err(|error| Problem::failed("record what was seen", &error))?;
        let prompt = answer.prompt.map(|prompt| {
            let mut cells = answer.record.cells.iter();
            let prompting_cell = cells.find(|cell| cell.status.is_none());
            (prompting_cell.and_then(|cell| cell.cell.clone()), prompt)
        });
        if prompt != reported_prompt
            && let Some((cell, job_prompt)) = prompt.clone().or(reported_prompt)
        {
            follower.feed.send(&PageMessage::Prompt {
                notebook: notebook.to_owned(),
                job: job.to_owned(),
                cell,
                prompt: prompt.is_some().then_some(job_prompt),
            });
        }
        reported_prompt = prompt;
        if matches!(answer.state, FollowedState::Done | FollowedState::Lost) {
            return Ok(());
        }
        tokio::time::sleep(PROMPT_POLL_INTERVAL).await;
    }
}

/// Collects the outputs of a job.
#[derive(Default)]
struct OutputCollector {
    cells: RefCell<Vec<CellOutputs>>,
}

/// The outputs of one cell so far.
struct CellOutputs {
    cell: String,
    outputs: OutputAccumulator,
    has_changed: bool,
}

impl OutputCollector {
    /// Returns the outputs of the cells that have others than before.
    fn take(&self) -> Vec<(String, Vec<Value>)> {
        let mut cells = self.cells.borrow_mut();
        let changed = cells.iter_mut().filter(|it| it.has_changed);
        let changed = changed.map(|cell| {
            cell.has_changed = false;
            let outputs = cell.outputs.outputs();
            let outputs = outputs.iter().map(Json::text);
            let outputs = outputs.filter_map(|text| serde_json::from_str(&text).ok());
            (cell.cell.clone(), outputs.collect())
        });
        let changed = changed.collect();
        // The cells of a job run one after the other.
        let ended_cells = cells.len().saturating_sub(1);
        cells.drain(..ended_cells);
        changed
    }
}

impl JobObserver for OutputCollector {
    fn on_event(&self, event: &JobEvent<'_>) {
        let JobEvent::Output(event) = event else {
            return;
        };
        let Some(cell) = event.cell else {
            return;
        };
        let mut cells = self.cells.borrow_mut();
        if cells.last().is_none_or(|last| last.cell != cell) {
            cells.push(CellOutputs {
                cell: cell.to_owned(),
                outputs: OutputAccumulator::bounded(CELL_BYTES_MAX, "the cell's end"),
                has_changed: false,
            });
        }
        if let Some(last) = cells.last_mut() {
            let content = event.content.get().as_bytes();
            let change = last.outputs.take(event.msg_type, content);
            last.has_changed |= change != OutputChange::Nothing;
        }
    }
}
