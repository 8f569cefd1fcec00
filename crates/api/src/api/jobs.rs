//! `jobs`, `wait`, `reply`, and `interrupt` of a job: the jobs of a project, of any actor.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::envelope::Answer;
use super::interrupt::interrupt_recorded;
use super::job::{FollowOptions, JobAnswer, JobObserver, describe, follow_job};
use super::problem::{Problem, ProblemKind};
use super::waiting::WaitingRequest;
use crate::activity::actor::Actor;
use crate::execution::reply::reply as hand_over;
use crate::execution::salvage;
use crate::hint;
use crate::hint::{Hint, Verb, nb};
use crate::lifecycle::status::waiting_cells;
use crate::project::Project;
use crate::project::cursor::Cursor;
use crate::project::jobs::{Job, JobFolder, JobPrompt, JobState};

/// How many ended jobs are listed unless all are requested.
const ENDED: usize = 5;

/// Which jobs are listed.
#[derive(Clone, Debug, Default)]
pub struct JobsRequest {
    /// Whether all ended jobs are listed, not only the last ones.
    pub all: bool,
}

/// Jobs: first those that are over, each time the oldest first.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobsAnswer {
    /// The jobs.
    pub jobs: Vec<ListedJob>,
    /// The cells of people that wait for a kernel, oldest first.
    pub waits: Vec<WaitingRequest>,
}

impl Answer for JobsAnswer {}

/// A job in a list.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListedJob {
    /// Its record.
    #[serde(flatten)]
    pub job: Job,
    /// Whether its outputs are recorded, or it is over.
    pub recorded: bool,
}

/// Lists the jobs that run or wait, and those that ended last.
///
/// # Errors
/// The project has no notebook.
pub async fn jobs(caller: &Caller, request: JobsRequest) -> Result<JobsAnswer, Problem> {
    let project = caller.project()?;
    blocking(caller, move |caller| {
        let key = caller.named().map(|it| project.key(&it));
        let ended_limit = if request.all { usize::MAX } else { ENDED };
        let jobs = read_last(&project, key.as_deref(), ended_limit);
        let listed = jobs.into_iter().map(|(folder, job)| ListedJob {
            recorded: job.generation.is_none() || is_recorded(&folder, &job),
            job,
        });
        let (mut jobs, mut open): (Vec<_>, Vec<_>) =
            listed.partition(|it| it.job.state == JobState::Done);
        jobs.append(&mut open);
        let state = project.state().unwrap_or_default();
        let kernels: BTreeSet<_> = match &key {
            Some(key) => [state.owner_key(key)].into(),
            None => state
                .sessions
                .keys()
                .map(|key| state.owner_key(key))
                .collect(),
        };
        let waiting = kernels.iter().flat_map(|key| waiting_cells(&project, key));
        let mut waits = WaitingRequest::all(&project, waiting.collect());
        waits.sort_by_key(|it| it.since);
        Ok(JobsAnswer { jobs, waits })
    })
    .await
}

/// Returns the jobs of a notebook, or of all notebooks, that run or wait, and at most `most` of those that
/// ended last, the oldest first. Records of other jobs are not read.
fn read_last(project: &Project, key: Option<&str>, most: usize) -> Vec<(JobFolder, Job)> {
    let open = project.open_jobs();
    let mut ended = 0;
    let mut jobs = Vec::new();
    for folder in project.jobs_lately() {
        let has_room = ended < most;
        if !has_room && open.iter().all(|open| open.id() != folder.id()) {
            continue;
        }
        let Ok(job) = folder.read() else { continue };
        let is_over = job.state == JobState::Done;
        if key.is_none_or(|key| key == job.notebook) && (has_room || !is_over) {
            ended += usize::from(is_over);
            jobs.push((folder, job));
        }
    }
    jobs.sort_by_key(|(_, job)| job.asked_at);
    jobs
}

/// One job.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobRecord {
    /// What a list has of it.
    #[serde(flatten)]
    pub listed: ListedJob,
    /// Where its files are.
    pub folder: PathBuf,
}

impl Answer for JobRecord {}

/// Returns the record of a job, found by a prefix of its id.
///
/// # Errors
/// There is no such job.
pub async fn job(caller: &Caller, id: &str) -> Result<JobRecord, Problem> {
    // The job is here even if its notebook was moved to another project.
    let folder = caller.project()?.job(id)?;
    let job = folder.read()?;
    Ok(JobRecord {
        folder: folder.path().to_owned(),
        listed: ListedJob {
            recorded: is_recorded(&folder, &job),
            job,
        },
    })
}

