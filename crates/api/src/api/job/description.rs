//! Descriptions of jobs, and of what they wait for, as text.

use crate::api::time::age;
use crate::project::jobs::{Job, JobCell, JobState};

/// Returns what a job runs, and its state: `cell 3f2c of train.ipynb · running`.
pub fn describe(job: &Job) -> String {
    let state = match job.state {
        JobState::Queued => "queued",
        JobState::Running => "running",
        JobState::WaitingInput => "asks something",
        JobState::Done => "done",
    };
    format!("{} · {state}", describe_code(job))
}

/// Returns what a job runs: `cell 3f2c of train.ipynb`.
pub fn describe_code(job: &Job) -> String {
    match job.cells.as_slice() {
        [JobCell { cell: Some(id), .. }] => format!("cell {id} of {}", job.notebook),
        [_] => format!("code for {}", job.notebook),
        cells => format!("{} cells of {}", cells.len(), job.notebook),
    }
}

/// Returns the cell that a job waits for: `ada's cell 3f2c, running for 12 s`.
pub fn describe_wait(job: &Job) -> Option<String> {
    let mut behind = job.behind.clone()?;
    if let Some(id) = &job.behind_job {
        behind = format!("{behind} (job {id})");
    }
    Some(match job.behind_since {
        Some(since) => format!("{behind}, running for {}", age(since)),
        None => behind,
    })
}
