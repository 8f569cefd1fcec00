//! The bridge between the clients of one front end and one kernel after another.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;

use super::batch::Batch;
use super::binding::Naming;
use super::client::{Client, Link, Prompt};
use super::comms::Comms;
use super::connect;
use super::dropped::Dropped;
use super::kernel::{Ending, Kernel};
use super::missed::Missed;
use super::request::{Key, Requests};
use super::settings::{Policies, Settings};
use super::spread::Spread;
use super::timer::{AWAITED, GONE, Now, PROBE, RETURNS, Timer, Timers};
use super::to_clients::Seen;
use super::turns::{IDLE_LOST, Running};
use super::voice::Voice;
use super::{Action, ClientId, HeldMessages, Note};
use crate::wire::{Channel, Header, Verified};

/// Who gets what, of one front end's clients and one kernel after another.
#[derive(Debug)]
pub struct Bridge {
    pub(super) settings: Settings,
    pub(super) policies: Policies,
    /// What the next cell's asker reads first.
    pub(super) notice: Option<String>,
    /// What the asker of the first cell reads of how the kernel was chosen.
    pub(super) choice: Option<String>,
    /// The content of a `kernel_info_reply`, as long as it can serve as one.
    pub(super) info: Option<Bytes>,
    /// The version of ipywidgets that a kernel here has printed last for a front end's probe.
    pub(super) widgets: Option<String>,
    /// The client whose start-up code turns Jedi off, which each life of the kernel is told.
    pub(super) jedi_off: Option<ClientId>,
    /// The last that the kernel told.
    pub(super) execution_count: u64,
    pub(super) naming: Naming,
    /// The notebook that the traffic named before it was asked for.
    pub(super) notebook: Option<String>,
    /// Whether the clients' session was told.
    pub(super) heard: bool,
    pub(super) running: Running,
    /// The header of the cell that runs, as the kernel names it.
    pub(super) running_header: Bytes,
    /// What somebody else runs, if the journal has it: silent code is nobody's work.
    pub(super) seen: Option<Seen>,
    pub(super) comms: Comms,
    pub(super) kernel: Kernel,
    /// The last life that was seen; an ended kernel keeps its number.
    pub(super) generation: u64,
    /// Whether iopub is known to arrive here.
    pub(super) proven: bool,
    /// Whether messages of iopub were read that are still to be taken.
    pub(super) iopub_is_behind: bool,
    /// The proxy's own client: it asks for signs of life and passes interrupts on.
    pub(super) own: ClientId,
    pub(super) probe: Probe,
    pub(super) clients: HashMap<ClientId, Client>,
    pub(super) requests: Requests,
    pub(super) timers: Timers,
    pub(super) voice: Voice,
    /// From a request's way to the kernel to its reply.
    pub(super) replies: Spread,
    pub(super) missed: Missed,
    pub(super) batch: Batch,
    pub(super) dropped: Dropped,
    pub(super) actions: VecDeque<Action>,
}

