//! A client, a bridge, a server and a kernel in a simulated world, in which connections are lost at random.

use std::collections::{HashMap, VecDeque};

use jiff::Zoned;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::*;

/// A sequence of random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        // xorshift64
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// A cell that the kernel runs: it prints some lines, and may end with an error.
#[derive(Clone, Copy)]
struct Cell {
    lines: u64,
    fails: bool,
}

/// A kernel behind a server.
struct Kernel {
    /// Whether its message ids have numbers, as ipykernel's have.
    is_numbered: bool,
    count: u64,
    queue: VecDeque<Verified>,
    /// The request that it runs, and the line that it prints next.
    running: Option<(Verified, u64)>,
    /// How often it ran each request.
    runs: HashMap<String, u64>,
}

impl Kernel {
    fn message(&mut self, msg_type: &str, parent: &Verified, content: &Value) -> Verified {
        self.count += 1;
        let id = match self.is_numbered {
            true => format!("k_7_{}", self.count),
            false => format!("m{}", self.count),
        };
        message(
            &now(),
            "k",
            msg_type,
            &id,
            parent.header_bytes().clone(),
            content,
        )
    }

    /// Handles one step of a request; returns the messages that it publishes.
    fn step(&mut self) -> Vec<(Channel, Verified)> {
        let Some((request, line)) = self.running.take() else {
            let Some(request) = self.queue.pop_front() else {
                return Vec::new();
            };
            let busy = self.message("status", &request, &json!({"execution_state": "busy"}));
            let id = request.header().unwrap().msg_id.into_owned();
            *self.runs.entry(id).or_default() += 1;
            let input = self.message("execute_input", &request, &json!({"execution_count": 1}));
            self.running = Some((request, 0));
            return vec![(Channel::Iopub, busy), (Channel::Iopub, input)];
        };
        let cell: Value = request.read_content().unwrap();
        if line < cell["lines"].as_u64().unwrap_or(0) {
            let text = json!({"name": "stdout", "text": format!("{line}\n")});
            let stream = self.message("stream", &request, &text);
            self.running = Some((request, line + 1));
            return vec![(Channel::Iopub, stream)];
        }
        let mut messages = Vec::new();
        let mut content = json!({"status": "ok"});
        if cell["fails"] == true {
            let error = json!({"ename": "E", "evalue": "", "traceback": []});
            messages.push((Channel::Iopub, self.message("error", &request, &error)));
            content = json!({"status": "error", "ename": "E"});
        }
        let reply = request
            .header()
            .unwrap()
            .msg_type
            .replace("_request", "_reply");
        messages.push((Channel::Shell, self.message(&reply, &request, &content)));
        let idle = json!({"execution_state": "idle"});
        messages.push((Channel::Iopub, self.message("status", &request, &idle)));
        messages
    }
}

/// All parts of the world.
struct World {
    random: Random,
    table: RequestTable,
    kernel: Kernel,
    is_up: bool,
    /// The messages in transit over the connection.
    to_server: VecDeque<Verified>,
    to_bridge: VecDeque<(Channel, Verified)>,
    /// The messages that the server stores while there is no connection.
    stored: VecDeque<(Channel, Verified)>,
    /// The messages that the client has received, by request.
    received: HashMap<String, Vec<(Channel, Verified)>>,
    /// How many messages of the kernel about a cell were lost with a connection.
    lost: u64,
}

fn now() -> Zoned {
    jiff::Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC)
}

impl World {
    fn new(seed: u64, is_numbered: bool) -> Self {
        Self {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            table: RequestTable::new("gpu", "bridge"),
            kernel: Kernel {
                is_numbered,
                count: 0,
                queue: VecDeque::new(),
                running: None,
                runs: HashMap::new(),
            },
            is_up: false,
            to_server: VecDeque::new(),
            to_bridge: VecDeque::new(),
            stored: VecDeque::new(),
            received: HashMap::new(),
            lost: 0,
        }
    }

    fn send(&mut self, id: &str, cell: Cell) {
        let content = json!({"lines": cell.lines, "fails": cell.fails});
        let no_parent = Bytes::from_static(b"{}");
        let request = message(&now(), "c", "execute_request", id, no_parent, &content);
        let client = Bytes::from_static(b"client");
        let steps = self.table.client_message(Channel::Shell, &client, request);
        self.perform(steps);
    }

