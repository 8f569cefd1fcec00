//! The output of the bridge: actions in order, and the messages that the bridge makes itself.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use serde_json::Value;

use super::missed::MissedMessages;
use super::synthetic::{self, SyntheticMessages};
use super::timer::Now;
use super::{Action, ClientId, Note};
use crate::wire::{Channel, Verified};

/// The actions that the caller has not polled yet, and the counts of published messages.
#[derive(Debug)]
pub(super) struct Output {
    actions: VecDeque<Action>,
    /// The time of the last input.
    now: Instant,
    pub(super) synthetic: SyntheticMessages,
    missed: MissedMessages,
}

impl Output {
    /// Makes an empty output; `id` is the session of the proxy's own requests.
    pub(super) fn new(id: String, now: Now) -> Self {
        Self {
            actions: VecDeque::new(),
            now: now.instant,
            synthetic: SyntheticMessages::new(id, now.date),
            missed: MissedMessages::default(),
        }
    }

    /// Takes the time of an input.
    pub(super) fn set_now(&mut self, now: Now) {
        self.now = now.instant;
        self.synthetic.set_date(now.date);
    }

    /// Removes and returns the next action.
    pub(super) fn poll(&mut self) -> Option<Action> {
        let action = match self.late_welcome() {
            Some(welcome) => Some(Action::Publish(welcome)),
            None => self.actions.pop_front(),
        };
        if let Some(Action::Publish(_)) = &action {
            self.missed.count_published();
        }
        action
    }

    /// Adds an action.
    pub(super) fn push(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    /// Adds a log line.
    pub(super) fn log(&mut self, note: Note) {
        self.push(Action::Log(note));
    }

    /// Adds a message for the kernel, on a client's socket.
    pub(super) fn send(&mut self, client: &ClientId, channel: Channel, message: Verified) {
        self.push(Action::ToKernel {
            client: client.clone(),
            channel,
            message,
        });
    }

    /// Removes and returns the queued messages for the kernel that go to one of the chosen sockets.
    pub(super) fn take_unsent(
        &mut self,
        chosen: impl Fn(&ClientId, Channel) -> bool,
    ) -> Vec<(ClientId, Channel, Verified)> {
        let mut unsent = Vec::new();
        let mut others = VecDeque::new();
        for action in self.actions.drain(..) {
            match action {
                Action::ToKernel {
                    client,
                    channel,
                    message,
                } if chosen(&client, channel) => unsent.push((client, channel, message)),
                other => others.push_back(other),
            }
        }
        self.actions = others;
        unsent
    }

    // ---- messages on iopub

    /// Publishes a message of the kernel.
    pub(super) fn publish(&mut self, message: Verified) {
        self.push(Action::Publish(message));
    }

    /// Publishes a new message under a request.
    pub(super) fn publish_new(&mut self, msg_type: &str, request: Bytes, content: &Value) {
        let message = self.synthetic.iopub(msg_type, request, content);
        self.publish(message);
    }

    /// Publishes a notice of the proxy on stderr, among the outputs of a request.
    pub(super) fn publish_notice(&mut self, request: Bytes, text: &str) {
        self.publish_new("stream", request, &synthetic::notice(text));
    }

    /// Publishes that the kernel is busy with a request.
    pub(super) fn publish_busy(&mut self, request: Bytes) {
        let busy = self.synthetic.status(request, "busy");
        self.publish(busy);
    }

    /// Publishes that a request has ended.
    pub(super) fn publish_idle(&mut self, request: Bytes) {
        self.expect_idle(&request);
        let idle = self.synthetic.status(request, "idle");
        self.publish(idle);
    }

    /// Records that the next published message is the `idle` of a request.
    pub(super) fn expect_idle(&mut self, request: &Bytes) {
        let is_published = |action: &&Action| matches!(action, Action::Publish(_));
        let before = self.actions.iter().filter(is_published).count();
        self.missed.record_idle(before, request);
    }

    /// Returns the session that replaces the kernel's in messages to clients, if the two differ.
    pub(super) fn session_for_clients(&mut self, kernel_session: &str) -> Option<String> {
        if kernel_session.is_empty() {
            return None;
        }
        let session = self.synthetic.session(Some(kernel_session));
        (session != kernel_session).then(|| session.to_owned())
    }

    // ---- subscribers

    /// Records that a subscriber was cut; `first_missed` is the number of the first published message that it did
    /// not get.
    pub(super) fn subscriber_cut(&mut self, first_missed: u64) {
        self.missed.add_cut(self.now, first_missed);
    }

    /// Returns the `iopub_welcome` for a new subscriber. Clients know one session, that of the first message
    /// of a kernel: before that message the welcome waits, and is then published to all.
    pub(super) fn welcome_now_or_later(&mut self, topic: &[u8]) -> Option<Verified> {
        if self.synthetic.is_session_known() {
            return Some(self.synthetic.welcome(topic));
        }
        self.missed.set_pending_welcome();
        None
    }

    fn late_welcome(&mut self) -> Option<Verified> {
        let is_due = self.synthetic.is_session_known() && self.missed.take_pending_welcome();
        is_due.then(|| self.synthetic.welcome(b""))
    }

    /// Returns the messages that tell a new subscriber what it has missed: for each cell that began or ended
    /// in that time a notice on stderr, for each request that ended its `idle`.
    ///
    /// `under_way` are the headers of the requests that the kernel works on, `running` is the header of the
    /// running cell.
    pub(super) fn missed_by_subscriber(
        &mut self,
        under_way: &[Bytes],
        running: Option<Bytes>,
    ) -> Vec<Verified> {
        let Some((messages, ended)) = self.missed.missed_since_cut(self.now) else {
            return Vec::new();
        };
        let notice = super::missed::notice(messages);
        let mut first = Vec::new();
        let mut cells = 0;
        let ended = ended.iter().map(|request| (request, true));
        let under_way = under_way.iter().map(|request| (request, false));
        for (request, has_ended) in ended.chain(under_way) {
            if super::missed::is_cell(request) {
                cells += 1;
                let request = request.clone();
                first.push(self.synthetic.iopub("stream", request, &notice));
            }
            if has_ended {
                first.push(self.synthetic.status(request.clone(), "idle"));
            }
        }
        if cells == 0 {
            let no_request = Bytes::from_static(b"{}");
            first.push(self.synthetic.iopub("stream", no_request, &notice));
        }
        // A front end shows the last status that it reads, so the running cell's is last.
        first.extend(running.map(|request| self.synthetic.status(request, "busy")));
        self.log(Note::MissedReported { messages, cells });
        first
    }
}

#[cfg(test)]
impl Output {
    pub(super) fn actions(&mut self) -> &mut VecDeque<Action> {
        &mut self.actions
    }

    pub(super) fn published(&self) -> u64 {
        self.missed.published()
    }
}
