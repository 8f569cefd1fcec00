//! The requests that clients have sent to a remote kernel, and what happens to each when the connection to its server
//! is lost and made again.
//!
//! A request that was sent and is not answered when the connection is lost may have arrived or not, and its answer may
//! be lost or still to come: a server replays the kernel's messages of that time, except those that were in transit. So after the
//! replay the kernel is asked for its kernel_info on the same channel (the probe). It handles its requests in order:
//! when it has answered, all earlier ones have ended. Their messages' numbers show whether any message is missing. A
//! request that left no trace although no message is missing never arrived, and is sent again; no other request is.
//!
//! This module does no I/O: its methods return [`Step`]s.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use jiff::Zoned;
use serde_json::{Value, json};

use super::numbers::MessageNumbers;
use crate::project::RemoteKernel;
use crate::wire::{Channel, Header, MissingMessages, NewHeader, Verified};

/// What the caller does next.
#[derive(Debug)]
pub(super) enum Step {
    /// Sends a message to the server.
    Send(Channel, Verified),
    /// Sends a message to one client.
    Reply(Channel, Bytes, Verified),
    /// Sends a message to the client whose session this is, or else to all clients: the process that knew which client
    /// had sent the request was killed.
    ReplyToSession(Channel, String, Verified),
    /// Publishes a message on iopub.
    Publish(Verified),
    /// The kernel has ended or was replaced, for this reason.
    KernelEnded(String),
}

/// The connection to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Down,
    Up,
}

/// A request of a client.
#[derive(Debug)]
struct Request {
    client: Bytes,
    channel: Channel,
    /// The message, until there is a trace of it from the kernel.
    message: Option<Verified>,
    header: Bytes,
    msg_type: String,
    sending: Sending,
    /// Whether the kernel has published a message about it.
    has_begun: bool,
    has_reply: bool,
    is_idle: bool,
    execution_count: Option<u64>,
    /// The content of its `error`.
    error: Option<Value>,
    /// The `idle` about it, which waits for the reply: before that it is not known whether a message is missing.
    held_idle: Option<Verified>,
}

/// How far a request has come on its way to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    /// It waits for the connection.
    Waiting,
    /// It was sent over the connection that is up.
    Sent,
    /// It was sent over a connection that was lost.
    Uncertain,
}

impl Request {
    /// Returns whether nothing more is expected from the kernel.
    fn is_complete(&self) -> bool {
        self.is_idle && (self.has_reply || !self.msg_type.ends_with("_request"))
    }

    fn is_execution(&self) -> bool {
        self.msg_type == "execute_request"
    }

    /// Returns how many messages about its end are missing, if the kernel has handled it.
    fn missing_end_messages(&self) -> u64 {
        match self.has_begun || self.has_reply {
            true => u64::from(!self.has_reply) + u64::from(!self.is_idle),
            false => 0,
        }
    }
}

/// A probe of one channel.
#[derive(Debug)]
struct Probe {
    channel: Channel,
    has_reply: bool,
    is_idle: bool,
}

/// The requests of all clients of one kernel.
#[derive(Debug)]
pub(super) struct RequestTable {
    /// The name of the server, for messages.
    server: String,
    /// The session of this process's own messages.
    session: String,
    link: Link,
    requests: HashMap<String, Request>,
    /// The message ids of `requests`, in the order in which they came.
    order: VecDeque<String>,
    /// The probes under way, by their message id.
    probes: HashMap<String, Probe>,
    count: u64,
    numbers: MessageNumbers,
    /// The part of the ids of the kernel's messages before the number.
    kernel: Option<String>,
    /// The session of the kernel's last message.
    kernel_session: String,
    loss: Option<ConnectionLoss>,
}

/// A time without a connection during which requests were under way.
#[derive(Clone, Debug, Default)]
struct ConnectionLoss {
    /// When the connection was lost, and when it came back, for people.
    lost_at: String,
    restored_at: String,
    /// Whether the kernel's messages had numbers before: without them it is not known what was lost.
    is_numbered: bool,
    /// How many of the kernel's messages were lost, as far as is known.
    missing: u64,
}

/// The number of requests above which the oldest that the kernel has handled is forgotten: some kernels do not reply to
/// some requests.
const REQUESTS_MAX: usize = 4096;

