//! What the bridge gives out: actions in order, and the messages that it makes itself.

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::Value;

use super::missed::MissedMessages;
use super::synthetic::{self, SyntheticMessages};
use super::timer::Now;
use super::{Action, ClientId, Note};
use crate::wire::{Channel, Verified};

/// The actions that wait for the caller, with what is counted of them on their way out.
#[derive(Debug)]
pub(super) struct Output {
    actions: VecDeque<Action>,
    synthetic: SyntheticMessages,
    missed: MissedMessages,
}

impl Output {
    /// Makes an empty output; `id` is the session of the proxy's own requests.
    pub(super) fn new(id: String) -> Self {
        Self {
            actions: VecDeque::new(),
            synthetic: SyntheticMessages::new(id),
            missed: MissedMessages::default(),
        }
    }

    /// Takes the next action out.
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

    /// Takes out the messages for the kernel that are still here and go to one of the chosen sockets.
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
    pub(super) fn publish_new(
        &mut self,
        now: Now,
        msg_type: &str,
        request: Bytes,
        content: &Value,
    ) {
        let message = self.synthetic.iopub(now, msg_type, request, content);
        self.publish(message);
    }

    /// Publishes a line of the proxy's among the outputs of a request, on stderr.
    pub(super) fn publish_notice(&mut self, now: Now, request: Bytes, text: &str) {
        self.publish_new(now, "stream", request, &synthetic::notice(text));
    }

    /// Publishes that the kernel is busy with a request.
    pub(super) fn publish_busy(&mut self, now: Now, request: Bytes) {
        let busy = self.synthetic.status(now, request, "busy");
        self.publish(busy);
    }

    /// Publishes that a request has ended.
    pub(super) fn publish_idle(&mut self, now: Now, request: Bytes) {
        self.expect_end(&request);
        let idle = self.synthetic.status(now, request, "idle");
        self.publish(idle);
    }

    /// Notes that the message that is published next is the `idle` of a request.
    pub(super) fn expect_end(&mut self, request: &Bytes) {
        let is_published = |action: &&Action| matches!(action, Action::Publish(_));
        let before = self.actions.iter().filter(is_published).count();
        self.missed.note_end(before, request);
    }

    // ---- other messages

    /// Makes a reply in the kernel's stead.
    pub(super) fn new_reply(
        &mut self,
        now: Now,
        msg_type: &str,
        request: Bytes,
        content: &Value,
    ) -> Verified {
        self.synthetic
            .kernel_message(now, msg_type, request, content)
    }

    /// Makes a request of the proxy's own.
    pub(super) fn new_request(&mut self, now: Now, msg_type: &str, content: &Value) -> Verified {
        self.synthetic.request(now, msg_type, content)
    }

    /// Returns the session to put in the place of a kernel's, where clients know another.
    pub(super) fn session_for_clients(&mut self, kernels: &str) -> Option<String> {
        if kernels.is_empty() {
            return None;
        }
        let known = self.synthetic.session(Some(kernels));
        (known != kernels).then(|| known.to_owned())
    }

    // ---- subscribers

    /// Takes that a subscriber was cut; `since` is the first published message that it did not get.
    pub(super) fn subscriber_cut(&mut self, now: Now, since: u64) {
        self.missed.add_cut(now.instant, since);
    }

    /// Returns the welcome of a new subscriber. Clients know one session, which the kernel settles: until it has
    /// sent a message the welcome waits, and is published to all.
    pub(super) fn welcome_now_or_later(&mut self, now: Now, topic: &[u8]) -> Option<Verified> {
        if self.synthetic.is_session_known() {
            return Some(self.synthetic.welcome(now, topic));
        }
        self.missed.set_unwelcomed(now);
        None
    }

    fn late_welcome(&mut self) -> Option<Verified> {
        if !self.synthetic.is_session_known() {
            return None;
        }
        let now = self.missed.take_unwelcomed()?;
        Some(self.synthetic.welcome(now, b""))
    }

    /// Returns the messages that say to a new subscriber what it has missed: of each cell that began or ended
    /// meanwhile a line on its stderr, of each request that ended its `idle`.
    ///
    /// `under_way` are the headers of the requests that the kernel works on, `running` the header of the cell
    /// that runs.
    pub(super) fn missed_by_subscriber(
        &mut self,
        now: Now,
        under_way: &[Bytes],
        running: Option<Bytes>,
    ) -> Vec<Verified> {
        let Some((messages, ended)) = self.missed.since_cut(now.instant) else {
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
                first.push(self.synthetic.iopub(now, "stream", request, &notice));
            }
            if has_ended {
                first.push(self.synthetic.status(now, request.clone(), "idle"));
            }
        }
        if cells == 0 {
            let nobody = Bytes::from_static(b"{}");
            first.push(self.synthetic.iopub(now, "stream", nobody, &notice));
        }
        // A front end shows the last status as the kernel's.
        first.extend(running.map(|request| self.synthetic.status(now, request, "busy")));
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
