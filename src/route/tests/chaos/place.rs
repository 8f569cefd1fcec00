//! The simulated world: the bridge, the front end's connections to it, and a kernel.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use super::super::super::clients::{Link, OWN_CHANNELS};
use super::super::super::request::{Answer, Request, Role};
use super::super::super::timer::Timer;
use super::super::super::{startup, timer};
use super::super::world::Rng;
use super::super::*;
use super::kernel::FakeKernel;
use super::slow::Slow;
use super::step::{Ask, LINES, Step};

/// How many bytes may wait for the kernel, and for a client that is disconnected: a few messages.
const HELD_BYTES: usize = 3_000;
const UNDELIVERED_BYTES: usize = 3_000;

type Way = (ClientId, Channel);

pub(super) struct Place {
    bridge: Bridge,
    start: Instant,
    clock: Duration,
    lines: Vec<Line>,
    /// The prompts of the kernel, by client: a window that reconnects still shows its prompt.
    prompts: HashMap<ClientId, VecDeque<Bytes>>,
    /// The line that holds the front sockets' connection for a client and channel.
    seats: HashMap<Way, usize>,
    /// The connections that are not being read.
    paused: HashSet<Way>,
    ways: BTreeMap<Way, Socket>,
    kernel: Option<FakeKernel>,
    lives: u64,
    agents: u64,
    /// Whether the kernel is being started.
    starts: bool,
    asked: Vec<Asked>,
    /// The number of the last request that reached a kernel, by socket.
    reached: HashMap<Way, usize>,
    /// The number of the kernel's last message that was published to clients.
    published: u64,
    delivered: HashMap<Way, u64>,
    session: Option<String>,
    /// How many replies were dropped according to the log, by client.
    dropped: HashMap<ClientId, usize>,
    anonymous: u64,
    slow: Slow,
}

/// One connection of a front end, with its own session.
struct Line {
    id: ClientId,
    session: String,
}

/// A socket to the kernel, as `nb-proxy` has it.
#[derive(Default)]
struct Socket {
    connected: bool,
    /// Whether the bridge was told that the socket is usable.
    up: bool,
    full: bool,
    outbox: VecDeque<Verified>,
}

struct Asked {
    client: ClientId,
    channel: Channel,
    has_reply: bool,
    readable: bool,
    replies: usize,
    idles: usize,
    errors: usize,
    reached: bool,
    /// Whether messages about it may be lost, because nothing was subscribed to iopub.
    unheard: bool,
    /// Whether its client was forgotten before it ended.
    forgotten: bool,
}

enum Move {
    Connect(Way),
    Room(Way),
    Write(Way),
    Reply(Way),
    Subscribe,
    Iopub,
    Work,
    Control,
    Start,
}

