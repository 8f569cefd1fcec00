//! One execute request, from its sending to its end, as a pure state machine.
//!
//! The order of calls: pass every message of the kernel to [`ExecutionState::handle_message`], then call
//! [`ExecutionState::poll_event`] until it returns `None`; [`ExecutionState::poll_timeout`] returns when
//! [`ExecutionState::handle_timeout`] is due; [`ExecutionState::outcome`] returns `Some` once the request has
//! ended. This module never waits, sends or reads the clock.
//!
//! A request has ended when both its reply **and** its idle status have arrived, in either order: they come
//! on two sockets, so outputs may follow the reply, and the reply may follow idle. If one of them never
//! arrives (a kernel's PUB socket drops messages when its queue is full; some kernels end badly) a deadline
//! replaces it, counted from the last message about this request.
//!
//! Some kernels send outputs after idle: see [`ExecutionState::lingering`].

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Deserialize;

use super::content::{IopubMessage, KernelException, OutputMessage, Prompt, Reply};
use crate::wire::{Channel, FACTS, Header, Verified};

/// The time without outputs after the reply, after which idle counts as lost.
pub const IDLE_OVERDUE: Duration = Duration::from_secs(5);

/// How long to wait for the reply after idle.
pub const REPLY_OVERDUE: Duration = Duration::from_secs(10);

/// The maximum time for outputs after idle, in multiples of the silence that ends it.
pub const LINGERS: u32 = 10;

/// An event of the request; events come in the order in which they happened.
#[derive(Clone, Debug, PartialEq)]
pub enum ExecutionEvent {
    /// The kernel has begun the request.
    Begun,
    /// The execution count is known.
    Counted(u64),
    /// An output, or a message that changes outputs.
    Iopub(IopubMessage),
    /// The code prompts for input and waits for it.
    Prompt(Prompt),
    /// Some client's debugger has stopped the kernel, at a breakpoint or after a step.
    Stopped,
}

impl ExecutionEvent {
    /// Returns the output, if this event is one and can be parsed.
    pub fn output(&self) -> Option<OutputMessage> {
        match self {
            Self::Iopub(output) => output.output(),
            Self::Begun | Self::Counted(_) | Self::Prompt(_) | Self::Stopped => None,
        }
    }
}

/// How the request ended.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestOutcome {
    /// The reason for the end.
    pub end: RequestEnd,
    /// From the reply or an earlier message.
    pub execution_count: Option<u64>,
    /// From the sending to the end.
    pub duration: Duration,
    /// From the kernel's start of the code to the end; `None` if it never started.
    pub ran_for: Option<Duration>,
    /// Whether no idle status arrived: outputs may be missing.
    pub idle_missing: bool,
    /// The number of messages of this request that could not be read, outputs aside.
    pub unreadable: u64,
    /// The content of the reply, unchanged, with payloads and user expressions.
    pub reply: Option<Bytes>,
}

/// The reason why a request has ended.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestEnd {
    /// The code ran to its end.
    Ok,
    /// The code raised an exception.
    Raised(KernelException),
    /// The kernel did not run it because an earlier request in its queue had failed.
    Aborted,
    /// The kernel went idle and never replied.
    NoReply,
    /// The kernel died or was replaced; the text says how that was noticed.
    KernelGone(String),
}

/// The state of one execute request.
#[derive(Debug)]
pub struct ExecutionState {
    msg_id: String,
    sent: Instant,
    begun: Option<Instant>,
    /// Whether a message other than a status has arrived.
    ran: bool,
    execution_count: Option<u64>,
    unreadable: u64,
    /// The reply's content.
    content: Option<Bytes>,
    events: VecDeque<ExecutionEvent>,
    /// The silence after reply and idle that ends the request.
    linger: Duration,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Waiting,
    /// The reply has arrived, idle has not.
    Replied {
        reply: Reply,
        idle_due: Instant,
    },
    /// Idle has arrived, the reply has not.
    Idle {
        reply_due: Instant,
    },
    /// Both have arrived; outputs may follow.
    Lingering {
        outcome: RequestOutcome,
        due: Instant,
        latest: Instant,
    },
    Ended(RequestOutcome),
}

impl ExecutionState {
    /// Makes the state of a request with this message id, which was sent at `now`.
    pub fn new(msg_id: impl Into<String>, now: Instant) -> Self {
        Self {
            msg_id: msg_id.into(),
            sent: now,
            begun: None,
            ran: false,
            execution_count: None,
            unreadable: 0,
            content: None,
            events: VecDeque::new(),
            linger: Duration::ZERO,
            phase: Phase::Waiting,
        }
    }

