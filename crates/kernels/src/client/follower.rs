//! Follows requests that another client has sent and that the kernel still runs or has queued.
//!
//! Their replies go to the other client, which may have disconnected. Their outputs and their `idle`s are on
//! iopub. If an `idle` was missed, a request of this client on shell (the probe) helps: the kernel answers it
//! between two cells, so all requests that it had begun before have ended.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::execution_state::{ExecutionEvent, ExecutionState};
use super::sequence_numbers::SequenceNumbers;
use super::{Client, ClientError, IopubMessage, answers, is_idle, reached};
use crate::wire::{Channel, MissingMessages, Verified};

/// Follows requests of other clients; [`RequestFollower::next`] returns their events.
pub struct RequestFollower<'a> {
    client: &'a mut Client,
    requests: Vec<Request>,
    /// The id of the probe on shell, and whether a followed request has begun since it was sent.
    probe: String,
    progress: bool,
    /// When the kernel answered the probe; earlier messages on iopub may still arrive.
    passed: Option<Instant>,
    first: Option<String>,
    /// When to ask the kernel for a message on iopub, until one has arrived; and the pause after that.
    sign_at: Instant,
    pause: Duration,
    events: VecDeque<FollowedEvent>,
    is_gone: bool,
    numbers: SequenceNumbers,
    /// Whether messages may have been lost with an earlier connection, and no output says so yet.
    is_loss_unreported: bool,
}

struct Request {
    run: ExecutionState,
    begun: bool,
    counted: bool,
    over: bool,
}

/// An event of one of the requests.
#[derive(Clone, Debug, PartialEq)]
pub struct FollowedEvent {
    /// The index of the request, from 0.
    pub at: usize,
    /// The id of the kernel's message, if there was one.
    pub id: Option<String>,
    /// The event.
    pub step: FollowedStep,
}

/// What has happened to a followed request.
#[derive(Clone, Debug, PartialEq)]
pub enum FollowedStep {
    /// An event that the requesting client sees too.
    Event(ExecutionEvent),
    /// The kernel has ended the request.
    Ended {
        /// Whether the code ran; otherwise it was dropped from the queue.
        ran: bool,
    },
    /// The request ended some time ago, but its end was missed.
    MissedEnd,
    /// The kernel has ended; the text says how that was noticed.
    Gone(String),
}

/// The first pause before the kernel is asked again for a message on iopub; it doubles.
const SIGN_AGAIN: Duration = Duration::from_millis(20);

/// The time by which iopub may lag behind the kernel's answer on shell.
const BEHIND: Duration = Duration::from_secs(1);

impl Client {
    /// Starts to follow requests of other clients by their message ids, in the order in which they were sent.
    /// No message from [`RequestFollower::first`] on is missed.
    pub fn follow_requests(
        &mut self,
        msg_ids: impl IntoIterator<Item = String>,
    ) -> RequestFollower<'_> {
        let now = Instant::now();
        let requests = msg_ids.into_iter().map(|id| Request {
            run: ExecutionState::new(id, now),
            begun: false,
            counted: false,
            over: false,
        });
        let requests = requests.collect();
        let probe = self.ask_name(Channel::Shell);
        RequestFollower {
            client: self,
            requests,
            probe,
            progress: false,
            passed: None,
            first: None,
            sign_at: now + SIGN_AGAIN,
            pause: SIGN_AGAIN,
            events: VecDeque::new(),
            is_gone: false,
            numbers: SequenceNumbers::default(),
            is_loss_unreported: false,
        }
    }
}

/// Returns the output that says how many messages were lost with a connection.
fn loss_note(lost: Option<u64>) -> IopubMessage {
    let missing = MissingMessages(lost);
    let text = format!("[nb] the connection to the kernel was lost: {missing}\n");
    IopubMessage::on_stderr(&text)
}