impl RequestTable {
    pub(super) fn new(server: &str, session: &str) -> Self {
        Self {
            server: server.to_owned(),
            session: session.to_owned(),
            link: Link::Down,
            requests: HashMap::new(),
            order: VecDeque::new(),
            probes: HashMap::new(),
            count: 0,
            numbers: MessageNumbers::default(),
            kernel: None,
            kernel_session: session.to_owned(),
            loss: None,
        }
    }

    /// Returns the size of the messages that wait for the connection, in bytes.
    pub(super) fn waiting_bytes(&self) -> usize {
        let waiting = self.requests.values();
        let waiting = waiting.filter(|it| it.sending == Sending::Waiting);
        let sizes = waiting.filter_map(|it| it.message.as_ref());
        sizes.map(Verified::size).sum()
    }

    /// Returns whether no request is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Returns the session of the kernel's messages, as far as is known.
    pub(super) fn kernel_session(&self) -> &str {
        &self.kernel_session
    }

    /// Takes a message of a client.
    pub(super) fn client_message(
        &mut self,
        channel: Channel,
        client: &Bytes,
        message: Verified,
    ) -> Vec<Step> {
        let header = message.header().unwrap_or_default();
        let (id, msg_type) = (header.msg_id.into_owned(), header.msg_type.into_owned());
        let request = Request {
            client: client.clone(),
            channel,
            header: message.header_bytes().clone(),
            message: Some(message),
            msg_type,
            sending: Sending::Waiting,
            has_begun: false,
            has_reply: false,
            is_idle: false,
            execution_count: None,
            error: None,
            held_idle: None,
        };
        if self.requests.insert(id.clone(), request).is_none() {
            self.order.push_back(id);
        }
        self.forget_old();
        self.send_waiting()
    }

    /// Records that the websocket is open.
    pub(super) fn connected(&mut self, now: &Zoned) -> Vec<Step> {
        self.link = Link::Up;
        if let Some(loss) = &mut self.loss {
            loss.restored_at = clock(now);
        }
        let mut steps = Vec::new();
        for channel in [Channel::Shell, Channel::Control] {
            if self.is_uncertain(channel) {
                steps.push(self.probe(now, channel));
            }
        }
        steps.extend(self.send_waiting());
        steps
    }

    /// Ends the longest request that was sent and has left no trace: the server closes the connection, since it was too
    /// long for it.
    pub(super) fn end_longest(&mut self, now: &Zoned) -> Vec<Step> {
        let sent = self.requests.iter();
        let sent = sent.filter(|(_, request)| request.sending == Sending::Sent);
        let sent = sent.filter_map(|(id, request)| Some((request.message.as_ref()?.size(), id)));
        let Some((size, id)) = sent.max().map(|(size, id)| (size, id.clone())) else {
            return Vec::new();
        };
        let Some(mut request) = self.forget(&id) else {
            return Vec::new();
        };
        let (server, mebibytes) = (&self.server, size >> 20);
        let text = format!(
            "{server} takes no message of {mebibytes} MiB (websocket_max_message_size of a Jupyter Server, 10 MiB if it is not set); it was not run"
        );
        let error = json!({
            "ename": "MessageTooLong",
            "evalue": text,
            "traceback": [format!("\u{1b}[0;31mMessageTooLong\u{1b}[0m: {text}")],
        });
        let mut steps = Vec::new();
        if request.is_execution() {
            steps.push(self.publish(now, "error", &request.header, &error));
        }
        request.error = Some(error);
        steps.extend(self.end_messages(now, request, 0));
        steps
    }

    /// Records that the connection was lost.
    pub(super) fn disconnected(&mut self, now: &Zoned) {
        self.link = Link::Down;
        self.probes.clear();
        let mut any_uncertain = false;
        for request in self.requests.values_mut() {
            if request.sending == Sending::Sent {
                request.sending = Sending::Uncertain;
            }
            any_uncertain |= request.sending == Sending::Uncertain;
        }
        if any_uncertain && self.loss.is_none() {
            self.numbers.forget_old();
            self.loss = Some(ConnectionLoss {
                lost_at: clock(now),
                is_numbered: self.numbers.is_numbered(),
                ..ConnectionLoss::default()
            });
        }
    }

