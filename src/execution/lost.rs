//! Recorders and proxies that were killed: the next command of anybody notices, has a new recorder go
//! on with what the kernel still runs, and says what may be missing; to each name once ([`delivered`]).

use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::activity::notification;
use crate::activity::zone;
use crate::lifecycle::open_error::OpenError;
use crate::project::jobs::{Job, JobFolder, JobState};
use crate::project::{Project, beneath};
use crate::task::{self, Task};

/// A recorder or a proxy that was killed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// The job's id.
    pub job: String,
    /// When it gave its last sign.
    pub at: Timestamp,
    /// All of it, as one line for a reader.
    pub text: String,
}

/// How long it is told.
const TOLD_HOURS: i64 = 24 * 7;

/// How long a recorder may take to begin.
const BEGINS_SECONDS: i64 = 10;

/// How long is waited until it has.
const TAKES_UP: Duration = Duration::from_secs(2);

/// How often is looked meanwhile.
const LOOK: Duration = Duration::from_millis(2);

/// Notices what was killed in a project, has it gone on with, and returns what `name` was not told of
/// yet. Costs a listing of a folder or two where there is nothing.
pub async fn notice(project: &Project, name: &str) -> Vec<Lost> {
    for folder in project.kept_jobs() {
        // A proxy holds the lock of what it keeps for as long as it lives.
        if !folder.has_recorder()
            && let Ok(folder) = project.adopt(&folder)
        {
            go_on(project, &folder).await;
        }
    }
    for folder in project.open_jobs() {
        if !folder.has_recorder() {
            go_on(project, &folder).await;
        }
    }
    new_to(project, name)
}

/// Has a recorder go on with a job that has none.
async fn go_on(project: &Project, folder: &JobFolder) {
    let Ok(job) = folder.read() else {
        // Its folder is gone.
        return project.close_job(folder);
    };
    if job.state == JobState::Done {
        return project.close_job(folder);
    }
    let age = Timestamp::now().duration_since(job.asked_at).as_secs();
    if job.generation.is_none() && age < BEGINS_SECONDS {
        return;
    }
    let lost = lost(&job, folder.last_sign().unwrap_or(job.asked_at));
    if resume(project, folder.id()).await.is_err() {
        return;
    }
    if let Err(error) = tell(project, &lost) {
        tracing::warn!(%error, "that a recorder was killed cannot be written down");
    }
    // Whoever follows the job next must find it recorded.
    let begun = Instant::now();
    let is_done = || folder.read().is_ok_and(|job| job.state == JobState::Done);
    while !folder.has_recorder() && !is_done() && begun.elapsed() < TAKES_UP {
        tokio::time::sleep(LOOK).await;
    }
}

/// Begins a recorder that goes on with a job whose cells the kernel has.
///
/// # Errors
/// No process can be started.
pub async fn resume(project: &Project, id: &str) -> Result<(), OpenError> {
    let task = Task::Resume {
        state_file: project.state_file(),
        id: id.to_owned(),
    };
    task::begin(project, &task).await?;
    Ok(())
}

fn lost(job: &Job, at: Timestamp) -> Lost {
    let id = &job.id;
    let since = to_the_second(at);
    let runs = job
        .cells
        .iter()
        .find(|cell| cell.begun_at.is_some() && cell.status.is_none());
    let who = match &job.front_end {
        Some(front_end) => format!("the nb-proxy of {}", front_end.name),
        None => format!("the recorder of job {id}"),
    };
    let what = match (runs, &job.front_end) {
        (None, _) => "nothing was running".to_owned(),
        (Some(_), Some(_)) => format!("its cell may run on, and is recorded now as job {id}"),
        (Some(cell), None) => match &cell.cell {
            Some(cell) => format!("cell {cell} of {} is recorded again", job.notebook),
            None => "its code is recorded again".to_owned(),
        },
    };
    let missing = match runs {
        Some(_) => "; what it printed in between is missing",
        None => "",
    };
    let waiting = job
        .cells
        .iter()
        .filter(|cell| cell.msg_id.is_none() && cell.status.is_none());
    let rest = match waiting.count() {
        0 => String::new(),
        1 => ", and 1 cell after it is not run".to_owned(),
        count => format!(", and {count} cells after it are not run"),
    };
    Lost {
        job: id.clone(),
        at,
        text: format!(
            "{who} was killed after {since}: {what}{missing}{rest}; nb wait {id} goes on, nb jobs {id} --write writes what is kept"
        ),
    }
}

/// Returns a moment of today, for whoever looks for what was printed then.
pub(super) fn to_the_second(at: Timestamp) -> String {
    at.to_zoned(zone::here()).strftime("%H:%M:%S").to_string()
}

fn tell(project: &Project, lost: &Lost) -> std::io::Result<()> {
    let file = project
        .make_folder(KILLED)?
        .join(format!("{}.json", lost.job));
    beneath::replace_unsynced(&file, &serde_json::to_vec(lost)?)
}

/// Returns what a name was not told of.
fn new_to(project: &Project, name: &str) -> Vec<Lost> {
    let entries = beneath::list(&project.dir().join(KILLED));
    let files = entries.into_iter().flatten().flatten();
    let lost = files.filter_map(|it| read(&it.path()));
    let mut new: Vec<Lost> = lost
        .filter(|lost| notification::is_new(project, name, &lost.notice()))
        .collect();
    new.sort_by_key(|lost| lost.at);
    new
}

/// Remembers that a name was told of them.
pub fn delivered(project: &Project, name: &str, lost: &[Lost]) {
    let notices: Vec<_> = lost.iter().map(Lost::notice).collect();
    notification::noticed(project, name, &notices);
}

impl Lost {
    /// Returns what is remembered of whoever was told.
    fn notice(&self) -> String {
        format!("lost {} {}", self.job, self.at)
    }
}

/// Reads what was killed; what was killed long ago is removed.
fn read(file: &Path) -> Option<Lost> {
    let text = beneath::read(file, beneath::SMALL).ok()?;
    let lost: Lost = serde_json::from_slice(&text).ok()?;
    let age = Timestamp::now().duration_since(lost.at);
    if age.as_hours() > TOLD_HOURS {
        let _ = beneath::remove_file(file);
        return None;
    }
    Some(lost)
}

/// The folder of what is told.
const KILLED: &str = "killed";