impl RequestFollower<'_> {
    /// Waits for the next event; returns `None` when all requests have ended. The future may be dropped.
    pub async fn next(&mut self) -> Option<FollowedEvent> {
        loop {
            if let Some(events) = self.events.pop_front() {
                return Some(events);
            }
            if self.is_gone || self.requests.iter().all(|request| request.over) {
                return None;
            }
            let due = match (&self.first, self.passed) {
                (None, _) => Some(self.sign_at),
                (Some(_), passed) => passed.map(|at| at + BEHIND),
            };
            let overdue = reached(due.map(Into::into));
            tokio::select! {
                biased;
                received = self.client.receive() => match received {
                    Ok((channel, message)) => self.take(channel, &message),
                    Err(error) => self.ends(error),
                },
                () = overdue => {
                    if self.first.is_none() {
                        // Some kernels answer on shell only; the probe waits there.
                        self.client.ask_name(Channel::Control);
                        self.pause = (self.pause * 2).min(Duration::from_secs(1));
                        self.sign_at = Instant::now() + self.pause;
                    } else {
                        self.pass();
                    }
                }
            }
        }
    }

    /// Returns the id of the first message that arrived on iopub; `None` before that.
    pub fn first(&self) -> Option<&str> {
        self.first.as_deref()
    }

    /// Continues the count of the kernel's messages after a connection was lost: if any were lost with it, an output of
    /// the first request that ends says so.
    pub fn continue_from(&mut self, mut numbers: SequenceNumbers) {
        numbers.connection_lost();
        self.numbers = numbers;
        self.is_loss_unreported = true;
    }

    /// Returns the sequence numbers of the kernel's messages, for the next connection.
    pub fn into_numbers(self) -> SequenceNumbers {
        self.numbers
    }

    /// Marks a request as ended, which the caller knows from another source.
    pub fn is_over(&mut self, at: usize) {
        if let Some(request) = self.requests.get_mut(at) {
            request.over = true;
        }
    }

    /// Marks a request as begun, which the caller knows from another source.
    pub fn has_begun(&mut self, at: usize, counted: bool) {
        if let Some(request) = self.requests.get_mut(at) {
            request.begun = true;
            request.counted |= counted;
        }
    }

    /// Answers the prompt of a request; `parent` is the prompt's header, if known. Kernels accept an answer
    /// from any client.
    pub fn answer(&mut self, parent: bytes::Bytes, text: &str) {
        self.client.answer(parent, text);
    }

    /// Sends the kernel an interrupt_request, without waiting for its answer.
    pub fn interrupt(&mut self) {
        self.client.ask_interrupt();
    }

    fn take(&mut self, channel: Channel, message: &Verified) {
        let header = message.header().unwrap_or_default();
        self.numbers.take(&header, is_idle(&header, message));
        let id = Some(header.msg_id.clone().into_owned()).filter(|id| !id.is_empty());
        if channel == Channel::Iopub && self.first.is_none() {
            self.first = Some(id.clone().unwrap_or_default());
        }
        if answers(message, &self.probe) {
            // On iopub it follows all earlier messages; on shell it may overtake them.
            match channel {
                Channel::Iopub => self.pass(),
                Channel::Shell => self.passed = self.passed.or_else(|| Some(Instant::now())),
                _ => {}
            }
            return;
        }
        // The process that connects to a server asks all clients what a client asks that it does not know.
        if !matches!(channel, Channel::Iopub | Channel::Stdin) {
            return;
        }
        let now = Instant::now();
        for (at, request) in self.requests.iter_mut().enumerate() {
            if request.over || !answers(message, request.run.msg_id()) {
                continue;
            }
            request.run.handle_message(channel, message, now);
            while let Some(event) = request.run.poll_event() {
                self.progress = true;
                request.begun = true;
                request.counted |= !matches!(event, ExecutionEvent::Begun);
                self.events.push_back(FollowedEvent {
                    at,
                    id: id.clone(),
                    step: FollowedStep::Event(event),
                });
            }
            // Only its reply is missing then, which goes to the other client.
            if request.run.poll_timeout().is_some() {
                request.over = true;
                let ran = request.counted;
                let lost = self.numbers.lost_with_connections(&header);
                if std::mem::take(&mut self.is_loss_unreported) && lost != Some(0) {
                    let note = ExecutionEvent::Iopub(loss_note(lost));
                    self.events.push_back(FollowedEvent {
                        at,
                        id: None,
                        step: FollowedStep::Event(note),
                    });
                }
                self.events.push_back(FollowedEvent {
                    at,
                    id: id.clone(),
                    step: FollowedStep::Ended { ran },
                });
            }
        }
    }

    /// Handles the kernel's answer to the probe: all requests that had begun before have ended. A request
    /// that has not begun may still be queued behind the probe, since a kernel serves its clients in turn; so
    /// the probe is repeated until no request has begun in between.
    fn pass(&mut self) {
        self.passed = None;
        let still = !std::mem::take(&mut self.progress);
        for (at, request) in self.requests.iter_mut().enumerate() {
            if !request.over && (request.begun || still) {
                request.over = true;
                self.events.push_back(FollowedEvent {
                    at,
                    id: None,
                    step: FollowedStep::MissedEnd,
                });
            }
        }
        self.probe = self.client.ask_name(Channel::Shell);
    }

    fn ends(&mut self, error: ClientError) {
        self.is_gone = true;
        let why = error.into_why();
        let left = self.requests.iter().enumerate();
        let left = left.filter(|(_, request)| !request.over);
        self.events.extend(left.map(|(at, _)| FollowedEvent {
            at,
            id: None,
            step: FollowedStep::Gone(why.clone()),
        }));
    }
}