    /// Also accepts outputs after reply and idle, until none has arrived for this time, or for [`LINGERS`]
    /// times this time in all, since code may print for ever.
    #[must_use]
    pub fn lingering(self, linger: Duration) -> Self {
        Self { linger, ..self }
    }

    /// Returns the message id of the request.
    pub fn msg_id(&self) -> &str {
        &self.msg_id
    }

    /// Takes one message of the kernel; messages about other requests change nothing.
    pub fn handle_message(&mut self, channel: Channel, message: &Verified, now: Instant) {
        if matches!(self.phase, Phase::Ended(_)) {
            return;
        }
        match message.parent() {
            Ok(parent) if parent.msg_id == self.msg_id => {}
            _ => return self.on_debug_event(channel, message),
        }
        let Ok(header) = message.header() else {
            self.unreadable += 1;
            return;
        };
        match channel {
            Channel::Shell if header.msg_type == "execute_reply" => self.reply(message, now),
            Channel::Iopub => self.on_iopub(&header.msg_type, message, now),
            Channel::Stdin if header.msg_type == "input_request" => self.asked(message),
            Channel::Shell | Channel::Stdin | Channel::Control | Channel::Heartbeat => {}
        }
    }

    /// Ends the request because the kernel has ended; `why` says how that was noticed.
    pub fn handle_kernel_gone(&mut self, why: impl Into<String>, now: Instant) {
        let reply = match std::mem::replace(&mut self.phase, Phase::Waiting) {
            Phase::Replied { reply, .. } => Some(reply),
            Phase::Lingering { outcome, .. } | Phase::Ended(outcome) => {
                self.phase = Phase::Ended(outcome);
                return;
            }
            Phase::Waiting | Phase::Idle { .. } => None,
        };
        match reply {
            // The code ended before the kernel did; only its last outputs may be missing.
            Some(reply) => self.end(Some(reply), false, now),
            None => self.ended(RequestEnd::KernelGone(why.into()), true, now),
        }
    }

