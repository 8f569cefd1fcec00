//! The bridge in a simulated world: several clients, several generations of the kernel, its own clock,
//! delays, connections that break, and messages on different sockets that overtake each other.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;

/// A small generator of random numbers; a failing test prints its seed.
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// An event at a certain time.
enum Event {
    /// A client's message arrives at the proxy.
    ClientMessage {
        client: usize,
        channel: Channel,
        message: Verified,
    },
    /// The proxy's socket has written a message; the kernel has it.
    MessageWritten {
        generation: u64,
        client: ClientId,
        channel: Channel,
    },
    /// A message of the kernel arrives at the proxy.
    KernelMessage {
        generation: u64,
        client: Option<ClientId>,
        channel: Channel,
        message: Verified,
    },
    LinkUp {
        generation: u64,
        client: ClientId,
        channel: Channel,
    },
    IopubUp {
        generation: u64,
    },
    /// A client outside this front end runs a cell on the kernel.
    AgentCell {
        duration: Duration,
    },
    KernelEnds {
        stopped: bool,
    },
    KernelStarts,
    ClientJoins {
        client: usize,
    },
    ClientLeaves {
        client: usize,
    },
}

struct World {
    seed: u64,
    rng: Rng,
    start: Instant,
    clock: Duration,
    bridge: Bridge,
    events: BTreeMap<(Duration, u64), Event>,
    count: u64,
    /// The time of the last event on each connection: messages on one connection stay in order.
    last: HashMap<String, Duration>,
    generation: u64,
    live: bool,
    subscribed: bool,
    /// Sent by the bridge, not yet written to the connection.
    outboxes: HashMap<(ClientId, Channel), VecDeque<Verified>>,
    links: HashSet<(ClientId, Channel)>,
    ready: HashSet<(ClientId, Channel)>,
    clients: Vec<ClientId>,
    requests: HashMap<String, (usize, Channel)>,
    reached: HashMap<String, u64>,
    replies: HashMap<String, Vec<String>>,
    errors: HashSet<String>,
    idle: HashMap<String, usize>,
    /// When the kernel's shell has finished its requests.
    shell_free: Duration,
    /// Whether the bridge knows that a cell from outside the front end runs.
    agent_runs: bool,
    /// The requests that the bridge may answer in the kernel's stead.
    answerable: HashSet<String>,
    /// Each message's parent and content.
    iopub_sent: Vec<(String, Bytes)>,
    iopub_seen: Vec<(String, Bytes)>,
    sessions: HashSet<String>,
    left: bool,
}

impl World {
    fn new(seed: u64, clients: usize) -> Self {
        let start = Instant::now();
        let now = Now {
            instant: start,
            date: jiff::Timestamp::UNIX_EPOCH,
        };
        let settings = Settings {
            id: "own".into(),
            held_bytes: 20_000,
            undelivered_bytes: 1 << 20,
            front_end: FrontEnd::Other,
        };
        Self {
            seed,
            rng: Rng::of(seed),
            start,
            clock: Duration::ZERO,
            bridge: Bridge::new(settings, now),
            events: BTreeMap::new(),
            count: 0,
            last: HashMap::new(),
            generation: 0,
            live: false,
            subscribed: false,
            outboxes: HashMap::new(),
            links: HashSet::new(),
            ready: HashSet::new(),
            clients: (0..clients)
                .map(|n| ClientId::new(format!("client-{n}").into()))
                .collect(),
            requests: HashMap::new(),
            reached: HashMap::new(),
            replies: HashMap::new(),
            errors: HashSet::new(),
            idle: HashMap::new(),
            shell_free: Duration::ZERO,
            agent_runs: false,
            answerable: HashSet::new(),
            iopub_sent: Vec::new(),
            iopub_seen: Vec::new(),
            sessions: HashSet::new(),
            left: false,
        }
    }