fn is_recorded(folder: &JobFolder, job: &Job) -> bool {
    job.state == JobState::Done || folder.has_recorder()
}

/// Which job's outputs are written, and into which notebook.
#[derive(Clone, Debug)]
pub struct WriteJobRequest {
    /// The job, by a prefix of its id.
    pub job: String,
    /// The notebook; `None` is the job's own.
    pub notebook: Option<PathBuf>,
    /// Whether outputs are written even if the cell was run again since, or if a front end has unsaved
    /// changes.
    pub force: bool,
}

/// What became of the outputs that a job keeps.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WriteJobAnswer {
    /// The job's id.
    pub job: String,
    /// The notebook.
    pub notebook: PathBuf,
    /// The cells that ran.
    pub cells: Vec<WrittenCell>,
}

impl Answer for WriteJobAnswer {}

/// What became of the outputs of one cell.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WrittenCell {
    /// The cell's place among the job's cells, from 0.
    #[serde(skip)]
    pub at: usize,
    /// The cell's id; none for code outside the notebook.
    pub cell: Option<String>,
    /// Whether they are in the notebook.
    pub written: bool,
    /// Whether the cell has another source by now.
    pub stale: bool,
    /// Why they are not in the notebook.
    pub why: Option<String>,
}

/// Writes the outputs that a job has recorded into its notebook, or into another.
///
/// # Errors
/// Nothing could be written.
pub async fn write_job(
    caller: &Caller,
    request: WriteJobRequest,
) -> Result<WriteJobAnswer, Problem> {
    let project = caller.project()?;
    let folder = project.job(&request.job)?;
    let to = request.notebook.as_deref();
    let salvaged = salvage::write(&project, &folder, to, request.force).await?;
    let job = folder.read()?;
    let cells = salvaged.into_iter().map(|salvaged_cell| WrittenCell {
        at: salvaged_cell.at,
        cell: job
            .cells
            .get(salvaged_cell.at)
            .and_then(|it| it.cell.clone()),
        written: salvaged_cell.missed.is_none(),
        stale: salvaged_cell.stale,
        why: salvaged_cell.missed,
    });
    Ok(WriteJobAnswer {
        cells: cells.collect(),
        notebook: to.map_or(job.path, Path::to_owned),
        job: job.id,
    })
}

/// Which job is followed, and from where on.
#[derive(Clone, Debug)]
pub struct WaitRequest {
    /// The job, by a prefix of its id; `None` is the caller's oldest job that is not over, else the one that runs
    /// now, else the caller's newest one.
    pub job: Option<String>,
    /// Whether the answer has all the job's outputs, not only those that the caller has not seen.
    pub all: bool,
    /// How it is followed.
    pub follow: FollowOptions,
}

/// Follows a job to its end.
///
/// # Errors
/// There is no such job, or it cannot be followed.
pub async fn wait(
    caller: &Caller,
    request: WaitRequest,
    observer: &impl JobObserver,
) -> Result<JobAnswer, Problem> {
    let project = caller.project()?;
    let folder = match &request.job {
        Some(id) => project.job(id)?,
        None => {
            let project = project.clone();
            let named = caller.named();
            let of = named.as_deref().map(|it| format!(" of {}", it.display()));
            let key = named.map(|it| project.key(&it));
            let found = blocking(caller, move |caller| {
                Ok(default_job(&project, key.as_deref(), &caller.actor))
            })
            .await?;
            let (folder, job) = found.ok_or_else(|| {
                let text = format!("there are no jobs{}", of.unwrap_or_default());
                let problem = Problem::new(ProblemKind::Usage, text);
                problem.hint(hint![nb(Verb::Exec).word("CELL"), " begins one"])
            })?;
            (caller.progress)(&format!("job {} · {} · {}", job.id, job.by, describe(&job)));
            folder
        }
    };
    caller.set_target_notebook(&project, &folder.read()?.notebook);
    let seen = match request.all {
        true => Cursor::default(),
        false => folder.cursor(caller.by()),
    };
    follow_job(caller, folder, seen, request.follow, observer).await
}

/// Returns the job of a request that names none, of a notebook or of all: the actor's oldest that is not over, else what
/// runs now, else its newest.
fn default_job(project: &Project, key: Option<&str>, actor: &Actor) -> Option<(JobFolder, Job)> {
    let read = |folder: JobFolder| {
        let job = folder.read().ok()?;
        let is_meant = key.is_none_or(|key| key == job.notebook);
        is_meant.then_some((job, folder))
    };
    let is_own = |job: &Job| actor.has_done(&Actor::from(&*job.actor()));
    let open = project.open_jobs().into_iter().filter_map(read);
    let open = open.filter(|(job, _)| job.state != JobState::Done);
    let oldest_open = open.min_by_key(|(job, _)| {
        let is_queued = job.state == JobState::Queued;
        (!is_own(job), !is_own(job) && is_queued, job.asked_at)
    });
    let newest = || {
        let all = project.jobs().into_iter().filter_map(read);
        all.max_by_key(|(job, _)| (is_own(job), job.asked_at))
    };
    let (job, folder) = oldest_open.or_else(newest)?;
    Some((folder, job))
}

