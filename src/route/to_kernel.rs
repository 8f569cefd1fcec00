//! What goes to the kernel, waits for it, or is answered in its stead.

use std::collections::VecDeque;

use bytes::Bytes;
use serde::Deserialize;

use super::bridge::Bridge;
use super::client::{Client, Held, Link};
use super::connect::{self, Execute};
use super::kernel::Kernel;
use super::request::{Answer, Key, OUTSTANDING_MAX, Request, Role};
use super::timer::{AWAITED, Now, Timer};
use super::{Action, ClientId, Execution, Note, Phase};
use crate::wire::{Channel, Header, Verified};

impl Bridge {
    /// Remembers a request until its answer is complete.
    pub(super) fn track(
        &mut self,
        channel: Channel,
        id: &ClientId,
        message: &Verified,
        header: &Header<'_>,
    ) -> Option<Key> {
        let key = Key::of(header)?;
        if self.requests.contains(&key) {
            // The kernel, too, tells requests apart by nothing else.
            return None;
        }
        let client = self.clients.get_mut(id)?;
        if client.outstanding >= OUTSTANDING_MAX {
            let oldest = self
                .requests
                .keys(|request| request.client == *id && request.sent);
            for key in oldest.iter().take(OUTSTANDING_MAX / 10) {
                let forgotten = self.requests.remove(key);
                if forgotten.is_some_and(|request| request.answer == Answer::FromKernel) {
                    client.outstanding = client.outstanding.saturating_sub(1);
                }
            }
            self.actions
                .push_back(Action::Log(Note::TooManyOutstanding { client: id.clone() }));
        }
        client.outstanding += 1;
        let request = Request {
            client: id.clone(),
            channel,
            msg_type: header.msg_type.clone().into_owned(),
            header: message.header_bytes().clone(),
            username: header.username.clone().into_owned(),
            session: header.session.clone().into_owned(),
            sent: false,
            sent_at: None,
            journalled: false,
            busy: false,
            idle: false,
            replied: false,
            unheard: false,
            proof: None,
            dropped_before: 0,
            role: Role::default(),
            answer: Answer::default(),
        };
        self.requests.insert(key.clone(), request);
        Some(key)
    }

    /// Takes a cell, or code that a front end runs for itself.
    pub(super) fn execute(
        &mut self,
        now: Now,
        id: &ClientId,
        message: &Verified,
        header: &Header<'_>,
    ) {
        let execute = Execute::read(message.content());
        let is_cell = execute.as_ref().is_some_and(Execute::is_cell);
        if let Some(execute) = &execute
            && !is_cell
            && self.start_up(now, id, message, header, execute.code())
        {
            return;
        }
        self.look_for_name(message);
        let key = self.track(Channel::Shell, id, message, header);
        if is_cell && let Some(key) = &key {
            let may_ask = execute.as_ref().is_none_or(Execute::may_ask);
            self.batch.asks(may_ask);
            self.requests.set_role(key, Role::Cell);
            if matches!(self.kernel, Kernel::Died(_)) {
                self.kernel = Kernel::Awaited;
                self.timers.start(now.instant + AWAITED, Timer::Awaited);
                self.log(Note::Revives { client: id.clone() });
                self.actions
                    .push_back(Action::Revive { client: id.clone() });
            }
        }
        self.forward(now, Channel::Shell, id, key, message.clone());
    }

    /// Sends a message to the kernel, holds it for the kernel, or says that there is none.
    pub(super) fn forward(
        &mut self,
        now: Now,
        channel: Channel,
        id: &ClientId,
        key: Option<Key>,
        message: Verified,
    ) {
        if let Some(ending) = self.kernel.ending() {
            let ending = ending.clone();
            return match key {
                Some(key) => self.fail_one(now, &ending, &key),
                None => self.log(Note::NoKernel {
                    client: id.clone(),
                    channel,
                    count: 1,
                }),
            };
        }
        let ready = self.proven && self.kernel.is_live();
        let in_turn = channel != Channel::Shell || !self.must_wait(id, key.as_ref());
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        let linked = client.is_linked(channel);
        let Some(state) = client.on(channel) else {
            return;
        };
        if ready && linked && in_turn && state.held.is_empty() {
            return self.send(now, channel, id, key.as_ref(), message);
        }
        let bytes = message.size();
        state.held.push_back(Held {
            key: key.clone(),
            message,
        });
        client.held_bytes += bytes;
        if client.held_bytes > self.settings.held_bytes && !client.paused {
            client.paused = true;
            self.actions.push_back(Action::Pause(id.clone()));
        }
        if let Some(key) = key
            && !in_turn
        {
            self.waits(now, id, &key);
        }
        if self.is_unnamed() {
            self.wait_for_name(now);
        }
        // What is asked for one that went before this kernel came has no socket yet.
        self.open_links(id, channel);
    }

