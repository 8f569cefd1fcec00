//! A test's bridge without a simulated world: the test writes each message of the kernel and the clients.

use super::*;
use crate::wire::{SigningKey, Unverified};

/// A bridge, the time, and short methods for what happens to it.
pub(super) struct Fixture {
    pub(super) bridge: Bridge,
    pub(super) now: Now,
}

impl Fixture {
    /// Makes the bridge of a front end whose kernel has not started yet.
    pub(super) fn new(front_end: FrontEnd) -> Self {
        let now = Now {
            instant: Instant::now(),
            date: jiff::Timestamp::UNIX_EPOCH,
        };
        let settings = Settings {
            id: "own".into(),
            held_bytes: 100_000,
            undelivered_bytes: 100_000,
            front_end,
        };
        Self {
            bridge: Bridge::new(settings, now),
            now,
        }
    }

    /// Makes a bridge with a live kernel whose iopub is proven, and with connected clients.
    pub(super) fn live(front_end: FrontEnd, clients: &[&str]) -> Self {
        let mut fixture = Self::new(front_end);
        fixture.start_kernel(1);
        for client in clients {
            fixture.connect(client);
        }
        fixture.actions();
        fixture
    }

    /// Starts a kernel that is idle and has a stored kernel_info_reply.
    pub(super) fn start_kernel(&mut self, generation: u64) {
        self.start_busy_kernel(generation);
        self.answer_own_request();
    }

    /// Starts a kernel that does not answer on shell: something runs.
    pub(super) fn start_busy_kernel(&mut self, generation: u64) {
        let info = json!({ "status": "ok", "implementation": "stored", "language_info": {} });
        let kernel = Kernel::Live {
            generation,
            interrupt: Interrupt::Message,
            info: Some(info.to_string().into()),
        };
        self.bridge.set_kernel(self.now, kernel, &ending(), []);
        self.bridge.iopub_up(self.now);
        let welcome = message("iopub_welcome", "w", "k", "{}".into(), &json!({}));
        self.bridge.iopub_message(self.now, welcome);
    }

    /// Answers the last request that the proxy itself sent on shell.
    pub(super) fn answer_own_request(&mut self) {
        let mut request = None;
        let mut others = Vec::new();
        while let Some(action) = self.bridge.poll_action() {
            match action {
                Action::ToKernel {
                    client,
                    channel: Channel::Shell,
                    message,
                } if client.bytes() == "own" => request = Some(message),
                other => others.push(other),
            }
        }
        self.bridge.actions().extend(others);
        let Some(request) = request else { return };
        let parent = request.header_bytes().clone();
        let own = ClientId::new("own".into());
        let reply = message("kernel_info_reply", "r", "k", parent, &json!({}));
        self.bridge
            .kernel_message(self.now, &own, Channel::Shell, reply);
    }

    /// Answers a request of the proxy's own, as the kernel.
    pub(super) fn reply_to_own(&mut self, key: &super::super::request::Key) {
        let parent = message(
            "kernel_info_request",
            key.msg_id(),
            "own",
            "{}".into(),
            &json!({}),
        );
        let parent = parent.header_bytes().clone();
        let reply = message("kernel_info_reply", "r", "k", parent, &json!({}));
        let own = ClientId::new("own".into());
        self.bridge
            .kernel_message(self.now, &own, Channel::Shell, reply);
    }

    /// Publishes the kernel's status for a request of the proxy's own.
    pub(super) fn publish_own_status(&mut self, key: &super::super::request::Key, state: &str) {
        let content = json!({ "execution_state": state });
        let parent = ("own", key.msg_id(), "kernel_info_request");
        self.publish(parent, "status", &content);
    }

    /// Sends a client's cell that does not allow stdin, as nbclient does.
    pub(super) fn send_batch_cell(&mut self, client: &str, id: &str) {
        let content = json!({ "code": "1+1", "store_history": true, "allow_stdin": false });
        self.send(client, Channel::Shell, "execute_request", id, &content);
    }

    /// Connects a client on its three channels, and its sockets to the kernel.
    pub(super) fn connect(&mut self, client: &str) {
        let id = ClientId::new(client.to_owned().into());
        for channel in [Channel::Shell, Channel::Stdin, Channel::Control] {
            self.bridge.client_joined(channel, &id);
            self.bridge.link_up(self.now, &id, channel);
        }
    }

