//! Messages of the kernel, and what they change about outstanding requests.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::Bridge;
use crate::route::clients::Prompt;
use crate::route::dropped;
use crate::route::editor_comm::is_editor_comm;
use crate::route::execution::ExecutionProgress;
use crate::route::request::{Answer, Key, Request, Role};
use crate::route::timer::{Now, Timer};
use crate::route::{Action, ClientId, Ending, Note, Phase};
use crate::wire::{Channel, FACTS, Header, Verified};

/// The content of an `input_request`.
#[derive(Deserialize)]
struct PromptContent {
    #[serde(default)]
    prompt: String,
}

impl Bridge {
    /// Takes an iopub subscription that is connected; the bridge now proves that messages arrive on it.
    pub fn iopub_up(&mut self, now: Now) {
        self.set_now(now);
        self.kernel.iopub_up();
        self.probe_iopub();
    }

    /// Takes the loss of the iopub subscription: requests wait until the next subscription is proven.
    ///
    /// Messages that the kernel publishes until then are lost.
    pub fn iopub_down(&mut self) {
        self.kernel.iopub_down();
        self.dropped.connection_lost();
        self.requests.iopub_lost();
    }

    /// Takes a message of the kernel on one client's shell, control or stdin socket.
    pub fn kernel_message(
        &mut self,
        now: Now,
        id: &ClientId,
        channel: Channel,
        mut message: Verified,
    ) {
        self.set_now(now);
        if id == self.kernel.client_id() {
            if let Some(key) = parent_key(&message)
                && self.kernel.shell_request() == Some(&key)
            {
                self.handle_shell_reply();
            }
            return;
        }
        let Ok(header) = message.header() else {
            self.out.log(Note::UnreadableHeader {
                sender: "kernel",
                channel,
            });
            return self.clients.deliver(&mut self.out, id, channel, message);
        };
        let session = self.out.session_for_clients(&header.session);
        if channel == Channel::Stdin {
            self.dropped.count_on_stdin(&header);
        }
        if channel == Channel::Stdin && header.msg_type == "input_request" {
            let cell = parent_key(&message);
            if let Some(cell) = &cell {
                let content: Option<PromptContent> = message.read_content();
                let text = content.map(|content| content.prompt).unwrap_or_default();
                self.journal_prompt(cell, Phase::Prompted(text));
            }
            let prompt = Prompt {
                header: message.header_bytes().clone(),
                cell,
            };
            self.clients.set_prompt(id, Some(prompt));
        }
        if header.msg_type.ends_with("_reply")
            && let Some(key) = parent_key(&message)
        {
            let answered_by_bridge = self.requests.is_answered_by_bridge(&key);
            self.handle_reply(&key, &header, &message);
            if answered_by_bridge || self.requests.is_late(&key) {
                return;
            }
        }
        set_session(&mut message, session.as_deref());
        self.clients.deliver(&mut self.out, id, channel, message);
    }

    /// Takes a message of the kernel on iopub.
    pub fn iopub_message(&mut self, now: Now, message: Verified) {
        self.set_now(now);
        self.handle_iopub(message);
        // After `handle_iopub`, because the first message may say that a cell runs.
        if self.kernel.prove_iopub() {
            self.timers.stop(&Timer::Probe);
            self.turn_jedi_off();
            self.release_all();
        }
    }