/// The job whose question is to be answered.
#[derive(Clone, Debug)]
pub struct QuestionRequest {
    /// The job, by a prefix of its id; `None` is the one job that asks.
    pub job: Option<String>,
    /// Whether to answer even if no question is known: a front end that has been closed since may have
    /// received it.
    pub force: bool,
    /// The number of the input request that is meant; `None` is the present one.
    pub number: Option<u64>,
}

/// An answer to a question.
#[derive(Clone, Debug)]
pub struct ReplyRequest {
    /// The question, as [`question`] returned it.
    pub question: JobQuestion,
    /// The answer.
    pub text: String,
}

/// A question that was answered.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplyAnswer {
    /// The job's id.
    pub job: String,
    /// True: its recorder has the answer.
    pub answered: bool,
}

impl Answer for ReplyAnswer {}

/// A question of a job's code.
#[derive(Clone, Debug)]
pub struct JobQuestion {
    /// The job's id.
    pub job: String,
    /// The question.
    pub prompt: JobPrompt,
    folder: JobFolder,
}

/// Returns the question of a job's code, which [`reply`] answers.
///
/// # Errors
/// There is no such job, or it asks nothing.
pub async fn question(caller: &Caller, request: QuestionRequest) -> Result<JobQuestion, Problem> {
    let project = caller.project()?;
    let folder = match &request.job {
        Some(id) => project.job(id)?,
        None => the_one_that_asks(
            &project,
            caller.named().map(|it| project.key(&it)).as_deref(),
        )?,
    };
    let job = folder.read()?;
    let may_ask = may_ask_unseen(&job);
    let prompt = match job.prompt.clone() {
        Some(prompt) if request.number.is_some_and(|it| prompt.number != Some(it)) => {
            return Err(answered_before(&job.id));
        }
        Some(prompt) => prompt,
        None if request.number.is_some() => return Err(answered_before(&job.id)),
        None if may_ask && request.force => JobPrompt::default(),
        None => {
            let text = format!("job {} asks nothing: {}", job.id, describe(&job));
            let problem = Problem::new(ProblemKind::Refused, text);
            return Err(match may_ask {
                true => problem.hint(unseen_hint(&job.id)),
                false => problem,
            });
        }
    };
    Ok(JobQuestion {
        job: job.id,
        prompt,
        folder,
    })
}

/// Returns the problem that a question has been answered, by another client for instance.
fn answered_before(job: &str) -> Problem {
    let text = format!("that question of job {job} has been answered");
    Problem::new(ProblemKind::Conflict, text)
}

/// Returns the one job of a notebook, or of all, that asks something.
fn the_one_that_asks(project: &Project, key: Option<&str>) -> Result<JobFolder, Problem> {
    let mut unseen = Vec::new();
    let mut asking = Vec::new();
    for folder in project.open_jobs() {
        match folder.read() {
            Ok(job)
                if job.state == JobState::Done || key.is_some_and(|key| key != job.notebook) => {}
            Ok(job) if may_ask_unseen(&job) => unseen.push(job.id),
            Ok(job) => asking.extend(job.prompt.map(|prompt| (prompt, folder))),
            Err(_) => {}
        }
    }
    let mut problem = match (asking.pop(), asking.as_slice()) {
        (Some((_, folder)), []) => return Ok(folder),
        (None, _) => Problem::new(ProblemKind::Usage, "no job asks anything"),
        (last, _) => {
            asking.extend(last);
            Problem::new(ProblemKind::Usage, "several jobs ask something; name one")
        }
    };
    for (prompt, folder) in &asking {
        let reply = nb(Verb::Reply).job(folder.id()).word("TEXT");
        problem = problem.hint(hint![reply, format!(" answers {:?}", prompt.prompt)]);
    }
    if asking.is_empty() {
        problem = problem.all_hints(unseen.iter().map(|id| unseen_hint(id)));
    }
    Err(problem)
}

/// Says whether the code of a job may ask without a question in its record: the kernel sends `input_request`
/// to the front end whose cell this is, and that front end may be closed.
fn may_ask_unseen(job: &Job) -> bool {
    job.front_end.is_some() && job.state == JobState::Running && job.prompt.is_none()
}