    fn perform(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Send(_, message) => {
                    assert!(self.is_up, "nothing is sent without a connection");
                    self.to_server.push_back(message);
                }
                Step::Reply(channel, client, message) => {
                    assert_eq!(client, "client");
                    self.receive(channel, message);
                }
                Step::Publish(message) => self.receive(Channel::Iopub, message),
                Step::ReplyToSession(..) => panic!("the bridge knows the client of each request"),
                Step::KernelEnded(reason) => panic!("{reason}"),
            }
        }
    }

    fn receive(&mut self, channel: Channel, message: Verified) {
        let parent = message.parent().unwrap().msg_id.into_owned();
        self.received
            .entry(parent)
            .or_default()
            .push((channel, message));
    }

    fn connect(&mut self) {
        self.is_up = true;
        // The stored messages come first.
        self.to_bridge.extend(self.stored.drain(..));
        let steps = self.table.connected(&now());
        self.perform(steps);
    }

    /// Loses the connection, and with it some of the messages in transit.
    fn lose_connection(&mut self) {
        let count = self.random.below(self.to_server.len() as u64 + 1);
        let arriving: Vec<_> = self.to_server.drain(..).take(count as usize).collect();
        self.kernel.queue.extend(arriving);
        let count = self.random.below(self.to_bridge.len() as u64 + 1) as usize;
        let mut in_transit: Vec<_> = self.to_bridge.drain(..).collect();
        let lost = in_transit.split_off(count);
        self.lost += lost.len() as u64;
        for (channel, message) in in_transit {
            let steps = self.table.kernel_message(&now(), channel, message);
            self.perform(steps);
        }
        self.to_server.clear();
        self.is_up = false;
        self.table.disconnected(&now());
    }

    /// Runs one random event.
    fn step(&mut self, may_cut: bool) {
        match self.random.below(if may_cut { 12 } else { 10 }) {
            0..=3 => {
                let messages = self.kernel.step();
                match self.is_up {
                    true => self.to_bridge.extend(messages),
                    false => self.stored.extend(messages),
                }
            }
            4..=6 => {
                if self.is_up
                    && let Some(request) = self.to_server.pop_front()
                {
                    self.kernel.queue.push_back(request);
                }
            }
            7..=9 => {
                if let Some((channel, message)) = self.to_bridge.pop_front() {
                    let steps = self.table.kernel_message(&now(), channel, message);
                    self.perform(steps);
                }
            }
            _ if self.is_up => self.lose_connection(),
            _ => self.connect(),
        }
    }

    fn is_quiet(&self) -> bool {
        self.is_up
            && self.to_server.is_empty()
            && self.to_bridge.is_empty()
            && self.kernel.queue.is_empty()
            && self.kernel.running.is_none()
    }
}

/// Returns whether the bridge has received a message of the kernel before the first cell.
fn knows_numbers(seed: u64) -> bool {
    seed % 2 == 1
}

/// Runs a world to its end.
fn run(seed: u64, is_numbered: bool) -> (World, HashMap<String, Cell>) {
    let mut world = World::new(seed, is_numbered);
    world.connect();
    if knows_numbers(seed) {
        let no_parent = message(
            &now(),
            "s",
            "none",
            "n",
            Bytes::from_static(b"{}"),
            &json!({}),
        );
        let busy = json!({"execution_state": "busy"});
        let status = world.kernel.message("status", &no_parent, &busy);
        let steps = world.table.kernel_message(&now(), Channel::Iopub, status);
        world.perform(steps);
    }
    let mut cells = HashMap::new();
    for number in 0..4 + seed % 5 {
        let cell = Cell {
            lines: world.random.below(6),
            fails: world.random.below(4) == 0,
        };
        let id = format!("r{number}");
        world.send(&id, cell);
        cells.insert(id, cell);
        for _ in 0..world.random.below(30) {
            world.step(true);
        }
    }
    for _ in 0..world.random.below(40) {
        world.step(true);
    }
    if !world.is_up {
        world.connect();
    }
    for _ in 0..10_000 {
        if world.is_quiet() && world.table.requests.is_empty() {
            break;
        }
        world.step(false);
    }
    (world, cells)
}

fn count(messages: &[(Channel, Verified)], matches: impl Fn(&str, &Verified) -> bool) -> usize {
    let matches =
        |(_, message): &&(Channel, Verified)| matches(&message.header().unwrap().msg_type, message);
    messages.iter().filter(matches).count()
}

/// Returns the text of the lines that a cell has printed, and that of notes.
fn texts(messages: &[(Channel, Verified)]) -> (String, String) {
    let mut texts = (String::new(), String::new());
    for (_, message) in messages {
        let content: Value = message.read_content().unwrap();
        let text = content["text"].as_str().unwrap_or_default();
        match content["name"].as_str() {
            Some("stdout") => texts.0 += text,
            Some("stderr") => texts.1 += text,
            _ => {}
        }
    }
    texts
}

