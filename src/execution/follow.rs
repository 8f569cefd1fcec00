//! Following a job: what its recorder keeps, as it comes, until it is over or asks something.

use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::signs::Signs;
use crate::project::jobs::{Job, JobFolder, JobState, NoJob, Said};

/// The first pause between two looks where the system does not tell that something is new; it grows
/// once a job is no short one, so that a short cell's end is seen soon.
const FIRST: Duration = Duration::from_millis(1);

/// How long a job is looked at without being told: Linux lets nobody off who has watched a folder
/// before it has cleared up behind them (`inotify(7)` says nothing of it: a grace period of the system,
/// 5 to 15 ms), which is longer than most cells take.
const SHORT: Duration = Duration::from_millis(30);

/// The pause once something was said.
const BRISK: Duration = Duration::from_millis(6);

/// The longest pause.
const LONGEST: Duration = Duration::from_millis(50);

/// At least so long lies between two looks at a job, however much is new: the kernel and the recorder may
/// need the processors. Its end is seen at once.
const REST: Duration = Duration::from_millis(15);

/// How long a recorder may take to begin.
const BEGINS: Duration = Duration::from_secs(10);

/// Why following ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The job is over.
    Over,
    /// The time is; the job goes on.
    StillRunning,
    /// The code asks something.
    Asks,
    /// The recorder was killed: what came after that is not kept.
    Lost,
    /// The follower has seen enough; the job goes on, if it was not over.
    Enough,
}

/// Whoever follows a job.
pub trait Follower {
    /// Hears what the job says, in order; a break ends the following behind it.
    fn hears(&mut self, job: &Job, said: &Said) -> ControlFlow<()>;

    /// Sees how far the job is, once everything is heard that it had said by then.
    fn sees(&mut self, job: &Job);
}

/// How far a job has been followed.
#[derive(Debug)]
pub struct Followed {
    /// The job as it is.
    pub job: Job,
    /// Why it ended.
    pub left: Left,
}

/// Why a job cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// Its record cannot be read.
    #[error(transparent)]
    Job(#[from] NoJob),
    /// What it said cannot be read.
    #[error("cannot read what the job said")]
    Events(#[from] io::Error),
}

/// Follows a job from a place in its events on, to its end, to the time limit or to a question. May be
/// dropped halfway: `at` then is where the rest begins.
///
/// # Errors
/// Its folder cannot be read.
pub async fn follow(
    folder: &JobFolder,
    at: &mut u64,
    wait: Option<Duration>,
    follower: &mut impl Follower,
) -> Result<Followed, FollowError> {
    let begun = Instant::now();
    let mut signs = None;
    let mut pause = FIRST;
    let mut is_told = false;
    loop {
        // Whether somebody records it, first: what it did before it ended is there then. Who has just
        // written something does.
        let is_recorded = std::mem::take(&mut is_told) || folder.has_recorder();
        let mut job = folder.read()?;
        let before = *at;
        loop {
            let (said, next) = folder.said(*at)?;
            if job.state == JobState::Queued && !said.is_empty() {
                // It has begun between the two looks.
                job = folder.read()?;
            }
            for said in said {
                *at = said.end;
                if follower.hears(&job, &said).is_break() {
                    let left = Left::Enough;
                    return Ok(Followed { job, left });
                }
            }
            if std::mem::replace(at, next) == next {
                break;
            }
        }
        follower.sees(&job);
        let left = match job.state {
            JobState::Done => Some(Left::Over),
            JobState::WaitingInput => Some(Left::Asks),
            _ if !is_recorded && is_old(&job) => Some(Left::Lost),
            _ if wait.is_some_and(|wait| begun.elapsed() >= wait) => Some(Left::StillRunning),
            _ => None,
        };
        if let Some(left) = left {
            return Ok(Followed { job, left });
        }
        let Some(signs) = &mut signs else {
            if begun.elapsed() < SHORT {
                tokio::time::sleep(FIRST).await;
            } else {
                // What happened until it watched is seen by the next look.
                signs = Some(Signs::of(folder.path()));
            }
            continue;
        };
        if signs.come() {
            pause = LONGEST;
        } else if *at != before {
            // Where one cell after the other says something, the next may end at once.
            pause = pause.min(BRISK);
        }
        let rest = Instant::now() + REST;
        tokio::select! {
            () = signs.next(rest.into()) => is_told = true,
            () = tokio::time::sleep(pause) => {}
        }
        pause = LONGEST.min(pause + pause / 8);
    }
}

/// Says whether its recorder should have begun long ago.
fn is_old(job: &Job) -> bool {
    let age = Timestamp::now().duration_since(job.asked_at);
    age.unsigned_abs() > BEGINS || job.generation.is_some()
}

/// Waits until the recorder of a job has done what was asked of it, or is gone.
pub(super) async fn heard(folder: &JobFolder) {
    while folder.has_asks() && folder.has_recorder() {
        tokio::time::sleep(FIRST).await;
    }
}

/// How long a recorder may take to hear what is asked of it.
const HEARS: Duration = Duration::from_secs(2);

/// Waits until the recorder of a job has heard what was asked of it.
pub async fn taken(folder: &JobFolder) {
    let begun = Instant::now();
    while folder.has_asks() && begun.elapsed() < HEARS {
        tokio::time::sleep(FIRST).await;
    }
}

/// Waits as [`heard`] does, for a time; says whether it was enough.
pub(super) async fn heard_within(folder: &JobFolder, limit: Duration) -> bool {
    tokio::time::timeout(limit, heard(folder)).await.is_ok()
}
