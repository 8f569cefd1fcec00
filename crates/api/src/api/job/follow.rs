//! Follows a job until it ends, a time limit passes, a line is printed, or its code asks a question.

use std::time::{Duration, Instant};

use super::answer::{FollowPosition, JobAnswer, text_so_far};
use super::collected::Listener;
use super::observer::{JobObserver, PromptAnswer};
use super::options::FollowOptions;
use crate::api::caller::{Caller, DEFAULT_TIMEOUT};
use crate::api::problem::{Problem, ProblemKind};
use crate::api::waiting::WaitingRequest;
use crate::execution::follow::{
    FollowEnd, Followed, follow, wait_until_answered, wait_until_taken,
};
use crate::execution::reply::reply;
use crate::execution::run::EOF;
use crate::hint::{Verb, nb};
use crate::lifecycle::status::waiting_cells;
use crate::project::cursor::Cursor;
use crate::project::jobs::{JobFolder, JobState, RecorderRequest};

/// Returns how long a caller waits for a job; `None` is for ever. The default is short unless a person
/// waits.
pub(in crate::api) fn job_timeout(
    caller: &Caller,
    timeout: Option<f64>,
) -> Result<Option<Duration>, Problem> {
    Ok(match caller.wait(timeout)? {
        Some(wait) => wait,
        None if caller.is_person => None,
        None => Some(DEFAULT_TIMEOUT),
    })
}

/// Follows a job from a cursor on.
pub(in crate::api) async fn follow_job(
    caller: &Caller,
    folder: JobFolder,
    seen: Cursor,
    options: FollowOptions,
    observer: &impl JobObserver,
) -> Result<JobAnswer, Problem> {
    let wait = job_timeout(caller, options.timeout)?;
    let start = Instant::now();
    let mut following = Following {
        by: caller.by(),
        folder: &folder,
        observer,
        limit: options.limit,
        listener: Listener::new(&options, observer),
        at: seen.at,
    };
    let followed = following.follow_to_end(wait).await?;
    let Following { listener, at, .. } = following;
    let waited = start.elapsed();
    let (collected, until) = (listener.cells, listener.until);
    let cells = followed.job.cells.iter();
    let over = cells.take_while(|cell| cell.status.is_some()).count();
    caller.has_followed(folder.clone(), Cursor { at, over });
    let waits = match followed.job.state {
        JobState::Done => Vec::new(),
        _ => caller.project().map_or_else(
            |_| Vec::new(),
            |project| {
                let waiting = waiting_cells(&project, &followed.job.session);
                WaitingRequest::all(&project, waiting)
            },
        ),
    };
    let position = FollowPosition {
        working_dir: &caller.working_dir,
        folder,
        seen,
        waited,
        waits,
    };
    Ok(JobAnswer::of(
        followed,
        &collected,
        until.as_ref(),
        &options,
        position,
    ))
}

struct Following<'a, O> {
    by: &'a str,
    folder: &'a JobFolder,
    observer: &'a O,
    limit: Option<usize>,
    listener: Listener<'a, O>,
    at: u64,
}

impl<O: JobObserver> Following<'_, O> {
    /// Follows the job. The observer's first interrupt interrupts what runs; its second one stops the
    /// following.
    async fn follow_to_end(&mut self, wait: Option<Duration>) -> Result<Followed, Problem> {
        let (folder, observer) = (self.folder, self.observer);
        let mut is_interrupted = false;
        loop {
            let followed = tokio::select! {
                followed = follow(folder, &mut self.at, wait, &mut self.listener) => followed?,
                () = observer.interrupted() => {
                    let job = folder.read()?;
                    if std::mem::replace(&mut is_interrupted, true) && job.state != JobState::Done {
                        let text = format!("job {} goes on", folder.id());
                        let wait = nb(Verb::Wait).job(folder.id());
                        return Err(Problem::new(ProblemKind::StillRunning, text).hint(wait));
                    }
                    self.interrupt()?;
                    continue;
                }
            };
            let asks = followed.left == FollowEnd::Asks;
            let prompt = followed.job.prompt.clone().filter(|_| asks);
            let Some(prompt) = prompt.filter(|prompt| observer.can_answer(prompt)) else {
                return Ok(followed);
            };
            let so_far = match observer.shows_outputs() {
                true => self.listener.stop_collecting(),
                false => Vec::new(),
            };
            let so_far = so_far
                .iter()
                .map(|it| text_so_far(&followed.job, it, self.limit));
            let so_far: Vec<_> = so_far.collect();
            let answer = tokio::select! {
                answer = observer.answer(&prompt, &so_far) => answer,
                // Another client has answered, or the code goes on without an answer.
                () = wait_until_answered(folder, &prompt) => {
                    observer.on_answered();
                    continue;
                }
                () = observer.interrupted() => {
                    is_interrupted = true;
                    self.interrupt()?;
                    wait_until_taken(folder).await;
                    continue;
                }
            };
            let text = match answer {
                PromptAnswer::Text(text) => text,
                PromptAnswer::EndOfInput => EOF.to_owned(),
                PromptAnswer::None => return Ok(followed),
            };
            // The question stays in the job's record until the recorder takes the answer.
            reply(folder, &prompt, text)
                .await
                .map_err(|error| Problem::failed("hand the answer on", &error))?;
        }
    }

    fn interrupt(&self) -> Result<(), Problem> {
        let by = self.by.to_owned();
        let sent = self.folder.request(&RecorderRequest::Interrupt { by });
        sent.map_err(|error| Problem::failed("ask the recorder to interrupt", &error))
    }
}
