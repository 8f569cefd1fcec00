//! Answers to the requests of a connecting client while the kernel is busy: no person waits for an agent's
//! cell to end in order to connect.
//!
//! jupyter_client's `wait_for_ready`, nbclient and JupyterLab wait for a kernel_info_reply on shell, which a
//! kernel sends between two cells only; VS Code runs code of its own there before it lets a person in. When
//! the kernel has not answered such a request in time, the bridge answers it from the kernel_info_reply that
//! the kernel gave at its start, and drops the kernel's late answer.

use serde_json::{Value, json};

use super::Bridge;
use crate::route::request::{Answer, Key, Role};
use crate::route::startup::{self, Startup};
use crate::route::timer::{ANSWER_WAIT, Timer};
use crate::route::{ClientId, Kernel, Note};
use crate::wire::{Channel, Header, Verified};

impl Bridge {
    /// Takes a kernel_info_request on shell or control.
    pub(super) fn kernel_info(
        &mut self,
        channel: Channel,
        id: &ClientId,
        message: &Verified,
        header: &Header<'_>,
    ) {
        let Some(key) = self.track(channel, id, message, header) else {
            return self.forward(channel, id, None, message.clone());
        };
        // After the kernel has died, a client may still connect: its next cell starts another kernel.
        if matches!(self.kernel(), Kernel::Unresolved { .. } | Kernel::Died(_)) {
            return self.answer_info(&key);
        }
        self.timers
            .start(ANSWER_WAIT, Timer::AnswerWait(key.clone()));
        self.forward(channel, id, Some(key), message.clone());
    }

    /// Answers code that a front end runs for itself, if it is recognised; returns whether it was answered.
    pub(super) fn answer_start_up(
        &mut self,
        id: &ClientId,
        message: &Verified,
        header: &Header<'_>,
        code: &str,
    ) -> bool {
        if !self.policies.answer_startup {
            return false;
        }
        let Some(startup) = startup::recognise(code, &self.policies.startup_known) else {
            // Most code that is not recognised here is a tool's, and is not hashed a second time.
            if startup::looks_like_startup(code) {
                if let Some(notebook) = startup::notebook_in(code) {
                    self.resolution
                        .name(&mut self.out, &mut self.timers, notebook);
                }
                let fingerprint = startup::fingerprint(code);
                self.out.log(Note::StartupUnknown { fingerprint });
            }
            return false;
        };
        match startup {
            Startup::Setup { notebook, jedi_off } => {
                if let Some(notebook) = notebook {
                    self.resolution
                        .name(&mut self.out, &mut self.timers, notebook);
                }
                if let Some(key) = self.track(Channel::Shell, id, message, header) {
                    self.answer_execute(&key, None);
                }
                self.out.log(Note::StartupAnswered(id.clone()));
                if jedi_off {
                    self.stored.set_jedi_off(id.clone());
                    if self.kernel.is_usable() {
                        self.turn_jedi_off();
                    }
                }
            }
            Startup::WidgetProbe => {
                let Some(key) = self.track(Channel::Shell, id, message, header) else {
                    return false;
                };
                self.requests.set_role(&key, Role::WidgetProbe);
                if self.kernel().ending().is_some() {
                    self.answer_widget_probe(&key);
                    return true;
                }
                // Forwarded in any case: a version that arrives too late is stored for the next probe.
                self.forward(Channel::Shell, id, Some(key.clone()), message.clone());
                if !self.queue.is_idle() || self.kernel().is_unresolved() {
                    self.answer_widget_probe(&key);
                } else {
                    self.timers.start(ANSWER_WAIT, Timer::AnswerWait(key));
                }
            }
        }
        true
    }