    /// Takes a message of the kernel.
    pub(super) fn kernel_message(
        &mut self,
        now: &Zoned,
        channel: Channel,
        message: Verified,
    ) -> Vec<Step> {
        let (Ok(header), Ok(parent)) = (message.header(), message.parent()) else {
            return Vec::new();
        };
        let state = match (channel, &*header.msg_type) {
            (Channel::Iopub, "status") => message.execution_state(),
            _ => None,
        };
        if let Some(reason) = self.kernel_ended(&header, state.as_deref()) {
            return vec![Step::KernelEnded(reason)];
        }
        self.numbers.take(&header);
        let number = header.numbered().map(|(_, number)| number);
        let (id, session) = (parent.msg_id.into_owned(), parent.session.into_owned());
        let is_known = self.requests.contains_key(&id) || self.probes.contains_key(&id);
        if let Some(state) = state.as_deref().filter(|_| !is_known) {
            self.numbers.take_other_status(&header, &id, state);
        }
        if let Some(probe) = self.probes.get_mut(&id) {
            match channel {
                Channel::Iopub => probe.is_idle |= state.as_deref() == Some("idle"),
                _ => probe.has_reply = true,
            }
            return match probe.has_reply && probe.is_idle {
                true => self.resolve(now, &id),
                false => Vec::new(),
            };
        }
        // A probe over a connection that was lost.
        if session == self.session {
            return Vec::new();
        }
        let Some(request) = self.requests.get_mut(&id) else {
            return match channel {
                Channel::Iopub => vec![Step::Publish(message)],
                _ => vec![Step::ReplyToSession(channel, session, message)],
            };
        };
        request.message = None;
        let is_uncertain = request.sending == Sending::Uncertain;
        let mut steps = Vec::new();
        if channel == Channel::Iopub {
            request.has_begun = true;
            match &*header.msg_type {
                "execute_input" => {
                    let content: Option<Value> = message.read_content();
                    let count = content.and_then(|content| content["execution_count"].as_u64());
                    request.execution_count = count.or(request.execution_count);
                }
                "error" => request.error = message.read_content(),
                _ => {}
            }
            request.is_idle |= state.as_deref() == Some("idle");
            if request.is_idle && is_uncertain && !request.has_reply && request.is_execution() {
                request.held_idle = Some(message);
            } else {
                steps.push(Step::Publish(message));
            }
        } else {
            request.has_reply |= matches!(channel, Channel::Shell | Channel::Control);
            steps.push(Step::Reply(channel, request.client.clone(), message));
        }
        if request.is_complete() {
            let request = self.forget(&id);
            let request = request.filter(|it| is_uncertain && it.is_execution());
            if let Some(request) = request {
                // The note is an output, so it comes before the end.
                let missing = self.missing_before(number);
                let notice = self.loss_notice(now, &request.header, missing);
                steps.splice(0..0, notice);
                steps.extend(request.held_idle.map(Step::Publish));
            }
            steps.extend(self.send_waiting());
        }
        steps
    }

    /// Returns the reason if the kernel has ended or is another one than before.
    fn kernel_ended(&mut self, header: &Header<'_>, state: Option<&str>) -> Option<String> {
        let server = &self.server;
        match state? {
            "restarting" => Some(format!(
                "its process ended on {server}, which has started another one"
            )),
            "dead" => Some(format!("its process ended on {server}")),
            _ => {
                self.kernel_session = header.session.clone().into_owned();
                let (process, _) = header.numbered()?;
                let current = self.kernel.get_or_insert_with(|| process.to_owned());
                let is_other = current != process;
                is_other.then(|| format!("it was restarted on {server}, but not by nb"))
            }
        }
    }

    /// Returns whether a request was sent that may not have arrived.
    fn is_uncertain(&self, channel: Channel) -> bool {
        let mut requests = self.requests.values();
        requests.any(|it| it.channel == channel && it.sending == Sending::Uncertain)
    }

    /// Returns whether a request has to be sent again before others of the channel, if it has not arrived.
    fn is_blocked(&self, channel: Channel) -> bool {
        let mut requests = self.requests.values();
        requests
            .any(|it| it.channel == channel && it.sending == Sending::Uncertain && !it.has_begun)
    }