fn unseen_hint(id: &str) -> Hint {
    let reply = nb(Verb::Reply).job(id).word("TEXT").option("--force");
    hint!["if its code waits for input all the same: ", reply]
}

/// Answers a question of a job's code.
///
/// # Errors
/// It has been answered meanwhile, its recorder was killed, or the answer could not be handed over.
pub async fn reply(_: &Caller, request: ReplyRequest) -> Result<ReplyAnswer, Problem> {
    let ReplyRequest { question, text } = request;
    let JobQuestion {
        job,
        prompt,
        folder,
    } = question;
    require_recorder(&folder, &job)?;
    let present = folder.read()?.prompt.and_then(|it| it.number);
    if prompt.number.is_some() && present != prompt.number {
        return Err(answered_before(&job));
    }
    hand_over(&folder, &prompt, text)
        .await
        .map_err(|error| Problem::failed("hand the answer on", &error))?;
    Ok(ReplyAnswer {
        job,
        answered: true,
    })
}

/// Which job is interrupted.
#[derive(Clone, Debug)]
pub struct InterruptJobRequest {
    /// The job, by a prefix of its id.
    pub job: String,
    /// Whether the job is interrupted even if another actor submitted it.
    pub force: bool,
}

/// A job that was asked to end.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InterruptJobAnswer {
    /// The job's id.
    pub job: String,
    /// Always true.
    pub interrupted: bool,
    /// Whether it is over. A job that is not has code that went on for two seconds.
    pub over: bool,
}

impl Answer for InterruptJobAnswer {}

/// Interrupts a job, or takes it out of the queue.
///
/// # Errors
/// There is no such job, it is over, or another actor submitted it.
pub async fn interrupt_job(
    caller: &Caller,
    request: InterruptJobRequest,
) -> Result<InterruptJobAnswer, Problem> {
    let folder = caller.project()?.job(&request.job)?;
    let job = folder.read()?;
    let id = &job.id;
    if job.state == JobState::Done {
        let text = format!("job {id} is over");
        return Err(Problem::new(ProblemKind::Refused, text));
    }
    if !caller.actor.is_same(&Actor::from(&*job.by)) && !request.force {
        let text = format!("job {id} is {}'s: {}", job.by, describe(&job));
        let interrupt = nb(Verb::Interrupt).job(id).option("--force");
        return Err(Problem::new(ProblemKind::Refused, text).hint(interrupt));
    }
    require_recorder(&folder, id)?;
    Ok(InterruptJobAnswer {
        over: interrupt_recorded(&folder, caller.by()).await?,
        job: job.id,
        interrupted: true,
    })
}

/// Checks that the job has a live recorder, which serves requests about it.
fn require_recorder(folder: &JobFolder, id: &str) -> Result<(), Problem> {
    if folder.has_recorder() {
        return Ok(());
    }
    let text = format!("nobody records job {id} any more: its recorder was killed");
    let problem = Problem::new(ProblemKind::Failed, text);
    Err(problem.hint(hint![
        nb(Verb::Interrupt),
        " interrupts what the kernel runs"
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_names_no_job_means_ones_oldest_then_what_runs_then_ones_newest() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let make = |by: &str, state: JobState, minute: u8| {
            let mut job: Job = serde_json::from_value(serde_json::json!({
                "id": "", "by": by, "notebook": "a.ipynb", "path": "a.ipynb", "session": "a.ipynb",
                "state": state, "asked_at": format!("2026-01-02T10:{minute:02}:00Z"), "cells": [],
            }))
            .unwrap();
            project.make_job(&mut job).unwrap();
            job.id
        };
        let chosen =
            |by: &str| default_job(&project, None, &Actor::from(by)).map(|(_, job)| job.id);
        assert_eq!(chosen("ada"), None);
        let old = make("ada", JobState::Done, 1);
        let done = make("ada", JobState::Done, 2);
        let latest = make("bob", JobState::Done, 3);
        assert_eq!(chosen("ada"), Some(done));
        assert_eq!(chosen("cy"), Some(latest));
        let queued = make("bob", JobState::Queued, 4);
        assert_eq!(chosen("ada"), Some(queued.clone()));
        let running = make("bob", JobState::Running, 5);
        assert_eq!(chosen("ada"), Some(running));
        assert_eq!(chosen("bob"), Some(queued));
        let first = make("ada", JobState::Queued, 6);
        make("ada", JobState::Queued, 7);
        assert_eq!(chosen("ada"), Some(first));
        assert_ne!(chosen("ada"), Some(old));
    }
}
