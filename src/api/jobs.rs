//! `jobs`, `wait`, `reply`, and `interrupt` of a job: what runs on the kernels of a project, whoever asked for it.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::envelope::Answer;
use super::job::{FollowOptions, JobAnswer, JobObserver, describe, follow_job};
use super::problem::{Problem, ProblemKind};
use crate::activity::company::is_same;
use crate::execution::follow::taken;
use crate::execution::reply::reply as hand_over;
use crate::execution::salvage;
use crate::project::Project;
use crate::project::cursor::Cursor;
use crate::project::jobs::{Ask, Job, JobFolder, JobPrompt, JobState};

/// How many jobs that are over are listed where not all are asked for.
const ENDED: usize = 5;

/// Which jobs are listed.
#[derive(Clone, Debug, Default)]
pub struct JobsRequest {
    /// Those of this notebook; none is all of the project.
    pub notebook: Option<PathBuf>,
    /// Whether all that are over are listed, not only the last ones.
    pub all: bool,
}

/// Jobs: first those that are over, each time the oldest first.
#[derive(Clone, Debug, Serialize)]
pub struct JobsAnswer {
    /// The jobs.
    pub jobs: Vec<ListedJob>,
}

impl Answer for JobsAnswer {}

/// A job in a list.
#[derive(Clone, Debug, Serialize)]
pub struct ListedJob {
    /// Its record.
    #[serde(flatten)]
    pub job: Job,
    /// Whether what it says is recorded, or it is over.
    pub recorded: bool,
}

/// Lists the jobs that run or wait, and those that ended last.
///
/// # Errors
/// The project has no notebook.
pub async fn jobs(caller: &Caller, request: JobsRequest) -> Result<JobsAnswer, Problem> {
    let project = caller.project_of(request.notebook.as_deref())?;
    blocking(move || {
        let key = request.notebook.as_deref().map(|it| project.key(it));
        let most = if request.all { usize::MAX } else { ENDED };
        let jobs = read_last(&project, key.as_deref(), most);
        let listed = jobs.into_iter().map(|(folder, job)| ListedJob {
            recorded: job.state == JobState::Done
                || job.generation.is_none()
                || folder.has_recorder(),
            job,
        });
        let (mut jobs, mut open): (Vec<_>, Vec<_>) =
            listed.partition(|it| it.job.state == JobState::Done);
        jobs.append(&mut open);
        Ok(JobsAnswer { jobs })
    })
    .await
}

/// Returns the jobs of a notebook, or of all, that run or wait, and at most so many of those that
/// ended last; the oldest first. Of the others nothing is read.
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
pub struct JobRecord {
    /// Its record.
    #[serde(flatten)]
    pub job: Job,
    /// Whether what it says is recorded, or it is over.
    pub recorded: bool,
    /// Where its files are.
    pub folder: PathBuf,
}

impl Answer for JobRecord {}

/// Returns the record of a job, which is named by a beginning of its id.
///
/// # Errors
/// There is no such job.
pub async fn job(caller: &Caller, id: &str) -> Result<JobRecord, Problem> {
    // A notebook may have been moved elsewhere: the job is here.
    let folder = caller.project_of(None)?.job(id)?;
    let job = folder.read()?;
    Ok(JobRecord {
        recorded: job.state == JobState::Done || folder.has_recorder(),
        folder: folder.path().to_owned(),
        job,
    })
}

/// Which job's outputs are written into a notebook.
#[derive(Clone, Debug)]
pub struct WriteJobRequest {
    /// The job, by a beginning of its id.
    pub job: String,
    /// The notebook; none is the job's own.
    pub notebook: Option<PathBuf>,
    /// Whether they are written also where the cell was run again since, or a front end has unsaved
    /// changes.
    pub force: bool,
}

/// What became of the outputs that a job keeps.
#[derive(Clone, Debug, Serialize)]
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

