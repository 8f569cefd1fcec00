//! Going on with cells that the kernel runs already: their recorder was killed, or their front end
//! has gone and its proxy hands them over.
//!
//! What was kept before is in the job's folder. A proxy goes on adding to it until the recorder has
//! told which message of the kernel is the first that it hears itself; what both have is known by the
//! messages' ids. After a recorder that was killed something may be missing, and the outputs say so.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;

use super::kept::Kept;
use super::questions::Questions;
use super::{Recorder, perform_with};
use crate::client::{Event, FollowedEvent, FollowedStep, IopubMessage, RequestFollower};
use crate::execution::ending::{Ending, how_it_went};
use crate::execution::lost::to_the_second;
use crate::execution::run::{Audience, RunError, Runner};
use crate::kernel::process::Signal;
use crate::project::event::{Event as JournalEvent, EventKind, ExecutionEnd, Outcome};
use crate::project::jobs::JobFolder;
use crate::project::{InterruptMode, Project, Session};
use crate::task::causes::with_causes;

/// How often it is looked whether the proxy has ended with handing over.
const LOOK: Duration = Duration::from_millis(2);

/// How long a proxy may take to hand over; it is ended by force before.
const HANDS_OVER: Duration = Duration::from_secs(10);

/// How long a front end that comes back with another proxy has for that: what it restarts then is
/// not written over.
const RETURNS: Duration = Duration::from_secs(10);

/// Goes on with a job. Nothing happens where a recorder has it, or where it is over.
///
/// # Errors
/// The job's folder cannot be read or written.
pub(crate) async fn resume(project: &Project, folder: &JobFolder) -> std::io::Result<()> {
    perform_with(project, folder, async |recorder| {
        recorder.take_up().await;
        recorder.finish().await;
    })
    .await
}