    fn now(&self) -> Now {
        Now {
            instant: self.start + self.clock,
            date: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    /// Schedules an event after a random delay, in order with the other events on its connection.
    fn schedule(&mut self, connection: &str, limit: Duration, event: Event) {
        self.schedule_from(self.clock, connection, limit, event);
    }

    fn schedule_from(&mut self, from: Duration, connection: &str, limit: Duration, event: Event) {
        let delay = Duration::from_micros(self.rng.below(limit.as_micros() as u64 + 1));
        let at = (from + delay).max(self.last.get(connection).copied().unwrap_or_default());
        self.last.insert(connection.to_owned(), at);
        self.count += 1;
        self.events.insert((at, self.count), event);
    }

    fn schedule_at(&mut self, at: Duration, event: Event) {
        self.count += 1;
        self.events.insert((at, self.count), event);
    }

    fn send(
        &mut self,
        at: Duration,
        client: usize,
        channel: Channel,
        msg_type: &str,
        content: &Value,
    ) -> String {
        let msg_id = format!("m{}", self.requests.len());
        let message = message(
            msg_type,
            &msg_id,
            &format!("session-{client}"),
            Bytes::from_static(b"{}"),
            content,
        );
        if matches!(msg_type, "kernel_info_request" | "interrupt_request") {
            self.answerable.insert(msg_id.clone());
        }
        self.requests.insert(msg_id.clone(), (client, channel));
        self.schedule_at(
            at,
            Event::ClientMessage {
                client,
                channel,
                message,
            },
        );
        msg_id
    }

    fn run(&mut self) {
        loop {
            self.act();
            let due = self.bridge.poll_timeout().map(|at| at - self.start);
            let next = self.events.first_key_value().map(|((at, _), _)| *at);
            match (next, due) {
                (None, None) => return,
                // The bridge's own timers go on for as long as a client is remembered.
                (None, Some(due)) => {
                    self.clock = self.clock.max(due);
                    self.bridge.handle_timeout(self.now());
                }
                (Some(next), Some(due)) if due <= next => {
                    self.clock = self.clock.max(due);
                    self.bridge.handle_timeout(self.now());
                }
                (Some(_), _) => {
                    let ((at, _), event) = self.events.pop_first().expect("there is one");
                    self.clock = self.clock.max(at);
                    self.handle(event);
                }
            }
        }
    }

    fn handle(&mut self, event: Event) {
        let now = self.now();
        match event {
            Event::ClientMessage {
                client,
                channel,
                message,
            } => {
                let id = self.clients[client].clone();
                self.bridge.client_message(now, channel, &id, message);
            }
            Event::ClientJoins { client } => {
                for channel in [Channel::Shell, Channel::Stdin, Channel::Control] {
                    self.bridge.client_joined(channel, &self.clients[client]);
                }
            }
            Event::ClientLeaves { client } => {
                for channel in [Channel::Shell, Channel::Stdin, Channel::Control] {
                    self.bridge.client_left(now, channel, &self.clients[client]);
                }
            }
            Event::LinkUp {
                generation,
                client,
                channel,
            } if generation == self.generation
                && self.live
                && self.links.contains(&(client.clone(), channel)) =>
            {
                self.ready.insert((client.clone(), channel));
                self.bridge.link_up(now, &client, channel);
                let queued = self
                    .outboxes
                    .get(&(client.clone(), channel))
                    .map_or(0, VecDeque::len);
                for _ in 0..queued {
                    self.write(client.clone(), channel);
                }
            }
            Event::IopubUp { generation } if generation == self.generation && self.live => {
                self.subscribed = true;
                self.bridge.iopub_up(now);
            }
            Event::MessageWritten {
                generation,
                client,
                channel,
            } if generation == self.generation && self.live => {
                if let Some(message) = self
                    .outboxes
                    .get_mut(&(client.clone(), channel))
                    .and_then(VecDeque::pop_front)
                {
                    self.kernel(&client, channel, &message);
                }
            }
            Event::KernelMessage {
                generation,
                client,
                channel,
                message,
            } if generation == self.generation && self.live => match client {
                Some(client) => self.bridge.kernel_message(now, &client, channel, message),
                None => {
                    let parent = message.parent().expect("readable");
                    if parent.session == "agent" {
                        let content: Value = serde_json::from_slice(message.content()).unwrap();
                        self.agent_runs = content["execution_state"] == "busy";
                    }
                    let parent = parent.msg_id.into_owned();
                    self.iopub_sent.push((parent, message.content().clone()));
                    self.bridge.iopub_message(now, message);
                }
            },
            Event::AgentCell { duration } if self.live => {
                self.count += 1;
                let id = format!("a{}", self.count);
                let cell = message("execute_request", &id, "agent", "{}".into(), &json!({}));
                let (begin, end) = self.shell(duration);
                self.publish(
                    begin,
                    &cell,
                    "status",
                    &json!({ "execution_state": "busy" }),
                );
                self.publish(end, &cell, "status", &json!({ "execution_state": "idle" }));
            }
            Event::KernelEnds { stopped } => self.end_kernel(stopped),
            Event::KernelStarts => {
                if self.live {
                    self.end_kernel(false);
                    self.act();
                }
                self.generation += 1;
                self.live = true;
                let kernel = Kernel::Live {
                    generation: self.generation,
                    interrupt: Interrupt::Message,
                    info: Some(Bytes::from_static(br#"{"status":"ok","language_info":{}}"#)),
                };
                self.shell_free = self.clock;
                self.bridge.set_kernel(now, kernel, &ending(), []);
                self.schedule(
                    "iopub",
                    30 * MS,
                    Event::IopubUp {
                        generation: self.generation,
                    },
                );
            }
            _ => {} // from an earlier generation
        }
    }

    fn end_kernel(&mut self, stopped: bool) {
        self.live = false;
        self.subscribed = false;
        self.agent_runs = false;
        self.links.clear();
        self.ready.clear();
        let mut unsent = Vec::new();
        for ((client, channel), messages) in self.outboxes.drain() {
            unsent.extend(
                messages
                    .into_iter()
                    .map(|message| (client.clone(), channel, message)),
            );
        }
        let own = ClientId::new("own".into());
        unsent.retain(|(client, _, _)| *client != own);
        let kernel = if stopped {
            Kernel::Ended(ending())
        } else {
            Kernel::Awaited
        };
        self.bridge
            .set_kernel(self.now(), kernel, &ending(), unsent);
    }

    fn write(&mut self, client: ClientId, channel: Channel) {
        let connection = format!("to {client} {channel} {}", self.generation);
        self.schedule(
            &connection,
            5 * MS,
            Event::MessageWritten {
                generation: self.generation,
                client,
                channel,
            },
        );
    }

    /// Acts as the kernel: answers every request, and publishes its status.
    fn kernel(&mut self, client: &ClientId, channel: Channel, request: &Verified) {
        let header = request
            .header()
            .expect("the test's own headers are readable");
        let (msg_id, msg_type) = (
            header.msg_id.clone().into_owned(),
            header.msg_type.clone().into_owned(),
        );
        if self.requests.contains_key(&msg_id) {
            let before = self.reached.insert(msg_id.clone(), self.generation);
            assert_eq!(
                before, None,
                "seed {}: {msg_id} reached two kernels",
                self.seed
            );
            assert!(
                self.subscribed,
                "seed {}: {msg_id} was sent before iopub",
                self.seed
            );
        }
        let duration = match &*msg_type {
            "execute_request" => Duration::from_millis(self.rng.below(12)),
            _ => Duration::ZERO,
        };
        let (begin, end) = match channel {
            Channel::Shell => self.shell(duration),
            _ => (self.clock, self.clock),
        };
        let n = self.count;
        let state = |state: &str| json!({ "execution_state": state, "n": n });
        self.publish(begin, request, "status", &state("busy"));
        if msg_type == "execute_request" {
            let content = json!({ "name": "stdout", "text": format!("{msg_id} {n}") });
            self.publish(begin, request, "stream", &content);
        }
        self.publish(end, request, "status", &state("idle"));
        let reply_type = msg_type.replace("_request", "_reply");
        let reply = message(
            &reply_type,
            &format!("r{n}"),
            &format!("kernel-{}", self.generation),
            request.header_bytes().clone(),
            &json!({ "status": "ok" }),
        );
        let event = Event::KernelMessage {
            generation: self.generation,
            client: Some(client.clone()),
            channel,
            message: reply,
        };
        let connection = format!("from {client} {channel} {}", self.generation);
        self.schedule_from(end, &connection, 8 * MS, event);
    }

    /// Runs requests on the kernel's shell one after the other; returns when this one begins and ends.
    fn shell(&mut self, duration: Duration) -> (Duration, Duration) {
        let begin = self.shell_free.max(self.clock);
        self.shell_free = begin + duration;
        (begin, self.shell_free)
    }

    /// Publishes a message to the subscribers.
    fn publish(&mut self, at: Duration, parent: &Verified, msg_type: &str, content: &Value) {
        if !self.subscribed {
            return;
        }
        self.count += 1;
        let message = message(
            msg_type,
            &format!("k{}", self.count),
            &format!("kernel-{}", self.generation),
            parent.header_bytes().clone(),
            content,
        );
        let event = Event::KernelMessage {
            generation: self.generation,
            client: None,
            channel: Channel::Iopub,
            message,
        };
        self.schedule_from(at, &format!("iopub {}", self.generation), 8 * MS, event);
    }

    fn act(&mut self) {
        while let Some(action) = self.bridge.poll_action() {
            match action {
                Action::OpenLink { client, channel } => {
                    assert!(self.live, "seed {}: a link to no kernel", self.seed);
                    self.links.insert((client.clone(), channel));
                    let event = Event::LinkUp {
                        generation: self.generation,
                        client: client.clone(),
                        channel,
                    };
                    self.schedule(&format!("link {client} {channel}"), 30 * MS, event);
                }
                Action::CloseLinks(client) => {
                    self.links.retain(|(other, _)| *other != client);
                    self.ready.retain(|(other, _)| *other != client);
                }
                Action::ToKernel {
                    client,
                    channel,
                    message,
                } => {
                    assert!(self.live, "seed {}: a message to no kernel", self.seed);
                    let header = message.header().expect("readable");
                    assert!(
                        !(self.agent_runs && header.msg_type == "execute_request"),
                        "seed {}: {} did not wait its turn",
                        self.seed,
                        header.msg_id
                    );
                    let link = (client.clone(), channel);
                    assert!(
                        self.links.contains(&link),
                        "seed {}: no link for {link:?}",
                        self.seed
                    );
                    self.outboxes
                        .entry(link.clone())
                        .or_default()
                        .push_back(message);
                    if self.ready.contains(&link) {
                        self.write(client, channel);
                    }
                }
                Action::ToClient {
                    client,
                    channel,
                    message,
                } => {
                    let header = message.header().expect("readable");
                    self.sessions.insert(header.session.clone().into_owned());
                    let parent = message.parent().expect("readable").msg_id.into_owned();
                    let (client_number, request_channel) = self.requests[&parent];
                    assert_eq!(
                        self.clients[client_number], client,
                        "seed {}: a reply to the wrong client",
                        self.seed
                    );
                    assert_eq!(
                        request_channel, channel,
                        "seed {}: a reply on the wrong channel",
                        self.seed
                    );
                    let content: Value = serde_json::from_slice(message.content()).expect("JSON");
                    let status = content["status"].as_str().expect("a status").to_owned();
                    self.replies.entry(parent).or_default().push(status);
                }
                Action::Publish(message) => {
                    let header = message.header().expect("readable");
                    self.sessions.insert(header.session.clone().into_owned());
                    let parent = message.parent().expect("readable").msg_id.into_owned();
                    let content: Value = serde_json::from_slice(message.content()).expect("JSON");
                    match (&*header.msg_type, content["execution_state"].as_str()) {
                        ("error", _) => {
                            assert!(
                                self.errors.insert(parent.clone()),
                                "seed {}: two errors",
                                self.seed
                            );
                        }
                        (_, Some("idle")) => *self.idle.entry(parent.clone()).or_default() += 1,
                        _ => {}
                    }
                    if !header.msg_id.starts_with("own") {
                        self.iopub_seen.push((parent, message.content().clone()));
                    }
                }
                Action::Leave { .. } => self.left = true,
                Action::SignalKernel
                | Action::Editor { .. }
                | Action::Pause(_)
                | Action::Resume(_)
                | Action::Journal(_)
                | Action::SessionSeen { .. }
                | Action::Facts { .. }
                | Action::IdleLost { .. }
                | Action::HandOver { .. }
                | Action::WidgetsVersion { .. }
                | Action::ResolveNotebook { .. }
                | Action::Revive { .. }
                | Action::ExitWithKernel(_)
                | Action::JournalInterrupt { .. }
                | Action::Log(_) => {}
            }
        }
    }

    /// Checks what must be true once no event is left.
    fn check_settled(&mut self) {
        let seed = self.seed;
        assert_eq!(self.bridge.outstanding(), 0, "seed {seed}");
        for id in self.requests.keys() {
            let replies = self.replies.get(id).cloned().unwrap_or_default();
            assert_eq!(replies.len(), 1, "seed {seed}: {id} got {replies:?}");
            assert!(
                self.idle.get(id).is_some_and(|idle| *idle >= 1),
                "seed {seed}: {id} never became idle"
            );
            if !self.reached.contains_key(id) && !self.answerable.contains(id) {
                assert_eq!(replies, ["error"], "seed {seed}: {id} reached no kernel");
            }
        }
        // The kernel's messages for requests that were answered early or withdrawn are dropped.
        let is_dropped = |id: &str| {
            let failed = self
                .replies
                .get(id)
                .is_some_and(|replies| replies == &["error"]);
            self.answerable.contains(id) || failed && self.reached.contains_key(id)
        };
        let passed_on = |messages: &[(String, Bytes)]| -> Vec<Bytes> {
            let passed_on = messages.iter().filter(|(parent, _)| !is_dropped(parent));
            passed_on.map(|(_, content)| content.clone()).collect()
        };
        assert_eq!(
            passed_on(&self.iopub_sent),
            passed_on(&self.iopub_seen),
            "seed {seed}: iopub"
        );
        assert!(
            self.sessions.len() <= 1,
            "seed {seed}: clients saw the sessions {:?}",
            self.sessions
        );
    }
}

#[test]
fn nothing_is_lost_doubled_or_misdirected_in_200_worlds() {
    for seed in 1..=200 {
        let mut world = World::new(seed, 4);
        let generations = 1 + world.rng.below(4);
        for generation in 0..generations {
            let begin = Duration::from_millis(400) * generation as u32;
            let delay = Duration::from_millis(world.rng.below(60));
            world.schedule_at(begin + delay, Event::KernelStarts);
            if generation + 1 < generations {
                let stopped = world.rng.below(2) == 0;
                let end = begin + Duration::from_millis(100 + world.rng.below(250));
                world.schedule_at(end, Event::KernelEnds { stopped });
            }
        }
        for client in 0..world.clients.len() {
            world.schedule_at(
                Duration::from_millis(client as u64 * 7),
                Event::ClientJoins { client },
            );
        }
        for _ in 0..200 {
            let client = world.rng.below(4) as usize;
            let at = Duration::from_millis(30 + world.rng.below(400 * generations));
            let (channel, msg_type) = match world.rng.below(24) {
                0 => (Channel::Control, "interrupt_request"),
                1..4 => (Channel::Control, "kernel_info_request"),
                4..6 => (Channel::Shell, "kernel_info_request"),
                6..12 => (Channel::Shell, "complete_request"),
                _ => (Channel::Shell, "execute_request"),
            };
            world.send(at, client, channel, msg_type, &json!({ "code": "x" }));
        }
        for _ in 0..world.rng.below(4) * generations {
            let at = Duration::from_millis(30 + world.rng.below(400 * generations));
            let duration = Duration::from_millis([5, 60, 300][world.rng.below(3) as usize]);
            world.schedule_at(at, Event::AgentCell { duration });
        }
        world.run();
        world.check_settled();
    }
}

#[test]
fn a_client_that_reconnects_gets_its_replies_and_one_that_does_not_is_forgotten() {
    let mut world = World::new(1, 2);
    world.schedule_at(Duration::ZERO, Event::KernelStarts);
    for client in 0..2 {
        world.schedule_at(MS, Event::ClientJoins { client });
        world.send(
            100 * MS,
            client,
            Channel::Shell,
            "execute_request",
            &json!({ "code": "x" }),
        );
        world.schedule_at(101 * MS, Event::ClientLeaves { client });
    }
    world.schedule_at(200 * MS, Event::ClientJoins { client: 0 });
    world.run();
    assert_eq!(world.replies.get("m0").map(Vec::len), Some(1));
    assert_eq!(world.replies.get("m1"), None, "its client never came back");
    assert_eq!(world.bridge.joined().count(), 1);
    assert!(
        world.clock >= Duration::from_secs(30),
        "it was remembered for 30 s"
    );
}
