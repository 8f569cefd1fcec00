//! Clients that come and go, their sockets to the kernel, and subscribers of iopub.

use std::time::Duration;

use bytes::Bytes;

use super::Bridge;
use crate::route::request::{Answer, Key, Request, Role};
use crate::route::timer::{Now, REMEMBERED, Timer};
use crate::route::{Action, ClientId, Note};
use crate::wire::{Channel, Verified};

impl Bridge {
    /// Takes a client's new connection on shell, control or stdin.
    pub fn client_joined(&mut self, channel: Channel, id: &ClientId) {
        self.clients.join(&mut self.out, id, channel);
        self.timers.stop(&Timer::ForgetClient(id.clone()));
        self.timers.stop(&Timer::HandOver(id.clone()));
        self.open_links(id, channel);
    }

    /// Takes the end of a client's connection. The end of a connection that another one has replaced changes
    /// nothing.
    pub fn client_left(&mut self, now: Now, channel: Channel, id: &ClientId) {
        self.set_now(now);
        if self.clients.leave(id, channel) {
            let grace = if id.is_anonymous() {
                Duration::ZERO
            } else {
                REMEMBERED
            };
            self.timers.start(grace, Timer::ForgetClient(id.clone()));
            let return_time = self.policies.return_time.min(grace);
            self.timers.start(return_time, Timer::HandOver(id.clone()));
        }
    }

    /// Hands the running cells of a client that has not come back to a recorder, which takes their outputs.
    pub(super) fn hand_over(&mut self, id: &ClientId) {
        let is_running_cell = |request: &Request| {
            request.client == *id
                && request.role == Role::Cell
                && request.sent
                && !request.is_answered()
        };
        let cells = self.requests.keys(is_running_cell).into_iter();
        let mut sessions: Vec<String> = cells
            .filter_map(|key| Some(self.requests.get(&key)?.session.clone()))
            .collect();
        sessions.dedup();
        if !sessions.is_empty() {
            self.out.push(Action::HandOver { sessions });
        }
    }

    /// Forgets a client that has been away for long enough.
    pub(super) fn forget(&mut self, id: &ClientId) {
        self.clients.answer_prompt(&mut self.out, id);
        let needs_client = |request: &Request| request.client == *id && request.needs_client();
        if !self.clients.may_be_forgotten(id) || !self.requests.keys(needs_client).is_empty() {
            // Its cell still runs, or an interrupt of it is about to be sent: check again later.
            return self
                .timers
                .start(REMEMBERED, Timer::ForgetClient(id.clone()));
        }
        for key in self.requests.keys(|request| request.client == *id) {
            self.forget_request(&key);
        }
        self.clients.forget(&mut self.out, id);
    }

    /// Forgets a request of a client whose sockets to the kernel are closed: no reply shows the end of its code, so
    /// that the kernel is asked in case its `idle` is lost.
    fn forget_request(&mut self, key: &Key) {
        self.requests.forget(key);
        if self.queue.runs(key) {
            self.probe_shell();
        }
    }

    // ---- prompts

    /// Answers all prompts of the kernel: all clients are leaving.
    pub fn end_prompts(&mut self, now: Now) {
        self.set_now(now);
        for id in self.clients.ids() {
            self.clients.answer_prompt(&mut self.out, &id);
        }
    }

    /// Records that a recorder answers the prompt of a client that has disconnected.
    pub fn prompt_handed_over(&mut self, id: &ClientId) {
        self.clients.set_prompt(id, None);
    }

    // ---- sockets to the kernel

    pub(super) fn open_links(&mut self, id: &ClientId, channel: Channel) {
        if self.kernel().is_live() {
            self.clients.open_links(&mut self.out, id, channel);
        }
    }

    pub(super) fn close_all_links(&mut self) {
        self.out
            .push(Action::CloseLinks(self.kernel.client_id().clone()));
        for id in self.clients.ids() {
            self.clients.close_links(&mut self.out, &id);
        }
    }

    /// Takes a socket to the kernel that has become usable.
    pub fn link_up(&mut self, now: Now, id: &ClientId, channel: Channel) {
        self.set_now(now);
        self.clients.link_up(id, channel);
        if id == self.kernel.client_id()
            && channel == Channel::Shell
            && self.kernel.take_shell_lost()
        {
            self.probe_shell();
        }
        self.release(id);
    }

    /// Takes the loss of a socket to the kernel. `unsent` are the messages that were not wholly written to
    /// it.
    ///
    /// Messages for this socket in actions that the caller has not polled yet follow `unsent` in the queue.
    ///
    /// The caller dials the socket again; [`Bridge::set_kernel`] reports it if the kernel has ended.
    pub fn link_down(&mut self, id: &ClientId, channel: Channel, unsent: Vec<Verified>) {
        if id == self.kernel.client_id() && channel == Channel::Shell {
            self.kernel.shell_lost(&mut self.timers);
        }
        if self.clients.link_down(id, channel) {
            let unsent = unsent.into_iter();
            let unsent = unsent.map(|message| (id.clone(), channel, message));
            // Later messages must not overtake those that came back.
            let unpolled = self
                .kernel
                .take_unsent(&mut self.out, |client, on| client == id && on == channel);
            self.put_back(unsent.chain(unpolled));
        }
    }

    /// Records that a stdin socket could not be connected for long: cells run without it.
    pub fn stdin_absent(&mut self, now: Now, id: &ClientId) {
        self.set_now(now);
        if self.clients.stdin_absent(id) {
            self.out.log(Note::NoStdin(id.clone()));
            self.release(id);
        }
    }

    /// Closes the sockets of clients that are disconnected and wait for no answer: other connections need the
    /// descriptors.
    ///
    /// The clients are remembered as before, and one that comes back gets new sockets.
    pub fn close_idle_links(&mut self) {
        let mut disconnected = self.clients.disconnected_with_idle_links();
        if disconnected.is_empty() {
            return;
        }
        for key in self.requests.keys(Request::needs_client) {
            if let Some(request) = self.requests.get(&key) {
                disconnected.remove(&request.client);
            }
        }
        let is_answered = |request: &Request| {
            disconnected.contains(&request.client) && request.answer != Answer::FromKernel
        };
        for key in self.requests.keys(is_answered) {
            self.forget_request(&key);
        }
        for id in &disconnected {
            self.clients.close_links(&mut self.out, id);
        }
    }

    // ---- subscribers

    /// Records that a subscriber was cut because it does not read.
    ///
    /// `first_missed` is the number of the first published message that it did not get; the first message ever
    /// published has number 1.
    pub fn subscriber_cut(&mut self, now: Now, first_missed: u64) {
        self.set_now(now);
        self.out.subscriber_cut(first_missed);
    }

    /// Takes a new subscription; returns the messages that only this subscriber reads, before all others.
    ///
    /// A client that subscribes to some topics only gets no notice of missed messages.
    #[must_use]
    pub fn subscribed(&mut self, now: Now, topic: &[u8]) -> Vec<Verified> {
        self.set_now(now);
        let welcome = self.out.welcome_now_or_later(topic);
        let mut first: Vec<Verified> = welcome.into_iter().collect();
        if topic.is_empty() {
            let keys = self.requests.keys(Request::is_under_way).into_iter();
            let under_way: Vec<Bytes> = keys
                .filter_map(|key| Some(self.requests.get(&key)?.header.clone()))
                .collect();
            let running = self.queue.running_header();
            first.extend(self.out.missed_by_subscriber(&under_way, running));
        }
        first
    }
}