    pub(super) fn send(
        &mut self,
        now: Now,
        channel: Channel,
        id: &ClientId,
        key: Option<&Key>,
        message: Verified,
    ) {
        if let Some(key) = key
            && let Some(request) = self.requests.get_mut(key)
        {
            request.sent = true;
            request.dropped_before = self.dropped.count();
            request.sent_at = Some(now.instant);
            if request.role == Role::Cell {
                let notices = [self.notice.take(), self.choice.take()];
                for notice in notices.into_iter().flatten() {
                    let content = connect::notice_stream(&notice);
                    let parent = request.header.clone();
                    let stream = self.voice.publish(now, "stream", parent, &content);
                    self.actions.push_back(Action::Publish(stream));
                }
            }
            if request.msg_type == "execute_request"
                && !request.journalled
                && let Some(execution) = asked(self.generation, key, request, &message)
            {
                request.journalled = true;
                self.actions.push_back(Action::Journal(execution));
            }
        }
        self.actions.push_back(Action::ToKernel {
            client: id.clone(),
            channel,
            message,
        });
    }

    /// Sends what all clients have waiting.
    pub(super) fn release_all(&mut self, now: Now) {
        let mut ids: Vec<_> = self.clients.keys().cloned().collect();
        // Whoever has waited longest goes first.
        ids.sort_by_key(|id| {
            let held = self.clients.get_mut(id).and_then(Client::first_held);
            held.and_then(|key| self.requests.number(&key))
        });
        ids.iter().for_each(|id| self.release(now, id));
    }

    /// Sends what a client has waiting, on every channel that is ready, up to a cell whose turn it is not.
    pub(super) fn release(&mut self, now: Now, id: &ClientId) {
        if !self.proven || !self.kernel.is_live() {
            return;
        }
        for channel in [Channel::Control, Channel::Shell, Channel::Stdin] {
            let linked = |client: &Client| client.is_linked(channel);
            if !self.clients.get(id).is_some_and(linked) {
                continue;
            }
            while let Some(client) = self.clients.get_mut(id)
                && let Some(state) = client.on(channel)
                && let Some(Held { key, message }) = state.held.pop_front()
            {
                if channel == Channel::Shell && self.must_wait(id, key.as_ref()) {
                    if let Some(state) = self.clients.get_mut(id).and_then(|own| own.on(channel)) {
                        state.held.push_front(Held { key, message });
                    }
                    break;
                }
                if let Some(client) = self.clients.get_mut(id) {
                    client.held_bytes = client.held_bytes.saturating_sub(message.size());
                }
                self.send(now, channel, id, key.as_ref(), message);
            }
        }
        self.read_on(id);
    }

    pub(super) fn read_on(&mut self, id: &ClientId) {
        if let Some(client) = self.clients.get_mut(id)
            && client.paused
            && client.held_bytes <= self.settings.held_bytes / 2
        {
            client.paused = false;
            self.actions.push_back(Action::Resume(id.clone()));
        }
    }

    /// Puts messages that a kernel never got back to the front of the queues, in order.
    pub(super) fn put_back(
        &mut self,
        unsent: impl IntoIterator<Item = (ClientId, Channel, Verified)>,
    ) {
        let unsent: Vec<_> = unsent.into_iter().collect();
        for (id, channel, message) in unsent.into_iter().rev() {
            let key = message.header().ok().and_then(|header| Key::of(&header));
            if key.as_ref().is_some_and(|key| self.requests.is_late(key)) {
                continue;
            }
            let key = key.filter(|key| self.requests.contains(key));
            if let Some(key) = &key
                && self.requests.is_answered_here(key)
            {
                // Its asker has its answer: the next kernel need not hear of it.
                self.requests.remove(key);
                continue;
            }
            if let Some(request) = key.as_ref().and_then(|key| self.requests.get_mut(key)) {
                request.sent = false;
            }
            let Some(client) = self.clients.get_mut(&id) else {
                continue;
            };
            client.held_bytes += message.size();
            if let Some(state) = client.on(channel) {
                state.held.push_front(Held { key, message });
            }
        }
    }

