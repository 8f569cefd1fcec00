//! Makes recorders write their outputs into the notebook now: while a cell runs they write seldom.

use std::io;
use std::time::Duration;

use super::follow::wait_until_handled;
use crate::notebook::Document;
use crate::project::Project;
use crate::project::jobs::{Job, JobFolder, JobState, RecorderRequest};

/// How long to wait for a recorder, which may have to wait for the notebook's lock and writes all
/// its outputs.
const RECORDER_TIMEOUT: Duration = Duration::from_secs(15);

/// A recorder that was asked to write its outputs.
#[derive(Debug)]
pub struct Flushed {
    /// Its job's record afterwards.
    pub job: Job,
    /// Whether the recorder has written, or has ended in the meantime, which includes a last write.
    pub answered: bool,
    /// The cells whose outputs the recorder has written since it was asked.
    pub written: Vec<String>,
    /// The cells whose outputs could not be written, with the reasons; the job stores the outputs.
    pub missed: Vec<(String, String)>,
}

/// Asks the recorders of a notebook's jobs to write their outputs, all at once, and waits until they
/// have. `read` reads the notebook, if it can be read.
///
/// # Errors
/// A job's folder cannot be written to.
pub async fn flush(
    project: &Project,
    notebook: &str,
    read: impl Fn() -> Option<Document>,
) -> io::Result<Vec<Flushed>> {
    let jobs = holders(project, |job| job.notebook == notebook);
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let before = read();
    let answers = ask_to_write(jobs).await?;
    let after = read();
    let flushed = answers.into_iter().map(|(job, answered)| {
        let begun = || job.cells.iter().filter(|cell| cell.begun_at.is_some());
        // A front end that has disconnected may have sent no cell id.
        let name = |cell: &Option<String>| cell.clone().unwrap_or_else(|| "a cell".to_owned());
        let missed = begun().filter_map(|cell| Some((name(&cell.cell), cell.unwritten.clone()?)));
        let is_new = |id: &&String| match (&before, &after) {
            (Some(before), Some(after)) => outputs_differ(before, after, id),
            _ => false,
        };
        let written = begun().filter(|cell| cell.unwritten.is_none());
        let written = written.filter_map(|cell| cell.cell.as_ref());
        Flushed {
            answered,
            written: written.filter(is_new).cloned().collect(),
            missed: missed.collect(),
            job,
        }
    });
    Ok(flushed.collect())
}

/// Returns the jobs for which `is_wanted` is true and whose recorders may hold outputs that are not in the
/// notebook yet.
pub(super) fn holders(project: &Project, is_wanted: impl Fn(&Job) -> bool) -> Vec<JobFolder> {
    let mut jobs = project.open_jobs();
    jobs.retain(|folder| {
        let holds = folder
            .read()
            .is_ok_and(|job| is_wanted(&job) && holds(&job));
        holds && folder.has_recorder()
    });
    jobs
}

/// Says whether a job's recorder may have outputs to write. When the job is done, the recorder has
/// written all that it could, and is about to end.
fn holds(job: &Job) -> bool {
    let mut cells = job.cells.iter();
    job.state != JobState::Done && job.saves && cells.any(|cell| cell.begun_at.is_some())
}

/// Asks recorders to write, and waits until they have; returns their jobs, and whether each one
/// has.
///
/// # Errors
/// A job's folder cannot be written to.
pub(super) async fn ask_to_write(jobs: Vec<JobFolder>) -> io::Result<Vec<(Job, bool)>> {
    for folder in &jobs {
        folder.request(&RecorderRequest::Write)?;
    }
    let mut answers = Vec::new();
    for folder in jobs {
        let handled = wait_until_handled(&folder);
        let answered = tokio::time::timeout(RECORDER_TIMEOUT, handled)
            .await
            .is_ok();
        if let Ok(job) = folder.read() {
            answers.push((job, answered));
        }
    }
    Ok(answers)
}

fn outputs_differ(before: &Document, after: &Document, id: &str) -> bool {
    let outputs = |document: &Document| {
        let cell = document.cells().iter().find(|cell| cell.id() == id)?;
        Some(cell.outputs().collect::<Vec<_>>())
    };
    outputs(before) != outputs(after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notebook::tests::fixtures::cells;
    use crate::notebook::{CellExecution, Json};
    use crate::project::jobs::JobCell;

    /// Makes a project with a job whose cell `a` runs.
    fn job(temp: &std::path::Path) -> (Project, JobFolder) {
        let project = Project::for_notebook(&temp.join("a.ipynb")).unwrap();
        let mut job: Job = serde_json::from_value(serde_json::json!({
            "id": "", "by": "ada", "notebook": "a.ipynb", "path": "a.ipynb", "session": "a.ipynb",
            "state": JobState::Running, "asked_at": jiff::Timestamp::now(), "cells": [],
            "saves": true,
        }))
        .unwrap();
        let mut cell = JobCell::new(Some("a".to_owned()), "x".to_owned());
        cell.begun_at = Some(jiff::Timestamp::now());
        job.cells.push(cell);
        let folder = project.make_job(&mut job).unwrap();
        (project, folder)
    }

    #[tokio::test]
    async fn a_recorder_is_asked_and_waited_for() {
        let temp = tempfile::tempdir().unwrap();
        let (project, folder) = job(temp.path());
        let file = std::cell::RefCell::new(cells("a:x"));
        let read = || Some(file.borrow().clone());
        // Without a recorder there is no wait.
        let none = flush(&project, "a.ipynb", read).await.unwrap();
        assert!(none.is_empty());
        let _recorder = folder.lock().unwrap().unwrap();
        let of_another = flush(&project, "b.ipynb", read).await.unwrap();
        assert!(of_another.is_empty());
        let writes = async {
            loop {
                if let Some((asked, request)) = folder.requests().pop() {
                    assert_eq!(request, RecorderRequest::Write);
                    let output = r#"{"output_type":"stream","name":"stdout","text":"printed"}"#;
                    let execution = CellExecution {
                        outputs: vec![Json::parse(output).unwrap()],
                        ..CellExecution::default()
                    };
                    file.borrow_mut().set_execution(0, &execution).unwrap();
                    folder.forget(&asked);
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        let (flushed, ()) = tokio::join!(flush(&project, "a.ipynb", read), writes);
        let flushed = flushed.unwrap();
        assert!(flushed[0].answered, "{flushed:?}");
        assert_eq!(flushed[0].written, ["a"]);
        // The recorder has written everything, but has not ended yet.
        let mut done = folder.read().unwrap();
        done.state = JobState::Done;
        folder.write(&done).unwrap();
        let none = flush(&project, "a.ipynb", read).await.unwrap();
        assert!(none.is_empty());
    }
}
