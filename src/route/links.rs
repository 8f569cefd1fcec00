//! Sockets to the kernel: opened, closed when a client is let go, and the proof that iopub arrives.

use std::collections::BTreeSet;

use serde_json::json;

use super::bridge::Bridge;
use super::client::{Client, Link};
use super::request::{Answer, Key, Request, Role};
use super::timer::{GONE, Now, PROBE_MAX, Timer};
use super::turns::BUSY;
use super::{Action, ClientId, Note};
use crate::wire::Channel;

impl Bridge {
    pub(super) fn open_all_links(&mut self) {
        let own = self.own.clone();
        for channel in [Channel::Control, Channel::Shell] {
            self.actions.push_back(Action::OpenLink {
                client: own.clone(),
                channel,
            });
        }
        let mut wanted = Vec::new();
        for (id, client) in &mut self.clients {
            let owed = client.held_bytes > 0;
            for (channel, state) in client.states() {
                if state.joined || owed {
                    wanted.push((id.clone(), channel));
                }
            }
        }
        for (id, channel) in wanted {
            self.open_links(&id, channel);
        }
    }

    /// Connects a client's sockets to the kernel that a channel needs.
    pub(super) fn open_links(&mut self, id: &ClientId, channel: Channel) {
        if !self.kernel.is_live() {
            return;
        }
        let needed: &[Channel] = if channel == Channel::Shell {
            &[Channel::Stdin, Channel::Shell]
        } else {
            &[channel]
        };
        for channel in needed {
            let Some(state) = self
                .clients
                .get_mut(id)
                .and_then(|client| client.on(*channel))
            else {
                continue;
            };
            if state.link == Link::Closed {
                state.link = Link::Opening;
                self.actions.push_back(Action::OpenLink {
                    client: id.clone(),
                    channel: *channel,
                });
            }
        }
    }

    pub(super) fn close_all_links(&mut self) {
        self.actions.push_back(Action::CloseLinks(self.own.clone()));
        let ids: Vec<_> = self.clients.keys().cloned().collect();
        ids.iter().for_each(|id| self.close_links(id));
    }

    fn close_links(&mut self, id: &ClientId) {
        if let Some(client) = self.clients.get_mut(id) {
            client
                .states()
                .for_each(|(_, state)| state.link = Link::Closed);
            self.actions.push_back(Action::CloseLinks(id.clone()));
        }
    }

    /// Answers what the kernel asks of any client: all of them go.
    pub fn end_prompts(&mut self, now: Now) {
        let ids: Vec<_> = self.clients.keys().cloned().collect();
        ids.iter().for_each(|id| self.end_prompt(now, id));
    }

    /// Says that somebody else answers what the kernel asks of a client that has gone.
    pub fn prompt_is_kept(&mut self, id: &ClientId) {
        if let Some(client) = self.clients.get_mut(id) {
            client.prompt = None;
        }
    }

