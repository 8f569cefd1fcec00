//! The clients of one front end: their connections, their sockets to the kernel, and the messages that wait for
//! either.

use std::collections::{BTreeSet, HashMap, VecDeque};

use bytes::Bytes;
use serde_json::json;

use super::execution_queue::InterruptTarget;
use super::output::Output;
use super::request::Key;
use super::{Action, ClientId, Note};
use crate::wire::{Channel, Verified};

/// All clients that are connected, and those that disconnected a moment ago.
#[derive(Debug)]
pub(super) struct Clients {
    by_id: HashMap<ClientId, Client>,
    /// How many bytes of one client may wait for the kernel before its connections are no longer read.
    held_limit: usize,
    /// How many bytes may wait for one client that is disconnected.
    undelivered_limit: usize,
}

/// The messages of one client that wait for the kernel, or in the execution queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldMessages {
    /// The number of messages.
    pub messages: u64,
    /// The bytes of all their frames.
    pub bytes: u64,
}

/// An `input_request` that has no answer.
#[derive(Debug)]
pub(super) struct Prompt {
    pub(super) header: Bytes,
    /// The cell that asks. It is stored because the reply of the cell before it may arrive later, on another
    /// socket.
    pub(super) cell: Option<Key>,
}

/// The three channels that belong to one client.
pub(super) const CLIENT_CHANNELS: [Channel; 3] = [Channel::Shell, Channel::Control, Channel::Stdin];

/// One client: an identity on the front end's sockets, and its own sockets to the kernel.
#[derive(Debug, Default)]
struct Client {
    channels: [ClientChannel; 3],
    /// The bytes of all held messages.
    held_bytes: usize,
    /// Whether its connections are not being read.
    paused: bool,
    prompt: Option<Prompt>,
    /// How many of its requests have no answer yet.
    outstanding: usize,
    /// An interrupt that is held for a moment, and the control messages that came after it.
    held_control: VecDeque<Verified>,
    /// What that interrupt is meant for.
    interrupt_target: Option<InterruptTarget>,
}

/// One of a client's three channels.
#[derive(Debug, Default)]
struct ClientChannel {
    /// Whether the client is connected on this channel.
    joined: bool,
    link: Link,
    /// Messages for the kernel, with the keys of those that are tracked.
    held: VecDeque<(Option<Key>, Verified)>,
    /// Messages for the client, sent when it is back.
    undelivered: VecDeque<Verified>,
    undelivered_bytes: usize,
}

/// A client's socket to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Link {
    #[default]
    Closed,
    Opening,
    Up,
    /// The kernel does not listen on this channel (stdin): it never prompts.
    Absent,
}

impl Client {
    /// Returns the state of one of the three channels; `None` for iopub and the heartbeat.
    fn channel_mut(&mut self, channel: Channel) -> Option<&mut ClientChannel> {
        let index = CLIENT_CHANNELS.iter().position(|it| *it == channel)?;
        self.channels.get_mut(index)
    }

    fn link(&self, channel: Channel) -> Link {
        let index = CLIENT_CHANNELS.iter().position(|it| *it == channel);
        index
            .and_then(|index| self.channels.get(index))
            .map_or(Link::Closed, |state| state.link)
    }

    /// Returns whether a request may go to the kernel on this channel.
    ///
    /// The kernel addresses stdin by the shell's identity, so that socket must be up before a
    /// cell can ask something.
    fn is_linked(&self, channel: Channel) -> bool {
        let up = |channel| self.link(channel) == Link::Up;
        up(channel)
            && (channel != Channel::Shell
                || matches!(self.link(Channel::Stdin), Link::Up | Link::Absent))
    }

    fn is_joined(&self) -> bool {
        self.channels.iter().any(|state| state.joined)
    }

