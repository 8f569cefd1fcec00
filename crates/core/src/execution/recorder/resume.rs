//! Continues with cells that were already sent to the kernel: their recorder was killed, or their
//! front end has disconnected and its proxy hands them over.
//!
//! The messages until then are in the job's folder. A proxy continues to add to them until the
//! recorder has written which message of the kernel is the first that it receives itself; messages
//! that both have received are recognised by their ids. After a recorder was killed, messages may be
//! missing, and the outputs say so.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use super::outputs::JobOutputs;
use super::state::Recorder;
use crate::client::{
    ExecutionEvent, FollowedEvent, FollowedStep, IopubMessage, RequestFollower, SequenceNumbers,
};
use crate::execution::category;
use crate::execution::ending::{Ending, kernel_ending};
use crate::execution::lost::to_the_second;
use crate::execution::run::{CLOSES, RunError, RunObserver, Runner};
use crate::kernel::process::{Process, Signal};
use crate::project::event::{CellEnd, Event as JournalEvent, EventKind, ExecutionEnd};
use crate::project::{ErrorCategory, InterruptMode, Session};
use crate::task::causes::with_causes;

/// How often to check whether the proxy has finished handing over.
const POLL_PAUSE: Duration = Duration::from_millis(2);

/// How long a proxy may take to hand over; a Jupyter server kills it earlier than that.
const HANDS_OVER: Duration = Duration::from_secs(10);

