//! What a connecting client asks, answered while the kernel cannot: nobody waits behind an
//! agent's cell to connect.
//!
//! jupyter_client's `wait_for_ready`, nbclient and JupyterLab wait for kernel_info on shell, which
//! a kernel answers between two cells only; VS Code runs code of its own there before it lets a
//! person in. What the kernel has not answered for a moment is answered here, from what it said
//! when it was started, and its late answer goes no further.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::bridge::Bridge;
use super::kernel::Kernel;
use super::request::{Answer, Key, Role};
use super::startup::{self, Startup};
use super::timer::{Now, STALE, STILL_BUSY, Timer};
use super::turns::Running;
use super::{Action, ClientId, Note};
use crate::wire::{Channel, Header, Verified};

/// What the content of an execute request says about how it is to be treated.
#[derive(Deserialize)]
pub(super) struct Execute {
    code: String,
    #[serde(default)]
    silent: bool,
    store_history: Option<bool>,
    allow_stdin: Option<bool>,
}

impl Execute {
    pub(super) fn read(content: &[u8]) -> Option<Self> {
        serde_json::from_slice(content).ok()
    }

    pub(super) fn code(&self) -> &str {
        &self.code
    }

    /// Returns whether a person or an agent wants to see it run: not a tool's own code.
    pub(super) fn is_cell(&self) -> bool {
        !self.silent && self.store_history.unwrap_or(true)
    }

