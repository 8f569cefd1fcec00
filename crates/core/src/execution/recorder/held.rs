//! Writes the outputs that were held back while JupyterLab may have had the notebook open in a room, or while a cell of
//! VS Code waited or ran.
//!
//! A job whose outputs are held back is over, but counts as open. The recorder of the first one stays until the page is
//! closed or the cells have ended, and writes the outputs of all of them; if it has ended, the next command does. Cells of
//! VS Code hold back the outputs of a running job for as long as they have not ended, those of an ended job for an hour
//! at most.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::salvage::{self, MOST_BESIDE_CELLS, SalvageError, beside};
use crate::activity::collaboration::room_of;
use crate::editing::editor_back_off::open_cell_of_vs_code;
use crate::editing::notebook_file::NotebookFile;
use crate::editing::transaction;
use crate::execution::into_notebook::{Beside, Hold};
use crate::kernel::variables::ProcessVariables;
use crate::project::Project;
use crate::project::jobs::{Job, JobFolder, JobState};

/// The time between two checks whether the page is closed.
const ROOM_PAUSE: Duration = Duration::from_secs(5);

/// The time between two checks whether the cells of VS Code have ended.
const CELL_PAUSE: Duration = Duration::from_secs(2);

/// For how many checks in a row the page must be closed: a page that is being loaded again has no connection to its
/// kernel for up to eight seconds.
const CLOSED_CHECKS: u32 = 3;

/// How long a page without a connection to its kernel may be one that is being loaded again.
pub(super) const RELOAD: Duration = ROOM_PAUSE.saturating_mul(CLOSED_CHECKS - 1);

/// For how long a recorder stays.
const STAYS: Duration = MOST_BESIDE_CELLS.saturating_add(Duration::from_secs(60));

/// Returns the time until the next check of what holds outputs back.
pub(super) fn check_pause(hold: Hold) -> Duration {
    match hold {
        Hold::Room => ROOM_PAUSE,
        Hold::Cell => CELL_PAUSE,
    }
}

/// Writes what the jobs of a job's notebook hold back, once nothing holds it back any more. Returns at once if this job
/// holds nothing back, or if another recorder waits.
pub(super) async fn write_when_free(project: &Project, folder: &JobFolder) {
    let Ok(job) = folder.read() else {
        return;
    };
    if !job.held {
        return;
    }
    let Ok(Some(_lock)) = project.try_lock_held(&job.notebook) else {
        return;
    };
    let check = async || {
        // What is held back may be written by another command in the meantime.
        let held = held_jobs(project, &job.notebook);
        match held.first() {
            None => Check::Written,
            Some((first, _)) => match hold(first).await {
                Some(hold) => Check::Held(hold),
                None => Check::Free,
            },
        }
    };
    let mut left = STAYS;
    while is_free_in_time(&mut left, &check, tokio::time::sleep).await {
        write(project, &job.notebook).await;
    }
}

/// Writes what a project's jobs hold back for notebooks for which nothing does so any more, unless recorders wait for
/// that; returns whether some is left. Without such jobs this only lists a folder.
pub(in crate::execution) async fn write_free(project: &Project) -> bool {
    let open = project.open_jobs().into_iter();
    let jobs = open.filter_map(|folder| folder.read().ok());
    let notebooks: BTreeSet<_> = jobs
        .filter(|job| job.held)
        .map(|job| job.notebook)
        .collect();
    let mut is_left = false;
    for notebook in notebooks {
        let Ok(Some(_lock)) = project.try_lock_held(&notebook) else {
            continue;
        };
        let held = held_jobs(project, &notebook);
        let Some((first, _)) = held.first() else {
            continue;
        };
        if hold(first).await.is_none() {
            write(project, &notebook).await;
        }
        is_left |= !held_jobs(project, &notebook).is_empty();
    }
    is_left
}

/// The state of what is held back, at a check.
#[derive(Clone, Copy, Debug)]
enum Check {
    Held(Hold),
    /// Nothing holds it back.
    Free,
    /// It is written.
    Written,
}