    /// Returns whether it has sockets to the kernel, and no message waits for them.
    fn has_idle_links(&self) -> bool {
        let channels = &self.channels;
        channels.iter().any(|state| state.link != Link::Closed)
            && channels.iter().all(|state| state.held.is_empty())
            && self.prompt.is_none()
            && self.held_control.is_empty()
    }

    fn held(&self) -> HeldMessages {
        let held: usize = self.channels.iter().map(|state| state.held.len()).sum();
        HeldMessages {
            messages: held as u64,
            bytes: self.held_bytes as u64,
        }
    }

    fn channels(&mut self) -> impl Iterator<Item = (Channel, &mut ClientChannel)> {
        CLIENT_CHANNELS.into_iter().zip(&mut self.channels)
    }
}

impl Clients {
    pub(super) fn new(held_limit: usize, undelivered_limit: usize) -> Self {
        Self {
            by_id: HashMap::new(),
            held_limit,
            undelivered_limit,
        }
    }

    fn channel_mut(&mut self, id: &ClientId, channel: Channel) -> Option<&mut ClientChannel> {
        self.by_id.get_mut(id)?.channel_mut(channel)
    }

    // ---- connections

    pub(super) fn contains(&self, id: &ClientId) -> bool {
        self.by_id.contains_key(id)
    }

    pub(super) fn ids(&self) -> Vec<ClientId> {
        self.by_id.keys().cloned().collect()
    }

    pub(super) fn is_joined(&self, id: &ClientId) -> bool {
        self.by_id.get(id).is_some_and(Client::is_joined)
    }

    pub(super) fn joined(&self) -> impl Iterator<Item = &ClientId> {
        let joined = self.by_id.iter().filter(|(_, client)| client.is_joined());
        joined.map(|(id, _)| id)
    }

    /// Takes a new connection; messages that wait for the client are sent.
    pub(super) fn join(&mut self, out: &mut Output, id: &ClientId, channel: Channel) {
        let is_new = !self.by_id.contains_key(id);
        let client = self.by_id.entry(id.clone()).or_default();
        let paused = client.paused;
        let Some(state) = client.channel_mut(channel) else {
            return;
        };
        state.joined = true;
        state.undelivered_bytes = 0;
        if paused {
            // The client opened this connection while its others are not read: it would bring as much again.
            out.push(Action::Pause(id.clone()));
        }
        if is_new {
            out.log(Note::ClientJoined(id.clone()));
        }
        for message in state.undelivered.drain(..) {
            out.push(Action::ToClient {
                client: id.clone(),
                channel,
                message,
            });
        }
    }

    /// Takes the end of a connection; returns whether the client has none now.
    pub(super) fn leave(&mut self, id: &ClientId, channel: Channel) -> bool {
        let Some(client) = self.by_id.get_mut(id) else {
            return false;
        };
        if let Some(state) = client.channel_mut(channel) {
            state.joined = false;
        }
        !client.is_joined()
    }

    /// Returns whether a client is disconnected and has no open prompt and no held interrupt.
    pub(super) fn may_be_forgotten(&self, id: &ClientId) -> bool {
        self.by_id.get(id).is_some_and(|client| {
            !client.is_joined() && client.prompt.is_none() && client.held_control.is_empty()
        })
    }

    /// Forgets a client, and closes its sockets.
    pub(super) fn forget(&mut self, out: &mut Output, id: &ClientId) {
        let Some(mut client) = self.by_id.remove(id) else {
            return;
        };
        for (channel, state) in client.channels() {
            if !state.undelivered.is_empty() {
                out.log(Note::Undeliverable {
                    client: id.clone(),
                    channel,
                    count: state.undelivered.len(),
                });
            }
        }
        out.push(Action::CloseLinks(id.clone()));
        out.log(Note::ClientGone(id.clone()));
    }

    // ---- messages for clients

