//! Follows a job: passes on the stored messages as they come, until the job is over or asks for
//! input.

use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::project::FolderWatch;
use crate::project::jobs::{
    EVENTS, Job, JobFolder, JobMessage, JobPrompt, JobState, NoJob, OVER, READ_BYTES, RECORD,
};

/// The pause between two reads of a short job.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// How long a job is read without a watch: removing a watch takes longer than most cells.
const SHORT_JOB: Duration = Duration::from_millis(30);

/// The pause between two reads where the system reports no changes.
const UNWATCHED_PAUSE: Duration = Duration::from_millis(10);

/// The longest pause, since no change is reported when a recorder is killed.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The least time between two reads of a job that prints much: the kernel and the recorder may need the
/// processors. The end of the job is noticed at once.
const LEAST_PAUSE: Duration = Duration::from_millis(15);

/// How old an input request must be before the jobs behind it stop waiting: it may have just been
/// answered or interrupted.
const QUESTION_AGE: Duration = Duration::from_secs(2);

/// How long a recorder may take to start.
const RECORDER_START: Duration = Duration::from_secs(10);

/// Why following ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowEnd {
    /// The job is over.
    Over,
    /// The time limit was reached; the job continues.
    StillRunning,
    /// The code asks for input.
    Asks,
    /// The job waits for a cell whose code asks for input: it may wait for ever.
    BehindQuestion,
    /// The recorder was killed: later messages are not stored.
    Lost,
    /// The follower asked to stop; the job continues unless it is over.
    Enough,
}

/// The receiver of a followed job's messages.
pub trait Follower {
    /// Takes a message of the job, in order; a break ends the following after it.
    fn take_message(&mut self, job: &Job, message: &JobMessage) -> ControlFlow<()>;

    /// Takes the job's state, after all messages that had been stored until then.
    fn take_state(&mut self, job: &Job);
}

/// The result of following a job.
#[derive(Debug)]
pub struct Followed {
    /// The job's record.
    pub job: Job,
    /// Why the following ended.
    pub left: FollowEnd,
}

