//! `interrupt`: interrupts what a kernel runs.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::caller::Caller;
use super::envelope::Answer;
use super::problem::Problem;
use super::status::RunningCell;
use crate::activity::actor::Actor;
use crate::execution::follow::wait_until_taken;
use crate::lifecycle;
use crate::lifecycle::consent::KernelAction;
use crate::lifecycle::liveness::{Liveness, liveness};
use crate::lifecycle::status::busy;
use crate::lifecycle::target::Target;
use crate::project::event::RunningExecution;
use crate::project::jobs::{Job, JobFolder, JobState, RecorderRequest};
use crate::project::{InterruptMode, Project};

/// How long what was interrupted may take to end before the answer says that it goes on: code may catch
/// the interrupt.
const ENDS: Duration = Duration::from_secs(2);

/// How long the next job may take to begin.
const BEGINS: Duration = Duration::from_secs(2);

/// The pause between two checks whether it has ended.
const PAUSE: Duration = Duration::from_millis(10);

/// Which kernel is interrupted.
#[derive(Clone, Debug, Default)]
pub struct InterruptRequest {
    /// Whether to interrupt even a request of another actor.
    pub force: bool,
}

/// What was interrupted.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InterruptAnswer {
    /// The notebook's key in its project.
    pub notebook: String,
    /// Whether something was interrupted: nothing happens to an idle kernel.
    pub interrupted: bool,
    /// How the kernel is interrupted: by `signal` or by `message`, as its kernelspec has it.
    pub mode: &'static str,
    /// The caller's own job that was interrupted, where it was about to begin and nothing else ran.
    pub job: Option<String>,
    /// Which of the session's kernels it was.
    pub kernel_generation: u64,
    /// The cell that ended by it.
    pub stopped: Option<RunningCell>,
    /// The cell that runs now.
    pub running: Option<RunningCell>,
    /// Whether that, or the job, is the one that was to be interrupted: it has not ended within two seconds.
    pub goes_on: bool,
}

impl Answer for InterruptAnswer {
    fn has_own_generation(&self) -> bool {
        true
    }
}

/// Interrupts what a kernel runs. If it runs nothing, the caller's own job that is about to begin is interrupted.
///
/// # Errors
/// The running request is another actor's, or the kernel cannot be reached.
pub async fn interrupt(
    caller: &Caller,
    request: InterruptRequest,
) -> Result<InterruptAnswer, Problem> {
    let target = caller.target().await?;
    caller
        .consent(KernelAction::Interrupt, &target, request.force)
        .await?;
    let (project, session) = (&target.project, &target.session);
    let running = || project.present(&target.key, session.generation).running;
    let mut before = running();
    // A kernel that does not answer may run something that the journal does not know.
    let is_idle = before.is_none()
        && liveness(session).await != Liveness::OutOfReach
        && busy(session).await == Some(false);
    let own = own_open_job(caller, project, &target.key, |job| match &before {
        Some(cell) => cell.job.as_ref() == Some(&job.id) && job.state == JobState::Queued,
        None => is_idle,
    });
    // A signal that comes before the job's cell is lost.
    if let Some(folder) = own {
        let over = interrupt_recorded(&folder, caller.by()).await?;
        return Ok(InterruptAnswer {
            job: Some(folder.id().to_owned()),
            goes_on: !over,
            ..InterruptAnswer::of_idle(&target, true)
        });
    }
    if is_idle {
        before = running();
        if before.is_none() {
            return Ok(InterruptAnswer::of_idle(&target, false));
        }
    }
    let mode = lifecycle::interrupt::interrupt(project, &target.key, session, caller.by()).await?;
    let is_another = |now: &RunningExecution| {
        let before = before.as_ref().map(|cell| &cell.msg_id);
        before != Some(&now.msg_id)
    };
    let has_ended = || running().is_none_or(|now| is_another(&now));
    let ended = before.is_some() && wait_until(ENDS, has_ended).await;
    // Nobody may have recorded the end of a cell whose recorder was killed.
    let goes_on = before.is_some() && !ended && busy(session).await == Some(true);
    if ended {
        let stopped = before.as_ref().and_then(|cell| cell.job.as_deref());
        let is_next = |job: &Job| job.session == target.key && Some(&*job.id) != stopped;
        let waits = || has_open_job(project, is_next);
        wait_until(BEGINS, || running().is_some() || !waits()).await;
    }
    let now = running().filter(|now| goes_on || is_another(now));
    Ok(InterruptAnswer {
        notebook: target.notebook_key,
        interrupted: true,
        mode: mode_name(mode),
        job: None,
        kernel_generation: session.generation,
        stopped: before.filter(|_| ended).as_ref().map(RunningCell::of),
        running: now.as_ref().map(RunningCell::of),
        goes_on,
    })
}

impl InterruptAnswer {
    /// Returns the answer where the kernel runs nothing.
    fn of_idle(target: &Target, interrupted: bool) -> Self {
        Self {
            notebook: target.notebook_key.clone(),
            interrupted,
            mode: mode_name(target.session.interrupt_mode()),
            job: None,
            kernel_generation: target.session.generation,
            stopped: None,
            running: None,
            goes_on: false,
        }
    }
}

fn mode_name(mode: InterruptMode) -> &'static str {
    match mode {
        InterruptMode::Signal => "signal",
        InterruptMode::Message => "message",
    }
}

/// Returns the caller's oldest job of a session that is not over, among those that are wanted.
fn own_open_job(
    caller: &Caller,
    project: &Project,
    key: &str,
    is_wanted: impl Fn(&Job) -> bool,
) -> Option<JobFolder> {
    let jobs = project
        .open_jobs()
        .into_iter()
        .filter(JobFolder::has_recorder);
    let jobs = jobs.filter_map(|folder| Some((folder.read().ok()?, folder)));
    let own = jobs.filter(|(job, _)| {
        let is_own = caller.actor.is_same(&Actor::from(&*job.by));
        is_own && job.session == key && job.state != JobState::Done && is_wanted(job)
    });
    let oldest = own.min_by_key(|(job, _)| job.asked_at);
    oldest.map(|(_, folder)| folder)
}

/// Asks a job's recorder to end it, and says whether it is over within two seconds.
pub(super) async fn interrupt_recorded(folder: &JobFolder, by: &str) -> Result<bool, Problem> {
    let sent = folder.request(&RecorderRequest::Interrupt { by: by.to_owned() });
    sent.map_err(|error| Problem::failed("ask the recorder to interrupt", &error))?;
    wait_until_taken(folder).await;
    let is_over = || folder.read().is_ok_and(|job| job.state == JobState::Done);
    Ok(wait_until(ENDS, is_over).await)
}

/// Says whether a job that a recorder works on is not over.
fn has_open_job(project: &Project, is_wanted: impl Fn(&Job) -> bool) -> bool {
    let jobs = project.open_jobs().into_iter();
    let recorded = jobs.filter(JobFolder::has_recorder);
    let mut jobs = recorded.filter_map(|folder| folder.read().ok());
    jobs.any(|job| job.state != JobState::Done && is_wanted(&job))
}

/// Waits until the condition holds; returns false if the time limit passes first.
async fn wait_until(limit: Duration, condition: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() >= limit {
            return false;
        }
        tokio::time::sleep(PAUSE).await;
    }
    true
}
