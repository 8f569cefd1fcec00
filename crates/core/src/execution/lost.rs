//! Detects recorders and proxies that were killed. The next command starts a recorder for what the kernel
//! still runs, and reports what may be missing, to each actor once ([`delivered`]).

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::exec::MAX_OUTPUT;
use super::recorder::held;
use crate::activity::notification;
use crate::activity::participants::joined_and_killed;
use crate::activity::zone;
use crate::hint;
use crate::hint::{Hint, Verb, nb};
use crate::lifecycle::open_error::OpenError;
use crate::project::event::Event;
use crate::project::jobs::{Job, JobCell, JobFolder, JobFrontEnd, JobState};
use crate::project::joined::JoinedFrontEnd;
use crate::project::{Project, beneath};
use crate::task::{self, Task, TaskProgram};

/// A recorder or a proxy that was killed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
const RECORDER_START_SECONDS: u64 = 10;

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
    let mut any_held = false;
    for folder in project.open_jobs() {
        if !folder.has_recorder() {
            any_held |= resume_if_killed(project, &folder).await;
        }
    }
    if any_held {
        held::write_free(project).await;
    }
    let (alive, killed) = joined_and_killed(project);
    for proxy in &killed {
        // One process alone removes the record.
        if project.remove_joined(proxy.pid).unwrap_or(false)
            && let Some(folder) = job_of_killed(project, proxy, &alive)
        {
            resume_if_killed(project, &folder).await;
        }
    }
    new_reports(project, name)
}

/// Makes a job of the cells that a killed proxy has sent and stored nothing of, as the journal has them: it
/// was killed in their first moments.
fn job_of_killed(
    project: &Project,
    proxy: &JoinedFrontEnd,
    alive: &[JoinedFrontEnd],
) -> Option<JobFolder> {
    let state = project.state().ok()?;
    let key = state.owner_key(proxy.session.as_deref()?);
    let generation = state.session(&key)?.generation;
    let now = Timestamp::now();
    // Another window of the same front end sends cells in the same name.
    let is_of_another = |event: &Event| {
        let mut others = alive
            .iter()
            .filter(|it| it.session == proxy.session && it.front_end == proxy.front_end);
        others.any(|it| it.was_there(event.at, now))
    };
    let mut cells = unended(project.events(&key), proxy, now);
    cells.retain(|event| event.generation == Some(generation) && !is_of_another(event));
    if cells.is_empty() {
        return None;
    }
    let jobs = project.jobs().into_iter();
    let jobs = jobs.filter_map(|folder| folder.read().ok());
    let stored: HashSet<_> = jobs
        .flat_map(|job| job.cells)
        .filter_map(|cell| cell.msg_id)
        .collect();
    cells.retain(|event| event.msg_id().is_some_and(|id| !stored.contains(id)));
    let first = cells.first()?;
    let mut job = Job {
        state: JobState::Running,
        asked_at: first.at,
        generation: Some(generation),
        max_output: Some(MAX_OUTPUT),
        // Where the outputs belong is known by the code.
        saves: cells
            .iter()
            .filter_map(Event::request)
            .all(|start| start.code.is_some()),
        front_end: Some(JobFrontEnd {
            name: proxy.front_end.clone(),
            handed_at: None,
            whole: false,
            may_return: false,
        }),
        ..Job::new(project, first.notebook(), key, &proxy.by())
    };
    // The kernel got them when it ran no cell of others.
    let begun_at = Some(first.at);
    job.cells = cells
        .iter()
        .filter_map(Event::request)
        .map(JobCell::sent)
        .collect();
    if let Some(cell) = job.cells.first_mut() {
        (cell.begun_at, cell.input_at) = (begun_at, begun_at);
    }
    project
        .make_job(&mut job)
        .inspect_err(|error| tracing::warn!(%error, "no job can be made of a killed proxy's cells"))
        .ok()
}

/// Returns the requests of a proxy without an end in the journal, oldest first. The events come newest first.
fn unended(
    events: impl Iterator<Item = Event>,
    proxy: &JoinedFrontEnd,
    now: Timestamp,
) -> Vec<Event> {
    let by = proxy.by();
    let mut ended = HashSet::new();
    let mut open = Vec::new();
    for event in events.take_while(|event| proxy.was_there(event.at, now)) {
        if let Some(end) = event.end() {
            ended.insert(end.msg_id.clone());
        } else if let Some(start) = event.request()
            && start.store_history
            && start.job.is_none()
            && event.by.as_ref() == Some(&by)
            && !ended.contains(&start.msg_id)
        {
            open.push(event);
        }
    }
    open.reverse();
    open
}

