//! Follows what happens to the notebooks that pages have asked for, and sends it to all pages.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::callers::Callers;
use super::feed::{Feed, PageMessage};
use crate::api::envelope::Meanwhile;
use crate::api::job::{
    FollowOptions, FollowedState, JobEvent, JobObserver, OutputEvent, OutputsAs,
};
use crate::api::problem::Problem;
use crate::api::{self, EventFollower, EventsRequest, WaitRequest};
use crate::project::event::{Event, EventKind};
use crate::project::jobs::JobPrompt;
use crate::project::{FolderWatch, Project};

/// How many projects, folders and running jobs are followed at most, each. What happens in others is not reported.
const MOST: usize = 64;

/// The pause between two looks at a folder, where the system reports no changes.
const PACE: Duration = Duration::from_millis(250);

/// How often outputs are sent at most.
const OUTPUTS: Duration = Duration::from_millis(100);

/// How many bytes of outputs are sent at once; when there are more, the page waits for the notebook's file.
const LONGEST: usize = 64 << 10;

/// How many bytes of outputs of one cell are sent as they come.
const MOST_OF_CELL: usize = 1 << 20;

/// The pause between two looks at whether a question has been answered.
const ASKS: Duration = Duration::from_millis(200);

/// Follows notebooks.
pub(super) struct NotebookFollower {
    callers: Callers,
    feed: Arc<Feed>,
    followed: Mutex<FollowedSet>,
}

/// What is followed.
#[derive(Default)]
struct FollowedSet {
    /// The roots of projects.
    projects: HashSet<PathBuf>,
    /// The names of notebooks, by folder.
    folders: HashMap<PathBuf, BTreeSet<String>>,
    jobs: HashSet<String>,
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

    /// Follows a notebook, from now on. Must be called on the worker.
    ///
    /// # Errors
    /// Its project cannot be used.
    pub(super) async fn follow(self: &Arc<Self>, notebook: &Path) -> Result<(), Problem> {
        self.follow_file(notebook);
        let caller = self.callers.caller(Some(notebook.to_owned()))?;
        let known = caller.project.as_ref().map(Project::root);
        if known.is_some_and(|root| self.set().projects.contains(root)) {
            return Ok(());
        }
        let events = api::events(&caller, EventsRequest::default()).await?;
        let Some(concerned) = caller.concerned() else {
            return Ok(());
        };
        let project = concerned.project.clone();
        {
            let projects = &mut self.set().projects;
            if projects.len() >= MOST || !projects.insert(project.root().to_owned()) {
                return Ok(());
            }
        }
        tokio::task::spawn_local(self.clone().pass_events(project, events));
        Ok(())
    }

    fn follow_file(self: &Arc<Self>, notebook: &Path) {
        let (Some(folder), Some(name)) = (notebook.parent(), notebook.file_name()) else {
            return;
        };
        let name = name.to_string_lossy().into_owned();
        let folders = &mut self.set().folders;
        if let Some(names) = folders.get_mut(folder) {
            names.insert(name);
        } else if folders.len() < MOST {
            folders.insert(folder.to_owned(), BTreeSet::from([name]));
            let watch = FolderWatch::begin(&[folder], PACE);
            tokio::task::spawn_local(self.clone().pass_changes(folder.to_owned(), watch));
        }
    }

    /// Reports changed files of a folder.
    async fn pass_changes(self: Arc<Self>, folder: PathBuf, mut watch: FolderWatch) {
        loop {
            let mut changed = BTreeSet::new();
            let mut is_any = false;
            // Read anew for each change: further notebooks are asked for meanwhile.
            let known = || {
                let set = self.set();
                set.folders.get(&folder).cloned().unwrap_or_default()
            };
            let is_wanted = |name: Option<&str>| match name {
                Some(name) => {
                    let is_followed = known().contains(name);
                    changed.extend(is_followed.then(|| name.to_owned()));
                    is_followed
                }
                None => {
                    is_any = true;
                    true
                }
            };
            watch.changed(is_wanted).await;
            if is_any {
                changed = known();
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
            if let Some(job) = job_of(&event) {
                self.follow_job(job, &notebook, path);
            }
            let event = Box::new(event);
            self.feed.send(&PageMessage::Event { notebook, event });
        }
    }

    fn follow_job(self: &Arc<Self>, job: &str, notebook: &str, path: PathBuf) {
        let jobs = &mut self.set().jobs;
        if jobs.len() >= MOST || !jobs.insert(job.to_owned()) {
            return;
        }
        let (follower, job) = (self.clone(), job.to_owned());
        let notebook = notebook.to_owned();
        tokio::task::spawn_local(async move {
            if let Err(problem) = pass_outputs(&follower, &job, &notebook, path).await {
                tracing::warn!(problem = problem.message, "a job is no longer followed");
            }
            follower.set().jobs.remove(&job);
        });
    }
}

/// Returns the job that begins, or goes on, with an event.
fn job_of(event: &Event) -> Option<&str> {
    match &event.kind {
        EventKind::Asked(start) => start.job.as_deref(),
        _ => None,
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
        for message in collector.take(notebook) {
            follower.feed.send(&message);
        }
    };
    let mut asked: Option<(Option<String>, JobPrompt)> = None;
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
                match timeout(OUTPUTS, &mut wait).await {
                    Ok(answer) => break answer?,
                    Err(_) => send(),
                }
            }
        };
        send();
        // The next look begins where this one ended.
        let seen = caller.clone();
        let seen = tokio::task::spawn_blocking(move || seen.delivered(&Meanwhile::default()));
        seen.await
            .map_err(|error| Problem::failed("record what was seen", &error))?;
        let now = answer.prompt.map(|prompt| {
            let mut cells = answer.record.cells.iter();
            let asks = cells.find(|cell| cell.status.is_none());
            (asks.and_then(|cell| cell.cell.clone()), prompt)
        });
        if now != asked
            && let Some((cell, prompt)) = now.clone().or(asked)
        {
            follower.feed.send(&PageMessage::Prompt {
                notebook: notebook.to_owned(),
                job: job.to_owned(),
                cell,
                prompt: now.is_some().then_some(prompt),
            });
        }
        asked = now;
        if matches!(answer.state, FollowedState::Done | FollowedState::Lost) {
            return Ok(());
        }
        tokio::time::sleep(ASKS).await;
    }
}

