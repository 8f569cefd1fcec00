//! Messages of the kernel, and what they mean for the requests without an answer.

use serde::Deserialize;
use serde_json::json;

use super::Bridge;
use crate::route::clients::Prompt;
use crate::route::execution::Execution;
use crate::route::request::{Answer, Key, Request, Role};
use crate::route::timer::{Now, Timer};
use crate::route::{Action, ClientId, Ending, Note, Phase};
use crate::wire::{Channel, Header, Verified};

impl Bridge {
    /// Takes the iopub subscription that has become usable: now it must be proven.
    pub fn iopub_up(&mut self, now: Now) {
        self.kernel.iopub_up();
        self.probe_iopub(now);
    }

    /// Takes the loss of the iopub subscription: requests wait until it is proven anew.
    ///
    /// What the kernel publishes meanwhile reaches nobody.
    pub fn iopub_down(&mut self) {
        self.kernel.iopub_down();
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
        if id == self.kernel.own() {
            let key = parent_key(&message);
            if channel == Channel::Shell && self.kernel.asked_on_shell() == key.as_ref() {
                self.shell_answers(now);
            }
            return;
        }
        let Ok(header) = message.header() else {
            self.out.log(Note::UnreadableHeader {
                from: "kernel",
                channel,
            });
            return self.clients.deliver(&mut self.out, id, channel, message);
        };
        let session = self.out.session_for_clients(&header.session);
        if channel == Channel::Stdin && header.msg_type == "input_request" {
            let prompt = Prompt {
                header: message.header_bytes().clone(),
                cell: parent_key(&message),
            };
            self.clients.set_prompt(id, Some(prompt));
        }
        if header.msg_type.ends_with("_reply")
            && let Some(key) = parent_key(&message)
        {
            let answered_here = self.requests.is_answered_here(&key);
            self.replied(now, &key, &header, &message);
            if answered_here || self.requests.take_late_reply(&key) {
                return;
            }
        }
        set_session(&mut message, session.as_deref());
        self.clients.deliver(&mut self.out, id, channel, message);
    }

    /// Takes a message of the kernel on iopub.
    pub fn iopub_message(&mut self, now: Now, message: Verified) {
        self.take_iopub(now, message);
        // Afterwards: the first thing to come may be that somebody's cell runs.
        if self.kernel.prove_iopub() {
            self.timers.stop(&Timer::Probe);
            self.turn_jedi_off(now);
            self.release_all(now);
        }
    }

    fn take_iopub(&mut self, now: Now, mut message: Verified) {
        let Ok(header) = message.header() else {
            self.out.log(Note::UnreadableHeader {
                from: "kernel",
                channel: Channel::Iopub,
            });
            return self.out.publish(message);
        };
        let session = self.out.session_for_clients(&header.session);
        let status = match &*header.msg_type {
            "status" => execution_state(message.content()),
            _ => None,
        };
        let is_idle = status.as_deref() == Some("idle");
        self.dropped.see(&header, is_idle);
        match &*header.msg_type {
            // VS Code's client hangs for good after `restarting`; the bridge says itself which kernel follows.
            "status" if matches!(status.as_deref(), Some("restarting" | "dead")) => return,
            // ipykernel broadcasts it, and consoles exit on it.
            "shutdown_reply" => return,
            // It is for the proxy's own subscription; those of clients get their own.
            "iopub_welcome" => return,
            "execute_input" => self.see_input(&message),
            "error" => self.queue.raise_outside(parent_key(&message).as_ref()),
            "stream" if self.requests.any_widget_probe() => self.see_widgets(&message),
            "comm_open" => self.see_comm(&message),
            _ => {}
        }
        if (status.is_some() || self.requests.any_answered_here())
            && let Ok(parent) = message.parent()
            && let Some(key) = Key::of(&parent)
        {
            let answered_here = self.requests.is_answered_here(&key);
            if let Some(state) = status {
                // A command of nb that inspects the kernel: front ends take any status for that of
                // the main shell, which runs a cell meanwhile.
                if parent.subshell_id.is_some() && !self.requests.contains(&key) {
                    return;
                }
                if state == "busy"
                    && parent.subshell_id.is_none()
                    && parent.msg_type == "execute_request"
                {
                    self.queue.set_header(message.parent_bytes());
                }
                if state == "idle" && !answered_here && self.requests.contains(&key) {
                    self.out.expect_end(message.parent_bytes());
                }
                self.take_status(now, &key, &parent, &state);
            }
            if answered_here || self.requests.is_late(&key) {
                return;
            }
        }
        set_session(&mut message, session.as_deref());
        self.out.publish(message);
    }