    /// Sends the requests that wait for the connection.
    fn send_waiting(&mut self) -> Vec<Step> {
        if self.link == Link::Down {
            return Vec::new();
        }
        let blocked = [Channel::Shell, Channel::Control].map(|it| self.is_blocked(it));
        let mut steps = Vec::new();
        let mut answers = Vec::new();
        for id in &self.order {
            let Some(request) = self.requests.get_mut(id) else {
                continue;
            };
            let is_blocked = match request.channel {
                Channel::Shell => blocked[0],
                Channel::Control => blocked[1],
                _ => false,
            };
            if request.sending != Sending::Waiting || is_blocked {
                continue;
            }
            request.sending = Sending::Sent;
            if let Some(message) = &request.message {
                steps.push(Step::Send(request.channel, message.clone()));
            }
            // An answer to a prompt has no answer itself.
            if request.channel == Channel::Stdin {
                answers.push(id.clone());
            }
        }
        for id in &answers {
            self.forget(id);
        }
        steps
    }

    fn probe(&mut self, now: &Zoned, channel: Channel) -> Step {
        let id = self.next_id();
        let probe = Probe {
            channel,
            has_reply: false,
            is_idle: false,
        };
        self.probes.insert(id.clone(), probe);
        let no_parent = Bytes::from_static(b"{}");
        let request = message(
            now,
            &self.session,
            "kernel_info_request",
            &id,
            no_parent,
            &json!({}),
        );
        Step::Send(channel, request)
    }

    /// Ends or repeats the requests of a channel that were sent before the connection was lost: the kernel has
    /// answered the probe, which came after them.
    fn resolve(&mut self, now: &Zoned, probe: &str) -> Vec<Step> {
        let Some(Probe { channel, .. }) = self.probes.remove(probe) else {
            return Vec::new();
        };
        let missing = self.missing_before(None);
        let is_numbered = self.loss.as_ref().is_some_and(|it| it.is_numbered);
        let is_uncertain_on_channel =
            |it: &&mut Request| it.channel == channel && it.sending == Sending::Uncertain;
        let missing_ends: u64 = self
            .requests
            .values_mut()
            .filter(is_uncertain_on_channel)
            .map(|it| it.missing_end_messages())
            .sum();
        let outputs = missing.saturating_sub(missing_ends);
        let mut steps = Vec::new();
        let ids: Vec<String> = self.order.iter().cloned().collect();
        for id in ids {
            let Some(request) = self.requests.get_mut(&id).filter(is_uncertain_on_channel) else {
                continue;
            };
            let has_no_trace = !request.has_begun && !request.has_reply;
            if has_no_trace && is_numbered && missing == 0 {
                request.sending = Sending::Waiting;
                continue;
            }
            if let Some(request) = self.requests.remove(&id) {
                steps.extend(self.end_messages(now, request, outputs));
            }
        }
        let requests = &self.requests;
        self.order.retain(|id| requests.contains_key(id));
        if self.probes.is_empty() {
            self.loss = None;
        }
        steps.extend(self.send_waiting());
        steps
    }

    /// Returns how many messages of the kernel were lost with the connection, as far as is known: before the one with
    /// this number, if there is one.
    fn missing_before(&mut self, number: Option<u64>) -> u64 {
        let missing = match number {
            Some(number) => self.numbers.take_missing_before(number),
            None => self.numbers.take_missing(),
        };
        let loss = self.loss.get_or_insert_default();
        loss.missing += missing;
        loss.missing
    }

    /// Returns a text about the loss of the connection, for people; it begins with the server's name.
    fn loss_text(&self, missing: u64) -> String {
        let ConnectionLoss {
            lost_at,
            restored_at,
            ..
        } = self.loss.clone().unwrap_or_default();
        let missing = MissingMessages((missing > 0).then_some(missing));
        let server = &self.server;
        format!("{server} was lost from {lost_at} to {restored_at}: {missing}")
    }

    /// Returns the output that says that a cell's outputs are not complete, if they may not be.
    fn loss_notice(&mut self, now: &Zoned, parent: &Bytes, missing: u64) -> Option<Step> {
        if missing == 0 && self.loss.as_ref()?.is_numbered {
            return None;
        }
        let text = format!("{}{}\n", RemoteKernel::LOSS_NOTE, self.loss_text(missing));
        let notice = json!({ "name": "stderr", "text": text });
        Some(self.publish(now, "stream", parent, &notice))
    }