    /// Ends a client's connections on its three channels.
    pub(super) fn disconnect(&mut self, client: &str) {
        let id = ClientId::new(client.to_owned().into());
        for channel in [Channel::Shell, Channel::Stdin, Channel::Control] {
            self.bridge.client_left(self.now, channel, &id);
        }
    }

    /// Sends a client's message.
    pub(super) fn send(
        &mut self,
        client: &str,
        channel: Channel,
        msg_type: &str,
        id: &str,
        content: &Value,
    ) {
        let message = message(msg_type, id, client, "{}".into(), content);
        let client = ClientId::new(client.to_owned().into());
        self.bridge
            .client_message(self.now, channel, &client, message);
    }

    /// Sends a client's execute_request with these bytes as its content, for a subshell if there is an id.
    pub(super) fn send_raw_cell(
        &mut self,
        client: &str,
        id: &str,
        subshell: Option<&str>,
        content: &str,
    ) {
        let header = json!({
            "msg_id": id, "session": client, "username": "u", "msg_type": "execute_request",
            "subshell_id": subshell,
        });
        let frames = ["<IDS|MSG>", "", &header.to_string(), "{}", "{}", content];
        let frames = frames.map(|frame| Bytes::from(frame.to_owned()));
        let message = Unverified::parse(frames.to_vec()).expect("it has all frames");
        let message = SigningKey::new(b"").verify(message).expect("without a key");
        let client = ClientId::new(client.to_owned().into());
        self.bridge
            .client_message(self.now, Channel::Shell, &client, message);
    }

    /// Sends a client's cell.
    pub(super) fn send_cell(&mut self, client: &str, id: &str) {
        let content = json!({ "code": "1+1", "store_history": true });
        self.send(client, Channel::Shell, "execute_request", id, &content);
    }

    /// Sends a client's interrupt_request.
    pub(super) fn interrupt(&mut self, client: &str, id: &str) {
        self.send(
            client,
            Channel::Control,
            "interrupt_request",
            id,
            &json!({}),
        );
    }

    /// Publishes a message of the kernel for a request.
    pub(super) fn publish(&mut self, parent: (&str, &str, &str), msg_type: &str, content: &Value) {
        let (session, id, parent_type) = parent;
        let parent = message(parent_type, id, session, "{}".into(), &json!({}));
        let message = message(msg_type, "t", "k", parent.header_bytes().clone(), content);
        self.bridge.iopub_message(self.now, message);
    }

    /// Publishes the kernel's status for a cell.
    pub(super) fn publish_status(&mut self, session: &str, id: &str, state: &str) {
        let content = json!({ "execution_state": state });
        self.publish((session, id, "execute_request"), "status", &content);
    }

    /// Answers a client's request on shell, as the kernel.
    pub(super) fn reply(&mut self, client: &str, id: &str, msg_type: &str) {
        let reply_type = msg_type.replace("_request", "_reply");
        let parent = message(msg_type, id, client, "{}".into(), &json!({}));
        let parent = parent.header_bytes().clone();
        let reply = message(&reply_type, "r", "k", parent, &json!({ "status": "ok" }));
        let client = ClientId::new(client.to_owned().into());
        self.bridge
            .kernel_message(self.now, &client, Channel::Shell, reply);
    }

    /// Lets time pass: timers fire when they are due.
    pub(super) fn advance(&mut self, time: Duration) {
        let end = self.now.instant + time;
        while let Some(due) = self.bridge.poll_timeout().filter(|due| *due <= end) {
            self.now.instant = self.now.instant.max(due);
            self.bridge.handle_timeout(self.now);
        }
        self.now.instant = end;
    }

    /// Takes all actions of the bridge, as short texts.
    pub(super) fn actions(&mut self) -> Vec<String> {
        actions(&mut self.bridge)
    }

    /// Takes all actions of the bridge; returns the ids of the requests to which the published messages of a type
    /// belong.
    pub(super) fn published_under(&mut self, msg_type: &str) -> Vec<String> {
        let actions = std::iter::from_fn(|| self.bridge.poll_action());
        let published = actions.filter_map(|action| match action {
            Action::Publish(message) => Some(message),
            _ => None,
        });
        published
            .filter(|message| message.header().expect("readable").msg_type == msg_type)
            .map(|message| message.parent().expect("readable").msg_id.into_owned())
            .collect()
    }
}
