//! The bridge between the clients of one front end and one kernel after another.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;

use super::client::{Client, Held, Link};
use super::kernel::{Ending, Interrupt, Kernel};
use super::request::{Key, OUTSTANDING_MAX, Request, Requests};
use super::timer::{AWAITED, GONE, Now, PROBE, PROBE_MAX, Timer, Timers};
use super::voice::{self, Voice};
use super::{Action, ClientId, Execution, Note, Phase};
use crate::wire::{Channel, Header, Verified};

/// What the bridge is told once.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Unique to this proxy and plain text: the identity of its own sockets to the kernel.
    pub id: String,
    /// How many bytes of one client may wait for the kernel before its connections are not read.
    pub held_bytes: usize,
    /// How many bytes may wait for one client that is away; more are dropped, with a log line.
    pub undelivered_bytes: usize,
}

/// Who gets what, of one front end's clients and one kernel after another.
#[derive(Debug)]
pub struct Bridge {
    settings: Settings,
    kernel: Kernel,
    /// The last life that was seen; an ended kernel keeps its number.
    generation: u64,
    /// Whether iopub is known to arrive here.
    proven: bool,
    /// The proxy's own client: it asks for signs of life and passes interrupts on.
    own: ClientId,
    probe: Probe,
    clients: HashMap<ClientId, Client>,
    requests: Requests,
    timers: Timers,
    voice: Voice,
    actions: VecDeque<Action>,
}

/// The proxy's own questions, until something arrives on iopub.
#[derive(Debug, Default)]
struct Probe {
    wait: Duration,
    /// Whether a kernel_info_request waits in the kernel's shell queue. One at a time: behind a
    /// long cell they would pile up.
    on_shell: bool,
}

impl Bridge {
    /// Makes a bridge whose kernel is still awaited.
    pub fn new(settings: Settings, now: Now) -> Self {
        let own = ClientId::new(Bytes::from(settings.id.clone()));
        let mut timers = Timers::default();
        timers.start(now.instant + AWAITED, Timer::Awaited);
        Self {
            voice: Voice::new(settings.id.clone()),
            settings,
            kernel: Kernel::Awaited,
            generation: 0,
            proven: false,
            own,
            probe: Probe::default(),
            clients: HashMap::new(),
            requests: Requests::default(),
            timers,
            actions: VecDeque::new(),
        }
    }

    /// Returns the next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns when [`Bridge::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Returns the clients that are connected now.
    pub fn joined(&self) -> impl Iterator<Item = &ClientId> {
        self.clients
            .iter()
            .filter(|(_, client)| client.is_joined())
            .map(|(id, _)| id)
    }

    /// Returns how many requests have no answer yet.
    pub fn outstanding(&self) -> usize {
        self.clients.values().map(|client| client.outstanding).sum()
    }

    /// Returns what is known of the kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Takes a change in the kernel's life.
    ///
    /// `ending` says what became of the life before, where there was one: it is what the clients
    /// read whose requests were under way. `unsent` are the messages that were not wholly written
    /// to it, in order: they are kept for the next life.
    pub fn kernel_is(
        &mut self,
        now: Now,
        kernel: Kernel,
        ending: &Ending,
        unsent: impl IntoIterator<Item = (ClientId, Channel, Verified)>,
    ) {
        if kernel == self.kernel {
            return;
        }
        if let Kernel::Live { .. } = self.kernel {
            self.close_all_links();
            // An answer to the old kernel's question is none to the next one's.
            self.put_back(
                unsent
                    .into_iter()
                    .filter(|(_, channel, _)| *channel != Channel::Stdin),
            );
            self.fail(now, ending, |request| request.sent);
        }
        self.kernel = kernel;
        self.proven = false;
        self.timers.stop(&Timer::Awaited);
        self.timers.stop(&Timer::Probe);
        match self.kernel.clone() {
            Kernel::Awaited => self.timers.start(now.instant + AWAITED, Timer::Awaited),
            Kernel::Live { generation, .. } => {
                self.generation = generation;
                self.probe = Probe::default();
                self.open_all_links();
            }
            Kernel::Ended(ending) => self.refuse_held(now, &ending),
        }
    }