    /// Takes that a message of the kernel was too long to be received.
    ///
    /// `parent` is its unverified parent header: it only chooses among the requests that are known.
    /// On iopub the client reads what is missing, as a stderr stream; a reply that is missing is
    /// replaced by an error.
    pub fn oversized(&mut self, now: Now, channel: Channel, parent: &[u8], bytes: u64) {
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
            self.out.publish_new(now, "stream", parent, &content);
        } else {
            let ending = Ending {
                name: "MessageTooLong",
                text,
            };
            self.fail_one(now, &ending, &key);
        }
    }

    fn replied(&mut self, now: Now, key: &Key, header: &Header<'_>, message: &Verified) {
        let Some(replied) = self.requests.reply(key, &header.msg_type) else {
            return;
        };
        let request = replied.request;
        if replied.journalled {
            let generation = self.kernel.generation();
            let status = reply_status(message.content());
            let done = Execution::done(generation, key, request, status);
            self.out.push(Action::Journal(done));
        }
        // A cell that has its reply asks nothing any more.
        if request.msg_type == "execute_request" {
            self.clients.end_prompt_of(&request.client, key);
        }
        let is_doubtful = request.lacks_doubtful_idle();
        let lacks_idle = request.lacks_idle();
        self.finish(now, key);
        if is_doubtful {
            self.ask_on_shell(now);
        } else if lacks_idle {
            self.await_idle(now);
        }
    }

    fn take_status(&mut self, now: Now, key: &Key, parent: &Header<'_>, state: &str) {
        self.requests.set_status(key, state);
        // What a subshell runs holds up no cell.
        match state {
            _ if parent.subshell_id.is_some() => {}
            "busy" => self.begins(now, key, parent),
            "idle" => self.ends(now, key, parent),
            _ => {}
        }
        self.finish(now, key);
    }

    /// Forgets a request whose answer is complete.
    pub(super) fn finish(&mut self, now: Now, key: &Key) {
        let request = self.requests.get(key);
        if request.is_some_and(Request::is_done)
            && let Some(request) = self.requests.remove(key)
        {
            self.timers.stop(&Timer::Stale(key.clone()));
            if request.answer == Answer::FromKernel {
                self.settle(now, &request.client);
            }
        }
    }

    /// A client has got the answer to one of its requests.
    pub(super) fn settle(&mut self, now: Now, id: &ClientId) {
        if self.clients.end_request(id) && id.is_anonymous() {
            self.timers.start(now.instant, Timer::Gone(id.clone()));
        }
    }

    /// Adds what a client outside this front end runs to the journal.
    fn see_input(&mut self, message: &Verified) {
        #[derive(Deserialize)]
        struct Input {
            code: String,
            #[serde(default)]
            execution_count: u64,
        }
        let Ok(parent) = message.parent() else { return };
        let Some(key) = Key::of(&parent) else { return };
        let Ok(input) = serde_json::from_slice::<Input>(message.content()) else {
            return;
        };
        self.stored.set_execution_count(input.execution_count);
        if self.requests.contains(&key) {
            return;
        }
        self.queue.begin_outside(key);
        let (generation, code) = (self.kernel.generation(), Some(input.code));
        let seen = Execution::of_outside(Phase::Seen, generation, &parent, code);
        self.out.push(Action::Journal(seen));
    }

    /// Remembers what the kernel printed for a widget probe.
    fn see_widgets(&mut self, message: &Verified) {
        let role = parent_key(message).and_then(|key| self.requests.role(&key));
        if role == Some(Role::WidgetProbe)
            && let Some(version) = self.stored.take_widget_probe(message.content())
        {
            self.out.push(Action::WidgetsVersion { version });
        }
    }

    /// Remembers whose request led to a comm of the kernel's.
    fn see_comm(&mut self, message: &Verified) {
        let request = parent_key(message).and_then(|key| self.requests.get(&key));
        let client = request.map(|request| request.client.clone());
        self.comms.opened(message.content(), client);
    }
}

/// Returns the key of the request that a message belongs to.
fn parent_key(message: &Verified) -> Option<Key> {
    message.parent().ok().and_then(|parent| Key::of(&parent))
}

/// Gives a message the one session that clients know.
fn set_session(message: &mut Verified, session: Option<&str>) {
    if let Some(session) = session {
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
    let status = serde_json::from_slice::<Status>(content).ok();
    status.map(|status| status.execution_state)
}

/// Returns the `status` of a reply.
fn reply_status(content: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Reply {
        status: String,
    }
    serde_json::from_slice::<Reply>(content).map_or_else(|_| "unknown".into(), |reply| reply.status)
}
