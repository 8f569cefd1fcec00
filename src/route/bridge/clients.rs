//! Clients that come and go, their sockets to the kernel, and subscribers of iopub.

use std::time::Duration;

use bytes::Bytes;

use super::Bridge;
use crate::route::request::{Answer, Request, Role};
use crate::route::timer::{GONE, Now, RETURNS, Timer};
use crate::route::{Action, ClientId, Note};
use crate::wire::{Channel, Verified};

impl Bridge {
    /// Takes a client's new connection on shell, control or stdin.
    pub fn client_joined(&mut self, channel: Channel, id: &ClientId) {
        self.clients.join(&mut self.out, id, channel);
        self.timers.stop(&Timer::Gone(id.clone()));
        self.timers.stop(&Timer::HandOver(id.clone()));
        self.open_links(id, channel);
    }

    /// Takes the end of a client's connection, but not of one that another has replaced.
    pub fn client_left(&mut self, now: Now, channel: Channel, id: &ClientId) {
        if self.clients.leave(id, channel) {
            let grace = if id.is_anonymous() {
                Duration::ZERO
            } else {
                GONE
            };
            let mut start = |after: Duration, timer| self.timers.start(now.instant + after, timer);
            start(grace, Timer::Gone(id.clone()));
            start(RETURNS.min(grace), Timer::HandOver(id.clone()));
        }
    }

    /// A client has not come back to its cells: a recorder takes their outputs.
    pub(super) fn hand_over(&mut self, id: &ClientId) {
        if !self.clients.contains(id) || self.clients.is_joined(id) {
            return;
        }
        let runs = |request: &Request| {
            request.client == *id
                && request.role == Role::Cell
                && request.sent
                && !request.is_answered()
        };
        let cells = self.requests.keys(runs).into_iter();
        let mut sessions: Vec<String> = cells
            .filter_map(|key| Some(self.requests.get(&key)?.session.clone()))
            .collect();
        sessions.dedup();
        if !sessions.is_empty() {
            self.out.push(Action::HandOver { sessions });
        }
    }

    /// Forgets a client that has been away for long enough.
    pub(super) fn forget(&mut self, now: Now, id: &ClientId) {
        if !self.clients.contains(id) || self.clients.is_joined(id) {
            return;
        }
        self.clients.answer_prompt(now, &mut self.out, id);
        let binds = |request: &Request| request.client == *id && request.binds_its_client();
        if !self.clients.may_be_forgotten(id) || !self.requests.keys(binds).is_empty() {
            // Its cell still runs, or its interrupt is about to go: tried again later.
            return self
                .timers
                .start(now.instant + GONE, Timer::Gone(id.clone()));
        }
        for key in self.requests.keys(|request| request.client == *id) {
            self.requests.forget(&key);
        }
        self.clients.forget(&mut self.out, id);
    }

    // ---- prompts

    /// Answers all prompts of the kernel: all clients go.
    pub fn end_prompts(&mut self, now: Now) {
        for id in self.clients.ids() {
            self.clients.answer_prompt(now, &mut self.out, &id);
        }
    }

    /// Takes that somebody else answers the prompt of a client that has gone.
    pub fn prompt_handed_over(&mut self, id: &ClientId) {
        self.clients.set_prompt(id, None);
    }

    // ---- sockets to the kernel

    pub(super) fn open_links(&mut self, id: &ClientId, channel: Channel) {
        if self.kernel.is_live() {
            self.clients.open_links(&mut self.out, id, channel);
        }
    }

    pub(super) fn close_all_links(&mut self) {
        self.out.push(Action::CloseLinks(self.kernel.own().clone()));
        for id in self.clients.ids() {
            self.clients.close_links(&mut self.out, &id);
        }
    }

    /// Takes a socket to the kernel that has become usable.
    pub fn link_up(&mut self, now: Now, id: &ClientId, channel: Channel) {
        self.clients.link_up(id, channel);
        if id == self.kernel.own() && channel == Channel::Shell && self.kernel.shell_is_back() {
            self.ask_on_shell(now);
        }
        self.release(now, id);
    }

    /// Takes a socket to the kernel that was lost, and what was not wholly written to it.
    ///
    /// What of the actions that wait is for this socket comes after that.
    ///
    /// The caller goes on dialling; [`Bridge::kernel_is`] says whether the kernel has ended.
    pub fn link_down(&mut self, id: &ClientId, channel: Channel, unsent: Vec<Verified>) {
        if id == self.kernel.own() && channel == Channel::Shell {
            self.kernel.shell_lost(&mut self.timers);
        }
        if self.clients.link_down(id, channel) {
            let unsent = unsent.into_iter();
            let unsent = unsent.map(|message| (id.clone(), channel, message));
            // The next ones must not overtake what came back.
            let not_left = self
                .kernel
                .take_unsent(&mut self.out, |client, on| client == id && on == channel);
            self.put_back(unsent.chain(not_left));
        }
    }

    /// Takes that a stdin socket could not be connected for long: cells run without it.
    pub fn stdin_absent(&mut self, now: Now, id: &ClientId) {
        if self.clients.stdin_absent(id) {
            self.out.log(Note::NoStdin { client: id.clone() });
            self.release(now, id);
        }
    }

    /// Closes the sockets of clients that are away and are owed nothing: others need the descriptors.
    ///
    /// The clients are remembered as before, and one that comes back gets new sockets.
    pub fn close_idle_links(&mut self) {
        let mut away = self.clients.away_with_idle_links();
        if away.is_empty() {
            return;
        }
        for key in self.requests.keys(Request::binds_its_client) {
            if let Some(request) = self.requests.get(&key) {
                away.remove(&request.client);
            }
        }
        let answered_here = |request: &Request| {
            away.contains(&request.client) && request.answer != Answer::FromKernel
        };
        for key in self.requests.keys(answered_here) {
            self.requests.forget(&key);
        }
        for id in &away {
            self.clients.close_links(&mut self.out, id);
        }
    }

    // ---- subscribers

    /// Takes that a subscriber was cut because it does not read.
    ///
    /// `since` is the first message that it did not get, of all that were published: the first of
    /// all is 1.
    pub fn subscriber_cut(&mut self, now: Now, since: u64) {
        self.out.subscriber_cut(now, since);
    }

    /// Takes a new subscription; returns what its subscriber alone is to read first.
    ///
    /// A subscriber of some topics only does not get what was missed.
    #[must_use]
    pub fn subscribed(&mut self, now: Now, topic: &[u8]) -> Vec<Verified> {
        let welcome = self.out.welcome_now_or_later(now, topic);
        let mut first: Vec<Verified> = welcome.into_iter().collect();
        if topic.is_empty() {
            let keys = self.requests.keys(Request::is_under_way).into_iter();
            let under_way: Vec<Bytes> = keys
                .filter_map(|key| Some(self.requests.get(&key)?.header.clone()))
                .collect();
            let running = self.queue.running_header();
            first.extend(self.out.missed_by_subscriber(now, &under_way, running));
        }
        first
    }
}
