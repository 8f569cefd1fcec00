//! Writes the outputs that were held back while JupyterLab may have had the notebook open in a room.
//!
//! A job whose outputs are held back is over, but counts as open. The recorder of the first one stays until the page is
//! closed, and writes the outputs of all of them; if it has ended, the next command does.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::salvage;
use crate::activity::collaboration::room_of;
use crate::kernel::variables::ProcessVariables;
use crate::project::Project;
use crate::project::jobs::{Job, JobFolder, JobState};

/// The time between two checks whether the page is closed.
pub(super) const CHECK_PAUSE: Duration = Duration::from_secs(5);

/// For how many checks in a row the page must be closed: a page that is being loaded again has no connection to its
/// kernel for up to eight seconds.
const CLOSED_CHECKS: u32 = 3;

/// How long a page without a connection to its kernel may be one that is being loaded again.
pub(super) const RELOAD: Duration = CHECK_PAUSE.saturating_mul(CLOSED_CHECKS - 1);

/// For how many checks a recorder stays: an hour.
const MOST_CHECKS: u32 = 720;

/// Waits until the page of a job's notebook is closed, and writes what the notebook's jobs hold back. Returns at once if
/// this job holds nothing back, or if another recorder waits.
pub(super) async fn write_when_closed(project: &Project, folder: &JobFolder) {
    let Ok(job) = folder.read() else {
        return;
    };
    if !job.held {
        return;
    }
    let Ok(Some(_lock)) = project.try_lock_held(&job.notebook) else {
        return;
    };
    // What is held back may be written by another command in the meantime.
    let is_closed =
        async || held_jobs(project, &job.notebook).is_empty() || !is_in_room(&job.path).await;
    if is_closed_in_time(is_closed, CHECK_PAUSE).await {
        write(project, &job.notebook).await;
    }
}

/// Writes what a project's jobs hold back for notebooks whose pages are closed, unless recorders wait for that. Without
/// such jobs this only lists a folder.
pub(in crate::execution) async fn write_closed(project: &Project) {
    let open = project.open_jobs().into_iter();
    let jobs = open.filter_map(|folder| folder.read().ok());
    let notebooks: BTreeSet<_> = jobs
        .filter(|job| job.held)
        .map(|job| (job.notebook, job.path))
        .collect();
    for (notebook, path) in notebooks {
        let Ok(Some(_lock)) = project.try_lock_held(&notebook) else {
            continue;
        };
        if !is_in_room(&path).await {
            write(project, &notebook).await;
        }
    }
}

/// Checks every few seconds; returns whether the page was closed within the time that a recorder stays.
async fn is_closed_in_time(mut is_closed: impl AsyncFnMut() -> bool, pause: Duration) -> bool {
    let mut closed = 0;
    for _ in 0..MOST_CHECKS {
        tokio::time::sleep(pause).await;
        closed = if is_closed().await { closed + 1 } else { 0 };
        if closed == CLOSED_CHECKS {
            return true;
        }
    }
    false
}

/// Returns whether JupyterLab may have a notebook open in a room.
pub(super) async fn is_in_room(notebook: &Path) -> bool {
    let notebook = notebook.to_owned();
    let asked = tokio::task::spawn_blocking(move || {
        let real = notebook.canonicalize().ok()?;
        room_of(&real, &ProcessVariables)
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
        if let Err(error) = salvage::write(project, &folder, None, false).await {
            if is_in_room(&job.path).await {
                return;
            }
            // The record says why the outputs are not in the notebook, and they stay in the job.
            tracing::warn!(%error, "outputs that were held back could not be written");
            job.held = false;
            if folder.write(&job).is_err() {
                return;
            }
        }
        project.close_job(&folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether the wait ends with a closed page, and after how many checks; the last answer is repeated.
    async fn checks(answers: &[bool]) -> (bool, usize) {
        let mut count = 0;
        let is_closed = async || {
            count += 1;
            *answers.get(count - 1).or(answers.last()).unwrap()
        };
        let is_closed = is_closed_in_time(is_closed, Duration::ZERO).await;
        (is_closed, count)
    }

    #[tokio::test]
    async fn a_page_that_is_loaded_again_is_not_closed() {
        assert_eq!(checks(&[true]).await, (true, 3));
        assert_eq!(checks(&[false, true, true, false, true]).await, (true, 7));
        assert_eq!(checks(&[false]).await, (false, 720));
    }
}
