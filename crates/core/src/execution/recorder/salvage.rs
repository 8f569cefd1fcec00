//! Writes the stored outputs of a job into the notebook on request.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use super::outputs::JobOutputs;
use crate::execution::follow::{wait_until_ended, wait_until_handled};
use crate::execution::into_notebook::{self, Beside, ExecutionResult};
use crate::project::Project;
use crate::project::event::{Event, requests};
use crate::project::jobs::{Job, JobCell, JobFolder, JobState, NoJob, RecorderRequest};

/// For how long cells of VS Code hold back the outputs of an ended job.
pub(super) const MOST_BESIDE_CELLS: Duration = Duration::from_secs(3600);

/// The outcome for the outputs of one of a job's cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salvaged {
    /// The index of the cell in the job, from 0.
    pub at: usize,
    /// Whether the cell has another text now, so that the outputs were written with a note about
    /// that.
    pub stale: bool,
    /// Why the outputs are not in the notebook, if they are not.
    pub missed: Option<String>,
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum SalvageError {
    /// The job's record cannot be read.
    #[error(transparent)]
    Job(#[from] NoJob),
    /// The stored outputs cannot be read, or the recorder cannot be asked to write them.
    #[error("cannot read what job {id} keeps")]
    Kept {
        /// The job's id.
        id: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// None of the job's code belongs to a cell.
    #[error("job {0} ran no cell of a notebook: there is nowhere to write its outputs")]
    NoCells(String),
    /// None of the job's cells was begun.
    #[error("job {0} has no outputs: the kernel has begun none of its cells")]
    Nothing(String),
    /// The source of the job's cells is not stored.
    #[error(
        "job {0} does not keep what it ran (journal.code = false): where its outputs belong is not known"
    )]
    NoCode(String),
    /// The notebook cannot be written.
    #[error("outputs of job {id} are not in the notebook: {why}")]
    Unwritable {
        /// The job's id.
        id: String,
        /// The reason.
        why: String,
        /// Whether the outputs are held back, and written later.
        is_held: bool,
    },
}

/// Writes the stored outputs of a job into its notebook, or into another file to which the notebook was
/// moved. If its recorder still runs the job, the recorder writes them. With `force` they are written even
/// beside unsaved changes of a front end, and over the results of later runs.
///
/// # Errors
/// Nothing could be written.
pub async fn write(
    project: &Project,
    folder: &JobFolder,
    to: Option<&Path>,
    force: bool,
) -> Result<Vec<Salvaged>, SalvageError> {
    let mut job = folder.read()?;
    let id = job.id.clone();
    if job.state != JobState::Done && folder.has_recorder() && to.is_none() {
        let kept = |source| SalvageError::Kept {
            id: id.clone(),
            source,
        };
        folder.request(&RecorderRequest::Write).map_err(kept)?;
        wait_until_handled(folder).await;
        job = folder.read()?;
        if job.state != JobState::Done {
            let cells = job.cells.iter().enumerate();
            let begun = cells.filter(|(_, cell)| cell.begun_at.is_some());
            return Ok(begun
                .map(|(at, cell)| Salvaged {
                    at,
                    stale: false,
                    missed: cell.unwritten.clone(),
                })
                .collect());
        }
    }
    if job.state == JobState::Done {
        wait_until_ended(folder).await;
    }
    if job.front_end.is_none() && job.cells.iter().all(|cell| cell.cell.is_none()) {
        return Err(SalvageError::NoCells(id));
    }
    let stored = JobOutputs::read(&job, folder);
    let (outputs, _) = stored.map_err(|source| SalvageError::Kept {
        id: id.clone(),
        source,
    })?;
    // Of outputs that were held back, the others are in the notebook.
    let is_left = |cell: &JobCell| !job.held || cell.unwritten.is_some();
    let begun = (0..job.cells.len()).filter(|at| {
        let cell = &job.cells[*at];
        cell.begun_at.is_some() && is_left(cell)
    });
    let mut all: Vec<ExecutionResult> = begun.filter_map(|at| outputs.result(&job, at)).collect();
    if all.is_empty() {
        return Err(SalvageError::Nothing(id));
    }
    if all.iter().any(|it| it.code.is_empty()) {
        return Err(SalvageError::NoCode(id));
    }
    if !force {
        let run_again = asked_again(project, &job);
        all.iter_mut()
            .for_each(|it| it.ran_since = run_again.contains(&it.at));
    }
    let path = to.unwrap_or(&job.path).to_owned();
    let beside = if force {
        Beside::Anything
    } else {
        self::beside(&job)
    };
    let begun: Vec<usize> = all.iter().map(|it| it.at).collect();
    let put = tokio::task::spawn_blocking(move || {
        into_notebook::put(&path, &job.by, &all, &outputs.widgets, beside)
    });
    let put = put
        .await
        .unwrap_or_else(|error| Err(error.to_string().into()));
    let put = put.map_err(|error| SalvageError::Unwritable {
        id,
        why: error.of_outputs(),
        is_held: error.held_by.is_some(),
    })?;
    let salvaged: Vec<_> = begun
        .into_iter()
        .map(|at| Salvaged {
            at,
            stale: put.stale.contains(&at),
            missed: put.missed(at),
        })
        .collect();
    note(folder, &salvaged);
    Ok(salvaged)
}