/// Writes what a job keeps into its notebook, or into another.
///
/// # Errors
/// Nothing could be written.
pub async fn write_job(
    caller: &Caller,
    request: WriteJobRequest,
) -> Result<WriteJobAnswer, Problem> {
    let project = caller.project_of(None)?;
    let folder = project.job(&request.job)?;
    let to = request.notebook.as_deref();
    let salvaged = salvage::write(&project, &folder, to, request.force).await?;
    let job = folder.read()?;
    let cells = salvaged.into_iter().map(|one| WrittenCell {
        at: one.at,
        cell: job.cells.get(one.at).and_then(|it| it.cell.clone()),
        written: one.missed.is_none(),
        stale: one.stale,
        why: one.missed,
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
    /// The job, by a beginning of its id; none is the one that was asked for last and is not over, else
    /// the last one.
    pub job: Option<String>,
    /// Whether the answer has all that it said, not only what the caller has not seen.
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
    let project = caller.project_of(None)?;
    let folder = match &request.job {
        Some(id) => project.job(id)?,
        None => {
            let project = project.clone();
            let found = blocking(move || Ok(last(&project))).await?;
            found.ok_or_else(|| {
                let problem = Problem::new(ProblemKind::Usage, "there are no jobs");
                problem.hint("nb exec CELL begins one")
            })?
        }
    };
    caller.concerns(&project, &folder.read()?.notebook);
    let seen = match request.all {
        true => Cursor::default(),
        false => folder.cursor(caller.by()),
    };
    follow_job(caller, folder, seen, request.follow, observer).await
}

/// Returns the job that was asked for last and is not over, else the last one.
fn last(project: &Project) -> Option<JobFolder> {
    let last_of = |folders: Vec<JobFolder>, wanted: fn(&Job) -> bool| {
        let read = |folder: JobFolder| Some((folder.read().ok()?, folder));
        let jobs = folders.into_iter().filter_map(read);
        let last = jobs
            .filter(|(job, _)| wanted(job))
            .max_by_key(|(job, _)| job.asked_at);
        last.map(|(_, folder)| folder)
    };
    last_of(project.open_jobs(), |job| job.state != JobState::Done)
        .or_else(|| last_of(project.jobs(), |_| true))
}

/// Which job's question is meant.
#[derive(Clone, Debug)]
pub struct QuestionRequest {
    /// The job, by a beginning of its id.
    pub job: String,
    /// Whether it is answered also where nothing is known to be asked: a front end that was closed got
    /// the question.
    pub force: bool,
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
    /// What it asks.
    pub prompt: JobPrompt,
    folder: JobFolder,
}

/// Returns what a job's code asks: [`reply`] answers it.
///
/// # Errors
/// There is no such job, or it asks nothing.
pub async fn question(caller: &Caller, request: QuestionRequest) -> Result<JobQuestion, Problem> {
    let folder = caller.project_of(None)?.job(&request.job)?;
    let job = folder.read()?;
    // What its code asks since, its front end was asked, and has gone.
    let may_ask = job.front_end.is_some() && job.state == JobState::Running;
    let prompt = match job.prompt.clone() {
        Some(prompt) => prompt,
        None if may_ask && request.force => JobPrompt {
            prompt: String::new(),
            password: false,
        },
        None => {
            let text = format!("job {} asks nothing: {}", job.id, describe(&job));
            let problem = Problem::new(ProblemKind::Refused, text);
            return Err(match may_ask {
                true => problem.hint(format!(
                    "if its code waits for input all the same: nb reply {} TEXT --force",
                    job.id
                )),
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

/// Answers what a job's code asks.
///
/// # Errors
/// Its recorder was killed, or the answer could not be handed over.
pub async fn reply(_: &Caller, request: ReplyRequest) -> Result<ReplyAnswer, Problem> {
    let ReplyRequest { question, text } = request;
    let JobQuestion {
        job,
        prompt,
        folder,
    } = question;
    require_recorder(&folder, &job)?;
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
    /// The job, by a beginning of its id.
    pub job: String,
    /// Whether it is interrupted even when somebody else asked for it.
    pub force: bool,
}

/// A job that was asked to end.
#[derive(Clone, Debug, Serialize)]
pub struct InterruptJobAnswer {
    /// The job's id.
    pub job: String,
    /// Always true.
    pub interrupted: bool,
}

impl Answer for InterruptJobAnswer {}

/// Interrupts a job, or takes it out of the queue.
///
/// # Errors
/// There is no such job, it is over, or somebody else asked for it.
pub async fn interrupt_job(
    caller: &Caller,
    request: InterruptJobRequest,
) -> Result<InterruptJobAnswer, Problem> {
    let folder = caller.project_of(None)?.job(&request.job)?;
    let job = folder.read()?;
    let id = &job.id;
    if job.state == JobState::Done {
        let text = format!("job {id} is over");
        return Err(Problem::new(ProblemKind::Refused, text));
    }
    if !is_same(&job.by, caller.by()) && !request.force {
        let text = format!("job {id} is {}'s: {}", job.by, describe(&job));
        let hint = format!("nb interrupt {id} --force");
        return Err(Problem::new(ProblemKind::Refused, text).hint(hint));
    }
    require_recorder(&folder, id)?;
    let by = caller.by().to_owned();
    let asked = folder.ask(&Ask::Interrupt { by });
    asked.map_err(|error| Problem::failed("ask the recorder to interrupt", &error))?;
    taken(&folder).await;
    Ok(InterruptJobAnswer {
        job: job.id,
        interrupted: true,
    })
}

/// Requires that somebody does what is asked of a job.
fn require_recorder(folder: &JobFolder, id: &str) -> Result<(), Problem> {
    if folder.has_recorder() {
        return Ok(());
    }
    let text = format!("nobody records job {id} any more: its recorder was killed");
    let problem = Problem::new(ProblemKind::Failed, text);
    Err(problem.hint("nb interrupt interrupts what the kernel runs"))
}