    /// Answers what the kernel asks of a client that has gone: one vanished window must not block it
    /// for everybody. It is end of file, as Ctrl-D types it.
    fn end_prompt(&mut self, now: Now, id: &ClientId) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        // While the socket is lost the question stays: it is answered when there is a way.
        if client.link(Channel::Stdin) == Link::Up
            && let Some(prompt) = client.prompt.take()
        {
            let reply = self.voice.say(
                now,
                "input_reply",
                prompt.header,
                &json!({ "value": "\u{4}", "status": "ok" }),
            );
            self.actions.push_back(Action::ToKernel {
                client: id.clone(),
                channel: Channel::Stdin,
                message: reply,
            });
            self.log(Note::PromptAnswered { client: id.clone() });
        }
    }

    /// A client has not come back to its cells: whoever can takes what they say.
    pub(super) fn hand_over(&mut self, id: &ClientId) {
        if self.clients.get(id).is_none_or(Client::is_joined) {
            return;
        }
        let cells = self.requests.keys(|request| {
            request.client == *id
                && request.role == Role::Cell
                && request.sent
                && !request.is_answered()
        });
        let mut sessions: Vec<String> = cells
            .iter()
            .filter_map(|key| Some(self.requests.get_mut(key)?.session.clone()))
            .collect();
        sessions.dedup();
        if !sessions.is_empty() {
            self.actions.push_back(Action::HandOver { sessions });
        }
    }

    /// Closes the sockets of clients that are away and are owed nothing: others need the room.
    ///
    /// They are remembered as before, and one that comes back gets new sockets.
    pub fn make_room(&mut self) {
        let clients = self.clients.iter();
        let away = clients.filter(|(_, client)| !client.is_joined() && client.has_idle_links());
        let mut away: BTreeSet<_> = away.map(|(id, _)| id.clone()).collect();
        if away.is_empty() {
            return;
        }
        for key in self.requests.keys(Request::binds_its_client) {
            if let Some(request) = self.requests.get_mut(&key) {
                away.remove(&request.client);
            }
        }
        let answered_here = |request: &Request| {
            away.contains(&request.client) && request.answer != Answer::FromKernel
        };
        for key in self.requests.keys(answered_here) {
            self.requests.let_go(&key);
        }
        away.iter().for_each(|id| self.close_links(id));
    }

    /// Lets go of a client that has been away for long enough.
    pub(super) fn forget(&mut self, now: Now, id: &ClientId) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        if client.is_joined() {
            return;
        }
        self.end_prompt(now, id);
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        let owed = self
            .requests
            .keys(|request| request.client == *id && request.binds_its_client());
        if !owed.is_empty() || client.prompt.is_some() || !client.behind_interrupt.is_empty() {
            // Its cell still runs, or its interrupt is about to go: looked for again later.
            return self
                .timers
                .start(now.instant + GONE, Timer::Gone(id.clone()));
        }
        for key in self.requests.keys(|request| request.client == *id) {
            self.requests.let_go(&key);
        }
        let Some(mut client) = self.clients.remove(id) else {
            return;
        };
        for (channel, state) in client.states() {
            if !state.undelivered.is_empty() {
                let count = state.undelivered.len();
                self.actions.push_back(Action::Log(Note::Undeliverable {
                    client: id.clone(),
                    channel,
                    count,
                }));
            }
        }
        self.actions.push_back(Action::CloseLinks(id.clone()));
        self.log(Note::ClientGone { client: id.clone() });
    }

    /// Asks the kernel for a sign on iopub, again and again until one comes.
    ///
    /// A second subscriber gets no `iopub_welcome` from ipykernel, so the status of a request of
    /// our own is awaited. Control answers at once where it is a thread of its own; shell is asked
    /// too, as IRkernel never answers kernel_info on control.
    pub(super) fn probe(&mut self, now: Now) {
        if self.proven || !self.kernel.is_live() || self.probe.wait.is_zero() {
            return;
        }
        self.ask(now, Channel::Control, "kernel_info_request");
        self.ask_on_shell(now);
        self.timers
            .start(now.instant + self.probe.wait, Timer::Probe);
        self.probe.wait = (self.probe.wait * 2).min(PROBE_MAX);
    }

    /// Asks on shell, where the kernel answers between two cells only, unless it is asked already.
    pub(super) fn ask_on_shell(&mut self, now: Now) {
        if self.probe.on_shell.is_none() && self.kernel.is_live() {
            self.probe.on_shell = self.ask(now, Channel::Shell, "kernel_info_request");
            self.timers.start(now.instant + BUSY, Timer::Busy);
            for key in self.requests.keys(Request::lacks_lost_idle) {
                if let Some(request) = self.requests.get_mut(&key) {
                    request.proof.clone_from(&self.probe.on_shell);
                }
            }
        }
    }

    /// Sends a request of the proxy's own, whose reply nobody awaits. Returns its key.
    pub(super) fn ask(&mut self, now: Now, channel: Channel, msg_type: &str) -> Option<Key> {
        let message = self.voice.ask(now, msg_type, &json!({}));
        let key = message.header().ok().and_then(|header| Key::of(&header));
        self.actions.push_back(Action::ToKernel {
            client: self.own.clone(),
            channel,
            message,
        });
        key
    }

    /// Something arrived on iopub: requests may go.
    pub(super) fn prove(&mut self, now: Now) {
        if self.proven {
            return;
        }
        self.proven = true;
        self.timers.stop(&Timer::Probe);
        self.turn_jedi_off(now);
        self.release_all(now);
    }
}