#[test]
fn each_request_runs_and_ends_once_and_missing_messages_are_reported() {
    let seeds = std::env::var("NB_BRIDGE_SEEDS").ok();
    let seeds = seeds.and_then(|it| it.parse().ok()).unwrap_or(3000);
    for seed in 0..seeds {
        let (world, cells) = run(seed, true);
        for (id, cell) in &cells {
            let runs = world.kernel.runs.get(id).copied().unwrap_or(0);
            assert!(runs <= 1, "seed {seed}: {id} ran {runs} times");
            let received = world.received.get(id).map_or(&[][..], |it| it);
            let replies = count(received, |kind, _| kind == "execute_reply");
            assert_eq!(replies, 1, "seed {seed}: {id} has {replies} replies");
            let idles = count(received, |_, message| {
                message.execution_state().as_deref() == Some("idle")
            });
            assert_eq!(idles, 1, "seed {seed}: {id} is idle {idles} times");
            let is_unknown = count(received, |_, message| {
                let content: Value = message.read_content().unwrap();
                content["ename"] == "ConnectionLost"
            });
            let errors = count(received, |kind, _| kind == "error");
            let (lines, notes) = texts(received);
            let expected_lines: String = (0..cell.lines).map(|line| format!("{line}\n")).collect();
            let is_reported = is_unknown > 0 || !notes.is_empty();
            if world.lost == 0 && knows_numbers(seed) {
                assert!(!is_reported, "seed {seed}: of {id} nothing was lost");
            }
            if lines != expected_lines {
                assert!(is_reported, "seed {seed}: lines of {id} are missing");
                let mut expected = expected_lines.lines();
                let in_order = lines.lines().all(|line| expected.any(|it| it == line));
                assert!(in_order, "seed {seed}: {id} printed {lines:?}");
            } else if is_unknown == 0 {
                assert_eq!(runs, 1, "seed {seed}: {id} did not run");
                assert!(errors <= usize::from(cell.fails), "seed {seed}: {id}");
            }
        }
    }
}

#[test]
fn without_message_numbers_no_request_is_sent_twice() {
    for seed in 0..1000 {
        let (world, cells) = run(seed, false);
        for id in cells.keys() {
            let runs = world.kernel.runs.get(id).copied().unwrap_or(0);
            assert!(runs <= 1, "seed {seed}: {id} ran {runs} times");
            let received = world.received.get(id).map_or(&[][..], |it| it);
            let replies = count(received, |kind, _| kind == "execute_reply");
            assert_eq!(replies, 1, "seed {seed}: {id} has {replies} replies");
        }
    }
}

#[test]
fn a_request_that_never_arrived_is_sent_again_when_the_kernel_has_answered_a_later_one() {
    let mut world = World::new(1, true);
    world.connect();
    let cell = Cell {
        lines: 1,
        fails: false,
    };
    // The first cell shows that the kernel numbers its messages.
    world.send("first", cell);
    while !(world.is_quiet() && world.table.requests.is_empty()) {
        world.step(false);
    }
    world.send("second", cell);
    world.to_server.clear();
    world.lose_connection();
    world.send("third", cell);
    world.connect();
    while !(world.is_quiet() && world.table.requests.is_empty()) {
        world.step(false);
    }
    for id in ["second", "third"] {
        assert_eq!(world.kernel.runs.get(id), Some(&1), "{id}");
        assert_eq!(
            texts(&world.received[id]),
            ("0\n".to_owned(), String::new())
        );
    }
}

#[test]
fn a_request_that_is_too_long_for_the_server_ends_and_the_others_go_on() {
    let mut world = World::new(1, true);
    world.connect();
    let cell = Cell {
        lines: 1,
        fails: false,
    };
    world.send("short", cell);
    let content = json!({"code": "x".repeat(11 << 20)});
    let parent = Bytes::from_static(b"{}");
    let long = message(&now(), "c", "execute_request", "long", parent, &content);
    let client = Bytes::from_static(b"c");
    let steps = world.table.client_message(Channel::Shell, &client, long);
    assert!(matches!(&steps[..], [Step::Send(..)]), "{steps:?}");
    let steps = world.table.end_longest(&now());
    let [
        Step::Publish(error),
        Step::Reply(Channel::Shell, _, reply),
        Step::Publish(idle),
    ] = &steps[..]
    else {
        panic!("{steps:?}");
    };
    for message in [error, reply] {
        let content: Value = message.read_content().unwrap();
        assert_eq!(content["ename"], "MessageTooLong");
        let text = content["evalue"].as_str().unwrap();
        assert!(text.starts_with("gpu takes no message of 11 MiB"), "{text}");
        assert!(text.ends_with("it was not run"), "{text}");
    }
    assert_eq!(idle.execution_state().as_deref(), Some("idle"));
    assert!(world.table.requests.contains_key("short"));
}

#[test]
fn a_kernel_that_was_replaced_is_another_one() {
    let status = |session: &str, state: &str| {
        let id = format!("{session}_7_1");
        let content = json!({"execution_state": state});
        message(
            &now(),
            session,
            "status",
            &id,
            Bytes::from_static(b"{}"),
            &content,
        )
    };
    for (session, state, reason) in [
        ("k", "restarting", "started another one"),
        ("k", "dead", "its process ended on gpu"),
        ("j", "starting", "restarted on gpu, but not by nb"),
    ] {
        let mut table = RequestTable::new("gpu", "bridge");
        let steps = table.kernel_message(&now(), Channel::Iopub, status("k", "busy"));
        assert!(matches!(&steps[..], [Step::Publish(_)]));
        let steps = table.kernel_message(&now(), Channel::Iopub, status(session, state));
        let [Step::KernelEnded(text)] = &steps[..] else {
            panic!("{steps:?}");
        };
        assert!(text.contains(reason), "{text}");
    }
}