impl Recorder<'_> {
    async fn take_up(&self) {
        let pending: Vec<(usize, String)> = {
            let job = self.job.borrow();
            let cells = job.cells.iter().enumerate();
            let cells = cells.filter(|(_, cell)| cell.status.is_none());
            cells
                .filter_map(|(at, cell)| Some((at, cell.msg_id.clone()?)))
                .collect()
        };
        let joined = match pending.is_empty() {
            true => None,
            false => Some(self.join_again().await),
        };
        match joined {
            Some(Ok(runner)) => self.follow_requests(runner, &pending).await,
            Some(Err(ending)) => {
                self.fed().await;
                self.refold(None);
                for (at, _) in &pending {
                    self.kernel_ended(*at, &ending);
                }
            }
            // Nothing of it was sent to the kernel.
            None => {
                self.fed().await;
                self.refold(None);
            }
        }
        self.job(|job| {
            let left = job.cells.iter_mut().filter(|cell| cell.status.is_none());
            left.for_each(|cell| cell.status = Some("not_run".to_owned()));
        });
    }

    /// Joins the kernel that the cells were sent to; else says how it ended.
    async fn join_again(&self) -> Result<Runner, Ending> {
        let (key, by, generation) = {
            let job = self.job.borrow();
            (job.session.clone(), job.actor(), job.generation)
        };
        let state = self.project.state();
        let state = state.map_err(|error| Ending::unreachable(&with_causes(&error)))?;
        let session = state.session(&key);
        let ended = |session: &Session| {
            let ended = session.ended.as_ref();
            let ended = ended.filter(|ended| Some(ended.generation) == generation)?;
            Some(Ending::recorded(&key, ended))
        };
        let session = match session {
            Some(session) if Some(session.generation) == generation => session,
            other => {
                let recorded = other.as_ref().and_then(ended);
                return Err(
                    recorded.unwrap_or_else(|| Ending::died("the kernel was replaced since"))
                );
            }
        };
        let joined = Runner::join(self.project, &key, &session, &by, None).await;
        joined.map_err(|error| {
            let state = self.project.state().ok();
            let recorded = state.and_then(|state| ended(&state.session(&key)?));
            match error {
                RunError::Ended { told, .. } => recorded.unwrap_or_else(|| Ending::died(&told)),
                error => Ending::unreachable(&with_causes(&error)),
            }
        })
    }

    /// Takes the end of a cell whose kernel has ended: the cell says so.
    fn kernel_ended(&self, at: usize, ending: &Ending) {
        self.at.set(at);
        self.sees(&Event::Iopub(ending.told()));
        self.job(|job| {
            let text = ending.text();
            if job.notes.iter().all(|note| note != text) {
                job.notes.push(text.to_owned());
            }
        });
        self.is_over(at, "kernel_died");
    }

    async fn follow_requests(&self, mut runner: Runner, pending: &[(usize, String)]) {
        let process = runner.process().cloned();
        let key = self.job.borrow().session.clone();
        let (client, session) = runner.parts();
        let interrupt_mode = session.interrupt_mode();
        let ids = pending.iter().map(|(_, id)| id.clone());
        let mut overheard = client.follow_requests(ids);
        let early = self.hear_early(&mut overheard).await;
        // Only now: the proxy has written the job's record until here.
        let kept = self.refold(Some(pending));
        for (which, (at, _)) in pending.iter().enumerate() {
            let job = self.job.borrow();
            let cell = &job.cells[*at];
            if cell.begun_at.is_some() {
                overheard.has_begun(which, cell.input_at.is_some());
            }
            if cell.status.is_some() {
                overheard.is_over(which);
            }
        }
        let is_new = |heard: &FollowedEvent| {
            let id = heard.id.as_ref();
            !id.is_some_and(|id| kept.contains(id))
        };
        let mut gone = None;
        for heard in early.into_iter().filter(&is_new) {
            gone = self.hears(pending, heard).or(gone);
        }
        self.tell_unheard_questions();
        let mut questions = Questions::default();
        loop {
            tokio::select! {
                heard = overheard.next() => match heard {
                    // The proxy may have written down what only comes here now.
                    Some(heard) if is_new(&heard) => gone = self.hears(pending, heard).or(gone),
                    Some(_) => {}
                    None => break,
                },
                (parent, text) = self.next_answer(&mut questions) => {
                    overheard.answer(parent, &text);
                }
                () = self.interrupts() => {
                    let at = self.at.get();
                    let runs = self.job.borrow().cells.get(at).is_some_and(|cell| {
                        cell.begun_at.is_some() && cell.status.is_none()
                    });
                    match &process {
                        _ if !runs => {}
                        Some(process) if interrupt_mode == InterruptMode::Signal => {
                            let _ = process.signal_group(Signal::INT);
                        }
                        _ => overheard.interrupt(),
                    }
                }
            }
        }
        if let Some(seen) = gone {
            let process = process.as_ref();
            let ending = how_it_went(self.project, &key, session, process, &seen).await;
            for (at, _) in pending {
                if self.job.borrow().cells[*at].status.is_none() {
                    self.kernel_ended(*at, &ending);
                }
            }
        }
        Runner::leave(runner).await;
    }

    /// Hears the kernel until the proxy, where there is one, has written all that came before.
    async fn hear_early(&self, overheard: &mut RequestFollower<'_>) -> VecDeque<FollowedEvent> {
        let mut early = VecDeque::new();
        let mut told = false;
        let mut ended = false;
        let fed = self.fed();
        tokio::pin!(fed);
        loop {
            if let (Some(first), false) = (overheard.first(), told) {
                told = true;
                if let Err(error) = self.folder.tell_ready(first) {
                    tracing::warn!(%error, "the proxy cannot be told");
                }
            }
            tokio::select! {
                () = &mut fed => return early,
                heard = overheard.next(), if !ended => match heard {
                    Some(heard) => early.push_back(heard),
                    None => ended = true,
                },
                // The first message may be none of these cells'.
                () = tokio::time::sleep(LOOK), if !told => {}
            }
        }
    }

    /// Waits until no proxy adds to the job's events any more.
    async fn fed(&self) {
        if self.job.borrow().front_end.is_none() {
            return;
        }
        let begun = std::time::Instant::now();
        while matches!(self.folder.lock_feed(), Ok(None)) && begun.elapsed() < HANDS_OVER {
            tokio::time::sleep(LOOK).await;
        }
        if let Ok(job) = self.folder.read() {
            *self.job.borrow_mut() = job;
        }
    }

    /// Takes what is in the job's folder; returns which messages those are. Where something may be
    /// missing of what these cells say, the one that runs says so.
    fn refold(&self, pending: Option<&[(usize, String)]>) -> std::collections::HashSet<String> {
        let kept = match Kept::read(&self.job.borrow(), self.folder) {
            Ok(kept) => kept,
            Err(error) => {
                self.job(|job| {
                    job.notes
                        .push(format!("what it said before cannot be read: {error}"));
                });
                return std::collections::HashSet::new();
            }
        };
        *self.outputs.borrow_mut() = kept.outputs;
        *self.widgets.borrow_mut() = kept.widgets;
        let begun = |at: &usize| self.job.borrow().cells[*at].begun_at.is_some();
        let cells = 0..self.job.borrow().cells.len();
        self.unwritten.borrow_mut().extend(cells.filter(begun));
        let is_whole = {
            let job = self.job.borrow();
            job.front_end.as_ref().is_some_and(|it| it.whole)
        };
        let runs = pending.into_iter().flatten().map(|(at, _)| at);
        if let Some(at) = runs.copied().find(begun).filter(|_| !is_whole) {
            self.tell_gap(at);
        }
        kept.ids
    }

    fn tell_gap(&self, at: usize) {
        let now = Timestamp::now();
        let from = self.folder.last_sign().unwrap_or(now);
        let who = match &self.job.borrow().front_end {
            Some(front_end) => format!("nb-proxy of {}", front_end.name),
            None => "the recorder of this cell".to_owned(),
        };
        let text = format!(
            "[nb] {who} was killed: what the cell printed between {} and {} may be missing here\n",
            to_the_second(from),
            to_the_second(now),
        );
        let content = serde_json::json!({ "name": "stderr", "text": text }).to_string();
        self.at.set(at);
        self.sees(&Event::Iopub(IopubMessage {
            msg_type: "stream".to_owned(),
            content: content.into_bytes().into(),
            buffers: Vec::new(),
        }));
    }

    /// Takes what was heard; returns what was seen of the kernel's end, if it is gone.
    fn hears(&self, pending: &[(usize, String)], heard: FollowedEvent) -> Option<String> {
        let (at, _) = pending.get(heard.at)?;
        let at = *at;
        self.at.set(at);
        let has_error = || {
            let outputs = self.outputs.borrow();
            outputs.get(at).is_some_and(|it| it.raised)
        };
        match heard.what {
            FollowedStep::Event(event) => self.sees(&event),
            FollowedStep::Ended { ran: false } => self.is_over(at, "aborted"),
            FollowedStep::Ended { ran: true } if !has_error() => self.is_over(at, "ok"),
            FollowedStep::Ended { ran: true } if self.asked.interrupted.get() => {
                self.is_over(at, "interrupted");
            }
            FollowedStep::Ended { ran: true } => self.is_over(at, "error"),
            FollowedStep::Unheard => self.is_over(at, "unheard"),
            FollowedStep::Gone(seen) => return Some(seen),
        }
        None
    }

    /// Takes the end of a cell, and writes it into the journal: whoever asked has not.
    fn is_over(&self, at: usize, word: &str) {
        let now = Timestamp::now();
        let heard = matches!(word, "ok" | "error" | "interrupted");
        let mut took = None;
        if let Some(recorded) = self.outputs.borrow_mut().get_mut(at)
            && let (Some(begun), true) = (recorded.busy, heard)
        {
            recorded.idle = Some(now);
            took = u64::try_from(now.duration_since(begun).as_millis()).ok();
            self.unwritten.borrow_mut().insert(at);
        }
        self.job(|job| {
            let cell = &mut job.cells[at];
            cell.status = Some(word.to_owned());
            cell.took_ms = took;
            cell.idle_at = heard.then_some(now);
        });
        let job = self.job.borrow();
        let Some(cell) = job.cells.get(at) else {
            return;
        };
        let Some(msg_id) = &cell.msg_id else {
            return;
        };
        let end = ExecutionEnd {
            took_ms: took,
            ..ExecutionEnd::new(msg_id, Outcome::of_word(word), None)
        };
        self.project.record(&[JournalEvent {
            generation: job.generation,
            by: Some(job.actor()),
            ..JournalEvent::now(&job.session, EventKind::Done(end))
        }]);
    }

    /// Waits until a front end that goes is certain not to come back, and says whether the outputs
    /// are to be written: where it has restarted its kernel it has them, and wants them no more.
    pub(super) async fn may_write_at_last(&self) -> bool {
        let (front_end, key, generation) = {
            let job = self.job.borrow();
            (job.front_end.clone(), job.session.clone(), job.generation)
        };
        let handed_at = front_end
            .filter(|it| it.may_return)
            .and_then(|it| it.handed_at);
        let Some(handed_at) = handed_at else {
            return true;
        };
        tokio::time::sleep(left(handed_at)).await;
        let state = self.project.state().ok();
        let now = state.and_then(|state| state.session(&key));
        let was_replaced = now.is_some_and(|now| Some(now.generation) != generation);
        let job = self.job.borrow();
        let died = |status: &Option<String>| status.as_deref() == Some("kernel_died");
        !(was_replaced && job.cells.iter().any(|cell| died(&cell.status)))
    }

    /// Says whether a front end that has gone may come back still.
    pub(super) fn may_return(&self) -> Option<Duration> {
        let job = self.job.borrow();
        let front_end = job.front_end.as_ref().filter(|it| it.may_return)?;
        Some(left(front_end.handed_at?)).filter(|left| !left.is_zero())
    }
}

/// How long it is until a front end that went then is taken for gone.
fn left(handed_at: Timestamp) -> Duration {
    let age = Timestamp::now().duration_since(handed_at).unsigned_abs();
    RETURNS.saturating_sub(age)
}