    /// Sends a message to a client, or stores it until the client is back.
    pub(super) fn deliver(
        &mut self,
        out: &mut Output,
        id: &ClientId,
        channel: Channel,
        message: Verified,
    ) {
        let limit = self.undelivered_limit;
        let Some(state) = self.channel_mut(id, channel) else {
            return;
        };
        if state.joined {
            return out.push(Action::ToClient {
                client: id.clone(),
                channel,
                message,
            });
        }
        // The client may not have connected this socket yet, or may be between two connections.
        state.undelivered_bytes += message.size();
        state.undelivered.push_back(message);
        let mut count = 0;
        while state.undelivered_bytes > limit {
            let Some(oldest) = state.undelivered.pop_front() else {
                break;
            };
            state.undelivered_bytes -= oldest.size();
            count += 1;
        }
        if count > 0 {
            out.log(Note::Undeliverable {
                client: id.clone(),
                channel,
                count,
            });
        }
    }

    // ---- requests without an answer

    pub(super) fn outstanding(&self) -> usize {
        self.by_id.values().map(|client| client.outstanding).sum()
    }

    /// Returns how many requests of a client have no answer.
    pub(super) fn outstanding_of(&self, id: &ClientId) -> Option<usize> {
        self.by_id.get(id).map(|client| client.outstanding)
    }

    pub(super) fn add_request(&mut self, id: &ClientId) {
        if let Some(client) = self.by_id.get_mut(id) {
            client.outstanding += 1;
        }
    }

    /// Records that a request has its answer; returns whether the client is disconnected and waits for no
    /// other answer.
    pub(super) fn end_request(&mut self, id: &ClientId) -> bool {
        self.by_id.get_mut(id).is_some_and(|client| {
            client.outstanding = client.outstanding.saturating_sub(1);
            client.outstanding == 0 && !client.is_joined()
        })
    }

    // ---- messages for the kernel

    /// Returns whether a message of this client can be sent at once, since none waits before it, or since it need not
    /// stay behind one that does; `None` for an unknown client.
    pub(super) fn can_send(
        &mut self,
        id: &ClientId,
        channel: Channel,
        may_overtake: bool,
    ) -> Option<bool> {
        let client = self.by_id.get_mut(id)?;
        let linked = client.is_linked(channel);
        Some(linked && (may_overtake || client.channel_mut(channel)?.held.is_empty()))
    }

    /// Stores a message for the kernel; the connections of a client with too many waiting bytes are no longer
    /// read.
    pub(super) fn hold(
        &mut self,
        out: &mut Output,
        id: &ClientId,
        channel: Channel,
        key: Option<Key>,
        message: Verified,
    ) {
        let limit = self.held_limit;
        let Some(client) = self.by_id.get_mut(id) else {
            return;
        };
        let bytes = message.size();
        let Some(state) = client.channel_mut(channel) else {
            return;
        };
        state.held.push_back((key, message));
        client.held_bytes += bytes;
        if client.held_bytes > limit && !client.paused {
            client.paused = true;
            out.push(Action::Pause(id.clone()));
        }
    }

    /// Puts a message that the kernel never received before all others that wait.
    pub(super) fn put_back(
        &mut self,
        id: &ClientId,
        channel: Channel,
        key: Option<Key>,
        message: Verified,
    ) {
        if let Some(client) = self.by_id.get_mut(id) {
            client.held_bytes += message.size();
            if let Some(state) = client.channel_mut(channel) {
                state.held.push_front((key, message));
            }
        }
    }

    /// Removes and returns the first message that waits on a channel whose socket is up, if it may be sent.
    pub(super) fn pop_held(
        &mut self,
        id: &ClientId,
        channel: Channel,
        may_be_taken: impl FnOnce(Option<&Key>) -> bool,
    ) -> Option<(Option<Key>, Verified)> {
        let client = self.by_id.get_mut(id)?;
        if !client.is_linked(channel) {
            return None;
        }
        let first = |held: &mut (Option<Key>, Verified)| may_be_taken(held.0.as_ref());
        let held = client.channel_mut(channel)?.held.pop_front_if(first)?;
        client.held_bytes = client.held_bytes.saturating_sub(held.1.size());
        Some(held)
    }

