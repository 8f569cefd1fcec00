//! Requests that somebody else has sent and that the kernel still has: whoever sent them is gone.
//!
//! Their replies go to the one who asked. What iopub tells is enough to know their outputs and their
//! ends, and a question of one's own on shell, which the kernel answers between two cells, says that
//! what began before it has ended: nobody may have heard its `idle`.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde_json::json;

use super::execution_state::{Event, ExecutionState};
use super::{Client, ClientError, answers, reached};
use crate::wire::{Channel, Verified};

/// Follows requests of others; [`RequestFollower::next`] says what happens to them.
pub struct RequestFollower<'a> {
    client: &'a mut Client,
    requests: Vec<Request>,
    /// The own question that waits on shell, and whether a request has begun since it was asked.
    probe: String,
    progress: bool,
    /// The kernel has answered it; what iopub has of before is on its way until then.
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

/// Something that happened to one of the requests.
#[derive(Clone, Debug, PartialEq)]
pub struct FollowedEvent {
    /// Which, from 0.
    pub at: usize,
    /// The id of the message that told it, if one did.
    pub id: Option<String>,
    /// What.
    pub what: FollowedStep,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum FollowedStep {
    /// As the one who asked would see it.
    Event(Event),
    /// The kernel is through with it.
    Ended {
        /// It ran; else it was thrown out of the queue.
        ran: bool,
    },
    /// The kernel is through with it since some time; its end was not heard.
    Unheard,
    /// The kernel is gone; the text says what was seen.
    Gone(String),
}

/// The first pause before the kernel is asked again for a sign on iopub; it doubles.
const SIGN_AGAIN: Duration = Duration::from_millis(20);

/// How long iopub may take for what the kernel said before it answered on shell.
const BEHIND: Duration = Duration::from_secs(1);

impl Client {
    /// Begins to follow requests of others by their message ids, in the order in which they were sent.
    /// Nothing that the kernel says from [`RequestFollower::first`] on is missed.
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

    /// Asks the kernel for its name, and does not wait: its status is told everybody.
    fn ask_name(&mut self, channel: Channel) -> String {
        let empty = bytes::Bytes::from_static(b"{}");
        self.send(channel, "kernel_info_request", empty, &json!({}))
    }
}

impl RequestFollower<'_> {
    /// Waits for what happens next; none when the kernel is through with all. May be dropped halfway.
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

    /// Says that one of the requests has ended, as somebody else has heard.
    pub fn is_over(&mut self, at: usize) {
        if let Some(request) = self.requests.get_mut(at) {
            request.over = true;
        }
    }

    /// Says that one of the requests has begun, as somebody else has heard.
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
