//! A simulated kernel that does one thing at a time, when a test calls for it.

use std::collections::{BTreeMap, VecDeque};

use super::super::*;

/// One generation of a kernel.
pub(super) struct FakeKernel {
    pub(super) life: u64,
    /// Whether it is stopped (SIGSTOP): it answers nothing, and its sockets still accept messages.
    pub(super) frozen: bool,
    pub(super) interrupt: Interrupt,
    /// Whether iopub has a subscriber: without one, messages on it are lost.
    pub(super) subscribed: bool,
    shell: VecDeque<(ClientId, Verified)>,
    control: VecDeque<(ClientId, Verified)>,
    running: Option<Running>,
    /// The messages on their way to the proxy, for each socket.
    pub(super) replies: BTreeMap<(ClientId, Channel), VecDeque<Verified>>,
    pub(super) iopub: VecDeque<Verified>,
    count: u64,
}

struct Running {
    client: ClientId,
    request: Verified,
    /// Whether it has sent an `input_request` and waits for the answer.
    asks: bool,
}

impl FakeKernel {
    pub(super) fn new(life: u64) -> Self {
        Self {
            life,
            frozen: false,
            interrupt: if life.is_multiple_of(2) {
                Interrupt::Signal
            } else {
                Interrupt::Message
            },
            subscribed: false,
            shell: VecDeque::new(),
            control: VecDeque::new(),
            running: None,
            replies: BTreeMap::new(),
            iopub: VecDeque::new(),
            // Message numbers rise over all generations.
            count: life * 1_000_000,
        }
    }

    /// Takes a message that was written to one of its sockets.
    pub(super) fn receive(&mut self, client: ClientId, channel: Channel, message: Verified) {
        match channel {
            Channel::Shell => self.shell.push_back((client, message)),
            Channel::Control => self.control.push_back((client, message)),
            // On stdin it reads only from the client that it prompts, and drops earlier replies.
            _ => {
                if let Some(running) = &mut self.running
                    && running.client == client
                {
                    running.asks = false;
                }
            }
        }
    }

    pub(super) fn can_work(&self) -> bool {
        let busy = self.running.as_ref().map(|running| running.asks);
        !self.frozen && (busy == Some(false) || busy.is_none() && !self.shell.is_empty())
    }

    pub(super) fn can_answer_control(&self) -> bool {
        !self.frozen && !self.control.is_empty()
    }

    /// The shell begins or ends one request.
    pub(super) fn work(&mut self) {
        if let Some(Running {
            client, request, ..
        }) = self.running.take()
        {
            if kind(&request) == "execute_request" {
                self.tell(
                    &request,
                    "stream",
                    &json!({ "name": "stdout", "text": "x" }),
                );
            }
            self.reply(&client, Channel::Shell, &request);
            self.tell(&request, "status", &json!({ "execution_state": "idle" }));
            return;
        }
        let Some((client, request)) = self.shell.pop_front() else {
            return;
        };
        if request.header().is_err() {
            return;
        }
        self.tell(&request, "status", &json!({ "execution_state": "busy" }));
        let content: Value = serde_json::from_slice(request.content()).expect("JSON");
        let asks = content["code"] == "input()";
        if asks {
            let prompt = self.made(&request, "input_request", &json!({ "prompt": "?" }));
            let way = (client.clone(), Channel::Stdin);
            self.replies.entry(way).or_default().push_back(prompt);
        }
        self.running = Some(Running {
            client,
            request,
            asks,
        });
    }

    /// The control thread answers one request.
    pub(super) fn answer_control(&mut self) {
        let Some((client, request)) = self.control.pop_front() else {
            return;
        };
        if request.header().is_err() {
            return;
        }
        self.tell(&request, "status", &json!({ "execution_state": "busy" }));
        if kind(&request) == "interrupt_request" {
            self.interrupted();
        }
        self.reply(&client, Channel::Control, &request);
        self.tell(&request, "status", &json!({ "execution_state": "idle" }));
    }

    /// Ends the prompt of the running cell.
    pub(super) fn interrupted(&mut self) {
        if let Some(running) = &mut self.running {
            running.asks = false;
        }
    }

    /// Takes a cell of a client outside this front end.
    pub(super) fn agent(&mut self, number: u64) {
        let id = format!("a{number}");
        let cell = message("execute_request", &id, "agent", "{}".into(), &json!({}));
        self.shell.push_back((ClientId::new("agent".into()), cell));
    }

    fn reply(&mut self, client: &ClientId, channel: Channel, request: &Verified) {
        let kind = kind(request);
        let Some(kind) = kind.strip_suffix("_request") else {
            return;
        };
        let reply = self.made(
            request,
            &format!("{kind}_reply"),
            &json!({ "status": "ok" }),
        );
        let way = (client.clone(), channel);
        self.replies.entry(way).or_default().push_back(reply);
    }

    fn tell(&mut self, parent: &Verified, msg_type: &str, content: &Value) {
        if self.subscribed {
            let message = self.made(parent, msg_type, content);
            self.iopub.push_back(message);
        }
    }

    fn made(&mut self, parent: &Verified, msg_type: &str, content: &Value) -> Verified {
        self.count += 1;
        message(
            msg_type,
            &format!("k{}", self.count),
            &format!("kernel-{}", self.life),
            parent.header_bytes().clone(),
            content,
        )
    }
}

fn kind(request: &Verified) -> String {
    let header = request.header().expect("it was read before");
    header.msg_type.into_owned()
}