    /// Publishes a message of the kernel, and takes from it what it shows about the running cell.
    fn handle_iopub(&mut self, mut message: Verified) {
        let Ok(header) = message.header() else {
            self.out.log(Note::UnreadableHeader {
                sender: "kernel",
                channel: Channel::Iopub,
            });
            return self.out.publish(message);
        };
        let session = self.out.session_for_clients(&header.session);
        let status = match &*header.msg_type {
            "status" => message.execution_state(),
            _ => None,
        };
        let is_idle = status.as_deref() == Some("idle");
        self.dropped.count_on_iopub(&header, is_idle);
        if let lost @ 1.. = self.dropped.lost()
            && let Ok(parent) = message.parent()
            && parent.msg_type == "execute_request"
        {
            self.dropped.mark_loss_reported();
            let parent = message.parent_bytes().clone();
            self.out.publish_notice(parent, &dropped::loss_notice(lost));
        }
        if header.msg_type.starts_with("comm_") && is_editor_comm(message.content()) {
            let msg_type = header.msg_type.into_owned();
            return self.out.log(Note::EditorCommDropped { msg_type });
        }
        match &*header.msg_type {
            // VS Code's client hangs for good after `restarting`; the bridge itself announces the next
            // kernel.
            "status" if matches!(status.as_deref(), Some("restarting" | "dead")) => return,
            // ipykernel broadcasts it on iopub, and consoles exit when they see it.
            "shutdown_reply" => return,
            // This one answers the proxy's own subscription; the bridge sends each client's subscription its
            // own welcome.
            "iopub_welcome" => return,
            FACTS => return self.take_facts(&message),
            "execute_input" => self.record_input(&message),
            "error" => self.queue.raise_outside(parent_key(&message).as_ref()),
            "stream" if self.requests.any_widget_probe() => self.record_widgets(&message),
            "comm_open" => self.record_comm(&message),
            _ => {}
        }
        if (status.is_some() || self.requests.any_answered_by_bridge())
            && let Ok(parent) = message.parent()
            && let Some(key) = Key::of(&parent)
        {
            let answered_by_bridge = self.requests.is_answered_by_bridge(&key);
            if let Some(state) = status {
                // A command of nb inspects the kernel in a subshell: front ends would take its status for
                // that of the main shell, which may be running a cell.
                if parent.subshell_id.is_some() && !self.requests.contains(&key) {
                    return;
                }
                if state == "busy"
                    && parent.subshell_id.is_none()
                    && parent.msg_type == "execute_request"
                {
                    self.queue.publishes_busy(message.parent_bytes());
                }
                if is_idle
                    && self.queue.runs(&key)
                    && let dropped @ 1.. = self.dropped.cell_ends()
                {
                    let parent = message.parent_bytes().clone();
                    self.out
                        .publish_notice(parent, &dropped::gap_notice(dropped));
                }
                if state == "idle" && !answered_by_bridge && self.requests.contains(&key) {
                    self.out.expect_idle(message.parent_bytes());
                }
                self.take_status(&key, &parent, &state);
                // Of a request on control or a subshell; front ends show the last status of any request.
                if state == "idle" && !self.queue.is_idle() {
                    self.expect_still_busy();
                }
            }
            if answered_by_bridge || self.requests.is_late(&key) {
                return;
            }
        }
        set_session(&mut message, session.as_deref());
        self.out.publish(message);
    }

    /// Records that a message of the kernel was too long to be received.
    ///
    /// `parent` is its unverified parent header; it is only used to choose among the known requests. For a
    /// message on iopub, the client gets a stderr stream that says what is missing; a missing reply is
    /// replaced by an error.
    pub fn oversized(&mut self, now: Now, channel: Channel, parent: &[u8], bytes: u64) {
        self.set_now(now);
        let parent = Header::parse(parent).ok();
        let Some(key) = parent.and_then(|header| Key::of(&header)) else {
            return;
        };
        let Some(request) = self.requests.get(&key) else {
            return;
        };
        let text = format!(
            "{bytes} bytes from the kernel were more than one message may have, and were not passed on"
        );
        if channel == Channel::Iopub {
            let parent = request.header.clone();
            let content = json!({ "name": "stderr", "text": format!("[nb-proxy] {text}\n") });
            self.out.publish_new("stream", parent, &content);
        } else {
            let ending = Ending::new("MessageTooLong", text);
            self.fail_one(&ending, &key);
        }
    }

    /// Adds the prompt of a client's cell, or its answer, to the journal.
    pub(super) fn journal_prompt(&mut self, cell: &Key, phase: Phase) {
        let generation = self.kernel.generation();
        if let Some(request) = self.requests.journalled(cell) {
            let step = ExecutionProgress::of(phase, generation, cell, request);
            self.out.push(Action::Journal(step));
        }
    }

    /// Takes the kernel's reply to a request.
    fn handle_reply(&mut self, key: &Key, header: &Header<'_>, message: &Verified) {
        let now = self.timers.now();
        let was_interrupted = self.interrupted.take_if(|cell| cell == key).is_some();
        let Some((request, is_journalled)) = self.requests.reply(key, &header.msg_type, now) else {
            return;
        };
        if is_journalled {
            let generation = self.kernel.generation();
            let status = reply_status(message, was_interrupted);
            let step = ExecutionProgress::ended(generation, key, request, status);
            self.out.push(Action::Journal(step));
        }
        // A cell that has its reply has no open prompt any more.
        self.clients.end_prompt_of(&request.client, key);
        let is_doubtful = request.lacks_doubtful_idle();
        let lacks_idle = request.lacks_idle();
        self.finish(key);
        if is_doubtful {
            self.probe_shell();
        }
        if lacks_idle {
            self.await_idle();
        }
    }