/// Collects the outputs of a job between two messages to the pages.
#[derive(Default)]
struct OutputCollector {
    cells: RefCell<Vec<CellOutputs>>,
}

/// New outputs of one cell.
#[derive(Default)]
struct CellOutputs {
    cell: String,
    outputs: Vec<Value>,
    /// How many bytes they have.
    bytes: usize,
    /// How many bytes were sent before.
    sent: usize,
    /// Whether no more are sent.
    cut: bool,
    /// Whether the pages know that.
    told: bool,
}

impl OutputCollector {
    /// Returns the messages to the pages.
    fn take(&self, notebook: &str) -> Vec<PageMessage> {
        let mut cells = self.cells.borrow_mut();
        let news = cells.iter_mut().filter_map(|cell| {
            let is_news = !cell.outputs.is_empty() || (cell.cut && !cell.told);
            cell.sent += std::mem::take(&mut cell.bytes);
            cell.told = cell.cut;
            is_news.then(|| PageMessage::Output {
                notebook: notebook.to_owned(),
                cell: cell.cell.clone(),
                outputs: std::mem::take(&mut cell.outputs),
                cut: cell.cut,
            })
        });
        let news = news.collect();
        // The cells of a job run one after the other.
        let done = cells.len().saturating_sub(1);
        cells.drain(..done);
        news
    }
}

impl JobObserver for OutputCollector {
    fn happens(&self, event: &JobEvent<'_>) {
        let JobEvent::Output(event) = event else {
            return;
        };
        let (Some(cell), Some(output)) = (event.cell, as_stored(event)) else {
            return;
        };
        let mut cells = self.cells.borrow_mut();
        if cells.last().is_none_or(|last| last.cell != cell) {
            cells.push(CellOutputs {
                cell: cell.to_owned(),
                ..CellOutputs::default()
            });
        }
        if let Some(last) = cells.last_mut() {
            last.push(output, event.content.get().len());
        }
    }
}

impl CellOutputs {
    fn push(&mut self, output: Value, bytes: usize) {
        self.bytes += bytes;
        self.cut |= self.bytes > LONGEST || self.sent + self.bytes > MOST_OF_CELL;
        if self.cut {
            return;
        }
        let text = |output: &Value| output["text"].as_str().map(str::to_owned);
        if let Some(last) = self.outputs.last_mut()
            && output["output_type"] == "stream"
            && last["output_type"] == "stream"
            && last["name"] == output["name"]
            && let (Some(before), Some(more)) = (text(last), text(&output))
        {
            last["text"] = Value::String(before + &more);
            return;
        }
        self.outputs.push(output);
    }
}

/// Returns a message of the kernel as a notebook stores it, with what a page needs to update it; `None` for messages
/// that are no outputs.
fn as_stored(event: &OutputEvent<'_>) -> Option<Value> {
    const TYPES: [&str; 6] = [
        "stream",
        "display_data",
        "execute_result",
        "error",
        "update_display_data",
        "clear_output",
    ];
    let is_output = TYPES.contains(&event.msg_type);
    let content: Map<String, Value> = serde_json::from_str(event.content.get()).ok()?;
    let mut output = Map::from_iter([("output_type".to_owned(), json!(event.msg_type))]);
    output.extend(content);
    is_output.then_some(Value::Object(output))
}