/// Returns beside what the outputs of an ended job may be written.
pub(super) fn beside(job: &Job) -> Beside {
    let age = |at| Duration::try_from(Timestamp::now().duration_since(at)).ok();
    let is_old = |at| age(at).is_some_and(|age| age >= MOST_BESIDE_CELLS);
    match job.held && job.ended_at.is_some_and(is_old) {
        true => Beside::Cells,
        false => Beside::Nothing,
    }
}

/// Records in the job what is in the notebook now.
fn note(folder: &JobFolder, salvaged: &[Salvaged]) {
    // A recorder that has started since writes the record itself.
    let (Ok(Some(_lock)), Ok(mut job)) = (folder.lock(), folder.read()) else {
        return;
    };
    for report in salvaged {
        if let Some(cell) = job.cells.get_mut(report.at) {
            cell.unwritten.clone_from(&report.missed);
        }
    }
    job.held = false;
    if let Err(error) = folder.write(&job) {
        tracing::warn!(%error, "the job's record could not be written");
    }
}

/// Returns those of a job's cells that an actor has asked to run again since their own requests, according to
/// the journal.
pub(super) fn asked_again(project: &Project, job: &Job) -> HashSet<usize> {
    match job.cells.iter().any(|cell| cell.begun_at.is_some()) {
        true => asked_again_in(project.events(&job.session), job, Timestamp::now()),
        false => HashSet::new(),
    }
}