    /// Returns when [`ExecutionState::handle_timeout`] is due; `None` if nothing is awaited.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Replied { idle_due, .. } => Some(*idle_due),
            Phase::Idle { reply_due } => Some(*reply_due),
            Phase::Lingering { due, latest, .. } => Some(*due.min(latest)),
            Phase::Waiting | Phase::Ended(_) => None,
        }
    }

    /// Handles a deadline that has passed; does nothing before it.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return;
        }
        match std::mem::replace(&mut self.phase, Phase::Waiting) {
            Phase::Replied { reply, .. } => self.end(Some(reply), false, now),
            Phase::Idle { .. } => self.end(None, true, now),
            Phase::Lingering { outcome, .. } => self.phase = Phase::Ended(outcome),
            other @ (Phase::Waiting | Phase::Ended(_)) => self.phase = other,
        }
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<ExecutionEvent> {
        self.events.pop_front()
    }

    /// Returns how the request ended; `None` before its end.
    pub fn outcome(&self) -> Option<&RequestOutcome> {
        match &self.phase {
            Phase::Ended(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// Returns how the request ended; `None` before its end.
    pub fn into_outcome(self) -> Option<RequestOutcome> {
        match self.phase {
            Phase::Ended(outcome) => Some(outcome),
            _ => None,
        }
    }

    fn reply(&mut self, message: &Verified, now: Instant) {
        // A reply that cannot be parsed is still a reply: the request has ended.
        let reply = self.read(message).unwrap_or_else(Reply::unreadable);
        self.execution_count = reply.execution_count.or(self.execution_count);
        self.content
            .get_or_insert_with(|| message.content().clone());
        match self.phase {
            Phase::Waiting => {
                let idle_due = now + IDLE_OVERDUE;
                self.phase = Phase::Replied { reply, idle_due };
            }
            Phase::Idle { .. } => self.end(Some(reply), true, now),
            Phase::Replied { .. } | Phase::Lingering { .. } | Phase::Ended(_) => {}
        }
    }

    fn on_iopub(&mut self, msg_type: &str, message: &Verified, now: Instant) {
        match &mut self.phase {
            // Outputs still arrive, so idle comes after them.
            Phase::Replied { idle_due, .. } => *idle_due = now + IDLE_OVERDUE,
            Phase::Lingering { due, .. } => *due = now + self.linger,
            Phase::Waiting | Phase::Idle { .. } | Phase::Ended(_) => {}
        }
        // An aborted request gets only busy and idle.
        self.ran |= msg_type != "status";
        match msg_type {
            "status" => self.status(message, now),
            "execute_input" => {
                let count = self
                    .read::<Counted>(message)
                    .and_then(|it| it.execution_count);
                if let Some(count) = count {
                    self.execution_count = Some(count);
                    self.events.push_back(ExecutionEvent::Counted(count));
                }
            }
            FACTS => {}
            _ => {
                // Another process may record outputs after idle: by the id it finds that this one is recorded.
                let is_late = matches!(self.phase, Phase::Idle { .. });
                let id = message.header().ok().filter(|_| is_late);
                self.events.push_back(ExecutionEvent::Iopub(IopubMessage {
                    id: id.map(|header| header.msg_id.into_owned()),
                    msg_type: msg_type.to_owned(),
                    content: message.content().clone(),
                    buffers: message.buffers().to_vec(),
                }));
            }
        }
    }

    /// Takes an event of a debugger, which concerns the code that runs. Its parent is a request of the debugger's.
    fn on_debug_event(&mut self, channel: Channel, message: &Verified) {
        #[derive(Deserialize)]
        struct DebugEvent {
            event: String,
        }
        let is_one = |header: Header<'_>| header.msg_type == "debug_event";
        if channel == Channel::Iopub
            && self.begun.is_some()
            && matches!(self.phase, Phase::Waiting)
            && message.header().is_ok_and(is_one)
            && let Some(DebugEvent { event }) = self.read(message)
            && event == "stopped"
        {
            self.events.push_back(ExecutionEvent::Stopped);
        }
    }

    fn status(&mut self, message: &Verified, now: Instant) {
        let Some(StatusContent { execution_state }) = self.read(message) else {
            return;
        };
        match execution_state.as_str() {
            "busy" if self.begun.is_none() => {
                self.begun = Some(now);
                self.events.push_back(ExecutionEvent::Begun);
            }
            "idle" => match std::mem::replace(&mut self.phase, Phase::Waiting) {
                Phase::Waiting => {
                    let reply_due = now + REPLY_OVERDUE;
                    self.phase = Phase::Idle { reply_due };
                }
                Phase::Replied { reply, .. } => self.end(Some(reply), true, now),
                other @ (Phase::Idle { .. } | Phase::Lingering { .. } | Phase::Ended(_)) => {
                    self.phase = other;
                }
            },
            _ => {}
        }
    }

    fn asked(&mut self, message: &Verified) {
        if let Some(InputRequest { prompt, password }) = self.read(message) {
            self.events.push_back(ExecutionEvent::Prompt(Prompt {
                prompt,
                password,
                header: message.header_bytes().clone(),
            }));
        }
    }

    fn read<T: for<'a> Deserialize<'a>>(&mut self, message: &Verified) -> Option<T> {
        let content = serde_json::from_slice(message.content()).ok();
        self.unreadable += u64::from(content.is_none());
        content
    }

    fn end(&mut self, reply: Option<Reply>, idle_seen: bool, now: Instant) {
        let end = match reply {
            None => RequestEnd::NoReply,
            Some(reply) => match reply.status.as_str() {
                "ok" => RequestEnd::Ok,
                // Kernels of protocol 5.0 send "abort". IRkernel sends it also for code that ran until it was
                // interrupted, and such code must not count as code that may be sent again.
                "aborted" | "abort" if self.ran => RequestEnd::Raised(interrupted()),
                "aborted" | "abort" => RequestEnd::Aborted,
                _ => RequestEnd::Raised(reply.raised),
            },
        };
        self.ended(end, !idle_seen, now);
    }

    fn ended(&mut self, end: RequestEnd, idle_missing: bool, now: Instant) {
        // No outputs are expected from a kernel that has ended, or that has been silent for long.
        let lingers = !self.linger.is_zero() && !idle_missing && end != RequestEnd::NoReply;
        let outcome = RequestOutcome {
            end,
            execution_count: self.execution_count,
            duration: now.saturating_duration_since(self.sent),
            ran_for: self.begun.map(|begun| now.saturating_duration_since(begun)),
            idle_missing,
            unreadable: self.unreadable,
            reply: self.content.take(),
        };
        self.phase = match lingers {
            true => Phase::Lingering {
                outcome,
                due: now + self.linger,
                latest: now + self.linger * LINGERS,
            },
            false => Phase::Ended(outcome),
        };
    }
}

fn interrupted() -> KernelException {
    let why = "the code was interrupted";
    KernelException {
        ename: "KeyboardInterrupt".to_owned(),
        evalue: why.to_owned(),
        traceback: vec![format!("KeyboardInterrupt: {why}")],
    }
}

/// The content of a `status` message.
#[derive(Deserialize)]
pub(super) struct StatusContent {
    pub(super) execution_state: String,
}

#[derive(Deserialize)]
struct Counted {
    execution_count: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct InputRequest {
    prompt: String,
    password: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::wire::NewHeader;

    const OURS: &str = "s_1";

    /// An execution state with a simulated clock.
    struct World {
        run: ExecutionState,
        now: Instant,
    }

    impl World {
        fn new() -> Self {
            let now = Instant::now();
            Self {
                run: ExecutionState::new(OURS, now),
                now,
            }
        }

        fn says(
            &mut self,
            channel: Channel,
            msg_type: &str,
            content: &Value,
        ) -> Vec<ExecutionEvent> {
            self.says_to(OURS, channel, msg_type, content)
        }

        fn says_to(
            &mut self,
            parent: &str,
            channel: Channel,
            msg_type: &str,
            content: &Value,
        ) -> Vec<ExecutionEvent> {
            let header = NewHeader {
                msg_id: "k_1",
                session: "k",
                username: "kernel",
                date: "2026-01-01T00:00:00Z",
                msg_type,
            };
            let parent = Bytes::from(json!({ "msg_id": parent }).to_string());
            let message = Verified::new(&header, parent, content);
            self.now += Duration::from_millis(1);
            self.run.handle_message(channel, &message, self.now);
            std::iter::from_fn(|| self.run.poll_event()).collect()
        }

        fn status(&mut self, state: &str) -> Vec<ExecutionEvent> {
            self.says(
                Channel::Iopub,
                "status",
                &json!({ "execution_state": state }),
            )
        }

        fn reply(&mut self, content: &Value) -> Vec<ExecutionEvent> {
            self.says(Channel::Shell, "execute_reply", content)
        }

        fn print(&mut self, text: &str) -> Vec<ExecutionEvent> {
            let content = json!({ "name": "stdout", "text": text });
            self.says(Channel::Iopub, "stream", &content)
        }

        fn end(&self) -> Option<&RequestEnd> {
            self.run.outcome().map(|outcome| &outcome.end)
        }
    }

    #[test]
    fn it_ends_with_reply_and_idle_in_either_order() {
        let ok = json!({ "status": "ok", "execution_count": 7 });
        let mut world = World::new();
        assert_eq!(world.status("busy"), [ExecutionEvent::Begun]);
        assert_eq!(
            world.says(
                Channel::Iopub,
                "execute_input",
                &json!({ "code": "1", "execution_count": 7 })
            ),
            [ExecutionEvent::Counted(7)]
        );
        assert_eq!(world.reply(&ok), []);
        assert_eq!(world.end(), None);
        assert_eq!(
            world.print("late\n").len(),
            1,
            "outputs may follow the reply"
        );
        world.status("idle");
        assert_eq!(world.end(), Some(&RequestEnd::Ok));

        let mut world = World::new();
        world.status("busy");
        world.status("idle");
        assert_eq!(world.end(), None);
        let late = world.print("late\n");
        // It has its id, since another process may record what comes after idle.
        assert!(
            matches!(&late[..], [ExecutionEvent::Iopub(output)] if output.id.is_some()),
            "outputs may follow idle"
        );
        world.reply(&ok);
        let outcome = world.run.outcome().expect("it has ended");
        assert_eq!(outcome.reply, Some(Bytes::from(ok.to_string())));
        assert_eq!(
            (&outcome.end, outcome.execution_count, outcome.idle_missing),
            (&RequestEnd::Ok, Some(7), false)
        );
        assert_eq!(outcome.duration, Duration::from_millis(4));
        assert_eq!(outcome.ran_for, Some(Duration::from_millis(3)));
        assert_eq!(world.print("after the end\n"), []);
    }

    #[test]
    fn another_clients_debugger_that_stops_the_running_code_is_reported() {
        let mut world = World::new();
        let stopped = json!({ "type": "event", "event": "stopped", "body": {} });
        let says = |world: &mut World, event: &Value| {
            world.says_to("debugger", Channel::Iopub, "debug_event", event)
        };
        assert_eq!(says(&mut world, &stopped), [], "other code runs");
        world.status("busy");
        assert_eq!(says(&mut world, &json!({ "event": "continued" })), []);
        assert_eq!(says(&mut world, &stopped), [ExecutionEvent::Stopped]);
        world.status("idle");
        assert_eq!(says(&mut world, &stopped), []);
    }

    #[test]
    fn others_requests_change_nothing() {
        let mut world = World::new();
        for parent in ["s_2", "", "S_1"] {
            let stream = json!({ "name": "stdout", "text": "theirs" });
            let idle = json!({ "execution_state": "idle" });
            let reply = json!({ "status": "ok" });
            assert_eq!(world.says_to(parent, Channel::Iopub, "stream", &stream), []);
            assert_eq!(world.says_to(parent, Channel::Iopub, "status", &idle), []);
            assert_eq!(
                world.says_to(parent, Channel::Shell, "execute_reply", &reply),
                []
            );
            assert_eq!(
                world.says_to(parent, Channel::Stdin, "input_request", &json!({})),
                []
            );
        }
        // A reply of another type, and one on the wrong channel.
        world.says(
            Channel::Shell,
            "kernel_info_reply",
            &json!({ "status": "ok" }),
        );
        world.says(
            Channel::Control,
            "execute_reply",
            &json!({ "status": "ok" }),
        );
        assert_eq!(world.run.poll_timeout(), None);
        assert_eq!(world.end(), None);
    }

    #[test]
    fn outputs_come_in_the_kernels_words() {
        let mut world = World::new();
        let data = json!({ "text/plain": "3", "image/png": "aGk=" });
        let result = world.says(
            Channel::Iopub,
            "execute_result",
            &json!({ "data": data, "metadata": {}, "execution_count": 2 }),
        );
        let Some(OutputMessage::Result(bundle)) = result.first().and_then(ExecutionEvent::output)
        else {
            panic!("not a result: {result:?}");
        };
        assert_eq!(bundle.data.get("text/plain"), Some(&json!("3")));
        assert_eq!(bundle.execution_count, Some(2));
        let update = world.says(
            Channel::Iopub,
            "update_display_data",
            &json!({ "data": {}, "transient": { "display_id": "d1" } }),
        );
        let Some(OutputMessage::Update(bundle)) = update.first().and_then(ExecutionEvent::output)
        else {
            panic!("not an update: {update:?}");
        };
        assert_eq!(bundle.display_id(), Some("d1"));
        for other in ["clear_output", "comm_msg"] {
            let events = world.says(Channel::Iopub, other, &json!({ "wait": true }));
            let [ExecutionEvent::Iopub(message)] = &events[..] else {
                panic!("no message: {events:?}");
            };
            assert_eq!(
                (&message.msg_type[..], &message.content[..]),
                (other, &b"{\"wait\":true}"[..])
            );
            assert_eq!(message.output(), None);
        }
    }

    #[test]
    fn a_question_carries_the_header_to_answer() {
        let mut world = World::new();
        let asked = world.says(
            Channel::Stdin,
            "input_request",
            &json!({ "prompt": "name? ", "password": true }),
        );
        let [ExecutionEvent::Prompt(prompt)] = &asked[..] else {
            panic!("not a question: {asked:?}");
        };
        assert_eq!((prompt.prompt.as_str(), prompt.password), ("name? ", true));
        assert!(prompt.header.starts_with(b"{"));
    }

    #[test]
    fn what_was_raised_is_told_whole() {
        let mut world = World::new();
        world.status("idle");
        world.reply(&json!({
            "status": "error", "execution_count": 3, "user_expressions": {},
            "ename": "ValueError", "evalue": "no", "traceback": ["a", "b"]
        }));
        let Some(RequestEnd::Raised(raised)) = world.end() else {
            panic!("it raised");
        };
        assert_eq!((&*raised.ename, raised.traceback.len()), ("ValueError", 2));
    }

    #[test]
    fn an_aborted_request_never_ran() {
        let mut world = World::new();
        world.status("busy");
        world.reply(&json!({ "status": "aborted" }));
        world.status("idle");
        assert_eq!(world.end(), Some(&RequestEnd::Aborted));
    }

    #[test]
    fn what_ran_until_it_was_interrupted_is_not_taken_for_unrun() {
        let mut world = World::new();
        world.status("busy");
        world.print("here\n");
        world.reply(&json!({ "status": "abort" }));
        world.status("idle");
        let Some(RequestEnd::Raised(raised)) = world.end() else {
            panic!("it ran");
        };
        assert_eq!(raised.ename, "KeyboardInterrupt");
    }

    #[test]
    fn a_lost_idle_is_awaited_while_outputs_come() {
        let mut world = World::new();
        world.reply(&json!({ "status": "ok" }));
        let first = world.run.poll_timeout().expect("idle is due");
        world.now += Duration::from_secs(3);
        world.print("still coming\n");
        assert!(world.run.poll_timeout().expect("idle is due") > first);
        world.run.handle_timeout(first);
        assert_eq!(world.end(), None, "not yet");
        let due = world.run.poll_timeout().expect("idle is due");
        world.run.handle_timeout(due);
        assert_eq!(world.end(), Some(&RequestEnd::Ok));
        assert!(world.run.outcome().is_some_and(|it| it.idle_missing));
        assert_eq!(world.run.poll_timeout(), None);
    }

    #[test]
    fn outputs_that_follow_idle_are_taken_where_the_kernel_is_known_for_it() {
        let silence = Duration::from_millis(100);
        let mut world = World::new();
        world.run = ExecutionState::new(OURS, world.now).lingering(silence);
        world.reply(&json!({ "status": "ok" }));
        world.status("idle");
        assert_eq!(world.end(), None);
        let first = world
            .run
            .poll_timeout()
            .expect("it is not awaited for ever");
        assert_eq!(world.print("late\n").len(), 1);
        world.run.handle_timeout(first);
        assert_eq!(world.end(), None, "it has just said something");
        // The end comes even if the code prints for ever.
        let begun = world.now;
        while world.end().is_none() {
            world.now += silence / 2;
            world.print("on and on\n");
            world.run.handle_timeout(world.now);
        }
        assert_eq!(world.end(), Some(&RequestEnd::Ok));
        assert!(world.now - begun <= silence * (LINGERS + 1));
        let outcome = world.run.outcome().expect("it has ended");
        assert_eq!(outcome.duration, Duration::from_millis(2));

        let mut world = World::new();
        world.run = ExecutionState::new(OURS, world.now).lingering(silence);
        world.status("idle");
        world.reply(&json!({ "status": "ok" }));
        world.run.handle_kernel_gone("it was killed", world.now);
        assert_eq!(world.end(), Some(&RequestEnd::Ok));
    }

    #[test]
    fn a_lost_reply_ends_it_too() {
        let mut world = World::new();
        world.status("idle");
        let due = world.run.poll_timeout().expect("a reply is due");
        world.run.handle_timeout(due);
        assert_eq!(world.end(), Some(&RequestEnd::NoReply));
    }

    #[test]
    fn a_dead_kernel_ends_it_unless_it_had_replied() {
        let mut world = World::new();
        world.status("busy");
        world.run.handle_kernel_gone("the process ended", world.now);
        assert_eq!(
            world.end(),
            Some(&RequestEnd::KernelGone("the process ended".to_owned()))
        );
        world.run.handle_kernel_gone("again", world.now);
        assert!(
            matches!(world.end(), Some(RequestEnd::KernelGone(why)) if why == "the process ended")
        );

        let mut world = World::new();
        world.reply(&json!({ "status": "ok" }));
        world.run.handle_kernel_gone("the process ended", world.now);
        assert_eq!(world.end(), Some(&RequestEnd::Ok));
    }

    #[test]
    fn nonsense_is_counted_and_left() {
        let mut world = World::new();
        for nonsense in [json!([]), json!("x"), json!({ "execution_state": 3 })] {
            assert_eq!(world.says(Channel::Iopub, "status", &nonsense), []);
        }
        let events = world.says(Channel::Iopub, "stream", &json!({ "name": 1, "text": {} }));
        assert_eq!(events.first().and_then(ExecutionEvent::output), None);
        world.reply(&json!({ "status": "ok" }));
        world.status("idle");
        assert_eq!(world.run.outcome().map(|it| it.unreadable), Some(3));

        let mut world = World::new();
        world.reply(&json!({ "status": 200 }));
        world.status("idle");
        assert!(
            matches!(world.end(), Some(RequestEnd::Raised(raised)) if raised.ename == "UnreadableReply")
        );
    }

    #[test]
    fn a_traceback_of_another_shape_is_no_reason_to_lose_the_error() {
        let mut world = World::new();
        world.reply(&json!({ "status": "error", "ename": "E", "evalue": "v", "traceback": null }));
        world.status("idle");
        assert!(matches!(world.end(), Some(RequestEnd::Raised(raised)) if raised.ename == "E"));
    }
}