    /// Removes a request from its client's queue and returns it.
    pub(super) fn take_held(
        &mut self,
        id: &ClientId,
        channel: Channel,
        key: &Key,
    ) -> Option<Verified> {
        let client = self.by_id.get_mut(id)?;
        let held = &mut client.channel_mut(channel)?.held;
        let at = held
            .iter()
            .position(|(held, _)| held.as_ref() == Some(key))?;
        let (_, message) = held.remove(at)?;
        client.held_bytes = client.held_bytes.saturating_sub(message.size());
        Some(message)
    }

    /// Returns the request that waits first on shell.
    pub(super) fn first_held(&mut self, id: &ClientId) -> Option<&Key> {
        let (key, _) = self.channel_mut(id, Channel::Shell)?.held.front()?;
        key.as_ref()
    }

    /// Reads a client's connections again, once few enough bytes wait.
    pub(super) fn resume(&mut self, out: &mut Output, id: &ClientId) {
        if let Some(client) = self.by_id.get_mut(id)
            && client.paused
            && client.held_bytes <= self.held_limit / 2
        {
            client.paused = false;
            out.push(Action::Resume(id.clone()));
        }
    }

    /// Drops all messages that wait for a kernel, since none comes; logs how many of them needed no answer.
    pub(super) fn drop_held(&mut self, out: &mut Output) {
        for (id, client) in &mut self.by_id {
            for (channel, state) in client.channels() {
                let untracked = state.held.drain(..).filter(|(key, _)| key.is_none());
                log_dropped(out, id, channel, untracked.count());
            }
            client.held_bytes = 0;
        }
        self.ids().iter().for_each(|id| self.resume(out, id));
    }

    /// Forgets all messages that wait for a kernel and all open requests, without errors and log lines.
    pub(super) fn abandon_requests(&mut self) {
        for client in self.by_id.values_mut() {
            client.channels().for_each(|(_, state)| state.held.clear());
            client.held_control.clear();
            client.interrupt_target = None;
            (client.held_bytes, client.outstanding) = (0, 0);
            client.prompt = None;
        }
    }

    /// Returns how much of each client waits.
    pub(super) fn held(&self) -> impl Iterator<Item = (&ClientId, HeldMessages)> {
        self.by_id.iter().map(|(id, client)| (id, client.held()))
    }

    // ---- interrupts that are held for a moment

    /// Returns whether an interrupt of this client is held.
    pub(super) fn holds_interrupt(&self, id: &ClientId) -> bool {
        let client = self.by_id.get(id);
        client.is_some_and(|client| !client.held_control.is_empty())
    }

    /// Holds an interrupt.
    pub(super) fn hold_interrupt(
        &mut self,
        id: &ClientId,
        message: Verified,
        target: InterruptTarget,
    ) {
        if let Some(client) = self.by_id.get_mut(id) {
            client.held_control.push_back(message);
            client.interrupt_target = Some(target);
        }
    }

    /// Holds a message behind an interrupt; returns how many messages are held now.
    pub(super) fn hold_control(&mut self, id: &ClientId, message: Verified) -> usize {
        self.by_id.get_mut(id).map_or(0, |client| {
            client.held_control.push_back(message);
            client.held_control.len()
        })
    }

    /// Removes and returns the held interrupt and the messages after it, and what the interrupt is meant for.
    pub(super) fn take_interrupt(
        &mut self,
        id: &ClientId,
    ) -> (VecDeque<Verified>, Option<InterruptTarget>) {
        let client = self.by_id.get_mut(id);
        client.map_or_else(Default::default, |client| {
            let held = std::mem::take(&mut client.held_control);
            (held, client.interrupt_target.take())
        })
    }

    // ---- prompts of the kernel