    /// Returns whether somebody is there who can answer what it asks.
    pub(super) fn may_ask(&self) -> bool {
        self.allow_stdin.unwrap_or(true)
    }
}

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
        if matches!(self.kernel, Kernel::Unnamed { .. } | Kernel::Died(_)) {
            return self.answer_info(now, &key);
        }
        self.timers
            .start(now.instant + STALE, Timer::Stale(key.clone()));
        self.forward(now, channel, id, Some(key), message.clone());
    }

    /// Takes code that a front end runs for itself, if it is recognised: returns whether that was all.
    pub(super) fn start_up(
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
            // Without a mark it names none: a tool's code, of which there is much, is not read again.
            if startup::bears_the_marks(code) {
                if let Some(notebook) = startup::notebook_named(code) {
                    self.named(notebook);
                }
                let fingerprint = startup::fingerprint(code);
                self.log(Note::StartupUnknown { fingerprint });
            }
            return false;
        };
        match startup {
            Startup::Setup { notebook, jedi_off } => {
                if let Some(notebook) = notebook {
                    self.named(notebook);
                }
                if let Some(key) = self.track(Channel::Shell, id, message, header) {
                    self.answer_execute(now, &key, None);
                }
                self.log(Note::StartupAnswered { client: id.clone() });
                if jedi_off {
                    self.jedi_off = Some(id.clone());
                    if self.proven && self.kernel.is_live() {
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
                    self.answer_widgets(now, &key);
                    return true;
                }
                // Sent in any case: an answer that comes too late is remembered for the next time.
                self.forward(now, Channel::Shell, id, Some(key.clone()), message.clone());
                if self.running != Running::Nothing || self.is_unnamed() {
                    self.answer_widgets(now, &key);
                } else {
                    self.timers.start(now.instant + STALE, Timer::Stale(key));
                }
            }
        }
        true
    }

    /// Turns Jedi off in the kernel, as the start-up code wants it that was answered here.
    ///
    /// It is the one effect of that code which is missed: the first completion with Jedi takes
    /// seconds, VS Code asks for one by itself when it has joined, and the cells wait behind it.
    /// Nobody awaits the answer, and nothing is shown or journalled of it.
    pub(super) fn turn_jedi_off(&mut self, now: Now) {
        let Some(id) = self.jedi_off.clone() else {
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
        let message = self.voice.ask(now, "execute_request", &content);
        let Ok(header) = message.header() else {
            return;
        };
        if let Some(key) = self.track(Channel::Shell, &id, &message, &header) {
            self.requests.set_answer(&key, Answer::Given);
            // Nobody waits for it.
            self.settled(now, &id);
            self.forward(now, Channel::Shell, &id, Some(key), message.clone());
        }
    }

    /// Remembers what the kernel printed for the probe of its ipywidgets.
    pub(super) fn note_widgets(&mut self, message: &Verified) {
        #[derive(Deserialize)]
        struct Stream {
            text: String,
        }
        let key = message.parent().ok().and_then(|parent| Key::of(&parent));
        if key.and_then(|key| self.requests.role(&key)) != Some(Role::WidgetProbe) {
            return;
        }
        if let Ok(stream) = serde_json::from_slice::<Stream>(message.content())
            && let Some(version) = startup::widget_version(&stream.text)
        {
            let version = version.to_owned();
            if self.widgets.as_ref() != Some(&version) {
                self.widgets = Some(version.clone());
                self.actions.push_back(Action::Widgets { version });
            }
        }
    }

    /// The kernel has not answered in time what a connecting client waits for.
    pub(super) fn answer_stale(&mut self, now: Now, key: &Key) {
        let Some(request) = self.requests.get_mut(key) else {
            return;
        };
        let role = request.role;
        if request.replied {
            return;
        }
        // A server keeps one such request for all its windows: where the one that sent it is
        // closed before the answer, the others wait a minute. So a restart keeps none waiting.
        let waits = !self.kernel.is_live() && !self.is_unnamed();
        if waits && (self.info.is_none() || role == Role::WidgetProbe) {
            let timer = Timer::Stale(key.clone());
            return self.timers.start(now.instant + STALE, timer);
        }
        if role == Role::WidgetProbe {
            self.answer_widgets(now, key);
        } else if self.info.is_some() {
            self.answer_info(now, key);
        }
    }

    /// Answers a kernel_info_request from what is known.
    fn answer_info(&mut self, now: Now, key: &Key) {
        let stored = self
            .info
            .as_deref()
            .and_then(|info| serde_json::from_slice(info).ok());
        let content = stored.unwrap_or_else(plain_info);
        self.answer_here(now, key, &content, &[]);
    }

    /// Answers the probe of ipywidgets with the version that is known, else with VS Code's default.
    ///
    /// Never without one: at a first start VS Code does not ask again, it then draws no widget, and
    /// every cell after the first widget stays pending.
    pub(super) fn answer_widgets(&mut self, now: Now, key: &Key) {
        let version = self.widgets.as_deref();
        let stdout = startup::widget_probe_stdout(version.unwrap_or(startup::WIDGETS_DEFAULT));
        self.answer_execute(now, key, Some(&stdout));
    }

    /// Answers an execute_request that is not to reach the kernel.
    fn answer_execute(&mut self, now: Now, key: &Key, stdout: Option<&str>) {
        let content = json!({
            "status": "ok",
            "execution_count": self.execution_count,
            "user_expressions": {},
            "payload": [],
        });
        let stream = stdout.map(|text| ("stream", json!({ "name": "stdout", "text": text })));
        self.answer_here(now, key, &content, stream.as_slice());
    }

    /// Answers a request here, wherever it is by now: busy, outputs, reply, idle.
    fn answer_here(&mut self, now: Now, key: &Key, content: &Value, outputs: &[(&str, Value)]) {
        let Some(request) = self.requests.get_mut(key) else {
            return;
        };
        let (parent, client, channel) = (
            request.header.clone(),
            request.client.clone(),
            request.channel,
        );
        let reply_type = request.reply_type().unwrap_or_default();
        let (sent, busy, role) = (request.sent, request.busy, request.role);
        if !busy {
            let busy = self.voice.status(now, parent.clone(), "busy");
            self.actions.push_back(Action::Publish(busy));
        }
        for (msg_type, content) in outputs {
            let output = self.voice.publish(now, msg_type, parent.clone(), content);
            self.actions.push_back(Action::Publish(output));
        }
        let reply = self.voice.say(now, &reply_type, parent.clone(), content);
        self.deliver(&client, channel, reply);
        self.publish_idle(now, parent);
        if sent || role == Role::WidgetProbe && self.kernel.ending().is_none() {
            self.requests.set_answer(key, Answer::Given);
        } else {
            self.take_held(key);
            self.requests.remove(key);
        }
        self.timers.stop(&Timer::Stale(key.clone()));
        self.timers
            .start(now.instant + STILL_BUSY, Timer::StillBusy);
        self.settled(now, &client);
    }
}

/// Returns what a Python kernel of which nothing is known yet answers to kernel_info.
fn plain_info() -> Value {
    json!({
        "status": "ok",
        "protocol_version": "5.3",
        "implementation": "nb-proxy",
        "implementation_version": env!("CARGO_PKG_VERSION"),
        "language_info": {
            "name": "python",
            "version": "3",
            "mimetype": "text/x-python",
            "codemirror_mode": { "name": "ipython", "version": 3 },
            "pygments_lexer": "ipython3",
            "nbconvert_exporter": "python",
            "file_extension": ".py",
        },
        "banner": "nb shared kernel",
        "help_links": [],
    })
}

/// Returns the text of a notice as it appears above a cell's outputs.
pub(super) fn notice_stream(text: &str) -> Value {
    json!({ "name": "stderr", "text": format!("[nb] {text}\n") })
}

/// Returns whether stored content can serve as a reply.
pub(super) fn usable(info: Option<&Bytes>) -> bool {
    info.is_some_and(|info| {
        serde_json::from_slice::<Value>(info).is_ok_and(|info| info["language_info"].is_object())
    })
}