    /// Turns Jedi off in the kernel, as the start-up code would have done that the bridge has answered.
    ///
    /// Without this effect of the start-up code, the first completion (with Jedi) takes seconds; VS Code asks
    /// for one by itself after it has connected, and cells wait behind it. No client awaits the reply, and
    /// nothing of the request is shown or written to the journal.
    pub(super) fn turn_jedi_off(&mut self) {
        let Some(id) = self.stored.jedi_off().cloned() else {
            return;
        };
        let content = json!({
            "code": startup::JEDI_OFF,
            "silent": true,
            "store_history": false,
            "user_expressions": {},
            "allow_stdin": false,
            "stop_on_error": false,
        });
        let message = self.out.synthetic.request("execute_request", &content);
        let Ok(header) = message.header() else {
            return;
        };
        if let Some(key) = self.track(Channel::Shell, &id, &message, &header) {
            self.requests.set_answer(&key, Answer::FromBridge);
            // No client waits for it.
            self.settle(&id);
            self.forward(Channel::Shell, &id, Some(key), message.clone());
        }
    }

    /// Answers a request of a connecting client that the kernel has not answered in time.
    pub(super) fn answer_late_request(&mut self, key: &Key) {
        let Some(request) = self.requests.get(key) else {
            return;
        };
        let is_probe = request.role == Role::WidgetProbe;
        if request.replied_at.is_some() {
            return;
        }
        // A Jupyter server sends one such request for all its windows: if the window that sent it is closed
        // before the answer, the others wait a minute. So no such request waits for a restart.
        let waits = !self.kernel().is_live() && !self.kernel().is_unresolved();
        if waits && (!self.stored.has_info() || is_probe) {
            let timer = Timer::AnswerWait(key.clone());
            return self.timers.start(ANSWER_WAIT, timer);
        }
        if is_probe {
            self.answer_widget_probe(key);
        } else if self.stored.has_info() {
            self.answer_info(key);
        }
    }

    /// Answers a kernel_info_request from the stored kernel_info_reply.
    fn answer_info(&mut self, key: &Key) {
        let content = self.stored.info();
        self.answer_in_bridge(key, &content, None);
    }

    /// Answers the probe for ipywidgets from the stored version.
    pub(super) fn answer_widget_probe(&mut self, key: &Key) {
        let stdout = self.stored.widget_probe();
        self.answer_execute(key, Some(stdout));
    }

    /// Answers a console's `exit` as IPython does, without the end of the kernel.
    pub(super) fn answer_exit(&mut self, key: &Key) {
        let mut content = self.stored.execute_reply();
        content["payload"] = json!([{ "source": "ask_exit", "keepkernel": false }]);
        self.answer_in_bridge(key, &content, None);
    }

    /// Answers an execute_request in the kernel's stead.
    fn answer_execute(&mut self, key: &Key, stdout: Option<String>) {
        let content = self.stored.execute_reply();
        self.answer_in_bridge(key, &content, stdout);
    }

    /// Answers a request in the kernel's stead, even if it was sent to the kernel already: busy, stdout,
    /// reply, idle.
    fn answer_in_bridge(&mut self, key: &Key, content: &Value, stdout: Option<String>) {
        let Some(request) = self.requests.get(key) else {
            return;
        };
        let (parent, client) = (request.header.clone(), request.client.clone());
        let reply_type = request.reply_type().unwrap_or_default();
        let (channel, sent, role) = (request.channel, request.sent, request.role);
        if !request.busy {
            self.out.publish_busy(parent.clone());
        }
        if let Some(text) = stdout {
            let stream = json!({ "name": "stdout", "text": text });
            self.out.publish_new("stream", parent.clone(), &stream);
        }
        let reply = self
            .out
            .synthetic
            .kernel_message(&reply_type, parent.clone(), content);
        self.clients.deliver(&mut self.out, &client, channel, reply);
        self.out.publish_idle(parent);
        if sent || role == Role::WidgetProbe && self.kernel().ending().is_none() {
            self.requests.set_answer(key, Answer::FromBridge);
        } else {
            self.take_held(key);
            self.requests.remove(key);
        }
        self.timers.stop(&Timer::AnswerWait(key.clone()));
        self.expect_still_busy();
        self.settle(&client);
    }
}
