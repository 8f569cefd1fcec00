//! What a connecting client asks, answered while the kernel cannot: nobody waits for an agent's cell to end in order
//! to connect.
//!
//! jupyter_client's `wait_for_ready`, nbclient and JupyterLab wait for kernel_info on shell, which
//! a kernel answers between two cells only; VS Code runs code of its own there before it lets a
//! person in. What the kernel has not answered for a moment is answered here, from what it answered
//! when it was started, and its late answer is dropped.

use serde_json::{Value, json};

use super::Bridge;
use crate::route::request::{Answer, Key, Role};
use crate::route::startup::{self, Startup};
use crate::route::timer::{Now, STALE, STILL_BUSY, Timer};
use crate::route::{ClientId, Kernel, Note};
use crate::wire::{Channel, Header, Verified};

impl Bridge {
    /// Takes a kernel_info_request on shell or control.
    pub(super) fn kernel_info(
        &mut self,
        now: Now,
        channel: Channel,
        id: &ClientId,
        message: &Verified,
        header: &Header<'_>,
    ) {
        let Some(key) = self.track(channel, id, message, header) else {
            return self.forward(now, channel, id, None, message.clone());
        };
        // Where the kernel died, whoever connects anew is let in: the next cell brings another.
        if matches!(self.kernel(), Kernel::Unresolved { .. } | Kernel::Died(_)) {
            return self.answer_info(now, &key);
        }
        self.timers
            .start(now.instant + STALE, Timer::Stale(key.clone()));
        self.forward(now, channel, id, Some(key), message.clone());
    }

    /// Takes code that a front end runs for itself, if it is recognised: returns whether that was all.
    pub(super) fn answer_start_up(
        &mut self,
        now: Now,
        id: &ClientId,
        message: &Verified,
        header: &Header<'_>,
        code: &str,
    ) -> bool {
        if !self.policies.answer_startup {
            return false;
        }
        let Some(startup) = startup::recognise(code, &self.policies.startup_known) else {
            // Much of it is a tool's code, which is not hashed once more.
            if startup::bears_the_marks(code) {
                if let Some(notebook) = startup::notebook_named(code) {
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
                    self.answer_execute(now, &key, None);
                }
                self.out.log(Note::StartupAnswered { client: id.clone() });
                if jedi_off {
                    self.stored.set_jedi_off(id.clone());
                    if self.kernel.is_usable() {
                        self.turn_jedi_off(now);
                    }
                }
            }
            Startup::WidgetProbe => {
                let Some(key) = self.track(Channel::Shell, id, message, header) else {
                    return false;
                };
                self.requests.set_role(&key, Role::WidgetProbe);
                if self.kernel.ending().is_some() {
                    self.answer_widget_probe(now, &key);
                    return true;
                }
                // Sent in any case: an answer that comes too late is remembered for the next time.
                self.forward(now, Channel::Shell, id, Some(key.clone()), message.clone());
                if !self.queue.is_idle() || self.kernel.is_unresolved() {
                    self.answer_widget_probe(now, &key);
                } else {
                    self.timers.start(now.instant + STALE, Timer::Stale(key));
                }
            }
        }
        true
    }

    /// Turns Jedi off in the kernel, as the start-up code wants it that the bridge has answered.
    ///
    /// It is the one effect of that code which is missed: the first completion with Jedi takes
    /// seconds, VS Code asks for one by itself when it has joined, and the cells wait behind it.
    /// Nobody awaits the answer, and nothing of it is shown or journalled.
    pub(super) fn turn_jedi_off(&mut self, now: Now) {
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
        let message = self.out.new_request(now, "execute_request", &content);
        let Ok(header) = message.header() else {
            return;
        };
        if let Some(key) = self.track(Channel::Shell, &id, &message, &header) {
            self.requests.set_answer(&key, Answer::Given);
            // Nobody waits for it.
            self.settle(now, &id);
            self.forward(now, Channel::Shell, &id, Some(key), message.clone());
        }
    }

    /// The kernel has not answered in time what a connecting client waits for.
    pub(super) fn answer_stale(&mut self, now: Now, key: &Key) {
        let Some(request) = self.requests.get(key) else {
            return;
        };
        let is_probe = request.role == Role::WidgetProbe;
        if request.replied {
            return;
        }
        // A server keeps one such request for all its windows: where the one that sent it is
        // closed before the answer, the others wait a minute. So no such request waits for a restart.
        let waits = !self.kernel.is_live() && !self.kernel.is_unresolved();
        if waits && (!self.stored.has_info() || is_probe) {
            let timer = Timer::Stale(key.clone());
            return self.timers.start(now.instant + STALE, timer);
        }
        if is_probe {
            self.answer_widget_probe(now, key);
        } else if self.stored.has_info() {
            self.answer_info(now, key);
        }
    }

    /// Answers a kernel_info_request from what is known.
    fn answer_info(&mut self, now: Now, key: &Key) {
        let content = self.stored.info();
        self.answer_here(now, key, &content, None);
    }

    /// Answers the probe for ipywidgets from what is known.
    pub(super) fn answer_widget_probe(&mut self, now: Now, key: &Key) {
        let stdout = self.stored.widget_probe();
        self.answer_execute(now, key, Some(stdout));
    }

    /// Answers an execute_request that is not to reach the kernel.
    fn answer_execute(&mut self, now: Now, key: &Key, stdout: Option<String>) {
        let content = self.stored.execute_reply();
        self.answer_here(now, key, &content, stdout);
    }

    /// Answers a request in the kernel's stead, also one that the kernel has: busy, stdout, reply, idle.
    fn answer_here(&mut self, now: Now, key: &Key, content: &Value, stdout: Option<String>) {
        let Some(request) = self.requests.get(key) else {
            return;
        };
        let (parent, client) = (request.header.clone(), request.client.clone());
        let reply_type = request.reply_type().unwrap_or_default();
        let (channel, sent, role) = (request.channel, request.sent, request.role);
        if !request.busy {
            self.out.publish_busy(now, parent.clone());
        }
        if let Some(text) = stdout {
            let stream = json!({ "name": "stdout", "text": text });
            self.out.publish_new(now, "stream", parent.clone(), &stream);
        }
        let reply = self
            .out
            .new_reply(now, &reply_type, parent.clone(), content);
        self.clients.deliver(&mut self.out, &client, channel, reply);
        self.out.publish_idle(now, parent);
        if sent || role == Role::WidgetProbe && self.kernel.ending().is_none() {
            self.requests.set_answer(key, Answer::Given);
        } else {
            self.take_held(key);
            self.requests.remove(key);
        }
        self.timers.stop(&Timer::Stale(key.clone()));
        self.timers
            .start(now.instant + STILL_BUSY, Timer::StillBusy);
        self.settle(now, &client);
    }
}