    /// Takes back what was to be sent on some of the sockets and has not left.
    pub(super) fn take_back(
        &mut self,
        from: impl Fn(&ClientId, Channel) -> bool,
    ) -> Vec<(ClientId, Channel, Verified)> {
        let mut back = Vec::new();
        let mut left = VecDeque::new();
        for action in self.actions.drain(..) {
            match action {
                Action::ToKernel {
                    client,
                    channel,
                    message,
                } if from(&client, channel) => back.push((client, channel, message)),
                other => left.push_back(other),
            }
        }
        self.actions = left;
        // What the proxy asked for itself is asked anew.
        back.retain(|(client, _, _)| *client != self.own);
        back
    }

    /// Takes what a client says to the kernel's question.
    pub(super) fn input(&mut self, channel: Channel, id: &ClientId, message: Verified) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        let asked = client.prompt.take().is_some();
        match client.link(channel) {
            Link::Up => self.actions.push_back(Action::ToKernel {
                client: id.clone(),
                channel,
                message,
            }),
            // The kernel waits for it, and for nobody else's: it goes when the socket is back.
            Link::Opening if asked => {
                client.held_bytes += message.size();
                if let Some(state) = client.on(channel) {
                    state.held.push_back(Held { key: None, message });
                }
            }
            // The kernel that asked is gone, and the next one has not asked.
            _ => self.log(Note::NoKernel {
                client: id.clone(),
                channel,
                count: 1,
            }),
        }
    }

    /// The kernel that asked is gone: what was said to it is for nobody.
    pub(super) fn drop_answers(&mut self) {
        let mut dropped = Vec::new();
        for (id, client) in &mut self.clients {
            let held = client.on(Channel::Stdin).map(|state| state.held.drain(..));
            let held: Vec<_> = held.into_iter().flatten().collect();
            let bytes: usize = held.iter().map(|held| held.message.size()).sum();
            client.held_bytes = client.held_bytes.saturating_sub(bytes);
            if !held.is_empty() {
                dropped.push(Note::NoKernel {
                    client: id.clone(),
                    channel: Channel::Stdin,
                    count: held.len(),
                });
            }
        }
        dropped.into_iter().for_each(|note| self.log(note));
    }

    /// Answers a request in the kernel's stead: busy, reply, idle.
    pub(super) fn answer(
        &mut self,
        now: Now,
        channel: Channel,
        id: &ClientId,
        parent: Bytes,
        msg_type: &str,
        content: &serde_json::Value,
    ) {
        let busy = self.voice.status(now, parent.clone(), "busy");
        self.actions.push_back(Action::Publish(busy));
        let reply = self.voice.say(now, msg_type, parent.clone(), content);
        self.deliver(id, channel, reply);
        self.publish_idle(now, parent);
    }
}

/// Returns the journal's line for a cell that goes to the kernel; silent ones are nobody's work.
fn asked(generation: u64, key: &Key, request: &Request, message: &Verified) -> Option<Execution> {
    #[derive(Deserialize)]
    struct Execute {
        code: String,
        #[serde(default)]
        silent: bool,
        #[serde(default = "yes")]
        store_history: bool,
    }
    fn yes() -> bool {
        true
    }
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Metadata {
        cell_id: Option<String>,
    }
    let execute: Execute = serde_json::from_slice(message.content()).ok()?;
    let metadata: Metadata = serde_json::from_slice(message.metadata()).unwrap_or_default();
    (!execute.silent).then(|| Execution {
        phase: Phase::Asked,
        generation,
        msg_id: key.msg_id().to_owned(),
        client: Some(request.client.clone()),
        session: request.session.clone(),
        username: request.username.clone(),
        cell: metadata.cell_id,
        code: Some(execute.code),
        store_history: execute.store_history,
    })
}
