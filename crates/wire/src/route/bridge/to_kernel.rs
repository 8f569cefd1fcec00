//! Messages of clients on their way to the kernel: sent, held, or refused.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Bridge;
use crate::route::attendance::Attendance;
use crate::route::editor_comm;
use crate::route::execution::{ExecuteContent, ExecutionProgress};
use crate::route::request::{Answer, Key, OUTSTANDING_MAX, Request, Role};
use crate::route::timer::{KERNEL_WAIT, Now, Timer};
use crate::route::{Action, ClientId, Ending, FrontEnd, Kernel, Note, Phase};
use crate::wire::{Channel, Header, Verified};

impl Bridge {
    /// Takes a message of a client on shell, control or stdin.
    pub fn client_message(&mut self, now: Now, channel: Channel, id: &ClientId, message: Verified) {
        self.set_now(now);
        self.take_message(channel, id, message);
    }

    fn take_message(&mut self, channel: Channel, id: &ClientId, message: Verified) {
        if self.attendance == Attendance::Exited {
            return;
        }
        if !self.clients.contains(id) {
            self.client_joined(channel, id);
        }
        let Ok(header) = message.header() else {
            self.out.log(Note::UnreadableHeader {
                sender: "client",
                channel,
            });
            return self.forward(channel, id, None, message);
        };
        self.resolution
            .record_session(&mut self.out, &header.session);
        if channel == Channel::Shell
            && header.msg_type.starts_with("comm_")
            && let Some((comm, message)) = editor_comm::read(&header.msg_type, message.content())
        {
            return self.out.push(Action::Editor { comm, message });
        }
        match channel {
            Channel::Stdin => {
                let cell = self.clients.take_input(&mut self.out, id, channel, message);
                if let Some(cell) = cell {
                    self.journal_prompt(&cell, Phase::Answered);
                }
            }
            Channel::Control => self.control_message(id, &message, &header),
            _ => match &*header.msg_type {
                "shutdown_request" => self.answer_shutdown(channel, id, &message),
                "kernel_info_request" => self.kernel_info(channel, id, &message, &header),
                "execute_request" => self.execute(id, &message, &header),
                "comm_close" if !self.may_close(id, &message) => {
                    self.out.log(Note::CommCloseDropped(id.clone()));
                }
                msg_type => {
                    if msg_type == "comm_open" {
                        self.comms.opened(message.content(), Some(id.clone()));
                    }
                    let key = self.track(channel, id, &message, &header);
                    self.forward(channel, id, key, message);
                }
            },
        }
    }