/// Says whether the first recorder of a job may not have begun yet.
fn may_be_starting(job: &Job, now: Timestamp) -> bool {
    // A job from the future was asked for before the clock was set back.
    let age = now.duration_since(job.asked_at).unsigned_abs().as_secs();
    job.generation.is_none() && age < RECORDER_START_SECONDS
}

/// Starts a recorder for a job that has none, unless the job is over. Returns whether it is over and its outputs are
/// held back.
async fn resume_if_killed(project: &Project, folder: &JobFolder) -> bool {
    let Ok(job) = folder.read() else {
        // The job's folder was removed.
        project.close_job(folder);
        return false;
    };
    if job.state == JobState::Done {
        if !job.held {
            project.close_job(folder);
        }
        return job.held;
    }
    if may_be_starting(&job, Timestamp::now()) {
        return false;
    }
    let written_at = folder.last_written_at().unwrap_or(job.asked_at);
    // The folder of cells of which a proxy stored nothing was made just now.
    let is_new = job.front_end.is_some() && folder.is_without_events();
    let report = report(&job, if is_new { job.asked_at } else { written_at });
    if resume(project, folder.id()).await.is_err() {
        return false;
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
    false
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
    task::begin(project, &task, TaskProgram::Own).await?;
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
        text: format!("{recorder} was killed after {since}: {code}{missing}{rest}"),
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
    /// Returns what happened, and what to do about it.
    pub fn hint(&self) -> Hint {
        let write = nb(Verb::Jobs).job(&self.job).option("--write");
        hint![
            self.text.clone(),
            "; ",
            nb(Verb::Wait).job(&self.job),
            " goes on, ",
            write,
            " writes what is kept"
        ]
    }

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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::project::event::fixtures::event;

    #[test]
    fn only_the_cells_of_a_killed_proxy_that_have_no_end_are_left() {
        let proxy: JoinedFrontEnd = serde_json::from_value(json!({
            "pid": 41, "start_time": 5, "boot_id": "b", "front_end": "VS Code",
            "since": "2026-01-02T10:00:00Z",
        }))
        .unwrap();
        let by = "human (VS Code)";
        let asked = |id: &str, minute: u8, other: serde_json::Value| {
            let at = format!("2026-01-02T10:{minute:02}:00Z");
            let mut fields = json!({ "event": "requested", "at": at, "by": by, "msg_id": id });
            let all = fields.as_object_mut().unwrap();
            all.extend(other.as_object().unwrap().clone());
            event(fields)
        };
        let mut earlier = asked("earlier", 0, json!({}));
        earlier.at = "2026-01-02T09:59:00Z".parse().unwrap();
        let events = [
            earlier,
            asked("ended", 1, json!({})),
            event(json!({ "event": "done", "msg_id": "ended", "status": "ok" })),
            asked("first", 2, json!({})),
            asked("second", 3, json!({})),
            asked("a job's", 4, json!({ "job": "01234567" })),
            asked("its own code", 4, json!({ "store_history": false })),
            asked("another's", 4, json!({ "by": "human (JupyterLab)" })),
        ];
        let now = "2026-01-02T10:30:00Z".parse().unwrap();
        let left = unended(events.iter().rev().cloned(), &proxy, now);
        let ids: Vec<_> = left.iter().filter_map(Event::msg_id).collect();
        assert_eq!(ids, ["first", "second"]);
        // The clock was set back after the proxy had begun to serve.
        let now = "2026-01-02T09:59:30Z".parse().unwrap();
        let left = unended(events[..1].iter().cloned(), &proxy, now);
        assert_eq!(left.len(), 1);
    }

    #[test]
    fn the_recorder_of_a_job_from_the_future_is_not_awaited() {
        let job: Job = serde_json::from_value(json!({
            "id": "", "by": "ada", "notebook": "a.ipynb", "path": "a.ipynb", "session": "a.ipynb",
            "state": "queued", "asked_at": "2026-01-02T10:00:00Z", "cells": [],
        }))
        .unwrap();
        let may_be_starting = |now: &str| may_be_starting(&job, now.parse().unwrap());
        assert!(may_be_starting("2026-01-02T10:00:09Z"));
        assert!(!may_be_starting("2026-01-02T10:00:10Z"));
        assert!(!may_be_starting("2026-01-02T09:00:00Z"));
    }
}