    /// Sets or removes the prompt by which the kernel asks a client.
    pub(super) fn set_prompt(&mut self, id: &ClientId, prompt: Option<Prompt>) {
        if let Some(client) = self.by_id.get_mut(id) {
            client.prompt = prompt;
        }
    }

    /// Forgets the prompt of a cell that has ended.
    pub(super) fn end_prompt_of(&mut self, id: &ClientId, cell: &Key) {
        if let Some(client) = self.by_id.get_mut(id) {
            client
                .prompt
                .take_if(|prompt| prompt.cell.as_ref() == Some(cell));
        }
    }

    /// Forgets all prompts: the kernel that asked has ended.
    pub(super) fn end_prompts(&mut self) {
        self.by_id
            .values_mut()
            .for_each(|client| client.prompt = None);
    }

    /// Answers the prompt of a disconnected client with end of file (Ctrl-D): one closed window must
    /// not block the kernel for everybody.
    pub(super) fn answer_prompt(&mut self, out: &mut Output, id: &ClientId) {
        let Some(client) = self.by_id.get_mut(id) else {
            return;
        };
        // While the socket is lost the prompt stays open; it is answered when the socket is back.
        if client.link(Channel::Stdin) == Link::Up
            && let Some(prompt) = client.prompt.take()
        {
            let content = json!({ "value": "\u{4}", "status": "ok" });
            let reply = out
                .synthetic
                .kernel_message("input_reply", prompt.header, &content);
            out.send(id, Channel::Stdin, reply);
            out.log(Note::PromptAnswered(id.clone()));
        }
    }

    /// Takes a client's `input_reply`. Returns the cell whose question it answers.
    pub(super) fn take_input(
        &mut self,
        out: &mut Output,
        id: &ClientId,
        channel: Channel,
        message: Verified,
    ) -> Option<Key> {
        let client = self.by_id.get_mut(id)?;
        let prompt = client.prompt.take();
        let had_prompt = prompt.is_some();
        match client.link(channel) {
            Link::Up => out.send(id, channel, message),
            // Only the kernel that asked waits for this reply: it is sent when the socket is back.
            Link::Opening if had_prompt => {
                client.held_bytes += message.size();
                if let Some(state) = client.channel_mut(channel) {
                    state.held.push_back((None, message));
                }
            }
            // The kernel that asked has ended, and the next one has not asked.
            _ => log_dropped(out, id, channel, 1),
        }
        prompt?.cell
    }

    /// Drops the `input_reply`s for a kernel that has ended.
    pub(super) fn drop_input(&mut self, out: &mut Output) {
        for (id, client) in &mut self.by_id {
            let held = client
                .channel_mut(Channel::Stdin)
                .map(|state| std::mem::take(&mut state.held));
            let held = held.unwrap_or_default();
            let bytes: usize = held.iter().map(|(_, message)| message.size()).sum();
            client.held_bytes = client.held_bytes.saturating_sub(bytes);
            log_dropped(out, id, Channel::Stdin, held.len());
        }
    }

    // ---- sockets to the kernel

    /// Opens the sockets that a channel of a client needs.
    pub(super) fn open_links(&mut self, out: &mut Output, id: &ClientId, channel: Channel) {
        let needed: &[Channel] = if channel == Channel::Shell {
            &[Channel::Stdin, Channel::Shell]
        } else {
            &[channel]
        };
        for channel in needed {
            if let Some(state) = self.channel_mut(id, *channel)
                && state.link == Link::Closed
            {
                state.link = Link::Opening;
                out.push(Action::OpenLink {
                    client: id.clone(),
                    channel: *channel,
                });
            }
        }
    }

    /// Opens the sockets of all clients that are connected or have messages waiting.
    pub(super) fn open_all_links(&mut self, out: &mut Output) {
        let mut needed = Vec::new();
        for (id, client) in &mut self.by_id {
            let has_held = client.held_bytes > 0;
            let channels = client
                .channels()
                .filter(|(_, state)| state.joined || has_held);
            needed.extend(channels.map(|(channel, _)| (id.clone(), channel)));
        }
        for (id, channel) in needed {
            self.open_links(out, &id, channel);
        }
    }