/// Why a job cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The job's record cannot be read.
    #[error(transparent)]
    Job(#[from] NoJob),
    /// The job's messages cannot be read.
    #[error("cannot read what the job said")]
    Events(#[from] io::Error),
}

/// Follows a job from the offset `at` in its events to its end, to the time limit or to an input
/// request. May be cancelled at any await: `at` is then the offset of the rest.
///
/// # Errors
/// The job's folder cannot be read.
pub async fn follow(
    folder: &JobFolder,
    at: &mut u64,
    wait: Option<Duration>,
    follower: &mut impl Follower,
) -> Result<Followed, FollowError> {
    let begun = Instant::now();
    let mut watch = None;
    let mut is_reported = false;
    let mut behind_question: Option<Instant> = None;
    loop {
        // The recorder is checked before the messages are read: if it has ended, the read below gets all
        // that it wrote. A recorder that has just written something has not ended.
        let is_recorded = std::mem::take(&mut is_reported) || folder.has_recorder();
        let mut job = folder.read()?;
        loop {
            let before = *at;
            let (messages, next) = folder.messages(before)?;
            let is_of_later = |message: &JobMessage| message.cell >= job.cells.len();
            if job.state == JobState::Queued && !messages.is_empty()
                || messages.iter().any(is_of_later)
            {
                // The job has started or grown between the two reads.
                job = folder.read()?;
            }
            for message in messages {
                *at = message.end;
                if follower.take_message(&job, &message).is_break() {
                    let left = FollowEnd::Enough;
                    return Ok(Followed { job, left });
                }
            }
            *at = next;
            // A shorter read came to the end of what is stored.
            if next.saturating_sub(before) <= READ_BYTES {
                break;
            }
        }
        follower.take_state(&job);
        behind_question = (job.state == JobState::Queued && is_behind_a_question(folder, &job))
            .then(|| behind_question.unwrap_or_else(Instant::now));
        let left = match job.state {
            JobState::Done => Some(FollowEnd::Over),
            JobState::WaitingInput => Some(FollowEnd::Asks),
            _ if behind_question.is_some_and(|since| since.elapsed() >= QUESTION_AGE) => {
                Some(FollowEnd::BehindQuestion)
            }
            _ if !is_recorded && should_be_recorded(&job) => Some(FollowEnd::Lost),
            _ if wait.is_some_and(|wait| begun.elapsed() >= wait) => Some(FollowEnd::StillRunning),
            _ => None,
        };
        if let Some(left) = left {
            return Ok(Followed { job, left });
        }
        let Some(watch) = &mut watch else {
            if begun.elapsed() < SHORT_JOB {
                tokio::time::sleep(FIRST_PAUSE).await;
            } else {
                // The next read finds the changes from before the watch.
                watch = Some(FolderWatch::begin(&[folder.path()], UNWATCHED_PAUSE));
            }
            continue;
        };
        let reported = tokio::time::timeout(
            LONGEST_PAUSE,
            wait_for_writes(watch, Instant::now() + LEAST_PAUSE),
        )
        .await;
        is_reported = reported.is_ok_and(|is_known| is_known);
    }
}

/// Waits until the recorder has written something and then, unless the job is over, until `pause_end`. Returns
/// false if the recorder may not have written anything. Cancel safe.
async fn wait_for_writes(watch: &mut FolderWatch, pause_end: Instant) -> bool {
    let pause_end = tokio::time::sleep_until(pause_end.into());
    tokio::pin!(pause_end);
    let (mut is_known, mut is_new, mut is_over) = (true, false, false);
    while !is_over {
        let concerns = |name: Option<&str>| {
            is_known &= name.is_some();
            is_over |= name == Some(OVER);
            matches!(name, None | Some(RECORD | EVENTS | OVER))
        };
        tokio::select! {
            () = &mut pause_end, if is_new => break,
            () = watch.changed(concerns) => is_new = true,
        }
    }
    is_known
}

fn is_behind_a_question(folder: &JobFolder, job: &Job) -> bool {
    if job.behind_prompt.is_some() {
        return true;
    }
    let other = job.behind_job.as_deref().and_then(|id| folder.other(id));
    let other = other.and_then(|other| other.read().ok());
    other.is_some_and(|other| other.state == JobState::WaitingInput)
}

/// Says whether the job is so old that its recorder should have started.
pub(super) fn should_be_recorded(job: &Job) -> bool {
    let age = Timestamp::now().duration_since(job.asked_at);
    age.unsigned_abs() > RECORDER_START || job.generation.is_some()
}

/// Waits until a job no longer asks this: it was answered, also by others, or interrupted, or the job is over. Cancel
/// safe.
pub async fn wait_until_answered(folder: &JobFolder, prompt: &JobPrompt) {
    let mut watch = FolderWatch::begin(&[folder.path()], UNWATCHED_PAUSE);
    let asks = || {
        folder
            .read()
            .is_ok_and(|job| job.prompt.as_ref() == Some(prompt))
    };
    while asks() {
        let is_record = |name: Option<&str>| name.is_none_or(|name| name == RECORD);
        let _ = tokio::time::timeout(QUESTION_CHECK, watch.changed(is_record)).await;
    }
}

/// How often to check in any case whether a question is open: changes from another machine are not reported.
const QUESTION_CHECK: Duration = Duration::from_millis(500);

/// Waits until the recorder of a job has handled all requests, or has ended.
pub(super) async fn wait_until_handled(folder: &JobFolder) {
    while folder.has_requests() && folder.has_recorder() {
        tokio::time::sleep(FIRST_PAUSE).await;
    }
}

/// Waits until the recorder of a finished job has ended: it has written all that it could, and takes no
/// more requests. Does not wait long for a recorder that was stopped.
pub(super) async fn wait_until_ended(folder: &JobFolder) {
    let begun = Instant::now();
    while folder.has_recorder() && begun.elapsed() < RECORDER_RESPONSE {
        tokio::time::sleep(FIRST_PAUSE).await;
    }
}

/// How long a recorder may take to handle a request, or to end.
const RECORDER_RESPONSE: Duration = Duration::from_secs(2);

/// Waits until the recorder of a job has taken all requests.
pub async fn wait_until_taken(folder: &JobFolder) {
    let begun = Instant::now();
    while folder.has_requests() && begun.elapsed() < RECORDER_RESPONSE {
        tokio::time::sleep(FIRST_PAUSE).await;
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::project::Project;

    #[derive(Default)]
    struct Count(usize);

    impl Follower for Count {
        fn take_message(&mut self, _: &Job, _: &JobMessage) -> ControlFlow<()> {
            self.0 += 1;
            ControlFlow::Continue(())
        }

        fn take_state(&mut self, _: &Job) {}
    }

    #[tokio::test]
    async fn a_job_that_is_longer_than_one_read_is_followed_to_its_last_message() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let mut job = Job {
            state: JobState::Done,
            ..Job::new(&project, "a.ipynb", "a.ipynb".to_owned(), "ada")
        };
        let folder = project.make_job(&mut job).unwrap();
        let text = format!("\"{}\"", "y".repeat(1_000_000));
        let mut events = folder.events().unwrap();
        for _ in 0..12 {
            events.append(0, "stream", None, text.as_bytes()).unwrap();
        }
        let (mut at, mut count) = (0, Count::default());
        let followed = follow(&folder, &mut at, None, &mut count).await.unwrap();
        assert_eq!((followed.left, count.0), (FollowEnd::Over, 12));
        assert_eq!(folder.messages(at).unwrap().1, at);
    }

    #[tokio::test]
    async fn news_of_a_job_wait_and_its_end_does_not() {
        let temp = tempfile::tempdir().unwrap();
        let mut watch = FolderWatch::begin(&[temp.path()], Duration::from_secs(3600));
        let pause_end = Instant::now() + Duration::from_millis(20);
        let write = |name: &str| std::fs::write(temp.path().join(name), "x").unwrap();
        write("lock");
        write(EVENTS);
        write(".nb-half");
        std::fs::rename(temp.path().join(".nb-half"), temp.path().join(RECORD)).unwrap();
        assert!(wait_for_writes(&mut watch, pause_end).await);
        assert!(Instant::now() >= pause_end);
        let pause_end = Instant::now() + Duration::from_secs(3600);
        write(EVENTS);
        write(OVER);
        assert!(wait_for_writes(&mut watch, pause_end).await);
        assert!(Instant::now() < pause_end);
    }
}