    /// Takes a client's new connection on shell, control or stdin.
    pub fn client_joined(&mut self, channel: Channel, id: &ClientId) {
        let known = self.clients.contains_key(id);
        let client = self.clients.entry(id.clone()).or_default();
        let Some(state) = client.on(channel) else {
            return;
        };
        state.joined = true;
        state.undelivered_bytes = 0;
        let undelivered = std::mem::take(&mut state.undelivered);
        self.timers.stop(&Timer::Gone(id.clone()));
        if !known {
            self.log(Note::ClientJoined { client: id.clone() });
        }
        for message in undelivered {
            self.actions.push_back(Action::ToClient {
                client: id.clone(),
                channel,
                message,
            });
        }
        self.open_links(id, channel);
    }

    /// Takes the end of a client's connection. Not that of one that was replaced.
    pub fn client_left(&mut self, now: Now, channel: Channel, id: &ClientId) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        if let Some(state) = client.on(channel) {
            state.joined = false;
        }
        if !client.is_joined() {
            let grace = if id.is_anonymous() {
                Duration::ZERO
            } else {
                GONE
            };
            self.timers
                .start(now.instant + grace, Timer::Gone(id.clone()));
        }
    }

    /// Takes a message of a client on shell, control or stdin.
    pub fn client_message(&mut self, now: Now, channel: Channel, id: &ClientId, message: Verified) {
        if !self.clients.contains_key(id) {
            self.client_joined(channel, id);
        }
        let Ok(header) = message.header() else {
            self.log(Note::UnreadableHeader {
                from: "client",
                channel,
            });
            return self.forward(now, channel, id, None, message);
        };
        match (channel, &*header.msg_type) {
            (Channel::Stdin, _) => self.input(channel, id, message),
            (_, "shutdown_request") => self.answer_shutdown(now, channel, id, &message),
            (Channel::Control, "interrupt_request") if self.answers_interrupts() => {
                if matches!(self.kernel, Kernel::Live { .. }) {
                    self.log(Note::Interrupt { client: id.clone() });
                    self.actions.push_back(Action::SignalKernel);
                }
                let parent = message.header_bytes().clone();
                self.answer(
                    now,
                    channel,
                    id,
                    parent,
                    "interrupt_reply",
                    &json!({ "status": "ok" }),
                );
            }
            _ => {
                let key = self.track(channel, id, &message, &header);
                self.forward(now, channel, id, key, message);
            }
        }
    }

    /// Interrupts the running cell: a SIGINT to the proxy is Jupyter asking for that.
    pub fn interrupt(&mut self, now: Now) {
        let Kernel::Live { interrupt, .. } = self.kernel else {
            return;
        };
        self.log(Note::Interrupt {
            client: self.own.clone(),
        });
        match interrupt {
            Interrupt::Signal => self.actions.push_back(Action::SignalKernel),
            Interrupt::Message => self.ask(now, Channel::Control, "interrupt_request"),
        }
    }

    /// Returns whether an interrupt is carried out here: no message reaches a kernel that wants a
    /// signal, and none runs while one is awaited.
    fn answers_interrupts(&self) -> bool {
        match &self.kernel {
            Kernel::Live { interrupt, .. } => *interrupt == Interrupt::Signal,
            Kernel::Awaited => true,
            Kernel::Ended(_) => false,
        }
    }

    /// Takes a socket to the kernel that has become usable.
    pub fn link_up(&mut self, id: &ClientId, channel: Channel) {
        if let Some(state) = self
            .clients
            .get_mut(id)
            .and_then(|client| client.on(channel))
        {
            state.link = Link::Up;
        }
        self.release(id);
    }

    /// Takes a socket to the kernel that was lost, and what was not wholly written to it.
    ///
    /// The caller goes on dialling; whether the kernel has ended is told by [`Bridge::kernel_is`].
    pub fn link_down(&mut self, id: &ClientId, channel: Channel, unsent: Vec<Verified>) {
        if let Some(state) = self
            .clients
            .get_mut(id)
            .and_then(|client| client.on(channel))
        {
            state.link = Link::Opening;
            self.put_back(
                unsent
                    .into_iter()
                    .map(|message| (id.clone(), channel, message)),
            );
        }
    }

    /// Takes the iopub subscription that has become usable: now it must be proven.
    pub fn iopub_up(&mut self, now: Now) {
        self.probe.wait = PROBE;
        self.probe.on_shell = false;
        self.probe(now);
    }

    /// Takes the loss of the iopub subscription: requests wait until it is proven anew.
    pub fn iopub_down(&mut self) {
        self.proven = false;
    }

    /// Takes a message of the kernel on one client's shell, control or stdin socket.
    pub fn kernel_message(
        &mut self,
        now: Now,
        id: &ClientId,
        channel: Channel,
        mut message: Verified,
    ) {
        if *id == self.own {
            self.probe.on_shell &= channel != Channel::Shell;
            return;
        }
        let Ok(header) = message.header() else {
            self.log(Note::UnreadableHeader {
                from: "kernel",
                channel,
            });
            return self.deliver(id, channel, message);
        };
        let other_session = self.other_session(&header.session);
        if channel == Channel::Stdin && header.msg_type == "input_request" {
            let prompt = message.header_bytes().clone();
            if let Some(client) = self.clients.get_mut(id) {
                client.prompt = Some(prompt);
            }
        }
        if header.msg_type.ends_with("_reply")
            && let Some(key) = message.parent().ok().and_then(|parent| Key::of(&parent))
        {
            self.replied(now, &key, &header, &message);
        }
        keep_session(&mut message, other_session.as_deref());
        self.deliver(id, channel, message);
    }

    /// Takes a message of the kernel on iopub.
    pub fn iopub_message(&mut self, now: Now, mut message: Verified) {
        self.prove();
        let Ok(header) = message.header() else {
            self.log(Note::UnreadableHeader {
                from: "kernel",
                channel: Channel::Iopub,
            });
            return self.actions.push_back(Action::Publish(message));
        };
        let other_session = self.other_session(&header.session);
        let mut status = None;
        match &*header.msg_type {
            "status" => {
                let state = execution_state(message.content());
                // VS Code's client hangs for good after `restarting`; the kernel that follows is ours to tell.
                if matches!(state.as_deref(), Some("restarting" | "dead")) {
                    return;
                }
                status = state;
            }
            // ipykernel broadcasts it, and consoles exit on it.
            "shutdown_reply" => return,
            "execute_input" => self.see(&message),
            _ => {}
        }
        if let Some(state) = status
            && let Some(key) = message.parent().ok().and_then(|parent| Key::of(&parent))
        {
            self.status(now, &key, &state);
        }
        keep_session(&mut message, other_session.as_deref());
        self.actions.push_back(Action::Publish(message));
    }

    /// Takes the news that a message of the kernel was too long to be received.
    ///
    /// `parent` is its unverified parent header: it only chooses among the requests that are known.
    /// On iopub the asker reads what is missing, as a stderr stream; a reply that is missing is
    /// replaced by an error.
    pub fn oversized(&mut self, now: Now, channel: Channel, parent: &[u8], bytes: u64) {
        let Some(key) = Header::parse(parent)
            .ok()
            .and_then(|header| Key::of(&header))
        else {
            return;
        };
        let Some(request) = self.requests.get_mut(&key) else {
            return;
        };
        let text = format!(
            "{bytes} bytes from the kernel were more than one message may have, and were not passed on"
        );
        if channel == Channel::Iopub {
            let parent = request.header.clone();
            let content = json!({ "name": "stderr", "text": format!("[nb-proxy] {text}\n") });
            let stream = self.voice.publish(now, "stream", parent, &content);
            self.actions.push_back(Action::Publish(stream));
        } else {
            self.fail_one(
                now,
                &Ending {
                    name: "MessageTooLong",
                    text,
                },
                &key,
            );
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Now) {
        while let Some(timer) = self.timers.due(now.instant) {
            match timer {
                Timer::Probe => self.probe(now),
                Timer::Awaited => {
                    let seconds = AWAITED.as_secs();
                    self.log(Note::KernelSlow { seconds });
                    let text = format!(
                        "the kernel was not there after {seconds} s. `nb status` tells its state, `nb open` starts it."
                    );
                    let ending = Ending {
                        name: "KernelNotReady",
                        text,
                    };
                    self.refuse_held(now, &ending);
                    self.kernel = Kernel::Ended(ending);
                }
                Timer::Gone(id) => self.forget(now, &id),
            }
        }
    }

    // ---- towards the kernel

    /// Remembers a request until its answer is complete.
    fn track(
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
                self.requests.remove(key);
                client.outstanding -= 1;
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
            journalled: false,
            busy: false,
            idle: false,
            replied: false,
        };
        self.requests.insert(key.clone(), request);
        Some(key)
    }

    /// Sends a message to the kernel, holds it for the kernel, or says that there is none.
    fn forward(
        &mut self,
        now: Now,
        channel: Channel,
        id: &ClientId,
        key: Option<Key>,
        message: Verified,
    ) {
        if let Kernel::Ended(ending) = &self.kernel {
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
        let ready = self.proven && matches!(self.kernel, Kernel::Live { .. });
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        let linked = client.is_linked(channel);
        let Some(state) = client.on(channel) else {
            return;
        };
        if ready && linked && state.held.is_empty() {
            return self.send(channel, id, key.as_ref(), message);
        }
        let bytes = message.size();
        state.held.push_back(Held { key, message });
        client.held_bytes += bytes;
        if client.held_bytes > self.settings.held_bytes && !client.paused {
            client.paused = true;
            self.actions.push_back(Action::Pause(id.clone()));
        }
    }

    fn send(&mut self, channel: Channel, id: &ClientId, key: Option<&Key>, message: Verified) {
        if let Some(key) = key
            && let Some(request) = self.requests.get_mut(key)
        {
            request.sent = true;
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

    /// Sends what a client has waiting, on every channel that is ready.
    fn release(&mut self, id: &ClientId) {
        if !self.proven || !matches!(self.kernel, Kernel::Live { .. }) {
            return;
        }
        for channel in [Channel::Control, Channel::Shell, Channel::Stdin] {
            let Some(client) = self.clients.get_mut(id) else {
                return;
            };
            if !client.is_linked(channel) {
                continue;
            }
            let held = client
                .on(channel)
                .map(|state| std::mem::take(&mut state.held))
                .unwrap_or_default();
            for Held { key, message } in held {
                if let Some(client) = self.clients.get_mut(id) {
                    client.held_bytes = client.held_bytes.saturating_sub(message.size());
                }
                self.send(channel, id, key.as_ref(), message);
            }
        }
        self.read_on(id);
    }

    fn read_on(&mut self, id: &ClientId) {
        if let Some(client) = self.clients.get_mut(id)
            && client.paused
            && client.held_bytes <= self.settings.held_bytes / 2
        {
            client.paused = false;
            self.actions.push_back(Action::Resume(id.clone()));
        }
    }

    /// Puts messages that a kernel never got back to the front of the queues, in order.
    fn put_back(&mut self, unsent: impl IntoIterator<Item = (ClientId, Channel, Verified)>) {
        let unsent: Vec<_> = unsent.into_iter().collect();
        for (id, channel, message) in unsent.into_iter().rev() {
            let key = message.header().ok().and_then(|header| Key::of(&header));
            let key = key.filter(|key| self.requests.contains(key));
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

    fn input(&mut self, channel: Channel, id: &ClientId, message: Verified) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        client.prompt = None;
        if client.link(channel) == Link::Up {
            self.actions.push_back(Action::ToKernel {
                client: id.clone(),
                channel,
                message,
            });
        } else {
            // The kernel that asked is gone, and the next one has not asked.
            let _ = asked;
            self.log(Note::NoKernel {
                client: id.clone(),
                channel,
                count: 1,
            });
        }
    }

    /// Answers a shutdown in the kernel's stead: front ends end their kernel, not everybody's.
    fn answer_shutdown(&mut self, now: Now, channel: Channel, id: &ClientId, message: &Verified) {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Shutdown {
            restart: bool,
        }
        let restart = serde_json::from_slice::<Shutdown>(message.content())
            .unwrap_or_default()
            .restart;
        self.log(Note::Shutdown {
            client: id.clone(),
            restart,
        });
        let content = json!({ "status": "ok", "restart": restart });
        self.answer(
            now,
            channel,
            id,
            message.header_bytes().clone(),
            "shutdown_reply",
            &content,
        );
        self.actions.push_back(Action::Leave);
    }

    /// Answers a request in the kernel's stead: busy, reply, idle.
    fn answer(
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
        let idle = self.voice.status(now, parent, "idle");
        self.actions.push_back(Action::Publish(idle));
    }

    // ---- towards the clients

    fn deliver(&mut self, id: &ClientId, channel: Channel, message: Verified) {
        let budget = self.settings.undelivered_bytes;
        let Some(state) = self
            .clients
            .get_mut(id)
            .and_then(|client| client.on(channel))
        else {
            return;
        };
        if state.joined {
            return self.actions.push_back(Action::ToClient {
                client: id.clone(),
                channel,
                message,
            });
        }
        // It may not have connected this socket yet, or be between two connections.
        state.undelivered_bytes += message.size();
        state.undelivered.push_back(message);
        let mut dropped = 0;
        while state.undelivered_bytes > budget {
            let Some(oldest) = state.undelivered.pop_front() else {
                break;
            };
            state.undelivered_bytes -= oldest.size();
            dropped += 1;
        }
        if dropped > 0 {
            self.log(Note::Undeliverable {
                client: id.clone(),
                channel,
                count: dropped,
            });
        }
    }

    /// Returns the session to put in the place of this one, if clients know another.
    fn other_session(&mut self, session: &str) -> Option<String> {
        if session.is_empty() {
            return None;
        }
        let known = self.voice.session(Some(session));
        (known != session).then(|| known.to_owned())
    }

    fn replied(&mut self, now: Now, key: &Key, header: &Header<'_>, message: &Verified) {
        let Some(request) = self.requests.get_mut(key) else {
            return;
        };
        if request.reply_type().as_deref() != Some(&*header.msg_type) {
            return;
        }
        request.replied = true;
        if request.journalled {
            request.journalled = false;
            let status = reply_status(message.content());
            let execution = done(self.generation, key, request, status);
            self.actions.push_back(Action::Journal(execution));
        }
        // An answered cell asks nothing any more.
        if request.msg_type == "execute_request" {
            let id = request.client.clone();
            if let Some(client) = self.clients.get_mut(&id) {
                client.prompt = None;
            }
        }
        self.finish(now, key);
    }

    fn status(&mut self, now: Now, key: &Key, state: &str) {
        let Some(request) = self.requests.get_mut(key) else {
            return;
        };
        request.busy |= state == "busy";
        request.idle |= state == "idle";
        self.finish(now, key);
    }

    /// Forgets a request whose answer is complete.
    fn finish(&mut self, now: Now, key: &Key) {
        if self
            .requests
            .get_mut(key)
            .is_some_and(|request| request.is_done())
            && let Some(request) = self.requests.remove(key)
        {
            self.settled(now, &request.client);
        }
    }

    fn settled(&mut self, now: Now, id: &ClientId) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        client.outstanding = client.outstanding.saturating_sub(1);
        if client.outstanding == 0 && !client.is_joined() && id.is_anonymous() {
            self.timers.start(now.instant, Timer::Gone(id.clone()));
        }
    }

    /// Writes down what somebody else runs on the shared kernel.
    fn see(&mut self, message: &Verified) {
        #[derive(Deserialize)]
        struct Input {
            code: String,
        }
        let Ok(parent) = message.parent() else { return };
        let Some(key) = Key::of(&parent) else { return };
        if self.requests.contains(&key) {
            return;
        }
        let Ok(input) = serde_json::from_slice::<Input>(message.content()) else {
            return;
        };
        self.actions.push_back(Action::Journal(Execution {
            phase: Phase::Seen,
            generation: self.generation,
            msg_id: key.msg_id().to_owned(),
            session: parent.session.into_owned(),
            username: parent.username.into_owned(),
            cell: None,
            code: Some(input.code),
        }));
    }

    // ---- failing

    /// Ends the requests that a predicate chooses, with an error each.
    fn fail(&mut self, now: Now, ending: &Ending, chosen: impl Fn(&Request) -> bool) {
        for key in self.requests.keys(chosen) {
            self.fail_one(now, ending, &key);
        }
        for client in self.clients.values_mut() {
            client.prompt = None;
        }
    }

    /// Ends one request as a kernel would: busy, error, reply, idle; what came already is not repeated.
    fn fail_one(&mut self, now: Now, ending: &Ending, key: &Key) {
        let Some(request) = self.requests.remove(key) else {
            return;
        };
        let parent = request.header.clone();
        if request.journalled {
            let execution = done(self.generation, key, &request, "error".into());
            self.actions.push_back(Action::Journal(execution));
        }
        if !request.busy {
            let busy = self.voice.status(now, parent.clone(), "busy");
            self.actions.push_back(Action::Publish(busy));
        }
        if !request.replied {
            if request.msg_type == "execute_request" {
                let error = self
                    .voice
                    .publish(now, "error", parent.clone(), &voice::error(ending));
                self.actions.push_back(Action::Publish(error));
            }
            if let Some(reply_type) = request.reply_type() {
                let content = voice::error_reply(&request, ending);
                let reply = self.voice.say(now, &reply_type, parent.clone(), &content);
                self.deliver(&request.client, request.channel, reply);
            }
        }
        if !request.idle {
            let idle = self.voice.status(now, parent, "idle");
            self.actions.push_back(Action::Publish(idle));
        }
        self.log(Note::RequestFailed {
            client: request.client.clone(),
            msg_type: request.msg_type.clone(),
            msg_id: key.msg_id().to_owned(),
            why: ending.name.to_owned(),
        });
        self.settled(now, &request.client);
    }

    /// Answers everything that waits for a kernel with an error: none will come.
    fn refuse_held(&mut self, now: Now, ending: &Ending) {
        self.fail(now, ending, |request| !request.sent);
        let mut unanswerable = Vec::new();
        for (id, client) in &mut self.clients {
            for (channel, state) in client.states() {
                let count = state
                    .held
                    .drain(..)
                    .filter(|held| held.key.is_none())
                    .count();
                if count > 0 {
                    unanswerable.push(Note::NoKernel {
                        client: id.clone(),
                        channel,
                        count,
                    });
                }
            }
            client.held_bytes = 0;
        }
        unanswerable.into_iter().for_each(|note| self.log(note));
        let ids: Vec<_> = self.clients.keys().cloned().collect();
        for id in ids {
            self.read_on(&id);
        }
    }

    // ---- links

    fn open_all_links(&mut self) {
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
    fn open_links(&mut self, id: &ClientId, channel: Channel) {
        if !matches!(self.kernel, Kernel::Live { .. }) {
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

    fn close_all_links(&mut self) {
        self.actions.push_back(Action::CloseLinks(self.own.clone()));
        for (id, client) in &mut self.clients {
            client
                .states()
                .for_each(|(_, state)| state.link = Link::Closed);
            self.actions.push_back(Action::CloseLinks(id.clone()));
        }
    }

    /// Lets go of a client that has been away for long enough.
    fn forget(&mut self, now: Now, id: &ClientId) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        if client.is_joined() {
            return;
        }
        if let Some(prompt) = client.prompt.take()
            && client.link(Channel::Stdin) == Link::Up
        {
            // One vanished window must not block the kernel for everybody: end of file, as Ctrl-D types it.
            let reply = self.voice.say(
                now,
                "input_reply",
                prompt,
                &json!({ "value": "\u{4}", "status": "ok" }),
            );
            self.actions.push_back(Action::ToKernel {
                client: id.clone(),
                channel: Channel::Stdin,
                message: reply,
            });
            self.log(Note::PromptAnswered { client: id.clone() });
        }
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        let owed = self
            .requests
            .keys(|request| request.client == *id && !request.is_answered());
        if !owed.is_empty() || client.prompt.is_some() {
            // Its cell still runs: its end is looked for again later.
            return self
                .timers
                .start(now.instant + GONE, Timer::Gone(id.clone()));
        }
        for key in self.requests.keys(|request| request.client == *id) {
            self.requests.remove(&key);
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

    // ---- proof of iopub

    /// Asks the kernel for a sign on iopub, again and again until one comes.
    ///
    /// A second subscriber gets no `iopub_welcome` from ipykernel, so the status of a request of
    /// our own is awaited. Control answers at once where it is a thread of its own; shell is asked
    /// too, as IRkernel never answers kernel_info on control.
    fn probe(&mut self, now: Now) {
        if self.proven || !matches!(self.kernel, Kernel::Live { .. }) || self.probe.wait.is_zero() {
            return;
        }
        self.ask(now, Channel::Control, "kernel_info_request");
        if !self.probe.on_shell {
            self.probe.on_shell = true;
            self.ask(now, Channel::Shell, "kernel_info_request");
        }
        self.timers
            .start(now.instant + self.probe.wait, Timer::Probe);
        self.probe.wait = (self.probe.wait * 2).min(PROBE_MAX);
    }

    /// Sends a request of the proxy's own, whose reply nobody awaits.
    fn ask(&mut self, now: Now, channel: Channel, msg_type: &str) {
        let message = self.voice.ask(now, msg_type);
        self.actions.push_back(Action::ToKernel {
            client: self.own.clone(),
            channel,
            message,
        });
    }

    /// Something arrived on iopub: requests may go.
    fn prove(&mut self) {
        if self.proven {
            return;
        }
        self.proven = true;
        self.timers.stop(&Timer::Probe);
        let ids: Vec<_> = self.clients.keys().cloned().collect();
        for id in ids {
            self.release(&id);
        }
    }

    fn log(&mut self, note: Note) {
        self.actions.push_back(Action::Log(note));
    }
}

/// Gives a message the one session that clients know.
fn keep_session(message: &mut Verified, other: Option<&str>) {
    if let Some(session) = other {
        message
            .set_session(session)
            .expect("the header was read just now and has a session");
    }
}

/// Returns the `execution_state` of a status message.
fn execution_state(content: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Status {
        execution_state: String,
    }
    serde_json::from_slice::<Status>(content)
        .ok()
        .map(|status| status.execution_state)
}

/// Returns the `status` of a reply.
fn reply_status(content: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Reply {
        status: String,
    }
    serde_json::from_slice::<Reply>(content).map_or_else(|_| "unknown".into(), |reply| reply.status)
}

/// Returns the journal's line for a cell that goes to the kernel; silent ones are nobody's work.
fn asked(generation: u64, key: &Key, request: &Request, message: &Verified) -> Option<Execution> {
    #[derive(Deserialize)]
    struct Execute {
        code: String,
        #[serde(default)]
        silent: bool,
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
        session: request.session.clone(),
        username: request.username.clone(),
        cell: metadata.cell_id,
        code: Some(execute.code),
    })
}

fn done(generation: u64, key: &Key, request: &Request, status: String) -> Execution {
    Execution {
        phase: Phase::Done(status),
        generation,
        msg_id: key.msg_id().to_owned(),
        session: request.session.clone(),
        username: request.username.clone(),
        cell: None,
        code: None,
    }
}
