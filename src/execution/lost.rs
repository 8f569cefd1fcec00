//! Detects recorders and proxies that were killed. The next command starts a recorder for what the kernel
//! still runs, and reports what may be missing, to each actor once ([`delivered`]).

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
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KilledRecorder {
    /// The job's id.
    pub job: String,
    /// When it gave its last sign.
    pub at: Timestamp,
    /// All of it, as one line for a reader.
    pub text: String,
}

/// For how many hours it is reported.
const REPORT_HOURS: i64 = 24 * 7;

/// How long a recorder may take to start, in seconds.
const RECORDER_START_SECONDS: i64 = 10;

/// How long to wait until the new recorder holds the job's lock.
const RESUME_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause between two checks of that.
const POLL_PAUSE: Duration = Duration::from_millis(2);

/// Finds the recorders and proxies that were killed in a project, starts recorders for their jobs, and
/// returns the reports that are new to the actor `name`. If there are none, this only lists a folder or
/// two.
pub async fn notice(project: &Project, name: &str) -> Vec<KilledRecorder> {
    for folder in project.kept_jobs() {
        // A running proxy holds the lock of its stored outputs.
        if !folder.has_recorder()
            && let Ok(folder) = project.adopt(&folder)
        {
            resume_if_killed(project, &folder).await;
        }
    }
    for folder in project.open_jobs() {
        if !folder.has_recorder() {
            resume_if_killed(project, &folder).await;
        }
    }
    new_reports(project, name)
}

/// Starts a recorder for a job that has none.
async fn resume_if_killed(project: &Project, folder: &JobFolder) {
    let Ok(job) = folder.read() else {
        // The job's folder was removed.
        return project.close_job(folder);
    };
    if job.state == JobState::Done {
        return project.close_job(folder);
    }
    let age = Timestamp::now().duration_since(job.asked_at).as_secs();
    if job.generation.is_none() && age < RECORDER_START_SECONDS {
        return;
    }
    let report = report(&job, folder.last_written_at().unwrap_or(job.asked_at));
    if resume(project, folder.id()).await.is_err() {
        return;
    }
    if let Err(error) = write_report(project, &report) {
        tracing::warn!(%error, "that a recorder was killed cannot be written down");
    }
    // A command that follows the job after this must find its recorder.
    let begun = Instant::now();
    let is_done = || folder.read().is_ok_and(|job| job.state == JobState::Done);
    while !folder.has_recorder() && !is_done() && begun.elapsed() < RESUME_TIMEOUT {
        tokio::time::sleep(POLL_PAUSE).await;
    }
}

/// Starts a recorder that continues a job whose cells were already sent to the kernel.
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

fn report(job: &Job, at: Timestamp) -> KilledRecorder {
    let id = &job.id;
    let since = to_the_second(at);
    let running = job
        .cells
        .iter()
        .find(|cell| cell.begun_at.is_some() && cell.status.is_none());
    let recorder = match &job.front_end {
        Some(front_end) => format!("the nb-proxy of {}", front_end.name),
        None => format!("the recorder of job {id}"),
    };
    let code = match (running, &job.front_end) {
        (None, _) => "nothing was running".to_owned(),
        (Some(_), Some(_)) => format!("its cell may run on, and is recorded now as job {id}"),
        (Some(cell), None) => match &cell.cell {
            Some(cell) => format!("cell {cell} of {} is recorded again", job.notebook),
            None => "its code is recorded again".to_owned(),
        },
    };
    let missing = match running {
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
    KilledRecorder {
        job: id.clone(),
        at,
        text: format!(
            "{recorder} was killed after {since}: {code}{missing}{rest}; nb wait {id} goes on, nb jobs {id} --write writes what is kept"
        ),
    }
}

/// Returns the local time to the second, without the date.
pub(super) fn to_the_second(at: Timestamp) -> String {
    at.to_zoned(zone::here()).strftime("%H:%M:%S").to_string()
}

fn write_report(project: &Project, report: &KilledRecorder) -> std::io::Result<()> {
    let file = project
        .make_folder(REPORTS_DIR)?
        .join(format!("{}.json", report.job));
    beneath::write_json(&file, report)
}

/// Returns the reports that are new to an actor.
fn new_reports(project: &Project, name: &str) -> Vec<KilledRecorder> {
    let files = beneath::paths(&project.dir().join(REPORTS_DIR));
    let lost = files.iter().filter_map(|file| read(file));
    let mut new: Vec<KilledRecorder> = lost
        .filter(|lost| notification::is_new(project, name, &lost.notice()))
        .collect();
    new.sort_by_key(|lost| lost.at);
    new
}

/// Stores that an actor got these reports.
pub fn delivered(project: &Project, name: &str, lost: &[KilledRecorder]) {
    let notices: Vec<_> = lost.iter().map(KilledRecorder::notice).collect();
    notification::noticed(project, name, &notices);
}

impl KilledRecorder {
    /// Returns the notice that is stored for the actors who got this report.
    fn notice(&self) -> String {
        format!("lost {} {}", self.job, self.at)
    }
}

/// Reads a report; removes it if it is too old.
fn read(file: &Path) -> Option<KilledRecorder> {
    let lost: KilledRecorder = beneath::read_json(file, beneath::SMALL)?;
    let age = Timestamp::now().duration_since(lost.at);
    if age.as_hours() > REPORT_HOURS {
        let _ = beneath::remove_file(file);
        return None;
    }
    Some(lost)
}

/// The folder of the reports.
const REPORTS_DIR: &str = "killed";