    fn may_close(&self, id: &ClientId, message: &Verified) -> bool {
        let is_joined = |other: &ClientId| self.clients.is_joined(other);
        self.comms.may_close(message.content(), id, is_joined)
    }

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
            // Like the kernel, the bridge tells requests apart by session and id only.
            return None;
        }
        if self.clients.outstanding_of(id)? >= OUTSTANDING_MAX {
            self.drop_oldest_requests(id);
        }
        self.clients.add_request(id);
        let request = Request::new(id.clone(), channel, message, header);
        self.requests.insert(key.clone(), request);
        Some(key)
    }

    fn drop_oldest_requests(&mut self, id: &ClientId) {
        let is_sent = |request: &Request| request.client == *id && request.sent;
        let sent = self.requests.keys(is_sent);
        for key in sent.iter().take(OUTSTANDING_MAX / 10) {
            let dropped = self.requests.remove(key);
            if dropped.is_some_and(|request| request.answer == Answer::FromKernel) {
                self.clients.end_request(id);
            }
        }
        self.out.log(Note::TooManyOutstanding(id.clone()));
    }

    /// Takes an execute_request: a cell, or code that a front end runs for itself.
    fn execute(&mut self, id: &ClientId, message: &Verified, header: &Header<'_>) {
        let execute: Option<ExecuteContent> = message.read_content();
        let is_cell = execute.as_ref().is_some_and(ExecuteContent::is_cell);
        if let Some(execute) = &execute
            && !is_cell
            && self.answer_start_up(id, message, header, &execute.code)
        {
            return;
        }
        self.resolution
            .read_cell(&mut self.out, &mut self.timers, message.metadata());
        let key = self.track(Channel::Shell, id, message, header);
        if let Some(key) = &key
            && has_half_a_surrogate_pair(message)
        {
            let text = "The code has half of a surrogate pair, which is no character, and a kernel gives no reply to it: \
                        it was not sent. Remove that half, or complete the pair.";
            return self.fail_one(&Ending::new("UnicodeEncodeError", text.to_owned()), key);
        }
        if self.front_end == FrontEnd::Other
            && let Some(key) = &key
            && execute
                .as_ref()
                .is_some_and(ExecuteContent::is_console_exit)
        {
            self.out.log(Note::ConsoleLeft(id.clone()));
            return self.answer_exit(key);
        }
        if is_cell && let Some(key) = &key {
            let allows_stdin = execute.as_ref().is_none_or(ExecuteContent::allows_stdin);
            self.attendance.record_cell(allows_stdin);
            self.requests.set_role(key, Role::Cell);
            if matches!(self.kernel(), Kernel::Died(_)) {
                self.kernel.set_kernel(Kernel::Awaited);
                self.timers.start(KERNEL_WAIT, Timer::KernelWait);
                self.out.log(Note::KernelStartedAnew(id.clone()));
                self.out.push(Action::Revive { client: id.clone() });
            }
        }
        self.forward(Channel::Shell, id, key, message.clone());
    }

    /// Sends a message to the kernel, holds it until the kernel can take it, or answers that there is no
    /// kernel.
    pub(super) fn forward(
        &mut self,
        channel: Channel,
        id: &ClientId,
        key: Option<Key>,
        message: Verified,
    ) {
        if let Some(ending) = self.kernel().ending().cloned() {
            return match key {
                Some(key) => self.fail_one(&ending, &key),
                None => self.out.log(Note::NoKernel {
                    client: id.clone(),
                    channel,
                    count: 1,
                }),
            };
        }
        let must_wait =
            channel == Channel::Shell && self.queue.must_wait(id, key.as_ref(), &self.requests);
        let request = key.as_ref().and_then(|key| self.requests.get(key));
        let may_overtake = request.is_some_and(|request| request.is_on_subshell);
        let Some(can_send) = self.clients.can_send(id, channel, may_overtake) else {
            return;
        };
        if can_send && !must_wait && self.kernel.is_usable() {
            return self.send(channel, id, key.as_ref(), message);
        }
        if let Some(key) = key.as_ref().filter(|_| must_wait) {
            let generation = self.kernel.generation();
            let step = self.requests.get(key).and_then(|request| {
                ExecutionProgress::with_code(Phase::Queued, generation, key, request, &message)
            });
            if let Some(step) = step {
                self.requests.set_queued(key);
                self.out.push(Action::Journal(step));
            }
        }
        self.clients
            .hold(&mut self.out, id, channel, key.clone(), message);
        if let Some(key) = key.filter(|_| must_wait) {
            self.out.log(Note::CellHeld {
                client: id.clone(),
                msg_id: key.msg_id().to_owned(),
            });
            // A lost `idle` must not hold the cell for ever: the kernel answers on shell when it has finished
            // its earlier requests.
            self.probe_shell();
        }
        if self.kernel().is_unresolved() {
            self.resolution.set_deadline(&mut self.timers);
        }
        // A client that disconnected before this kernel started has no socket to it yet.
        self.open_links(id, channel);
    }

    fn send(&mut self, channel: Channel, id: &ClientId, key: Option<&Key>, message: Verified) {
        let dropped = self.dropped.count();
        if let Some(key) = key
            && let Some(request) = self.requests.send(key, dropped)
        {
            if request.role == Role::Cell {
                for notice in self.notices.take() {
                    let parent = request.header.clone();
                    self.out.publish_notice(parent, &notice);
                }
            }
            let generation = self.kernel.generation();
            if request.msg_type == "execute_request"
                && !request.journalled
                && let Some(step) =
                    ExecutionProgress::with_code(Phase::Sent, generation, key, request, &message)
            {
                self.requests.set_journalled(key);
                self.out.push(Action::Journal(step));
            }
        }
        self.out.send(id, channel, message);
    }

    /// Sends the waiting messages of all clients; the client whose cell has waited longest is first.
    pub(super) fn release_all(&mut self) {
        let mut ids = self.clients.ids();
        ids.sort_by_key(|id| {
            let first = self.clients.first_held(id);
            first.and_then(|key| self.requests.number(key))
        });
        ids.iter().for_each(|id| self.release(id));
    }

    /// Sends a client's waiting messages on every ready channel, up to a cell that must wait.
    pub(super) fn release(&mut self, id: &ClientId) {
        if !self.kernel.is_usable() {
            return;
        }
        for channel in [Channel::Control, Channel::Shell, Channel::Stdin] {
            loop {
                let may_be_taken =
                    |key: Option<&Key>| !self.queue.must_wait(id, key, &self.requests);
                let Some((key, message)) = self.clients.pop_held(id, channel, may_be_taken) else {
                    break;
                };
                self.send(channel, id, key.as_ref(), message);
            }
        }
        self.clients.resume(&mut self.out, id);
    }

    /// Puts messages that a kernel never received back at the front of the queues, in order.
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
            if let Some(key) = &key {
                if self.requests.is_answered_by_bridge(key) {
                    // Its client has its answer: the next kernel does not need the request.
                    self.requests.remove(key);
                    continue;
                }
                self.requests.take_back(key);
            }
            self.clients.put_back(&id, channel, key, message);
        }
    }

    /// Removes a request from its client's queue and returns it.
    pub(super) fn take_held(&mut self, key: &Key) -> Option<(ClientId, Channel, Verified)> {
        let request = self.requests.get(key)?;
        let (id, channel) = (request.client.clone(), request.channel);
        let message = self.clients.take_held(&id, channel, key)?;
        Some((id, channel, message))
    }

    /// Handles again the requests that were held before the bridge asked for the notebook: it can answer some
    /// of them now, and some may name the notebook.
    pub(super) fn retry_held(&mut self) {
        for key in self.requests.keys(|request| !request.sent) {
            let Some((id, channel, message)) = self.take_held(&key) else {
                continue;
            };
            self.requests.remove(&key);
            self.timers.stop(&Timer::AnswerWait(key));
            self.clients.end_request(&id);
            self.take_message(channel, &id, message);
        }
        self.resolution
            .use_early_name(&mut self.out, &mut self.timers);
    }
}

/// Returns whether an execute_request's code is a JSON string that is no text.
fn has_half_a_surrogate_pair(message: &Verified) -> bool {
    #[derive(Deserialize)]
    struct Code<'a> {
        #[serde(borrow)]
        code: &'a RawValue,
    }
    // Most code has no such escape at all.
    if !message.content().windows(2).any(|bytes| bytes == b"\\u") {
        return false;
    }
    let code: Option<Code<'_>> = message.read_content();
    let code = code.map_or("", |it| it.code.get());
    code.starts_with('"') && serde_json::from_str::<String>(code).is_err()
}