/// Checks every few seconds; returns whether it may be written within the time that is left.
async fn is_free_in_time<F: Future<Output = ()>>(
    left: &mut Duration,
    check: impl AsyncFn() -> Check,
    sleep: impl Fn(Duration) -> F,
) -> bool {
    let mut closed = 0;
    while !left.is_zero() {
        let pause;
        (closed, pause) = match check().await {
            Check::Written => return false,
            Check::Held(Hold::Room) => (0, ROOM_PAUSE),
            // There is no room, so that no page is being loaded again.
            Check::Held(Hold::Cell) => (CLOSED_CHECKS - 1, CELL_PAUSE),
            Check::Free => (closed + 1, ROOM_PAUSE),
        };
        if closed == CLOSED_CHECKS {
            return true;
        }
        sleep(pause).await;
        *left = left.saturating_sub(pause);
    }
    false
}

/// Returns what holds the outputs of an ended job back now.
async fn hold(job: &Job) -> Option<Hold> {
    if is_in_room(&job.path).await {
        return Some(Hold::Room);
    }
    if beside(job) == Beside::Cells {
        return None;
    }
    let path = job.path.clone();
    let cell = tokio::task::spawn_blocking(move || {
        let notebook = NotebookFile::of(&path).ok()?;
        open_cell_of_vs_code(&notebook)
    });
    let has_cell = cell.await.is_ok_and(|cell| cell.is_some());
    has_cell.then_some(Hold::Cell)
}

/// Returns whether JupyterLab may have a notebook open in a room, and no page of it writes for `nb`.
pub(super) async fn is_in_room(notebook: &Path) -> bool {
    let notebook = notebook.to_owned();
    let asked = tokio::task::spawn_blocking(move || {
        let notebook = NotebookFile::of(&notebook).ok()?;
        match transaction::has_room(&notebook) {
            true => None,
            false => room_of(&notebook.real, &ProcessVariables),
        }
    });
    asked.await.is_ok_and(|room| room.is_some())
}

/// Returns the jobs that hold back outputs of a notebook, the oldest first.
fn held_jobs(project: &Project, notebook: &str) -> Vec<(Job, JobFolder)> {
    let open = project.open_jobs().into_iter();
    let jobs = open.filter_map(|folder| Some((folder.read().ok()?, folder)));
    let is_held = |job: &Job| job.held && job.state == JobState::Done && job.notebook == notebook;
    let mut jobs: Vec<_> = jobs.filter(|(job, _)| is_held(job)).collect();
    jobs.sort_by_key(|(job, _)| job.asked_at);
    jobs
}

async fn write(project: &Project, notebook: &str) {
    for (mut job, folder) in held_jobs(project, notebook) {
        match salvage::write(project, &folder, None, false).await {
            Ok(_) => {}
            Err(SalvageError::Unwritable { is_held: true, .. }) => return,
            Err(error) => {
                // The record says why the outputs are not in the notebook, and they stay in the job.
                tracing::warn!(%error, "outputs that were held back could not be written");
                job.held = false;
                if folder.write(&job).is_err() {
                    return;
                }
            }
        }
        project.close_job(&folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether the wait ends so that outputs may be written, and after how many checks and seconds; the last
    /// check is repeated.
    async fn checks(answers: &[Check]) -> (bool, usize, u64) {
        let count = std::cell::Cell::new(0);
        let check = async || {
            count.set(count.get() + 1);
            *answers.get(count.get() - 1).or(answers.last()).unwrap()
        };
        let mut left = STAYS;
        let is_free = is_free_in_time(&mut left, check, |_| std::future::ready(())).await;
        (is_free, count.get(), (STAYS - left).as_secs())
    }

    const ROOM: Check = Check::Held(Hold::Room);
    const CELL: Check = Check::Held(Hold::Cell);

    #[tokio::test]
    async fn a_page_that_is_loaded_again_is_not_closed() {
        use Check::{Free, Written};
        assert_eq!(checks(&[Free]).await, (true, 3, 10));
        let reloaded = [ROOM, Free, Free, ROOM, Free];
        assert_eq!(checks(&reloaded).await, (true, 7, 30));
        assert_eq!(checks(&[ROOM]).await, (false, 732, 3660));
        assert_eq!(checks(&[ROOM, Free, Written]).await, (false, 3, 10));
    }

    #[tokio::test]
    async fn what_a_cell_of_vs_code_held_back_is_written_soon_after_its_end() {
        use Check::{Free, Written};
        assert_eq!(checks(&[CELL, CELL, Free]).await, (true, 3, 4));
        assert_eq!(checks(&[CELL, Written]).await, (false, 2, 2));
        assert_eq!(checks(&[CELL, ROOM, Free]).await, (true, 5, 17));
        assert_eq!(checks(&[CELL]).await, (false, 1830, 3660));
    }
}