impl Recorder<'_> {
    /// Follows the cells that were sent to the kernel to their end.
    pub(super) async fn take_up(&self) {
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
        if let Some(Ok(runner)) = joined {
            self.follow_requests(runner, &pending, None).await;
        } else {
            self.fed().await;
            self.refold(None);
            // A cell without a message id was never sent to the kernel.
            if let Some(Err(ending)) = joined {
                for (at, _) in &pending {
                    self.kernel_ended(*at, &ending);
                }
            }
        }
        self.job(|job| {
            let left = job.cells.iter_mut().filter(|cell| cell.status.is_none());
            left.for_each(|cell| cell.status = Some(CellEnd::NotRun));
            if job.goal.is_some() {
                let note = "its recorder was killed: cells that are still out of date were not run";
                job.notes.push(note.to_owned());
            }
        });
    }

    /// Connects to the kernel to which the cells were sent; if that has ended, returns how.
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
        let generation = generation.unwrap_or_default();
        let session = match session {
            Some(session) if session.generation_to_use() == generation => session,
            other => return Err(Ending::of_generation(&key, other.as_ref(), generation)),
        };
        let joined = Runner::join(self.project, &key, &session, &by, None).await;
        if joined.is_ok() {
            self.begin_to_listen(&session).await;
        }
        joined.map_err(|error| {
            let state = self.project.state().ok();
            let recorded = state.and_then(|state| ended(&state.session(&key)?));
            match error {
                RunError::Ended { text, .. } => {
                    recorded.unwrap_or_else(|| Ending::died(&text, None))
                }
                error => Ending::unreachable(&with_causes(&error)),
            }
        })
    }

    /// Records that the kernel of a cell has ended, with an error output.
    fn kernel_ended(&self, at: usize, ending: &Ending) {
        self.at.set(at);
        self.on_event(&ExecutionEvent::Iopub(ending.error_message()));
        self.note(ending.text().to_owned());
        self.is_over(at, CellEnd::KernelDied, Some(ending.category()));
    }

    /// Follows cells to their end. `numbers` are those of the kernel's messages over a connection that was lost.
    async fn follow_requests(
        &self,
        mut runner: Runner,
        pending: &[(usize, String)],
        numbers: Option<SequenceNumbers>,
    ) {
        let process = runner.process().cloned();
        let key = self.job.borrow().session.clone();
        let (client, session) = runner.parts();
        let interrupt_mode = session.interrupt_mode();
        let ids = pending.iter().map(|(_, id)| id.clone());
        let mut follower = client.follow_requests(ids);
        if let Some(numbers) = numbers {
            follower.continue_from(numbers);
        }
        let early = self.collect_early(&mut follower).await;
        // After that call: until then the proxy has written the job's record.
        let kept = self.refold(Some(pending));
        for (which, (at, _)) in pending.iter().enumerate() {
            let job = self.job.borrow();
            let cell = &job.cells[*at];
            if cell.begun_at.is_some() {
                follower.has_begun(which, cell.input_at.is_some());
            }
            if cell.status.is_some() {
                follower.is_over(which);
            }
        }
        let is_new = |event: &FollowedEvent| {
            let id = event.id.as_ref();
            !id.is_some_and(|id| kept.contains(id))
        };
        let mut kernel_end = None;
        for event in early.into_iter().filter(&is_new) {
            kernel_end = self.take_event(pending, event).or(kernel_end);
        }
        self.take_lost_question();
        self.note_lost_questions();
        let mut questions = self.questions();
        let mut may_answer = true;
        loop {
            tokio::select! {
                event = follower.next() => match event {
                    // The proxy may have recorded a message that arrives here only now.
                    Some(event) if is_new(&event) => kernel_end = self.take_event(pending, event).or(kernel_end),
                    Some(_) => {}
                    None => break,
                },
                (parent, text) = self.next_answer(&mut questions), if may_answer => {
                    // What is sent to a process that was just killed would be lost: the next connection sends it.
                    may_answer = process.as_ref().is_none_or(Process::is_alive);
                    match may_answer {
                        true => follower.answer(parent, &text),
                        false => self.replies.borrow_mut().push_front(text),
                    }
                }
                () = self.interrupted() => {
                    let at = self.at.get();
                    let runs = self.job.borrow().cells.get(at).is_some_and(|cell| {
                        cell.begun_at.is_some() && cell.status.is_none()
                    });
                    match &process {
                        _ if !runs => {}
                        Some(process) if interrupt_mode == InterruptMode::Signal => {
                            let _ = process.signal_group(Signal::INT);
                        }
                        _ => follower.interrupt(),
                    }
                }
            }
        }
        let numbers = follower.into_numbers();
        if let Some(cause) = kernel_end {
            if let Some(process) = process.as_ref().filter(|_| session.as_remote().is_some()) {
                process.ended_within(CLOSES).await;
            }
            if session.as_remote().is_some()
                && let Ok(next) = self.join_again().await
            {
                // Only the bridge to the kernel's server has ended.
                let left: Vec<_> = pending.to_vec();
                let left = left
                    .into_iter()
                    .filter(|(at, _)| self.job.borrow().cells[*at].status.is_none());
                let left: Vec<_> = left.collect();
                return Box::pin(self.follow_requests(next, &left, Some(numbers))).await;
            }
            let process = process.as_ref();
            let ending = kernel_ending(self.project, &key, session, process, &cause).await;
            for (at, _) in pending {
                if self.job.borrow().cells[*at].status.is_none() {
                    self.kernel_ended(*at, &ending);
                }
            }
        }
        Runner::leave(runner).await;
    }

    /// Collects the kernel's messages until the proxy, if there is one, has written all earlier
    /// ones.
    async fn collect_early(&self, follower: &mut RequestFollower<'_>) -> VecDeque<FollowedEvent> {
        let mut early = VecDeque::new();
        let mut is_marked = false;
        let mut ended = false;
        let fed = self.fed();
        tokio::pin!(fed);
        loop {
            if let (Some(first), false) = (follower.first(), is_marked) {
                is_marked = true;
                if let Err(error) = self.folder.mark_ready(first) {
                    tracing::warn!(%error, "the proxy cannot be told");
                }
            }
            tokio::select! {
                () = &mut fed => return early,
                event = follower.next(), if !ended => match event {
                    Some(event) => early.push_back(event),
                    None => ended = true,
                },
                // The first message may belong to none of these cells.
                () = tokio::time::sleep(POLL_PAUSE), if !is_marked => {}
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
            tokio::time::sleep(POLL_PAUSE).await;
        }
        if let Ok(job) = self.folder.read() {
            *self.job.borrow_mut() = job;
        }
    }

    /// Reads the stored messages from the job's folder; returns their ids. If messages about these
    /// cells may be missing, the running cell gets an output that says so.
    fn refold(&self, pending: Option<&[(usize, String)]>) -> HashSet<String> {
        let stored = JobOutputs::read(&self.job.borrow(), self.folder);
        let ids = match stored {
            Ok((outputs, ids)) => {
                *self.outputs.borrow_mut() = outputs;
                ids
            }
            Err(error) => {
                self.note(format!("what it said before cannot be read: {error}"));
                return HashSet::new();
            }
        };
        let begun = |at: &usize| self.job.borrow().cells[*at].begun_at.is_some();
        let cells = 0..self.job.borrow().cells.len();
        self.unwritten.borrow_mut().extend(cells.filter(begun));
        let is_whole = {
            let job = self.job.borrow();
            job.front_end.as_ref().is_some_and(|it| it.whole)
        };
        self.is_partial.set(!is_whole);
        let runs = pending.into_iter().flatten().map(|(at, _)| at);
        if let Some(at) = runs.copied().find(begun).filter(|_| !is_whole) {
            self.note_gap(at, ids.is_empty());
        }
        ids
    }

    fn note_gap(&self, at: usize, is_empty: bool) {
        let now = Timestamp::now();
        let mut from = self.folder.last_written_at().unwrap_or(now);
        let recorder = match &self.job.borrow().front_end {
            Some(front_end) => format!("nb-proxy of {}", front_end.name),
            None => "the recorder of this cell".to_owned(),
        };
        let job = self.job.borrow();
        if is_empty && job.front_end.is_some() {
            // The proxy stored nothing: the folder may be new.
            from = job.cells[at].begun_at.unwrap_or(from);
        }
        drop(job);
        let text = format!(
            "[nb] {recorder} was killed: what the cell printed between {} and {} may be missing here\n",
            to_the_second(from),
            to_the_second(now),
        );
        self.at.set(at);
        self.on_event(&ExecutionEvent::Iopub(IopubMessage::on_stderr(&text)));
    }

    /// Takes an event; returns the reason if the kernel has ended.
    fn take_event(&self, pending: &[(usize, String)], event: FollowedEvent) -> Option<String> {
        let (at, _) = pending.get(event.at)?;
        let at = *at;
        self.at.set(at);
        let raised = || {
            let outputs = self.outputs.borrow();
            outputs.cells.get(at)?.raised.clone()
        };
        match event.step {
            FollowedStep::Event(event) => self.on_event(&event),
            FollowedStep::Ended { ran: false } => self.is_over(at, CellEnd::Aborted, None),
            FollowedStep::Ended { ran: true } => {
                let raised = raised();
                let end = match &raised {
                    None => CellEnd::Ok,
                    Some(raised) if self.interrupted.get() || raised.is_interrupt() => {
                        CellEnd::Interrupted
                    }
                    Some(_) => CellEnd::Error,
                };
                let category = raised.as_ref().map(category::of_exception);
                self.is_over(at, end, category);
            }
            FollowedStep::MissedEnd => self.is_over(at, CellEnd::UnknownEnd, None),
            FollowedStep::Gone(cause) => return Some(cause),
        }
        None
    }

    /// Records the end of a cell, also in the journal, where its sender has not written it.
    fn is_over(&self, at: usize, end: CellEnd, category: Option<ErrorCategory>) {
        let now = Timestamp::now();
        let begun = self.job.borrow().cells[at].begun_at;
        let begun =
            begun.filter(|_| matches!(end, CellEnd::Ok | CellEnd::Error | CellEnd::Interrupted));
        let took = begun.and_then(|begun| now.duration_since(begun).as_millis().try_into().ok());
        if begun.is_some() {
            self.has_changed(at);
        }
        self.job(|job| {
            let cell = &mut job.cells[at];
            cell.status = Some(end);
            cell.category = category::of_end(end, category, self.is_over_time.get());
            cell.took_ms = took;
            cell.idle_at = begun.map(|_| now);
        });
        let job = self.job.borrow();
        let Some(cell) = job.cells.get(at) else {
            return;
        };
        let Some(msg_id) = &cell.msg_id else {
            return;
        };
        let done = ExecutionEnd {
            took_ms: took,
            ..ExecutionEnd::new(msg_id, end, None)
        };
        self.project.record(&[JournalEvent {
            generation: job.generation,
            by: Some(job.actor()),
            ..JournalEvent::now(&job.session, EventKind::Done(done))
        }]);
    }
}
