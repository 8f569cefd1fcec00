//! What a cell has output so far, from the job that records it.

use std::ops::ControlFlow;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::execution::follow::{FollowEnd, Follower, follow};
use crate::notebook::OutputAccumulator;
use crate::project::Project;
use crate::project::jobs::{Job, JobFolder, JobMessage};

/// The pause between two reports, and that between two looks for a job: a front end's cell gets one when the front end has
/// gone.
const PACE: Duration = Duration::from_millis(200);
const LOOK: Duration = Duration::from_millis(500);

/// About how many bytes of text are reported of a cell. At its end the editor gets what the file has.
const MOST_BYTES: usize = 256 << 10;

/// The outputs of a running cell are followed until this is dropped.
pub(super) struct RunningOutputs {
    run: String,
    follower: JoinHandle<()>,
}

impl Drop for RunningOutputs {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

/// What a cell has output so far.
#[derive(Debug)]
pub(super) struct OutputsSoFar {
    pub(super) doc: String,
    pub(super) run: String,
    pub(super) outputs: Vec<Value>,
    pub(super) execution_count: Option<u64>,
}

impl RunningOutputs {
    /// Begins to report what the request `run` outputs.
    pub(super) fn follow(
        project: Project,
        doc: String,
        run: String,
        reports: mpsc::Sender<OutputsSoFar>,
    ) -> Self {
        let follower = tokio::spawn(report(project, doc, run.clone(), reports));
        Self { run, follower }
    }

    /// Says whether this follows the request.
    pub(super) fn is_of(&self, run: &str) -> bool {
        self.run == run
    }
}

async fn report(project: Project, doc: String, run: String, reports: mpsc::Sender<OutputsSoFar>) {
    let folder = loop {
        match job_of(&project, &run) {
            Some(folder) => break folder,
            None => tokio::time::sleep(LOOK).await,
        }
    };
    let mut collected = Collected {
        run: run.clone(),
        outputs: OutputAccumulator::bounded(MOST_BYTES, "the cell's end"),
        execution_count: None,
        has_changed: false,
    };
    let mut at = 0;
    loop {
        let followed = follow(&folder, &mut at, Some(PACE), &mut collected).await;
        if std::mem::take(&mut collected.has_changed) {
            let outputs = collected.outputs.outputs();
            let outputs = outputs
                .iter()
                .filter_map(|json| serde_json::from_str(&json.text()).ok());
            let so_far = OutputsSoFar {
                doc: doc.clone(),
                run: run.clone(),
                outputs: outputs.collect(),
                execution_count: collected.execution_count,
            };
            if reports.send(so_far).await.is_err() {
                return;
            }
        }
        match followed.map(|followed| followed.left) {
            Ok(FollowEnd::StillRunning) => {}
            // Somebody may answer it.
            Ok(FollowEnd::Asks) => tokio::time::sleep(LOOK).await,
            _ => return,
        }
    }
}

/// Returns the job that records a request.
fn job_of(project: &Project, run: &str) -> Option<JobFolder> {
    let records = |job: &Job| job.cells.iter().any(|it| it.msg_id.as_deref() == Some(run));
    let mut open = project.open_jobs().into_iter();
    open.find(|folder| folder.read().is_ok_and(|job| records(&job)))
}

struct Collected {
    run: String,
    outputs: OutputAccumulator,
    execution_count: Option<u64>,
    has_changed: bool,
}

impl Follower for Collected {
    fn take_message(&mut self, job: &Job, message: &JobMessage) -> ControlFlow<()> {
        let cell = job.cells.get(message.cell);
        if cell.is_some_and(|cell| cell.msg_id.as_ref() == Some(&self.run)) {
            let content = message.content.get().as_bytes();
            self.outputs.take(&message.msg_type, content);
            self.has_changed = true;
        }
        ControlFlow::Continue(())
    }

    fn take_state(&mut self, job: &Job) {
        let mut cells = job.cells.iter();
        let cell = cells.find(|cell| cell.msg_id.as_ref() == Some(&self.run));
        let count = cell.and_then(|cell| cell.execution_count);
        self.has_changed |= count != self.execution_count;
        self.execution_count = count;
    }
}
