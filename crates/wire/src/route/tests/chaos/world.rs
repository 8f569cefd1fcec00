//! The simulated world: the bridge, the front end's connections to it, and a kernel.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use super::super::super::clients::{CLIENT_CHANNELS, Link};
use super::super::super::request::{Answer, Request, Role};
use super::super::super::timer::Timer;
use super::super::super::{startup, timer};
use super::super::world::Rng;
use super::super::*;
use super::kernel::FakeKernel;
use super::slow_subscriber::SlowSubscriber;
use super::step::{CONNECTIONS, RequestKind, Step};

/// How many bytes may wait for the kernel, and for a client that is disconnected: a few messages.
const HELD_BYTES: usize = 3_000;
const UNDELIVERED_BYTES: usize = 3_000;

type SocketId = (ClientId, Channel);

pub(super) struct ChaosWorld {
    bridge: Bridge,
    start: Instant,
    clock: Duration,
    connections: Vec<Connection>,
    /// The prompts of the kernel, by client: a window that reconnects still shows its prompt.
    prompts: HashMap<ClientId, VecDeque<Bytes>>,
    /// The connection that each client has now on each channel.
    connected: HashMap<SocketId, usize>,
    /// The connections that are not being read.
    paused: HashSet<SocketId>,
    sockets: BTreeMap<SocketId, Socket>,
    kernel: Option<FakeKernel>,
    generations: u64,
    agents: u64,
    /// Whether the kernel is being started.
    is_starting: bool,
    records: Vec<RequestRecord>,
    /// The number of the last request that reached a kernel, by socket.
    reached: HashMap<SocketId, usize>,
    /// The number of the kernel's last message that was published to clients.
    published: u64,
    delivered: HashMap<SocketId, u64>,
    session: Option<String>,
    /// How many replies were dropped according to the log, by client.
    dropped: HashMap<ClientId, usize>,
    anonymous: u64,
    slow: SlowSubscriber,
    /// The names of the actions and of the log's lines that the bridge has produced.
    pub(super) produced: BTreeSet<String>,
}

/// One connection of a front end, with its own session.
struct Connection {
    id: ClientId,
    session: String,
}

/// A socket to the kernel, as `nb-proxy` has it.
#[derive(Default)]
struct Socket {
    connected: bool,
    /// Whether `link_up` was called, and no `link_down` after it.
    up: bool,
    full: bool,
    outbox: VecDeque<Verified>,
}

struct RequestRecord {
    client: ClientId,
    channel: Channel,
    has_reply: bool,
    readable: bool,
    replies: usize,
    idles: usize,
    errors: usize,
    reached: bool,
    /// The generation of the kernel for which it was made, if it is code.
    generation: Option<u64>,
    /// Whether its client was forgotten before it ended.
    forgotten: bool,
}

enum PendingEvent {
    Connect(SocketId),
    Writable(SocketId),
    Write(SocketId),
    Reply(SocketId),
    Subscribe,
    Iopub,
    Work,
    Control,
    Start,
}

/// Returns the name of an enum's variant, without the rest of what `Debug` writes.
fn variant_name(value: &impl std::fmt::Debug) -> String {
    struct FirstWord(String);
    impl std::fmt::Write for FirstWord {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            let word = text.split(|letter: char| !letter.is_alphanumeric()).next();
            let word = word.unwrap_or_default();
            self.0.push_str(word);
            if word.len() == text.len() {
                Ok(())
            } else {
                Err(std::fmt::Error)
            }
        }
    }
    let mut word = FirstWord(String::new());
    // The error only ends the writing.
    let _ = std::fmt::write(&mut word, format_args!("{value:?}."));
    word.0
}