/// Like [`asked_again`], from events that come newest first. Their order counts, not their times: a clock may
/// have been set back.
fn asked_again_in(
    events: impl Iterator<Item = Event>,
    job: &Job,
    now: Timestamp,
) -> HashSet<usize> {
    let generation = job.generation.unwrap_or_default();
    let events = events.take_while(|event| !event.starts_generation(generation));
    let begun = job.cells.iter().enumerate();
    let mut begun: Vec<_> = begun.filter(|(_, cell)| cell.begun_at.is_some()).collect();
    let own: HashSet<_> = job
        .cells
        .iter()
        .filter_map(|it| it.msg_id.as_deref())
        .collect();
    let mut requests = requests(events);
    // The other requests that come before those of `begun`, with the indices of the cells that they run again.
    let mut others: Vec<(usize, Timestamp)> = Vec::new();
    let mut again = HashSet::new();
    while !begun.is_empty()
        && let Some(event) = requests.next()
    {
        let Some(start) = event.request() else {
            continue;
        };
        if own.contains(&*start.msg_id) {
            let ran = |cell: &JobCell| cell.msg_id.as_ref() == Some(&start.msg_id);
            for (at, _) in begun.extract_if(.., |(_, cell)| ran(cell)) {
                again.extend(others.iter().filter(|it| it.0 == at).map(|it| it.0));
            }
            continue;
        }
        let same = |cell: &JobCell| match (&start.cell, &cell.cell) {
            (Some(cell), Some(other)) if cell == other => true,
            // VS Code sends a URI in place of the cell's id, so the text is compared.
            (Some(address), _) if address.contains(':') => start.code.as_ref() == Some(&cell.code),
            _ => false,
        };
        let run_again = begun.iter().filter(|(_, cell)| same(cell));
        others.extend(run_again.map(|(at, _)| (*at, event.at)));
    }
    // The journal does not have these requests, so that only the times are left.
    for (at, cell) in begun {
        let is_later =
            |asked: Timestamp| cell.begun_at.is_some_and(|it| asked > it) && asked <= now;
        let later = others
            .iter()
            .any(|(other, asked)| *other == at && is_later(*asked));
        again.extend(later.then_some(at));
    }
    again
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;
    use crate::project::event::fixtures::event;

    #[test]
    fn the_journals_order_says_whether_a_cell_was_asked_for_again() {
        let mut job: Job = serde_json::from_value(serde_json::json!({
            "id": "1", "by": "ada", "notebook": "a.ipynb", "path": "a.ipynb", "session": "a.ipynb",
            "state": JobState::Done, "asked_at": "2026-01-01T10:00:00Z", "cells": [], "saves": true,
            "generation": 1,
        }))
        .unwrap();
        job.cells = ["a", "b"]
            .map(|id| JobCell {
                msg_id: Some(format!("own {id}")),
                begun_at: Some("2026-01-01T10:00:00Z".parse().unwrap()),
                ..JobCell::new(Some(id.to_owned()), "x".to_owned())
            })
            .into();
        let asked = |id: &str, cell: &str, time: &str| {
            event(serde_json::json!({
                "event": "requested", "generation": 1, "msg_id": id, "cell": cell,
                "at": format!("2026-01-01T{time}:00Z"),
            }))
        };
        let again = |events: &[Event], job: &Job| {
            let now = "2026-01-01T10:30:00Z".parse().unwrap();
            let mut again: Vec<_> = asked_again_in(events.iter().rev().cloned(), job, now)
                .into_iter()
                .collect();
            again.sort_unstable();
            again
        };
        let own = [asked("own a", "a", "10:00"), asked("own b", "b", "10:00")];
        // An earlier request whose time lies in the future.
        let earlier = asked("1", "a", "11:00");
        // A later one, after the clock was set back.
        let later = asked("2", "b", "09:00");
        let all = [slice::from_ref(&earlier), &own, slice::from_ref(&later)].concat();
        assert_eq!(again(&all, &job), [1]);
        assert_eq!(again(&all[..3], &job), [0; 0]);
        // One that never ran.
        let withdrawn = event(serde_json::json!({
            "event": "done", "generation": 1, "msg_id": "2", "status": "withdrawn",
        }));
        assert_eq!(again(&[&all[..], &[withdrawn]].concat(), &job), [0; 0]);
        // Without the own requests, the times are compared.
        let unknown = asked("3", "a", "10:01");
        assert_eq!(again(&[earlier, unknown], &job), [0]);
        assert_eq!(again(&[later], &job), [0; 0]);
        // A request to the kernel before.
        job.generation = Some(2);
        let opened = event(serde_json::json!({"event": "opened", "generation": 2}));
        assert_eq!(again(&[all[3].clone(), opened], &job), [0; 0]);
    }

    #[test]
    fn cells_of_vs_code_hold_the_outputs_of_an_ended_job_back_for_an_hour() {
        let ended = |seconds: i64| Job {
            held: true,
            ended_at: Some(Timestamp::now() - jiff::Span::new().seconds(seconds)),
            ..Job::default()
        };
        assert_eq!(beside(&ended(3500)), Beside::Nothing);
        assert_eq!(beside(&ended(3601)), Beside::Cells);
        // After the clock was set back, and of a job that was not held back.
        assert_eq!(beside(&ended(-3601)), Beside::Nothing);
        let held = false;
        let other = Job {
            held,
            ..ended(3601)
        };
        assert_eq!(beside(&other), Beside::Nothing);
    }

    #[tokio::test]
    async fn a_recorder_that_is_done_and_has_not_ended_does_not_write() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a.ipynb");
        let project = Project::for_notebook(&path).unwrap();
        let mut job: Job = serde_json::from_value(serde_json::json!({
            "id": "", "by": "ada", "notebook": "a.ipynb", "path": path, "session": "a.ipynb",
            "state": JobState::Done, "asked_at": jiff::Timestamp::now(), "cells": [], "saves": true,
        }))
        .unwrap();
        let mut cell = JobCell::new(Some("a".to_owned()), "x".to_owned());
        cell.begun_at = Some(jiff::Timestamp::now());
        cell.unwritten = Some("it was read-only".to_owned());
        job.cells.push(cell);
        let folder = project.make_job(&mut job).unwrap();
        let recorder = folder.lock().unwrap().unwrap();
        let ends = async {
            tokio::task::yield_now().await;
            drop(recorder);
        };
        let (written, ()) = tokio::join!(write(&project, &folder, None, false), ends);
        // There is no notebook: the caller gets that error, not the recorder's.
        let problem = written.unwrap_err();
        assert!(
            matches!(problem, SalvageError::Unwritable { .. }),
            "{problem:?}"
        );
        assert!(!folder.has_requests());
    }
}