impl Place {
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
        let lines = ["a", "a", "b", "c", "\0"].map(|id| id.to_owned());
        let lines = lines.into_iter().enumerate().map(|(number, id)| Line {
            id: ClientId::new(id.into()),
            session: format!("session-{number}"),
        });
        let mut place = Self {
            bridge,
            start,
            clock: Duration::ZERO,
            lines: lines.collect(),
            prompts: HashMap::new(),
            seats: HashMap::new(),
            paused: HashSet::new(),
            ways: BTreeMap::new(),
            kernel: None,
            lives: 0,
            agents: 0,
            starts: false,
            asked: Vec::new(),
            reached: HashMap::new(),
            published: 0,
            delivered: HashMap::new(),
            session: None,
            dropped: HashMap::new(),
            anonymous: 0,
            slow: Slow::default(),
        };
        match rng.below(4) {
            0 => {}
            1 => {
                let now = place.now();
                let unnamed = Kernel::Unresolved { info: None };
                place.bridge.kernel_is(now, unnamed, &ending(), []);
            }
            _ => place.kernel_comes(),
        }
        place.join(2);
        place.act();
        place
    }

    fn now(&self) -> Now {
        Now {
            instant: self.start + self.clock,
            date: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    pub(super) fn take(&mut self, step: Step) {
        match step {
            Step::Flow { moves, order } => {
                let mut rng = Rng::of(order);
                for _ in 0..moves {
                    if !self.moves_on(&mut rng) {
                        break;
                    }
                }
            }
            Step::Pass { ms } => self.pass(Duration::from_millis(ms)),
            Step::Wakes { ms } => {
                self.clock += Duration::from_millis(ms);
                let now = self.now();
                self.bridge.handle_timeout(now);
            }
            Step::Join { line } => self.join(line),
            Step::Leave { line } => OWN_CHANNELS.iter().for_each(|on| self.leave(line, *on)),
            Step::LeaveOne { line, which } => {
                self.leave(line, OWN_CHANNELS[(which % 3) as usize]);
            }
            Step::Ask { line, what } => self.ask(line, what),
            Step::Flood { line, count } => {
                for _ in 0..count {
                    self.ask(line, Ask::Complete);
                    self.act();
                }
            }
            Step::Answers { line } => self.answer(line),
            Step::Agent => {
                self.agents += 1;
                if let Some(kernel) = &mut self.kernel {
                    kernel.agent(self.agents);
                }
            }
            Step::Freezes | Step::Thaws => {
                if let Some(kernel) = &mut self.kernel {
                    kernel.frozen = matches!(step, Step::Freezes);
                }
            }
            Step::KernelEnds { how } => {
                if self.kernel.is_some() {
                    let after = match how % 3 {
                        0 => Kernel::Awaited,
                        1 => Kernel::Died(ending()),
                        _ => Kernel::Ended(ending()),
                    };
                    self.kernel_ends(after);
                }
            }
            Step::KernelComes => self.kernel_comes(),
            Step::LinkDrops { which } => {
                let ways = self.ways_where(|socket| socket.connected);
                if let Some(way) = chosen(&ways, which) {
                    let socket = self.ways.get_mut(way).expect("it was chosen");
                    let unsent = std::mem::take(socket).outbox.into();
                    self.bridge.link_down(&way.0, way.1, unsent);
                }
            }
            Step::LinkFills { which } => {
                let ways = self.ways_where(|socket| socket.up);
                if let Some(way) = chosen(&ways, which)
                    && way.0.bytes() != "own"
                {
                    self.ways.get_mut(way).expect("it was chosen").full = true;
                }
            }
            Step::IopubDrops => self.iopub_drops(),
            Step::IdleDrops { which } => self.idle_drops(which),
            Step::StdinAbsent { which } => {
                let mut ways = self.ways_where(|socket| !socket.connected);
                ways.retain(|(_, channel)| *channel == Channel::Stdin);
                if let Some(way) = chosen(&ways, which) {
                    let now = self.now();
                    self.bridge.stdin_absent(now, &way.0);
                }
            }
            Step::Interrupts => {
                let now = self.now();
                self.bridge.interrupt(now);
            }
            Step::MakesRoom => self.bridge.close_idle_links(),
            Step::SlowReads => self.slow.reads(),
            Step::SlowReturns => self.slow_returns(),
        }
        self.act();
        self.check();
    }

    fn slow_returns(&mut self) {
        let now = self.now();
        for message in self.slow.returns(&mut self.bridge, now) {
            let header = message.header().expect("readable");
            self.sees_session(&header.session);
        }
    }

    fn ways_where(&self, wanted: impl Fn(&Socket) -> bool) -> Vec<Way> {
        let ways = self.ways.iter().filter(|(_, socket)| wanted(socket));
        ways.map(|(way, _)| way.clone()).collect()
    }

    // ---- clients

    fn join(&mut self, line: usize) {
        let anonymous = self.lines[line].id.is_anonymous();
        if anonymous {
            // An anonymous connection is never replaced, and cannot come back.
            OWN_CHANNELS.iter().for_each(|on| self.leave(line, *on));
            self.act();
            self.anonymous += 1;
            self.lines[line].id = ClientId::new(format!("\0{}", self.anonymous).into());
        }
        let id = self.lines[line].id.clone();
        for channel in OWN_CHANNELS {
            let way = (id.clone(), channel);
            self.paused.remove(&way);
            self.seats.insert(way, line);
            self.bridge.client_joined(channel, &id);
            self.act();
        }
    }

    fn leave(&mut self, line: usize, channel: Channel) {
        let way = (self.lines[line].id.clone(), channel);
        // The late close of a connection that was replaced is not the end of the client's connection.
        if self.seats.get(&way) == Some(&line) {
            self.seats.remove(&way);
            self.paused.remove(&way);
            let now = self.now();
            self.bridge.client_left(now, channel, &way.0);
        }
    }

    fn ask(&mut self, line: usize, what: Ask) {
        let (channel, msg_type, content) = match what {
            Ask::Cell => (Channel::Shell, "execute_request", json!({ "code": "x" })),
            Ask::Input => (
                Channel::Shell,
                "execute_request",
                json!({ "code": "input()" }),
            ),
            Ask::Silent => (
                Channel::Shell,
                "execute_request",
                json!({ "code": "x", "store_history": false }),
            ),
            Ask::Setup => (
                Channel::Shell,
                "execute_request",
                json!({ "code": setup(), "store_history": false }),
            ),
            Ask::Probe => (
                Channel::Shell,
                "execute_request",
                json!({ "code": PROBE, "store_history": false }),
            ),
            Ask::Complete | Ask::Nonsense => (Channel::Shell, "complete_request", json!({})),
            Ask::Info => (Channel::Shell, "kernel_info_request", json!({})),
            Ask::InfoOnControl => (Channel::Control, "kernel_info_request", json!({})),
            Ask::Interrupt => (Channel::Control, "interrupt_request", json!({})),
            Ask::Shutdown => (Channel::Control, "shutdown_request", json!({})),
            Ask::Comm => (Channel::Shell, "comm_msg", json!({ "comm_id": "1" })),
        };
        let way = (self.lines[line].id.clone(), channel);
        if self.seats.get(&way) != Some(&line) || self.paused.contains(&way) {
            return;
        }
        let id = format!("m{}", self.asked.len());
        let readable = !matches!(what, Ask::Nonsense);
        let session = &self.lines[line].session;
        let request = if readable {
            message(msg_type, &id, session, "{}".into(), &content)
        } else {
            nonsense()
        };
        self.asked.push(Asked {
            client: way.0.clone(),
            channel,
            has_reply: msg_type.ends_with("_request"),
            readable,
            replies: 0,
            idles: 0,
            errors: 0,
            reached: false,
            unheard: false,
            forgotten: false,
        });
        let now = self.now();
        self.bridge.client_message(now, channel, &way.0, request);
    }

    /// Answers the oldest prompt, as a person does.
    fn answer(&mut self, line: usize) {
        let way = (self.lines[line].id.clone(), Channel::Stdin);
        if self.seats.get(&way) != Some(&line) || self.paused.contains(&way) {
            return;
        }
        let prompts = self.prompts.get_mut(&way.0);
        if let Some(prompt) = prompts.and_then(VecDeque::pop_front) {
            let content = json!({ "value": "x" });
            let session = &self.lines[line].session;
            let reply = message("input_reply", "i", session, prompt, &content);
            let now = self.now();
            self.bridge
                .client_message(now, Channel::Stdin, &way.0, reply);
        }
    }

    // ---- the kernel

    fn kernel_comes(&mut self) {
        let unsent = self.unsent();
        self.lives += 1;
        self.starts = false;
        let kernel = FakeKernel::new(self.lives);
        let live = Kernel::Live {
            generation: self.lives,
            interrupt: kernel.interrupt,
            info: (!self.lives.is_multiple_of(3)).then(|| br#"{"language_info":{}}"#[..].into()),
        };
        self.kernel = Some(kernel);
        let now = self.now();
        self.bridge.kernel_is(now, live, &ending(), unsent);
    }

    fn kernel_ends(&mut self, after: Kernel) {
        let unsent = self.unsent();
        self.kernel = None;
        let now = self.now();
        self.bridge.kernel_is(now, after, &ending(), unsent);
    }

    /// Removes and returns the unwritten messages of all sockets, and closes the sockets.
    fn unsent(&mut self) -> Vec<(ClientId, Channel, Verified)> {
        let mut unsent = Vec::new();
        for ((client, channel), socket) in std::mem::take(&mut self.ways) {
            let messages = socket.outbox.into_iter();
            unsent.extend(messages.map(|message| (client.clone(), channel, message)));
        }
        unsent.retain(|(client, _, _)| client.bytes() != "own");
        unsent
    }

    fn iopub_drops(&mut self) {
        if let Some(kernel) = &mut self.kernel
            && std::mem::take(&mut kernel.subscribed)
        {
            kernel.iopub.clear();
            for asked in &mut self.asked {
                asked.unheard |= asked.reached && asked.idles == 0;
            }
            self.bridge.iopub_down();
        }
    }

    /// Drops the `idle` of a request with a reply from iopub.
    fn idle_drops(&mut self, which: u64) {
        let Some(kernel) = &mut self.kernel else {
            return;
        };
        // The bridge replaces the `idle` of requests on the main shell, for which cells wait. For a request
        // on control the reply is enough, and the order of its `idle` on iopub proves nothing.
        let asked = &self.asked;
        let is_end = |message: &Verified| {
            let content: Value = serde_json::from_slice(message.content()).expect("JSON");
            let parent = message.parent().expect("readable");
            let has_reply = parent.msg_type.ends_with("_request") && parent.session != "agent";
            let number = parents_number(message).and_then(|number| asked.get(number));
            let is_shells = number.is_none_or(|asked| asked.channel == Channel::Shell);
            content["execution_state"] == "idle" && has_reply && is_shells
        };
        let ends = kernel.iopub.iter().enumerate();
        let ends: Vec<_> = ends
            .filter(|(_, it)| is_end(it))
            .map(|(at, _)| at)
            .collect();
        if let Some(at) = which.checked_rem(ends.len() as u64) {
            kernel.iopub.remove(ends[at as usize]);
        }
    }

    /// Lets one pending event happen; returns whether there was one.
    fn moves_on(&mut self, rng: &mut Rng) -> bool {
        let mut moves = Vec::new();
        if self.starts {
            moves.push(Move::Start);
        }
        if let Some(kernel) = &self.kernel {
            for (way, socket) in &self.ways {
                if !socket.connected {
                    moves.push(Move::Connect(way.clone()));
                } else if !socket.outbox.is_empty() {
                    moves.push(Move::Write(way.clone()));
                } else if !socket.up {
                    moves.push(Move::Room(way.clone()));
                }
            }
            let replies = kernel.replies.iter();
            let replies = replies.filter(|(_, replies)| !replies.is_empty());
            moves.extend(replies.map(|(way, _)| Move::Reply(way.clone())));
            for (possible, then) in [
                (!kernel.subscribed, Move::Subscribe),
                (!kernel.iopub.is_empty(), Move::Iopub),
                (kernel.can_work(), Move::Work),
                (kernel.can_answer_control(), Move::Control),
            ] {
                if possible {
                    moves.push(then);
                }
            }
        }
        if moves.is_empty() {
            return false;
        }
        let which = rng.below(moves.len() as u64) as usize;
        self.make(moves.swap_remove(which));
        self.act();
        true
    }

    fn make(&mut self, chosen: Move) {
        let now = self.now();
        if matches!(chosen, Move::Start) {
            return self.kernel_comes();
        }
        let kernel = self.kernel.as_mut().expect("there is one to go on");
        match chosen {
            Move::Connect(way) | Move::Room(way) => {
                let socket = self.ways.get_mut(&way).expect("it was there");
                (socket.connected, socket.up, socket.full) = (true, true, false);
                self.bridge.link_up(now, &way.0, way.1);
            }
            Move::Write(way) => {
                let socket = self.ways.get_mut(&way).expect("it was there");
                if let Some(message) = socket.outbox.pop_front() {
                    self.reaches(way, message);
                }
            }
            Move::Reply((client, channel)) => {
                let way = (client, channel);
                let replies = kernel.replies.get_mut(&way).expect("it was there");
                let message = replies.pop_front().expect("there is one");
                if client_is(&way.0, "agent") || !self.ways.contains_key(&way) {
                    return;
                }
                self.bridge.kernel_message(now, &way.0, way.1, message);
            }
            Move::Subscribe => {
                kernel.subscribed = true;
                self.bridge.iopub_up(now);
            }
            Move::Iopub => {
                let message = kernel.iopub.pop_front().expect("there is one");
                self.bridge.iopub_message(now, message);
            }
            Move::Work => kernel.work(),
            Move::Control => kernel.answer_control(),
            Move::Start => {}
        }
    }

    fn reaches(&mut self, way: Way, message: Verified) {
        if let Some(number) = number(&message) {
            let asked = &mut self.asked[number];
            assert!(!asked.reached, "m{number} reached a kernel twice");
            asked.reached = true;
            let before = self.reached.insert(way.clone(), number);
            assert!(
                before < Some(number),
                "m{number} of {way:?} came after {before:?}"
            );
        }
        let kernel = self.kernel.as_mut().expect("there is one to reach");
        kernel.receive(way.0, way.1, message);
    }

    // ---- the bridge

    fn act(&mut self) {
        while let Some(action) = self.bridge.poll_action() {
            match action {
                Action::OpenLink { client, channel } => {
                    assert!(self.kernel.is_some(), "a link to no kernel");
                    let way = (client, channel);
                    let twice = self.ways.insert(way.clone(), Socket::default());
                    assert!(twice.is_none(), "{way:?} is opened twice");
                }
                Action::CloseLinks(client) => {
                    for channel in OWN_CHANNELS {
                        let way = (client.clone(), channel);
                        let Some(socket) = self.ways.remove(&way) else {
                            continue;
                        };
                        for message in socket.outbox {
                            if socket.connected {
                                self.reaches(way.clone(), message);
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
                } => self.sends(&(client, channel), message),
                Action::ToClient {
                    client,
                    channel,
                    message,
                } => self.delivers((client, channel), &message),
                Action::Publish(message) => self.publish(&message),
                Action::Pause(client) | Action::Resume(client) if client.bytes() == "own" => {}
                Action::Pause(client) => {
                    for channel in OWN_CHANNELS {
                        let way = (client.clone(), channel);
                        if self.seats.contains_key(&way) {
                            self.paused.insert(way);
                        }
                    }
                }
                Action::Resume(client) => self.paused.retain(|(id, _)| *id != client),
                Action::SignalKernel => {
                    if let Some(kernel) = &mut self.kernel {
                        kernel.interrupted();
                    }
                }
                Action::Revive { .. } => self.starts = true,
                Action::ExitWithKernel(_) => panic!("somebody could answer every cell"),
                Action::ResolveNotebook { .. } => {
                    let unsent = self.unsent();
                    self.kernel = None;
                    let now = self.now();
                    self.bridge
                        .kernel_is(now, Kernel::Awaited, &ending(), unsent);
                    self.starts = true;
                }
                Action::Log(Note::Undeliverable {
                    client,
                    channel: Channel::Shell | Channel::Control,
                    count,
                }) => *self.dropped.entry(client).or_default() += count,
                Action::Log(Note::ClientGone(client)) => {
                    let asked = self.asked.iter_mut().filter(|it| it.client == client);
                    asked.for_each(|it| it.forgotten |= it.idles == 0);
                }
                Action::Log(_)
                | Action::Journal(_)
                | Action::Leave { .. }
                | Action::HandOver { .. }
                | Action::SessionSeen { .. }
                | Action::IdleLost { .. }
                | Action::WidgetsVersion { .. }
                | Action::JournalInterrupt { .. } => {}
            }
        }
    }

    fn sends(&mut self, way: &Way, message: Verified) {
        let kernel = self.kernel.as_ref().expect("a message to no kernel");
        if number(&message).is_some() {
            assert!(kernel.subscribed, "a request before iopub is heard");
        }
        let Some(socket) = self.ways.get_mut(way) else {
            panic!("{way:?} has no socket");
        };
        if socket.full && !socket.outbox.is_empty() {
            socket.up = false;
            self.bridge.link_down(&way.0, way.1, vec![message]);
        } else {
            socket.outbox.push_back(message);
        }
    }

    fn delivers(&mut self, way: Way, message: &Verified) {
        let header = message.header().expect("readable");
        let there = self.seats.contains_key(&way);
        assert!(there, "{} to {way:?}, who is not there", header.msg_type);
        self.sees_session(&header.session);
        let number = parents_number(message).expect("an answer to a client's request");
        let asked = &mut self.asked[number];
        assert_eq!(asked.client, way.0, "m{number} is another's");
        if way.1 == Channel::Stdin {
            let prompts = self.prompts.entry(way.0).or_default();
            return prompts.push_back(message.header_bytes().clone());
        }
        assert_eq!(asked.channel, way.1, "m{number} was asked elsewhere");
        asked.replies += 1;
        assert_eq!(asked.replies, 1, "m{number} is answered twice");
        if let Some(count) = kernels_number(&header.msg_id) {
            let before = self.delivered.insert(way.clone(), count);
            assert!(before < Some(count), "replies to {way:?} out of order");
        }
    }

    fn publish(&mut self, message: &Verified) {
        let header = message.header().expect("readable");
        self.sees_session(&header.session);
        if let Some(count) = kernels_number(&header.msg_id) {
            assert!(self.published < count, "iopub out of order");
            self.published = count;
        }
        let now = self.now();
        self.slow.gets(&mut self.bridge, now, message);
        let Some(number) = parents_number(message) else {
            return;
        };
        let asked = &mut self.asked[number];
        let content: Value = serde_json::from_slice(message.content()).expect("JSON");
        if content["execution_state"] == "idle" {
            asked.idles += 1;
        }
        asked.errors += usize::from(header.msg_type == "error");
        assert!(asked.errors <= 1, "m{number} failed twice");
    }

    fn sees_session(&mut self, session: &str) {
        let known = self.session.get_or_insert_with(|| session.to_owned());
        assert_eq!(known, session, "header.session changed");
    }

    fn pass(&mut self, time: Duration) {
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
        let (clients, requests, _, timers) = self.bridge.books();
        let mut waiting = HashMap::new();
        for id in &clients.ids() {
            let client = clients.snapshot(id);
            let mut held_bytes = 0;
            for state in &client.channels {
                let way = (id.clone(), state.channel);
                let seated = self.seats.contains_key(&way);
                assert_eq!(state.is_joined, seated, "{way:?} is joined");
                let link = match self.ways.get(&way) {
                    None => Link::Closed,
                    Some(socket) if socket.up => Link::Up,
                    Some(_) if state.link == Link::Absent => Link::Absent,
                    Some(_) => Link::Opening,
                };
                assert_eq!(state.link, link, "{way:?}");
                for (key, bytes) in &state.held {
                    held_bytes += bytes;
                    if let Some(key) = key {
                        *waiting.entry(key.clone()).or_insert(0) += 1;
                    }
                }
                let undelivered = state.undelivered;
                assert_eq!(state.undelivered_bytes, undelivered);
                assert!(undelivered <= UNDELIVERED_BYTES, "too much for {way:?}");
                assert!(!seated || undelivered == 0, "{way:?} is there to take it");
            }
            assert_eq!(client.held_bytes, held_bytes, "{id:?} has so much waiting");
            assert!(held_bytes <= 4 * HELD_BYTES, "too much of {id:?} waits");
            let (paused, joined) = (client.is_paused, client.is_joined);
            for channel in OWN_CHANNELS {
                let way = (id.clone(), channel);
                if self.seats.contains_key(&way) {
                    assert_eq!(self.paused.contains(&way), paused, "{way:?} is read");
                }
            }
            assert!(
                !paused || held_bytes > HELD_BYTES / 2,
                "{id:?} waits for nothing"
            );
            let gone = timers.runs(&Timer::Gone(id.clone()));
            assert_eq!(
                gone, !joined,
                "{id:?} is remembered for ever, or not at all"
            );
            self.nothing_waits_that_could_go(id);
        }
        let mut owed = HashMap::new();
        for key in requests.keys(|_| true) {
            let request = requests.get(&key).expect("it is there");
            let times = waiting.get(&key).copied().unwrap_or(0);
            assert!(clients.contains(&request.client), "{key:?} is of nobody");
            if request.sent {
                assert!(live, "{key:?} is with no kernel");
                assert_eq!(times, 0, "{key:?} waits, and was sent");
            } else {
                assert_eq!(times, 1, "{key:?} of {:?} waits nowhere", request.client);
            }
            if request.answer == Answer::FromKernel {
                *owed.entry(request.client.clone()).or_insert(0) += 1;
            }
        }
        for id in &clients.ids() {
            let owed = owed.get(id).copied().unwrap_or(0);
            assert_eq!(
                clients.outstanding_of(id),
                Some(owed),
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

    fn nothing_waits_that_could_go(&self, id: &ClientId) {
        if !self.bridge.is_usable() {
            return;
        }
        let (clients, requests, queue, _) = self.bridge.books();
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
        } else if self.asked.len().is_multiple_of(2) {
            self.kernel_comes();
            self.act();
        }
        for line in 0..LINES {
            // A client that has lost only some of its sockets dials them again.
            let id = &self.lines[line].id;
            let here = self.seats.keys().any(|(seated, _)| seated == id);
            if here || self.asked.len() % 5 > line {
                self.join(line);
                self.act();
            }
        }
        let mut rng = Rng::of(self.asked.len() as u64);
        let end = self.clock + Duration::from_secs(600);
        for round in 0.. {
            assert!(
                round < ROUNDS,
                "it never ends: {:?} runs, {:?} is asked, {:?} is not read; {:?}",
                self.bridge.books().2,
                self.prompts.keys(),
                self.paused,
                self.bridge.books().0
            );
            while self.moves_on(&mut rng) {}
            self.check();
            // The bridge itself must answer the prompts of absent clients. A connection that is not read
            // until a kernel starts cannot answer before that.
            let there = |id: &ClientId| {
                let way = (id.clone(), Channel::Stdin);
                self.seats.contains_key(&way) && !self.paused.contains(&way)
            };
            let asked =
                |(id, prompts): (&ClientId, &VecDeque<Bytes>)| there(id) && !prompts.is_empty();
            if self.prompts.iter().any(asked) {
                (0..LINES).for_each(|line| self.answer(line));
                self.act();
                continue;
            }
            match self.bridge.poll_timeout() {
                Some(due) if due - self.start <= end => {
                    let due = (due - self.start).saturating_sub(self.clock);
                    self.pass(due);
                }
                Some(_) => break,
                None => break,
            }
            self.check();
        }
        self.slow_returns();
        self.slow.reads();
        self.is_settled();
    }

    fn is_settled(&mut self) {
        let kernel = self.bridge.kernel().clone();
        // A client that has lost only this socket may dial it again.
        for message in self.bridge.books().0.all_undelivered() {
            let number = parents_number(message).expect("an answer to a client's request");
            self.asked[number].replies += 1;
        }
        let mut missing: HashMap<ClientId, usize> = HashMap::new();
        for (number, asked) in self.asked.iter().enumerate().filter(|(_, a)| a.readable) {
            if asked.has_reply && asked.replies == 0 {
                *missing.entry(asked.client.clone()).or_default() += 1;
                let dropped = self.dropped.get(&asked.client).copied().unwrap_or(0);
                assert!(dropped > 0, "m{number} has no answer with {kernel:?}");
            }
            // No client gets status for a message without a reply that no kernel received.
            let told = asked.has_reply || asked.reached;
            assert!(
                asked.idles > 0 || !told,
                "m{number} never became idle with {kernel:?}"
            );
            assert!(
                asked.idles == 0 || asked.forgotten || self.slow.knows_end(number),
                "who was cut was not told that m{number} is over"
            );
        }
        for (client, missing) in missing {
            let dropped = self.dropped.get(&client).copied().unwrap_or(0);
            assert!(missing <= dropped, "{client:?} misses {missing} replies");
        }
        assert_eq!(self.bridge.outstanding(), 0, "somebody waits");
        // An answered request that the kernel still has may wait until its client dials that socket again.
        let owed = |request: &Request| request.answer == Answer::FromKernel;
        let (clients, requests, queue, _) = self.bridge.books();
        assert_eq!(requests.keys(owed), []);
        assert!(queue.is_idle());
        let here = |id: &ClientId| self.seats.keys().any(|(seated, _)| seated == id);
        for id in &clients.ids() {
            assert!(here(id), "{id:?} is still remembered");
        }
        for (id, _) in self.ways.keys() {
            assert!(here(id) || client_is(id, "own"), "{id:?} keeps a socket");
        }
        let left = self.bridge.poll_timeout();
        assert_eq!(left, None, "timers go on after {:?}", timer::GONE);
    }
}

/// The number of rounds in which all clients answer and time passes, before the test gives up.
const ROUNDS: usize = 10_000;

fn chosen(ways: &[Way], which: u64) -> Option<&Way> {
    ways.get(which.checked_rem(ways.len() as u64)? as usize)
}

fn client_is(id: &ClientId, name: &str) -> bool {
    id.bytes() == name
}

/// Returns which of the clients' requests this is.
fn number(message: &Verified) -> Option<usize> {
    let header = message.header().ok()?;
    header.msg_id.strip_prefix('m')?.parse().ok()
}

pub(super) fn parents_number(message: &Verified) -> Option<usize> {
    let parent = message.parent().ok()?;
    parent.msg_id.strip_prefix('m')?.parse().ok()
}

fn kernels_number(msg_id: &str) -> Option<u64> {
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
    format!("{} = 1\n{}", startup::INJECTS, startup::JEDI_OFF)
}

const PROBE: &str = "import ipywidgets as _VSCODE_ipywidgets";
