//! Following requests that another client has sent, and that the kernel still has queued or runs.
//!
//! Their replies go to the other client, which may be gone. Their outputs and their ends are on iopub.
//! Where an `idle` was missed, an own request on shell helps: the kernel answers it between two cells,
//! so all that began before it has ended.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde_json::json;

use super::execution_state::{Event, ExecutionState};
use super::{Client, ClientError, answers, reached};
use crate::wire::{Channel, Verified};

/// Follows requests of other clients; [`RequestFollower::next`] returns what happens to them.
pub struct RequestFollower<'a> {
    client: &'a mut Client,
    requests: Vec<Request>,
    /// The id of the own request that waits on shell, and whether a followed request has begun since.
    probe: String,
    progress: bool,
    /// When the kernel answered it; messages on iopub from before may still be on their way.
    passed: Option<Instant>,
    first: Option<String>,
    /// When the kernel is asked for a sign on iopub, until one has come; and the pause after that.
    sign_at: Instant,
    pause: Duration,
    heard: VecDeque<FollowedEvent>,
    gone: bool,
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
    /// The number of the request, from 0.
    pub at: usize,
    /// The id of the kernel's message, if there was one.
    pub id: Option<String>,
    /// What happened.
    pub what: FollowedStep,
}

/// What happened to a followed request.
#[derive(Clone, Debug, PartialEq)]
pub enum FollowedStep {
    /// An event that the requesting client sees too.
    Event(Event),
    /// The kernel has ended the request.
    Ended {
        /// Whether the code ran; otherwise it was dropped from the queue.
        ran: bool,
    },
    /// The request ended some time ago; its end was missed.
    Unheard,
    /// The kernel is gone; the text says what was seen.
    Gone(String),
}

/// The first pause before the kernel is asked again for a sign on iopub; it doubles.
const SIGN_AGAIN: Duration = Duration::from_millis(20);

/// The time that iopub may be behind the kernel's answer on shell.
const BEHIND: Duration = Duration::from_secs(1);

impl Client {
    /// Begins to follow requests of other clients by their message ids, in the order in which they were
    /// sent. No message from [`RequestFollower::first`] on is missed.
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
            heard: VecDeque::new(),
            gone: false,
        }
    }

    /// Sends a `kernel_info_request` and does not wait: its status goes to every client on iopub.
    fn ask_name(&mut self, channel: Channel) -> String {
        let empty = bytes::Bytes::from_static(b"{}");
        self.send(channel, "kernel_info_request", empty, &json!({}))
    }
}

impl RequestFollower<'_> {
    /// Waits for the next event; none when all requests have ended. May be dropped halfway.
    pub async fn next(&mut self) -> Option<FollowedEvent> {
        loop {
            if let Some(heard) = self.heard.pop_front() {
                return Some(heard);
            }
            if self.gone || self.requests.iter().all(|request| request.over) {
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
                        // Some kernels answer on shell alone, where the probe waits.
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

    /// Returns the id of the first message that came on iopub, once one has.
    pub fn first(&self) -> Option<&str> {
        self.first.as_deref()
    }

    /// Marks a request as ended, as known from elsewhere.
    pub fn is_over(&mut self, at: usize) {
        if let Some(request) = self.requests.get_mut(at) {
            request.over = true;
        }
    }

    /// Marks a request as begun, as known from elsewhere.
    pub fn has_begun(&mut self, at: usize, counted: bool) {
        if let Some(request) = self.requests.get_mut(at) {
            request.begun = true;
            request.counted |= counted;
        }
    }

    /// Answers what a request asks; `parent` is the question's header, where that is known. Kernels
    /// take an answer from anybody.
    pub fn answer(&mut self, parent: bytes::Bytes, text: &str) {
        let content = json!({ "value": text, "status": "ok" });
        self.client
            .send(Channel::Stdin, "input_reply", parent, &content);
    }

    /// Asks the kernel to interrupt what it runs, by message, without waiting for its answer.
    pub fn interrupt(&mut self) {
        let empty = bytes::Bytes::from_static(b"{}");
        self.client
            .send(Channel::Control, "interrupt_request", empty, &json!({}));
    }

    fn take(&mut self, channel: Channel, message: &Verified) {
        let id = message
            .header()
            .ok()
            .map(|header| header.msg_id.into_owned());
        if channel == Channel::Iopub && self.first.is_none() {
            self.first = Some(id.clone().unwrap_or_default());
        }
        if answers(message, &self.probe) {
            // On iopub it is behind all that came before; on shell it may be earlier.
            match channel {
                Channel::Iopub => self.pass(),
                Channel::Shell => self.passed = self.passed.or_else(|| Some(Instant::now())),
                _ => {}
            }
            return;
        }
        if channel != Channel::Iopub {
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
                request.counted |= !matches!(event, Event::Begun);
                self.heard.push_back(FollowedEvent {
                    at,
                    id: id.clone(),
                    what: FollowedStep::Event(event),
                });
            }
            // Only its reply is due then, which goes elsewhere.
            if request.run.poll_timeout().is_some() {
                request.over = true;
                let ran = request.counted;
                self.heard.push_back(FollowedEvent {
                    at,
                    id: id.clone(),
                    what: FollowedStep::Ended { ran },
                });
            }
        }
    }

    /// The kernel has served the own question: what began before has ended. What has not begun may
    /// be behind it all the same, since a kernel serves those who ask in turn; so it is asked again,
    /// until nothing has begun in between.
    fn pass(&mut self) {
        self.passed = None;
        let still = !std::mem::take(&mut self.progress);
        for (at, request) in self.requests.iter_mut().enumerate() {
            if !request.over && (request.begun || still) {
                request.over = true;
                self.heard.push_back(FollowedEvent {
                    at,
                    id: None,
                    what: FollowedStep::Unheard,
                });
            }
        }
        self.probe = self.client.ask_name(Channel::Shell);
    }

    fn ends(&mut self, error: ClientError) {
        self.gone = true;
        let why = match error {
            ClientError::KernelGone(why) => why,
            other => other.to_string(),
        };
        let left = self.requests.iter().enumerate();
        let left = left.filter(|(_, request)| !request.over);
        self.heard.extend(left.map(|(at, _)| FollowedEvent {
            at,
            id: None,
            what: FollowedStep::Gone(why.clone()),
        }));
    }
}