/// The proxy's own questions, until something arrives on iopub.
#[derive(Debug, Default)]
pub(super) struct Probe {
    pub(super) wait: Duration,
    /// The kernel_info_request that waits in the kernel's shell queue. One at a time: behind a
    /// long cell they would pile up.
    pub(super) on_shell: Option<Key>,
    /// Whether one was lost with the socket.
    pub(super) lost: bool,
    /// What ran when the kernel answered it.
    pub(super) ran: Running,
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
            policies: Policies::default(),
            notice: None,
            choice: None,
            info: None,
            widgets: None,
            jedi_off: None,
            execution_count: 0,
            naming: Naming::default(),
            notebook: None,
            heard: false,
            running: Running::default(),
            running_header: Bytes::from_static(b"{}"),
            seen: None,
            comms: Comms::default(),
            kernel: Kernel::Awaited,
            generation: 0,
            proven: false,
            iopub_is_behind: false,
            own,
            probe: Probe::default(),
            clients: HashMap::new(),
            requests: Requests::default(),
            timers,
            replies: Spread::default(),
            missed: Missed::default(),
            batch: Batch::default(),
            dropped: Dropped::default(),
            actions: VecDeque::new(),
        }
    }

    /// Returns the next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        let action = match self.late_welcome() {
            Some(welcome) => Some(Action::Publish(welcome)),
            None => self.actions.pop_front(),
        };
        if let Some(Action::Publish(_)) = &action {
            self.missed.publishes();
        }
        action
    }

    /// Returns when [`Bridge::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Takes what the user wants otherwise.
    pub fn set_policies(&mut self, policies: Policies) {
        self.policies = policies;
    }

    /// Takes what the asker of the next cell reads before its outputs: that another kernel has
    /// taken the place of the one whose variables it knows, and why.
    pub fn set_notice(&mut self, text: String) {
        self.notice = Some(text);
    }

    /// Takes what the asker of the next cell reads before its outputs of how the kernel was chosen.
    pub fn set_choice(&mut self, text: String) {
        self.choice = Some(text);
    }

    /// Takes the content of a `kernel_info_reply` that the session's kernel has given before: it
    /// lets clients connect while the kernel is restarted.
    pub fn set_info(&mut self, info: Option<Bytes>) {
        if connect::usable(info.as_ref()) {
            self.info = info;
        }
    }

    /// Takes the version of ipywidgets that the kernel has, as far as that is known before it tells it.
    pub fn set_widgets(&mut self, version: Option<String>) {
        if version.is_some() {
            self.widgets = version;
        }
    }

    /// Returns the clients that are connected now.
    pub fn joined(&self) -> impl Iterator<Item = &ClientId> {
        self.clients
            .iter()
            .filter(|(_, client)| client.is_joined())
            .map(|(id, _)| id)
    }

    /// Returns whether anything is known of this client.
    pub fn knows(&self, id: &ClientId) -> bool {
        self.clients.contains_key(id)
    }

    /// Returns how many requests have no answer yet.
    pub fn outstanding(&self) -> usize {
        self.clients.values().map(|client| client.outstanding).sum()
    }

    /// Returns what is held of every client, the proxy's own left out.
    pub fn held(&self) -> impl Iterator<Item = (&ClientId, HeldMessages)> {
        let clients = self.clients.iter().filter(|(id, _)| **id != self.own);
        clients.map(|(id, client)| (id, client.held()))
    }

    /// Returns how long the kernel took lately, from a request's way there to its reply.
    pub fn replies(&self) -> &Spread {
        &self.replies
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
        if kernel == self.kernel || self.batch.is_over() {
            return;
        }
        if let Kernel::Live { info, .. } | Kernel::Unnamed { info } = &kernel {
            self.set_info(info.clone());
        }
        if self.kernel.is_same_life(&kernel) {
            self.kernel = kernel;
            return;
        }
        if self.kernel.is_live() && self.is_batch() {
            return self.end_with_kernel(now, ending);
        }
        if self.kernel.is_live() {
            // The change may come in the middle of what the bridge wants done.
            let not_left = self.take_back(|_, _| true);
            self.close_all_links();
            // An answer to the old kernel's question is none to the next one's.
            self.put_back(
                unsent
                    .into_iter()
                    .chain(not_left)
                    .filter(|(_, channel, _)| *channel != Channel::Stdin),
            );
            self.drop_answers();
            self.fail(now, ending, |request| request.sent);
            self.requests.none_are_late();
        }
        self.kernel = kernel;
        self.proven = false;
        self.running = Running::Nothing;
        self.probe = Probe::default();
        self.comms = Comms::default();
        for timer in [
            Timer::Awaited,
            Timer::Probe,
            Timer::Busy,
            Timer::StillBusy,
            Timer::IdleLost,
            Timer::LateIdle,
        ] {
            self.timers.stop(&timer);
        }
        match self.kernel.clone() {
            Kernel::Awaited => self.timers.start(now.instant + AWAITED, Timer::Awaited),
            Kernel::Live { generation, .. } => {
                self.generation = generation;
                self.execution_count = 0;
                self.open_all_links();
            }
            Kernel::Died(ending) | Kernel::Ended(ending) => self.refuse_held(now, &ending),
            Kernel::Unnamed { .. } => {
                self.naming = Naming::Wanted;
                self.take_anew(now);
            }
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
        if client.paused {
            // This connection is another than the one that is not read: it would be as much again.
            self.actions.push_back(Action::Pause(id.clone()));
        }
        self.timers.stop(&Timer::Gone(id.clone()));
        self.timers.stop(&Timer::HandOver(id.clone()));
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
            let returns = RETURNS.min(grace);
            self.timers
                .start(now.instant + returns, Timer::HandOver(id.clone()));
        }
    }

    /// Takes a message of a client on shell, control or stdin.
    pub fn client_message(&mut self, now: Now, channel: Channel, id: &ClientId, message: Verified) {
        if self.batch.is_over() {
            return;
        }
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
        self.hear(&header.session);
        match channel {
            Channel::Stdin => self.input(channel, id, message),
            Channel::Control => self.control_message(now, id, &message, &header),
            _ => match &*header.msg_type {
                "shutdown_request" => self.answer_shutdown(now, channel, id, &message),
                "kernel_info_request" => self.kernel_info(now, channel, id, &message, &header),
                "execute_request" => self.execute(now, id, &message, &header),
                "comm_close" if !self.may_close(id, &message) => {
                    self.log(Note::CommKept { client: id.clone() });
                }
                msg_type => {
                    if msg_type == "comm_open" {
                        self.comms.opened(message.content(), Some(id.clone()));
                    }
                    // It needs nothing but its answer.
                    let key = self.track(channel, id, &message, &header);
                    self.forward(now, channel, id, key, message);
                }
            },
        }
    }

    fn may_close(&self, id: &ClientId, message: &Verified) -> bool {
        let is_here = |other: &ClientId| self.clients.get(other).is_some_and(Client::is_joined);
        self.comms.may_close(message.content(), id, is_here)
    }

    /// Takes a SIGINT to the proxy: Jupyter asks for an interrupt.
    pub fn interrupt(&mut self, now: Now) {
        let own = self.own.clone();
        self.stop(now, &own, None);
    }

    /// Takes a socket to the kernel that has become usable.
    pub fn link_up(&mut self, now: Now, id: &ClientId, channel: Channel) {
        if let Some(state) = self
            .clients
            .get_mut(id)
            .and_then(|client| client.on(channel))
        {
            state.link = Link::Up;
        }
        if *id == self.own && channel == Channel::Shell && std::mem::take(&mut self.probe.lost) {
            self.ask_on_shell(now);
        }
        self.release(now, id);
    }

    /// Takes a socket to the kernel that was lost, and what was not wholly written to it.
    ///
    /// What is still to be done of the bridge's wishes for this socket comes after that.
    ///
    /// The caller goes on dialling; whether the kernel has ended is told by [`Bridge::kernel_is`].
    pub fn link_down(&mut self, id: &ClientId, channel: Channel, unsent: Vec<Verified>) {
        if *id == self.own && channel == Channel::Shell && self.probe.on_shell.take().is_some() {
            self.timers.stop(&Timer::Busy);
            self.probe.lost = true;
        }
        let known = self.clients.get_mut(id);
        if let Some(state) = known.and_then(|client| client.on(channel)) {
            state.link = Link::Opening;
            let unsent = unsent.into_iter();
            let unsent = unsent.map(|message| (id.clone(), channel, message));
            // The next ones must not overtake what came back.
            let not_left = self.take_back(|client, on| client == id && on == channel);
            self.put_back(unsent.chain(not_left));
        }
    }

    /// Takes the news that a stdin socket could not be connected for long: cells run without it.
    pub fn stdin_absent(&mut self, now: Now, id: &ClientId) {
        let state = self
            .clients
            .get_mut(id)
            .and_then(|client| client.on(Channel::Stdin));
        if let Some(state) = state
            && state.link == Link::Opening
        {
            state.link = Link::Absent;
            self.log(Note::NoStdin { client: id.clone() });
            self.release(now, id);
        }
    }

    /// Takes the iopub subscription that has become usable: now it must be proven.
    pub fn iopub_up(&mut self, now: Now) {
        self.probe.wait = PROBE;
        self.probe.on_shell = None;
        self.probe(now);
    }

    /// Takes the loss of the iopub subscription: requests wait until it is proven anew.
    ///
    /// What the kernel tells meanwhile is told to nobody.
    pub fn iopub_down(&mut self) {
        self.proven = false;
        for key in self.requests.keys(|request| request.sent && !request.idle) {
            if let Some(request) = self.requests.get_mut(&key) {
                request.unheard = true;
                request.proof = None;
            }
        }
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
            let key = message.parent().ok().and_then(|parent| Key::of(&parent));
            if channel == Channel::Shell && self.probe.on_shell == key {
                self.shell_answers(now);
            }
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
            let prompt = Prompt {
                header: message.header_bytes().clone(),
                cell: message.parent().ok().and_then(|parent| Key::of(&parent)),
            };
            if let Some(client) = self.clients.get_mut(id) {
                client.prompt = Some(prompt);
            }
        }
        if header.msg_type.ends_with("_reply")
            && let Some(key) = message.parent().ok().and_then(|parent| Key::of(&parent))
        {
            let answered_here = self.requests.is_answered_here(&key);
            self.replied(now, &key, &header, &message);
            if answered_here || self.requests.came_late(&key) {
                return;
            }
        }
        keep_session(&mut message, other_session.as_deref());
        self.deliver(id, channel, message);
    }

    /// Takes a message of the kernel on iopub.
    pub fn iopub_message(&mut self, now: Now, message: Verified) {
        self.take_iopub(now, message);
        // Afterwards: the first thing to come may be that somebody's cell runs.
        self.prove(now);
    }

    fn take_iopub(&mut self, now: Now, mut message: Verified) {
        let Ok(header) = message.header() else {
            self.log(Note::UnreadableHeader {
                from: "kernel",
                channel: Channel::Iopub,
            });
            return self.actions.push_back(Action::Publish(message));
        };
        let other_session = self.other_session(&header.session);
        let status = match &*header.msg_type {
            "status" => execution_state(message.content()),
            _ => None,
        };
        let is_idle = status.as_deref() == Some("idle");
        self.dropped.take(&header, is_idle);
        match &*header.msg_type {
            // VS Code's client hangs for good after `restarting`; the kernel that follows is ours to tell.
            "status" if matches!(status.as_deref(), Some("restarting" | "dead")) => return,
            // ipykernel broadcasts it, and consoles exit on it.
            "shutdown_reply" => return,
            // It is for the proxy's own subscription; those of clients get their own.
            "iopub_welcome" => return,
            "execute_input" => self.see(&message),
            "error" => self.saw_error(&message),
            "stream" if self.requests.any_widget_probe() => self.note_widgets(&message),
            "comm_open" => self.see_comm(&message),
            _ => {}
        }
        if (status.is_some() || self.requests.any_answered_here())
            && let Ok(parent) = message.parent()
            && let Some(key) = Key::of(&parent)
        {
            let answered_here = self.requests.is_answered_here(&key);
            if let Some(state) = status {
                // A command of nb that looks into the kernel: front ends take any status for that of
                // the main shell, which runs a cell meanwhile.
                if parent.subshell_id.is_some() && !self.requests.contains(&key) {
                    return;
                }
                if state == "busy"
                    && parent.subshell_id.is_none()
                    && parent.msg_type == "execute_request"
                {
                    self.running_header = message.parent_bytes().clone();
                }
                if state == "idle" && !answered_here && self.requests.contains(&key) {
                    self.note_end(message.parent_bytes());
                }
                self.status(now, &key, &parent, &state);
            }
            if answered_here || self.requests.is_late(&key) {
                return;
            }
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

    /// Says whether messages of iopub were read that are still to be taken.
    pub fn set_iopub_behind(&mut self, is_behind: bool) {
        self.iopub_is_behind = is_behind;
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
                Timer::HandOver(id) => self.hand_over(&id),
                Timer::Interrupt(id) => self.carry_on(now, &id),
                Timer::Stale(key) => self.answer_stale(now, &key),
                Timer::StillBusy => self.tell_busy(now),
                Timer::Nameless => self.nameless(),
                Timer::Busy => self.seems_busy(),
                // An idle that was read and is not taken yet is not lost.
                Timer::IdleLost if self.iopub_is_behind => {
                    self.timers.start(now.instant + IDLE_LOST, Timer::IdleLost);
                }
                Timer::IdleLost => self.idle_lost(now),
                Timer::LateIdle => self.look_for_idles(now),
            }
        }
    }

    pub(super) fn log(&mut self, note: Note) {
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