    /// Takes the kernel's status for a request.
    fn take_status(&mut self, key: &Key, parent: &Header<'_>, state: &str) {
        self.requests.set_status(key, state);
        // A request in a subshell delays no cell.
        match state {
            _ if parent.subshell_id.is_some() => {}
            "busy" => self.request_began(key, parent),
            "idle" => self.request_ended(key, parent),
            _ => {}
        }
        self.finish(key);
    }

    /// Forgets a request whose answer is complete.
    pub(super) fn finish(&mut self, key: &Key) {
        let request = self.requests.get(key);
        if request.is_some_and(Request::is_done)
            && let Some(request) = self.requests.remove(key)
        {
            self.timers.stop(&Timer::AnswerWait(key.clone()));
            if request.answer == Answer::FromKernel {
                self.settle(&request.client);
            }
        }
    }

    /// Records that a client has got the answer to one of its requests.
    pub(super) fn settle(&mut self, id: &ClientId) {
        if self.clients.end_request(id) && id.is_anonymous() {
            self.timers
                .start(Duration::ZERO, Timer::ForgetClient(id.clone()));
        }
    }

    /// Adds a cell that a client outside this front end runs to the journal.
    fn record_input(&mut self, message: &Verified) {
        #[derive(Deserialize)]
        struct Input {
            code: String,
            #[serde(default)]
            execution_count: u64,
        }
        let Ok(parent) = message.parent() else { return };
        let Some(key) = Key::of(&parent) else { return };
        let Some(input) = message.read_content::<Input>() else {
            return;
        };
        self.stored.set_execution_count(input.execution_count);
        if self.requests.contains(&key) || self.requests.is_late(&key) {
            return;
        }
        self.queue.begin_outside(key);
        let (generation, code) = (self.kernel.generation(), Some(input.code));
        let step = ExecutionProgress::of_outside(Phase::BegunOutside, generation, &parent, code);
        self.out.push(Action::Journal(step));
    }

    /// Takes what the kernel says that an execution changed. No front end sees it.
    fn take_facts(&mut self, message: &Verified) {
        if let Some(key) = parent_key(message) {
            self.out.push(Action::Facts {
                generation: self.kernel.generation(),
                msg_id: key.msg_id().to_owned(),
                content: message.content().clone(),
            });
        }
    }

    /// Stores the ipywidgets version that the kernel printed for a widget probe.
    fn record_widgets(&mut self, message: &Verified) {
        let role = parent_key(message).and_then(|key| self.requests.role(&key));
        if role == Some(Role::WidgetProbe)
            && let Some(version) = self.stored.take_widget_probe(message)
        {
            self.out.push(Action::WidgetsVersion { version });
        }
    }

    /// Remembers the client whose request made the kernel open a comm.
    fn record_comm(&mut self, message: &Verified) {
        let request = parent_key(message).and_then(|key| self.requests.get(&key));
        let client = request.map(|request| request.client.clone());
        self.comms.opened(message.content(), client);
    }
}

/// Returns the key of the request that a message belongs to.
fn parent_key(message: &Verified) -> Option<Key> {
    message.parent().ok().and_then(|parent| Key::of(&parent))
}

/// Replaces a message's session by the one that clients know.
fn set_session(message: &mut Verified, session: Option<&str>) {
    if let Some(session) = session {
        message
            .set_session(session)
            .expect("the header was read just now and has a session");
    }
}

/// Returns the `status` of a reply, or `interrupted` for a cell that an interrupt has ended.
fn reply_status(message: &Verified, was_interrupted: bool) -> String {
    #[derive(Deserialize)]
    struct Reply {
        status: String,
        #[serde(default)]
        ename: String,
    }
    let Some(Reply { status, ename }) = message.read_content() else {
        return "unknown".into();
    };
    match &*ename {
        "KeyboardInterrupt" | "InterruptException" if status == "error" => "interrupted".into(),
        // IPython ends an interrupted `await` so.
        "CancelledError" if was_interrupted => "interrupted".into(),
        _ => status,
    }
}
