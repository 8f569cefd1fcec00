//! A simulated kernel that does one thing at a time, when a test calls for it.

use std::collections::{BTreeMap, VecDeque};

use super::super::*;

/// One generation of a kernel.
pub(super) struct FakeKernel {
    pub(super) generation: u64,
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
    is_prompting: bool,
}

impl FakeKernel {
    pub(super) fn new(generation: u64) -> Self {
        Self {
            generation,
            frozen: false,
            interrupt: if generation.is_multiple_of(2) {
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
            count: generation * 1_000_000,
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
                    running.is_prompting = false;
                }
            }
        }
    }

    pub(super) fn can_work(&self) -> bool {
        let is_ready = match &self.running {
            Some(running) => !running.is_prompting,
            None => !self.shell.is_empty(),
        };
        !self.frozen && is_ready
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
            if msg_type(&request) == "execute_request" {
                self.publish(
                    &request,
                    "stream",
                    &json!({ "name": "stdout", "text": "x" }),
                );
            }
            self.reply(&client, Channel::Shell, &request);
            self.publish(&request, "status", &json!({ "execution_state": "idle" }));
            return;
        }
        let Some((client, request)) = self.shell.pop_front() else {
            return;
        };
        if request.header().is_err() {
            return;
        }
        self.publish(&request, "status", &json!({ "execution_state": "busy" }));
        let content: Value = serde_json::from_slice(request.content()).expect("JSON");
        let is_prompting = content["code"] == "input()";
        if is_prompting {
            let prompt = self.message(&request, "input_request", &json!({ "prompt": "?" }));
            let socket_id = (client.clone(), Channel::Stdin);
            self.replies.entry(socket_id).or_default().push_back(prompt);
        }
        self.running = Some(Running {
            client,
            request,
            is_prompting,
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
        self.publish(&request, "status", &json!({ "execution_state": "busy" }));
        if msg_type(&request) == "interrupt_request" {
            self.interrupt();
        }
        self.reply(&client, Channel::Control, &request);
        self.publish(&request, "status", &json!({ "execution_state": "idle" }));
    }

    /// Ends the prompt of the running cell.
    pub(super) fn interrupt(&mut self) {
        if let Some(running) = &mut self.running {
            running.is_prompting = false;
        }
    }

    /// Takes a cell of a client outside this front end.
    pub(super) fn take_agent_cell(&mut self, number: u64) {
        let id = format!("a{number}");
        let cell = message("execute_request", &id, "agent", "{}".into(), &json!({}));
        self.shell.push_back((ClientId::new("agent".into()), cell));
    }

    fn reply(&mut self, client: &ClientId, channel: Channel, request: &Verified) {
        let msg_type = msg_type(request);
        let Some(name) = msg_type.strip_suffix("_request") else {
            return;
        };
        let reply = self.message(
            request,
            &format!("{name}_reply"),
            &json!({ "status": "ok" }),
        );
        let socket_id = (client.clone(), channel);
        self.replies.entry(socket_id).or_default().push_back(reply);
    }

    fn publish(&mut self, parent: &Verified, msg_type: &str, content: &Value) {
        if self.subscribed {
            let message = self.message(parent, msg_type, content);
            self.iopub.push_back(message);
        }
    }

    fn message(&mut self, parent: &Verified, msg_type: &str, content: &Value) -> Verified {
        self.count += 1;
        message(
            msg_type,
            &format!("k{}", self.count),
            &format!("kernel-{}", self.generation),
            parent.header_bytes().clone(),
            content,
        )
    }
}

fn msg_type(request: &Verified) -> String {
    let header = request.header().expect("it was read before");
    header.msg_type.into_owned()
}