    /// Closes all sockets of a client.
    pub(super) fn close_links(&mut self, out: &mut Output, id: &ClientId) {
        if let Some(client) = self.by_id.get_mut(id) {
            client
                .channels()
                .for_each(|(_, state)| state.link = Link::Closed);
            out.push(Action::CloseLinks(id.clone()));
        }
    }

    /// Records that a socket can be used.
    pub(super) fn link_up(&mut self, id: &ClientId, channel: Channel) {
        if let Some(state) = self.channel_mut(id, channel) {
            state.link = Link::Up;
        }
    }

    /// Records the loss of a socket, which is being dialled again; returns whether it belonged to a known
    /// client.
    pub(super) fn link_down(&mut self, id: &ClientId, channel: Channel) -> bool {
        let state = self.channel_mut(id, channel);
        state.map(|state| state.link = Link::Opening).is_some()
    }

    /// Records that a stdin socket could not be connected for long; returns whether the client goes on
    /// without it.
    pub(super) fn stdin_absent(&mut self, id: &ClientId) -> bool {
        match self.channel_mut(id, Channel::Stdin) {
            Some(state) if state.link == Link::Opening => {
                state.link = Link::Absent;
                true
            }
            _ => false,
        }
    }

    /// Returns the clients that are disconnected and have sockets for which no message waits.
    pub(super) fn disconnected_with_idle_links(&self) -> BTreeSet<ClientId> {
        let clients = self.by_id.iter();
        let disconnected =
            clients.filter(|(_, client)| !client.is_joined() && client.has_idle_links());
        disconnected.map(|(id, _)| id.clone()).collect()
    }
}

fn log_dropped(out: &mut Output, id: &ClientId, channel: Channel, count: usize) {
    if count > 0 {
        out.log(Note::NoKernel {
            client: id.clone(),
            channel,
            count,
        });
    }
}

/// A client, as tests compare it with the simulated world.
#[cfg(test)]
pub(super) struct ClientSnapshot {
    pub(super) channels: Vec<ChannelSnapshot>,
    pub(super) held_bytes: usize,
    pub(super) is_paused: bool,
    pub(super) is_joined: bool,
}

#[cfg(test)]
pub(super) struct ChannelSnapshot {
    pub(super) channel: Channel,
    pub(super) is_joined: bool,
    pub(super) link: Link,
    pub(super) is_linked: bool,
    /// The keys and sizes of the held messages.
    pub(super) held: Vec<(Option<Key>, usize)>,
    pub(super) undelivered: usize,
    pub(super) undelivered_bytes: usize,
}

#[cfg(test)]
impl Clients {
    pub(super) fn all_undelivered(&self) -> impl Iterator<Item = &Verified> {
        let channels = self.by_id.values().flat_map(|client| &client.channels);
        channels.flat_map(|state| &state.undelivered)
    }

    pub(super) fn snapshot(&self, id: &ClientId) -> ClientSnapshot {
        let client = self.by_id.get(id).expect("the client is there");
        let size = |held: &(Option<Key>, Verified)| (held.0.clone(), held.1.size());
        let channels = CLIENT_CHANNELS.into_iter().zip(&client.channels);
        let channels = channels.map(|(channel, state)| ChannelSnapshot {
            channel,
            is_joined: state.joined,
            link: state.link,
            is_linked: client.is_linked(channel),
            held: state.held.iter().map(size).collect(),
            undelivered: state.undelivered.iter().map(Verified::size).sum(),
            undelivered_bytes: state.undelivered_bytes,
        });
        ClientSnapshot {
            channels: channels.collect(),
            held_bytes: client.held_bytes,
            is_paused: client.paused,
            is_joined: client.is_joined(),
        }
    }
}