impl ChaosWorld {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::of(seed ^ 0xabcd);
        let start = Instant::now();
        let now = Now {
            instant: start,
            date: jiff::Timestamp::UNIX_EPOCH,
        };
        let settings = Settings {
            id: "own".into(),
            held_bytes: HELD_BYTES,
            undelivered_bytes: UNDELIVERED_BYTES,
            front_end: [FrontEnd::Other, FrontEnd::VsCode, FrontEnd::Jupyter]
                [rng.below(3) as usize],
        };
        let mut bridge = Bridge::new(settings, now);
        bridge.set_policies(Policies {
            turns: rng.below(4) > 0,
            startup_known: vec![startup::fingerprint(&setup()), startup::fingerprint(PROBE)],
            ..Policies::default()
        });
        let connections = ["a", "a", "b", "c", "\0"].map(|id| id.to_owned());
        let connections = connections
            .into_iter()
            .enumerate()
            .map(|(number, id)| Connection {
                id: ClientId::new(id.into()),
                session: format!("session-{number}"),
            });
        let mut world = Self {
            bridge,
            start,
            clock: Duration::ZERO,
            connections: connections.collect(),
            prompts: HashMap::new(),
            connected: HashMap::new(),
            paused: HashSet::new(),
            sockets: BTreeMap::new(),
            kernel: None,
            generations: 0,
            agents: 0,
            is_starting: false,
            records: Vec::new(),
            reached: HashMap::new(),
            published: 0,
            delivered: HashMap::new(),
            session: None,
            dropped: HashMap::new(),
            anonymous: 0,
            slow: SlowSubscriber::default(),
            produced: BTreeSet::new(),
        };
        match rng.below(4) {
            0 => {}
            1 => {
                let now = world.now();
                let unnamed = Kernel::Unresolved { info: None };
                world.bridge.set_kernel(now, unnamed, &ending(), []);
            }
            _ => world.start_kernel(),
        }
        world.connect(2);
        world.act();
        world
    }

    fn now(&self) -> Now {
        Now {
            instant: self.start + self.clock,
            date: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    pub(super) fn run_step(&mut self, step: Step) {
        match step {
            Step::RunEvents { count, order } => {
                let mut rng = Rng::of(order);
                for _ in 0..count {
                    if !self.run_next_event(&mut rng) {
                        break;
                    }
                }
            }
            Step::Advance { ms } => self.advance(Duration::from_millis(ms)),
            Step::WakeUp { ms } => {
                self.clock += Duration::from_millis(ms);
                let now = self.now();
                self.bridge.handle_timeout(now);
            }
            Step::Connect { connection } => self.connect(connection),
            Step::Disconnect { connection } => CLIENT_CHANNELS
                .iter()
                .for_each(|channel| self.disconnect(connection, *channel)),
            Step::DisconnectOne { connection, choice } => {
                self.disconnect(connection, CLIENT_CHANNELS[(choice % 3) as usize]);
            }
            Step::Send { connection, kind } => self.send(connection, kind),
            Step::Flood { connection, count } => {
                for _ in 0..count {
                    self.send(connection, RequestKind::Complete);
                    self.act();
                }
            }
            Step::AnswerPrompt { connection } => self.answer_prompt(connection),
            Step::AgentCell => {
                self.agents += 1;
                if let Some(kernel) = &mut self.kernel {
                    kernel.take_agent_cell(self.agents);
                }
            }
            Step::FreezeKernel | Step::ThawKernel => {
                if let Some(kernel) = &mut self.kernel {
                    kernel.frozen = matches!(step, Step::FreezeKernel);
                }
            }
            Step::EndKernel { choice } => {
                if self.kernel.is_some() {
                    let after = match choice % 3 {
                        0 => Kernel::Awaited,
                        1 => Kernel::Died(ending()),
                        _ => Kernel::Ended(ending()),
                    };
                    self.end_kernel(after);
                }
            }
            Step::StartKernel => self.start_kernel(),
            Step::DropLink { choice } => {
                let sockets = self.sockets_where(|socket| socket.connected);
                if let Some(socket_id) = choose(&sockets, choice) {
                    let socket = self.sockets.get_mut(socket_id).expect("it was chosen");
                    let unsent = std::mem::take(socket).outbox.into();
                    self.bridge.link_down(&socket_id.0, socket_id.1, unsent);
                }
            }
            Step::FillLink { choice } => {
                let sockets = self.sockets_where(|socket| socket.up);
                if let Some(socket_id) = choose(&sockets, choice)
                    && socket_id.0.bytes() != "own"
                {
                    self.sockets.get_mut(socket_id).expect("it was chosen").full = true;
                }
            }
            Step::DropIopub => self.drop_iopub(),
            Step::DropIdle { choice } => self.drop_idle(choice),
            Step::StdinAbsent { choice } => {
                let mut sockets = self.sockets_where(|socket| !socket.connected);
                sockets.retain(|(_, channel)| *channel == Channel::Stdin);
                if let Some(socket_id) = choose(&sockets, choice) {
                    let now = self.now();
                    self.bridge.stdin_absent(now, &socket_id.0);
                }
            }
            Step::Interrupt => {
                let now = self.now();
                self.bridge.interrupt(now);
            }
            Step::CloseIdleLinks => self.bridge.close_idle_links(),
            Step::SlowRead => self.slow.read_all(),
            Step::SlowResubscribe => self.slow_resubscribes(),
        }
        self.act();
        self.check();
    }

    fn slow_resubscribes(&mut self) {
        let now = self.now();
        for message in self.slow.resubscribe(&mut self.bridge, now) {
            let header = message.header().expect("readable");
            self.check_session(&header.session);
        }
    }

    fn sockets_where(&self, matches: impl Fn(&Socket) -> bool) -> Vec<SocketId> {
        let sockets = self.sockets.iter().filter(|(_, socket)| matches(socket));
        sockets.map(|(socket_id, _)| socket_id.clone()).collect()
    }

    // ---- clients

    fn connect(&mut self, connection: usize) {
        let anonymous = self.connections[connection].id.is_anonymous();
        if anonymous {
            // An anonymous connection is never replaced, and cannot come back.
            CLIENT_CHANNELS
                .iter()
                .for_each(|channel| self.disconnect(connection, *channel));
            self.act();
            self.anonymous += 1;
            self.connections[connection].id = ClientId::new(format!("\0{}", self.anonymous).into());
        }
        let id = self.connections[connection].id.clone();
        for channel in CLIENT_CHANNELS {
            let socket_id = (id.clone(), channel);
            self.paused.remove(&socket_id);
            self.connected.insert(socket_id, connection);
            self.bridge.client_joined(channel, &id);
            self.act();
        }
    }

    fn disconnect(&mut self, connection: usize, channel: Channel) {
        let socket_id = (self.connections[connection].id.clone(), channel);
        // The late close of a connection that was replaced is not the end of the client's connection.
        if self.connected.get(&socket_id) == Some(&connection) {
            self.connected.remove(&socket_id);
            self.paused.remove(&socket_id);
            let now = self.now();
            self.bridge.client_left(now, channel, &socket_id.0);
        }
    }

    fn send(&mut self, connection: usize, kind: RequestKind) {
        let (channel, msg_type, content) = match kind {
            RequestKind::Cell => (Channel::Shell, "execute_request", json!({ "code": "x" })),
            RequestKind::Input => (
                Channel::Shell,
                "execute_request",
                json!({ "code": "input()" }),
            ),
            RequestKind::Silent => (
                Channel::Shell,
                "execute_request",
                json!({ "code": "x", "store_history": false }),
            ),
            RequestKind::Setup => (
                Channel::Shell,
                "execute_request",
                json!({ "code": setup(), "store_history": false }),
            ),
            RequestKind::Probe => (
                Channel::Shell,
                "execute_request",
                json!({ "code": PROBE, "store_history": false }),
            ),
            RequestKind::Complete | RequestKind::Nonsense => {
                (Channel::Shell, "complete_request", json!({}))
            }
            RequestKind::Info => (Channel::Shell, "kernel_info_request", json!({})),
            RequestKind::InfoOnControl => (Channel::Control, "kernel_info_request", json!({})),
            RequestKind::Interrupt => (Channel::Control, "interrupt_request", json!({})),
            RequestKind::Shutdown => (Channel::Control, "shutdown_request", json!({})),
            RequestKind::Comm => (Channel::Shell, "comm_msg", json!({ "comm_id": "1" })),
        };
        let socket_id = (self.connections[connection].id.clone(), channel);
        if self.connected.get(&socket_id) != Some(&connection) || self.paused.contains(&socket_id) {
            return;
        }
        let id = format!("m{}", self.records.len());
        let readable = !matches!(kind, RequestKind::Nonsense);
        let session = &self.connections[connection].session;
        let request = if readable {
            message(msg_type, &id, session, "{}".into(), &content)
        } else {
            nonsense()
        };
        self.records.push(RequestRecord {
            client: socket_id.0.clone(),
            channel,
            has_reply: msg_type.ends_with("_request"),
            readable,
            replies: 0,
            idles: 0,
            errors: 0,
            reached: false,
            // Without a kernel it is for the next one.
            generation: (msg_type == "execute_request")
                .then_some(self.generations + u64::from(self.kernel.is_none())),
            forgotten: false,
        });
        let now = self.now();
        self.bridge
            .client_message(now, channel, &socket_id.0, request);
    }

    /// Answers the oldest prompt, as a person does.
    fn answer_prompt(&mut self, connection: usize) {
        let socket_id = (self.connections[connection].id.clone(), Channel::Stdin);
        if self.connected.get(&socket_id) != Some(&connection) || self.paused.contains(&socket_id) {
            return;
        }
        let prompts = self.prompts.get_mut(&socket_id.0);
        if let Some(prompt) = prompts.and_then(VecDeque::pop_front) {
            let content = json!({ "value": "x" });
            let session = &self.connections[connection].session;
            let reply = message("input_reply", "i", session, prompt, &content);
            let now = self.now();
            self.bridge
                .client_message(now, Channel::Stdin, &socket_id.0, reply);
        }
    }

    // ---- the kernel

    fn start_kernel(&mut self) {
        let unsent = self.take_unsent();
        self.generations += 1;
        self.is_starting = false;
        let kernel = FakeKernel::new(self.generations);
        let live = Kernel::Live {
            generation: self.generations,
            interrupt: kernel.interrupt,
            info: (!self.generations.is_multiple_of(3))
                .then(|| br#"{"language_info":{}}"#[..].into()),
        };
        self.kernel = Some(kernel);
        let now = self.now();
        self.bridge.set_kernel(now, live, &ending(), unsent);
    }

    fn end_kernel(&mut self, after: Kernel) {
        let unsent = self.take_unsent();
        self.kernel = None;
        let now = self.now();
        self.bridge.set_kernel(now, after, &ending(), unsent);
    }

    /// Removes and returns the unwritten messages of all sockets, and closes the sockets.
    fn take_unsent(&mut self) -> Vec<(ClientId, Channel, Verified)> {
        let mut unsent = Vec::new();
        for ((client, channel), socket) in std::mem::take(&mut self.sockets) {
            let messages = socket.outbox.into_iter();
            unsent.extend(messages.map(|message| (client.clone(), channel, message)));
        }
        unsent.retain(|(client, _, _)| client.bytes() != "own");
        unsent
    }

    fn drop_iopub(&mut self) {
        if let Some(kernel) = &mut self.kernel
            && std::mem::take(&mut kernel.subscribed)
        {
            kernel.iopub.clear();
            self.bridge.iopub_down();
        }
    }

    /// Drops the `idle` of a request with a reply from iopub.
    fn drop_idle(&mut self, choice: u64) {
        let Some(kernel) = &mut self.kernel else {
            return;
        };
        // The bridge replaces the `idle` of requests on the main shell, for which cells wait. For a request
        // on control the reply is enough, and the order of its `idle` on iopub proves nothing.
        let records = &self.records;
        let is_idle = |message: &Verified| {
            let content: Value = serde_json::from_slice(message.content()).expect("JSON");
            let parent = message.parent().expect("readable");
            let has_reply = parent.msg_type.ends_with("_request") && parent.session != "agent";
            let number = parent_number(message).and_then(|number| records.get(number));
            let is_on_shell = number.is_none_or(|record| record.channel == Channel::Shell);
            content["execution_state"] == "idle" && has_reply && is_on_shell
        };
        let idles = kernel.iopub.iter().enumerate();
        let idles: Vec<_> = idles
            .filter(|(_, it)| is_idle(it))
            .map(|(at, _)| at)
            .collect();
        if let Some(at) = choice.checked_rem(idles.len() as u64) {
            kernel.iopub.remove(idles[at as usize]);
        }
    }

    /// Lets one pending event happen; returns whether there was one.
    fn run_next_event(&mut self, rng: &mut Rng) -> bool {
        let mut events = Vec::new();
        if self.is_starting {
            events.push(PendingEvent::Start);
        }
        if let Some(kernel) = &self.kernel {
            for (socket_id, socket) in &self.sockets {
                if !socket.connected {
                    events.push(PendingEvent::Connect(socket_id.clone()));
                } else if !socket.outbox.is_empty() {
                    events.push(PendingEvent::Write(socket_id.clone()));
                } else if !socket.up {
                    events.push(PendingEvent::Writable(socket_id.clone()));
                }
            }
            let replies = kernel.replies.iter();
            let replies = replies.filter(|(_, replies)| !replies.is_empty());
            events.extend(replies.map(|(socket_id, _)| PendingEvent::Reply(socket_id.clone())));
            for (is_possible, event) in [
                (!kernel.subscribed, PendingEvent::Subscribe),
                (!kernel.iopub.is_empty(), PendingEvent::Iopub),
                (kernel.can_work(), PendingEvent::Work),
                (kernel.can_answer_control(), PendingEvent::Control),
            ] {
                if is_possible {
                    events.push(event);
                }
            }
        }
        if events.is_empty() {
            return false;
        }
        let choice = rng.below(events.len() as u64) as usize;
        self.handle(events.swap_remove(choice));
        self.act();
        true
    }

    fn handle(&mut self, event: PendingEvent) {
        let now = self.now();
        if matches!(event, PendingEvent::Start) {
            return self.start_kernel();
        }
        let kernel = self.kernel.as_mut().expect("there is one to go on");
        match event {
            PendingEvent::Connect(socket_id) | PendingEvent::Writable(socket_id) => {
                let socket = self.sockets.get_mut(&socket_id).expect("it was there");
                (socket.connected, socket.up, socket.full) = (true, true, false);
                self.bridge.link_up(now, &socket_id.0, socket_id.1);
            }
            PendingEvent::Write(socket_id) => {
                let socket = self.sockets.get_mut(&socket_id).expect("it was there");
                if let Some(message) = socket.outbox.pop_front() {
                    self.write_to_kernel(socket_id, message);
                }
            }
            PendingEvent::Reply((client, channel)) => {
                let socket_id = (client, channel);
                let replies = kernel.replies.get_mut(&socket_id).expect("it was there");
                let message = replies.pop_front().expect("there is one");
                if client_is(&socket_id.0, "agent") || !self.sockets.contains_key(&socket_id) {
                    return;
                }
                self.bridge
                    .kernel_message(now, &socket_id.0, socket_id.1, message);
            }
            PendingEvent::Subscribe => {
                kernel.subscribed = true;
                self.bridge.iopub_up(now);
            }
            PendingEvent::Iopub => {
                let message = kernel.iopub.pop_front().expect("there is one");
                self.bridge.iopub_message(now, message);
            }
            PendingEvent::Work => kernel.work(),
            PendingEvent::Control => kernel.answer_control(),
            PendingEvent::Start => {}
        }
    }

    fn write_to_kernel(&mut self, socket_id: SocketId, message: Verified) {
        if let Some(number) = number(&message) {
            let record = &mut self.records[number];
            assert!(!record.reached, "m{number} reached a kernel twice");
            record.reached = true;
            assert!(
                record.generation.is_none_or(|it| it == self.generations),
                "m{number} runs on a kernel for which it was not made"
            );
            let before = self.reached.insert(socket_id.clone(), number);
            assert!(
                before < Some(number),
                "m{number} of {socket_id:?} came after {before:?}"
            );
        }
        let kernel = self.kernel.as_mut().expect("there is one to reach");
        kernel.receive(socket_id.0, socket_id.1, message);
    }

    // ---- the bridge

    fn act(&mut self) {
        while let Some(action) = self.bridge.poll_action() {
            let name = match &action {
                Action::Log(note) => variant_name(note),
                action => variant_name(action),
            };
            self.produced.insert(name);
            match action {
                Action::OpenLink { client, channel } => {
                    assert!(self.kernel.is_some(), "a link to no kernel");
                    let socket_id = (client, channel);
                    let twice = self.sockets.insert(socket_id.clone(), Socket::default());
                    assert!(twice.is_none(), "{socket_id:?} is opened twice");
                }
                Action::CloseLinks(client) => {
                    for channel in CLIENT_CHANNELS {
                        let socket_id = (client.clone(), channel);
                        let Some(socket) = self.sockets.remove(&socket_id) else {
                            continue;
                        };
                        for message in socket.outbox {
                            if socket.connected {
                                self.write_to_kernel(socket_id.clone(), message);
                            } else {
                                let lost = number(&message);
                                assert_eq!(lost, None, "a socket was closed over a request");
                            }
                        }
                    }
                }
                Action::ToKernel {
                    client,
                    channel,
                    message,
                } => self.send_to_kernel(&(client, channel), message),
                Action::ToClient {
                    client,
                    channel,
                    message,
                } => self.deliver((client, channel), &message),
                Action::Publish(message) => self.publish(&message),
                Action::Pause(client) | Action::Resume(client) if client.bytes() == "own" => {}
                Action::Pause(client) => {
                    for channel in CLIENT_CHANNELS {
                        let socket_id = (client.clone(), channel);
                        if self.connected.contains_key(&socket_id) {
                            self.paused.insert(socket_id);
                        }
                    }
                }
                Action::Resume(client) => self.paused.retain(|(id, _)| *id != client),
                Action::SignalKernel => {
                    if let Some(kernel) = &mut self.kernel {
                        kernel.interrupt();
                    }
                }
                Action::Revive { .. } => self.is_starting = true,
                Action::ExitWithKernel(_) => panic!("somebody could answer every cell"),
                Action::ResolveNotebook { .. } => {
                    let unsent = self.take_unsent();
                    self.kernel = None;
                    let now = self.now();
                    self.bridge.leave_kernel(now, &ending(), unsent);
                    self.is_starting = true;
                    // What the kernel has not got is for that of the named notebook.
                    let unsent = self.records.iter_mut().filter(|it| !it.reached);
                    unsent.for_each(|it| {
                        it.generation = it.generation.map(|_| self.generations + 1);
                    });
                }
                Action::Log(Note::Undeliverable {
                    client,
                    channel: Channel::Shell | Channel::Control,
                    count,
                }) => *self.dropped.entry(client).or_default() += count,
                Action::Log(Note::ClientGone(client)) => {
                    let records = self.records.iter_mut().filter(|it| it.client == client);
                    records.for_each(|it| it.forgotten |= it.idles == 0);
                }
                Action::Log(_)
                | Action::Editor { .. }
                | Action::Journal(_)
                | Action::Leave { .. }
                | Action::HandOver { .. }
                | Action::SessionSeen { .. }
                | Action::Facts { .. }
                | Action::IdleLost { .. }
                | Action::WidgetsVersion { .. }
                | Action::JournalInterrupt { .. } => {}
            }
        }
    }

    fn send_to_kernel(&mut self, socket_id: &SocketId, message: Verified) {
        let kernel = self.kernel.as_ref().expect("a message to no kernel");
        if number(&message).is_some() {
            assert!(kernel.subscribed, "a request before iopub is heard");
        }
        let Some(socket) = self.sockets.get_mut(socket_id) else {
            panic!("{socket_id:?} has no socket");
        };
        if socket.full && !socket.outbox.is_empty() {
            socket.up = false;
            self.bridge
                .link_down(&socket_id.0, socket_id.1, vec![message]);
        } else {
            socket.outbox.push_back(message);
        }
    }

    fn deliver(&mut self, socket_id: SocketId, message: &Verified) {
        let header = message.header().expect("readable");
        let is_connected = self.connected.contains_key(&socket_id);
        assert!(
            is_connected,
            "{} to {socket_id:?}, choice is not connected",
            header.msg_type
        );
        self.check_session(&header.session);
        let number = parent_number(message).expect("an answer to a client's request");
        let record = &mut self.records[number];
        assert_eq!(record.client, socket_id.0, "m{number} is another's");
        if socket_id.1 == Channel::Stdin {
            let prompts = self.prompts.entry(socket_id.0).or_default();
            return prompts.push_back(message.header_bytes().clone());
        }
        assert_eq!(
            record.channel, socket_id.1,
            "m{number} was sent on another channel"
        );
        record.replies += 1;
        assert_eq!(record.replies, 1, "m{number} is answered twice");
        if let Some(count) = kernel_message_number(&header.msg_id) {
            let before = self.delivered.insert(socket_id.clone(), count);
            assert!(
                before < Some(count),
                "replies to {socket_id:?} out of order"
            );
        }
    }

    fn publish(&mut self, message: &Verified) {
        let header = message.header().expect("readable");
        self.check_session(&header.session);
        if let Some(count) = kernel_message_number(&header.msg_id) {
            assert!(self.published < count, "iopub out of order");
            self.published = count;
        }
        let now = self.now();
        self.slow.receive(&mut self.bridge, now, message);
        let Some(number) = parent_number(message) else {
            return;
        };
        let record = &mut self.records[number];
        let content: Value = serde_json::from_slice(message.content()).expect("JSON");
        if content["execution_state"] == "idle" {
            record.idles += 1;
        }
        record.errors += usize::from(header.msg_type == "error");
        assert!(record.errors <= 1, "m{number} failed twice");
    }

    fn check_session(&mut self, session: &str) {
        let known = self.session.get_or_insert_with(|| session.to_owned());
        assert_eq!(known, session, "header.session changed");
    }

    fn advance(&mut self, time: Duration) {
        let end = self.clock + time;
        while let Some(due) = self.bridge.poll_timeout() {
            let due = due - self.start;
            if due > end {
                break;
            }
            self.clock = self.clock.max(due);
            let now = self.now();
            self.bridge.handle_timeout(now);
            self.act();
        }
        self.clock = end;
    }

    // ---- what must hold

    /// Checks that the bridge's tables agree with the simulated world.
    fn check(&self) {
        let live = matches!(self.bridge.kernel(), Kernel::Live { .. });
        let (clients, requests, _, timers) = self.bridge.parts();
        let mut waiting = HashMap::new();
        for id in &clients.ids() {
            let client = clients.snapshot(id);
            let mut held_bytes = 0;
            for state in &client.channels {
                let socket_id = (id.clone(), state.channel);
                let is_connected = self.connected.contains_key(&socket_id);
                assert_eq!(state.is_joined, is_connected, "{socket_id:?} is joined");
                let link = match self.sockets.get(&socket_id) {
                    None => Link::Closed,
                    Some(socket) if socket.up => Link::Up,
                    Some(_) if state.link == Link::Absent => Link::Absent,
                    Some(_) => Link::Opening,
                };
                assert_eq!(state.link, link, "{socket_id:?}");
                for (key, bytes) in &state.held {
                    held_bytes += bytes;
                    if let Some(key) = key {
                        *waiting.entry(key.clone()).or_insert(0) += 1;
                    }
                }
                let undelivered = state.undelivered;
                assert_eq!(state.undelivered_bytes, undelivered);
                assert!(
                    undelivered <= UNDELIVERED_BYTES,
                    "too much for {socket_id:?}"
                );
                assert!(
                    !is_connected || undelivered == 0,
                    "{socket_id:?} is there to take it"
                );
            }
            assert_eq!(client.held_bytes, held_bytes, "{id:?} has so much waiting");
            assert!(held_bytes <= 4 * HELD_BYTES, "too much of {id:?} waits");
            let (paused, joined) = (client.is_paused, client.is_joined);
            for channel in CLIENT_CHANNELS {
                let socket_id = (id.clone(), channel);
                if self.connected.contains_key(&socket_id) {
                    assert_eq!(
                        self.paused.contains(&socket_id),
                        paused,
                        "{socket_id:?} is read"
                    );
                }
            }
            assert!(
                !paused || held_bytes > HELD_BYTES / 2,
                "{id:?} waits for nothing"
            );
            let will_be_forgotten = timers.runs(&Timer::ForgetClient(id.clone()));
            assert_eq!(
                will_be_forgotten, !joined,
                "{id:?} is remembered for ever, or not at all"
            );
            let will_be_handed_over = timers.runs(&Timer::HandOver(id.clone()));
            assert!(!will_be_handed_over || !joined, "{id:?} is here");
            self.check_held(id);
        }
        let mut pending = HashMap::new();
        for key in requests.keys(|_| true) {
            let request = requests.get(&key).expect("it is there");
            let count = waiting.get(&key).copied().unwrap_or(0);
            assert!(clients.contains(&request.client), "{key:?} is of nobody");
            if request.sent {
                assert!(live, "{key:?} is with no kernel");
                assert_eq!(count, 0, "{key:?} waits, and was sent");
            } else {
                assert_eq!(count, 1, "{key:?} of {:?} waits nowhere", request.client);
            }
            if request.answer == Answer::FromKernel {
                *pending.entry(request.client.clone()).or_insert(0) += 1;
            }
        }
        for id in &clients.ids() {
            let pending = pending.get(id).copied().unwrap_or(0);
            assert_eq!(
                clients.outstanding_of(id),
                Some(pending),
                "{id:?} waits for so many"
            );
        }
        if let Some(kernel) = &self.kernel
            && kernel.subscribed
            && !self.bridge.is_iopub_proven()
        {
            assert!(timers.runs(&Timer::Probe), "nobody asks for iopub");
        }
    }

    fn check_held(&self, id: &ClientId) {
        if !self.bridge.is_usable() {
            return;
        }
        let (clients, requests, queue, _) = self.bridge.parts();
        for state in clients.snapshot(id).channels {
            let Some((key, _)) = state.held.first().filter(|_| state.is_linked) else {
                continue;
            };
            let role = key.as_ref().and_then(|key| requests.role(key));
            let runs = self.bridge.policies().turns && !queue.is_idle();
            assert!(
                runs && state.channel == Channel::Shell && role == Some(Role::Cell),
                "{key:?} of {id:?} could go"
            );
        }
    }

    /// Lets everything end, then checks what has become of each request.
    pub(super) fn settle(&mut self) {
        if let Some(kernel) = &mut self.kernel {
            kernel.frozen = false;
        } else if self.records.len().is_multiple_of(2) {
            self.start_kernel();
            self.act();
        }
        for connection in 0..CONNECTIONS {
            // A client that has lost only some of its sockets dials them again.
            let id = &self.connections[connection].id;
            let is_connected = self.connected.keys().any(|(client, _)| client == id);
            if is_connected || self.records.len() % 5 > connection {
                self.connect(connection);
                self.act();
            }
        }
        let mut rng = Rng::of(self.records.len() as u64);
        let end = self.clock + Duration::from_secs(600);
        for round in 0.. {
            assert!(
                round < ROUNDS,
                "it never ends: running: {:?}, prompted: {:?}, not read: {:?}; {:?}",
                self.bridge.parts().2,
                self.prompts.keys(),
                self.paused,
                self.bridge.parts().0
            );
            while self.run_next_event(&mut rng) {}
            self.check();
            // The bridge itself must answer the prompts of absent clients. A connection that is not read
            // until a kernel starts cannot answer before that.
            let is_read = |id: &ClientId| {
                let socket_id = (id.clone(), Channel::Stdin);
                self.connected.contains_key(&socket_id) && !self.paused.contains(&socket_id)
            };
            let can_answer =
                |(id, prompts): (&ClientId, &VecDeque<Bytes>)| is_read(id) && !prompts.is_empty();
            if self.prompts.iter().any(can_answer) {
                (0..CONNECTIONS).for_each(|connection| self.answer_prompt(connection));
                self.act();
                continue;
            }
            match self.bridge.poll_timeout() {
                Some(due) if due - self.start <= end => {
                    let due = (due - self.start).saturating_sub(self.clock);
                    self.advance(due);
                }
                Some(_) => break,
                None => break,
            }
            self.check();
        }
        self.slow_resubscribes();
        self.slow.read_all();
        self.check_settled();
    }

    fn check_settled(&mut self) {
        let kernel = self.bridge.kernel().clone();
        // A client that has lost only this socket may dial it again.
        for message in self.bridge.parts().0.all_undelivered() {
            let number = parent_number(message).expect("an answer to a client's request");
            self.records[number].replies += 1;
        }
        let mut missing: HashMap<ClientId, usize> = HashMap::new();
        for (number, record) in self.records.iter().enumerate().filter(|(_, a)| a.readable) {
            if record.has_reply && record.replies == 0 {
                *missing.entry(record.client.clone()).or_default() += 1;
                let dropped = self.dropped.get(&record.client).copied().unwrap_or(0);
                assert!(dropped > 0, "m{number} has no answer with {kernel:?}");
            }
            // No client gets status for a message without a reply that no kernel received. Nobody waits for the status
            // of a request on control whose client is gone.
            let must_become_idle = (record.has_reply || record.reached)
                && !(record.forgotten && record.channel == Channel::Control);
            assert!(
                record.idles > 0 || !must_become_idle,
                "m{number} never became idle with {kernel:?}"
            );
            assert!(
                record.idles == 0 || record.forgotten || self.slow.knows_end(number),
                "the cut subscriber got no idle for m{number}"
            );
        }
        for (client, missing) in missing {
            let dropped = self.dropped.get(&client).copied().unwrap_or(0);
            assert!(missing <= dropped, "{client:?} misses {missing} replies");
        }
        assert_eq!(self.bridge.outstanding(), 0, "somebody waits");
        // An answered request that the kernel still has may wait until its client dials that socket again.
        let needs_reply = |request: &Request| request.answer == Answer::FromKernel;
        let (clients, requests, queue, _) = self.bridge.parts();
        assert_eq!(requests.keys(needs_reply), []);
        assert!(queue.is_idle());
        let is_connected = |id: &ClientId| self.connected.keys().any(|(client, _)| client == id);
        for id in &clients.ids() {
            assert!(is_connected(id), "{id:?} is still remembered");
        }
        for (id, _) in self.sockets.keys() {
            assert!(
                is_connected(id) || client_is(id, "own"),
                "{id:?} keeps a socket"
            );
        }
        let left = self.bridge.poll_timeout();
        assert_eq!(left, None, "timers go on after {:?}", timer::REMEMBERED);
    }
}

/// The number of rounds in which all clients answer and time passes, before the test gives up.
const ROUNDS: usize = 10_000;

fn choose(sockets: &[SocketId], choice: u64) -> Option<&SocketId> {
    sockets.get(choice.checked_rem(sockets.len() as u64)? as usize)
}

fn client_is(id: &ClientId, name: &str) -> bool {
    id.bytes() == name
}

/// Returns the number of a client's request.
fn number(message: &Verified) -> Option<usize> {
    let header = message.header().ok()?;
    header.msg_id.strip_prefix('m')?.parse().ok()
}

pub(super) fn parent_number(message: &Verified) -> Option<usize> {
    let parent = message.parent().ok()?;
    parent.msg_id.strip_prefix('m')?.parse().ok()
}

fn kernel_message_number(msg_id: &str) -> Option<u64> {
    msg_id.strip_prefix('k')?.parse().ok()
}

/// Makes a signed message whose header cannot be read.
fn nonsense() -> Verified {
    let frames: [&[u8]; 6] = [crate::wire::DELIMITER, b"", b"[1]", b"{}", b"{}", b"{}"];
    let frames = frames.map(Bytes::copy_from_slice).to_vec();
    let key = crate::wire::SigningKey::new(b"");
    let message = crate::wire::Unverified::parse(frames).expect("whole");
    key.verify(message).expect("no key")
}

/// Returns code in the form of VS Code's start-up code that turns Jedi off.
fn setup() -> String {
    format!("{} = 1\n{}", startup::HELPER_FUNCTION, startup::JEDI_OFF)
}

const PROBE: &str = "import ipywidgets as _VSCODE_ipywidgets";