    /// Returns the messages that end a request whose own end was lost with the connection, and as many outputs of this
    /// and of others.
    fn end_messages(&mut self, now: &Zoned, request: Request, outputs: u64) -> Vec<Step> {
        let mut steps = Vec::new();
        let parent = request.header.clone();
        let is_execution = request.is_execution();
        let is_complete = outputs == 0 && self.loss.as_ref().is_some_and(|it| it.is_numbered);
        // The kernel publishes an error too: if nothing is missing but the end, the code that ran has succeeded.
        let has_succeeded = is_complete && request.execution_count.is_some();
        let is_known = request.has_reply || request.error.is_some() || has_succeeded;
        let mut content = match &request.error {
            Some(error) => merged(error, &json!({ "status": "error" })),
            None if is_known => json!({ "status": "ok" }),
            None => {
                let missing = outputs + request.missing_end_messages();
                let text = self.loss_text(missing);
                let text = format!("the connection to {text}; how this ended is not known");
                let error = json!({
                    "ename": RemoteKernel::LOSS_ERROR,
                    "evalue": text,
                    "traceback": [format!("\u{1b}[0;31mConnectionLost\u{1b}[0m: {text}")],
                });
                if is_execution {
                    steps.push(self.publish(now, "error", &parent, &error));
                }
                merged(&error, &json!({ "status": "error" }))
            }
        };
        if is_execution && is_known {
            steps.extend(self.loss_notice(now, &parent, outputs));
        }
        if !request.has_reply && request.msg_type.ends_with("_request") {
            if is_execution {
                let count = request.execution_count;
                let defaults = json!({
                    "execution_count": count, "payload": [], "user_expressions": {},
                });
                content = merged(&content, &defaults);
            }
            let msg_type = request.msg_type.replace("_request", "_reply");
            let id = self.next_id();
            let reply = message(
                now,
                &self.kernel_session,
                &msg_type,
                &id,
                parent.clone(),
                &content,
            );
            steps.push(Step::Reply(request.channel, request.client, reply));
        }
        match request.held_idle {
            Some(idle) => steps.push(Step::Publish(idle)),
            None if !request.is_idle => {
                let idle = json!({ "execution_state": "idle" });
                steps.push(self.publish(now, "status", &parent, &idle));
            }
            None => {}
        }
        steps
    }

    /// Returns a message in the kernel's name about a request.
    fn publish(&mut self, now: &Zoned, msg_type: &str, parent: &Bytes, content: &Value) -> Step {
        let id = self.next_id();
        // Front ends drop messages of another session than the kernel's.
        let session = &self.kernel_session;
        Step::Publish(message(
            now,
            session,
            msg_type,
            &id,
            parent.clone(),
            content,
        ))
    }

    fn next_id(&mut self) -> String {
        self.count += 1;
        format!("{}_{}", self.session, self.count)
    }

    fn forget(&mut self, id: &str) -> Option<Request> {
        if let Some(index) = self.order.iter().position(|it| it == id) {
            self.order.remove(index);
        }
        self.requests.remove(id)
    }

    fn forget_old(&mut self) {
        if self.order.len() > REQUESTS_MAX {
            let is_handled = |id: &&String| self.requests.get(*id).is_some_and(|it| it.is_idle);
            if let Some(id) = self.order.iter().find(is_handled).cloned() {
                self.forget(&id);
            }
        }
    }
}

/// Returns a message of a session, with the content and the parent's header.
fn message(
    now: &Zoned,
    session: &str,
    msg_type: &str,
    id: &str,
    parent: Bytes,
    content: &Value,
) -> Verified {
    let date = format!("{:.6}", now.timestamp());
    let header = NewHeader {
        msg_id: id,
        session,
        username: "nb",
        date: &date,
        msg_type,
    };
    Verified::new(&header, parent, content)
}

/// Returns a time of the day.
fn clock(time: &Zoned) -> String {
    time.strftime("%H:%M:%S").to_string()
}

/// Returns an object with the fields of both; those of `overrides` take precedence.
fn merged(object: &Value, overrides: &Value) -> Value {
    let objects = [object, overrides].into_iter().filter_map(Value::as_object);
    let fields = objects
        .flatten()
        .map(|(name, value)| (name.clone(), value.clone()));
    Value::Object(fields.collect())
}

#[cfg(test)]
#[path = "requests_tests.rs"]
mod tests;
