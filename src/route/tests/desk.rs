//! A test's bridge without a simulated world: the test writes each message of the kernel and the clients.

use super::*;

/// A bridge, the time, and short methods for what happens to it.
pub(super) struct Desk {
    pub(super) bridge: Bridge,
    pub(super) now: Now,
}

impl Desk {
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
        let mut desk = Self::new(front_end);
        desk.lives(1);
        for client in clients {
            desk.joins(client);
        }
        desk.told();
        desk
    }

    /// A kernel has started, is idle and has a stored kernel_info_reply.
    pub(super) fn lives(&mut self, generation: u64) {
        self.is_there(generation);
        self.own_answer();
    }

    /// A kernel has started and does not answer on shell: something runs.
    pub(super) fn is_there(&mut self, generation: u64) {
        let info = json!({ "status": "ok", "implementation": "stored", "language_info": {} });
        let kernel = Kernel::Live {
            generation,
            interrupt: Interrupt::Message,
            info: Some(info.to_string().into()),
        };
        self.bridge.kernel_is(self.now, kernel, &ending(), []);
        self.bridge.iopub_up(self.now);
        let welcome = message("iopub_welcome", "w", "k", "{}".into(), &json!({}));
        self.bridge.iopub_message(self.now, welcome);
    }

    /// The kernel answers the last request that the proxy itself sent on shell.
    pub(super) fn own_answer(&mut self) {
        let mut asked = None;
        let mut others = Vec::new();
        while let Some(action) = self.bridge.poll_action() {
            match action {
                Action::ToKernel {
                    client,
                    channel: Channel::Shell,
                    message,
                } if client.bytes() == "own" => asked = Some(message),
                other => others.push(other),
            }
        }
        self.bridge.actions().extend(others);
        let Some(asked) = asked else { return };
        let parent = asked.header_bytes().clone();
        let own = ClientId::new("own".into());
        let reply = message("kernel_info_reply", "r", "k", parent, &json!({}));
        self.bridge
            .kernel_message(self.now, &own, Channel::Shell, reply);
    }

    /// The kernel answers a request of the proxy's own.
    pub(super) fn own_reply(&mut self, key: &super::super::request::Key) {
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

    /// The kernel's status changes for a request of the proxy's own.
    pub(super) fn own_state(&mut self, key: &super::super::request::Key, state: &str) {
        let content = json!({ "execution_state": state });
        let parent = ("own", key.msg_id(), "kernel_info_request");
        self.tells(parent, "status", &content);
    }

    /// A client sends a cell that does not allow stdin, as nbclient does.
    pub(super) fn batch_cell(&mut self, client: &str, id: &str) {
        let content = json!({ "code": "1+1", "store_history": true, "allow_stdin": false });
        self.ask(client, Channel::Shell, "execute_request", id, &content);
    }

    pub(super) fn joins(&mut self, client: &str) {
        let id = ClientId::new(client.to_owned().into());
        for channel in [Channel::Shell, Channel::Stdin, Channel::Control] {
            self.bridge.client_joined(channel, &id);
            self.bridge.link_up(self.now, &id, channel);
        }
    }

    /// A client sends a message.
    pub(super) fn ask(
        &mut self,
        client: &str,
        channel: Channel,
        msg_type: &str,
        id: &str,
        content: &Value,
    ) {
        let id = message(msg_type, id, client, "{}".into(), content);
        let client = ClientId::new(client.to_owned().into());
        self.bridge.client_message(self.now, channel, &client, id);
    }

    /// A client sends a cell.
    pub(super) fn cell(&mut self, client: &str, id: &str) {
        let content = json!({ "code": "1+1", "store_history": true });
        self.ask(client, Channel::Shell, "execute_request", id, &content);
    }

    /// A client presses Stop.
    pub(super) fn stop(&mut self, client: &str, id: &str) {
        self.ask(
            client,
            Channel::Control,
            "interrupt_request",
            id,
            &json!({}),
        );
    }

    /// The kernel publishes a message for a request on iopub.
    pub(super) fn tells(&mut self, parent: (&str, &str, &str), msg_type: &str, content: &Value) {
        let (session, id, parent_type) = parent;
        let parent = message(parent_type, id, session, "{}".into(), &json!({}));
        let told = message(msg_type, "t", "k", parent.header_bytes().clone(), content);
        self.bridge.iopub_message(self.now, told);
    }

    /// The kernel's status changes for a cell.
    pub(super) fn state(&mut self, session: &str, id: &str, state: &str) {
        let content = json!({ "execution_state": state });
        self.tells((session, id, "execute_request"), "status", &content);
    }

    /// The kernel answers a client's request on shell.
    pub(super) fn reply(&mut self, client: &str, id: &str, msg_type: &str) {
        let name = msg_type.replace("_request", "_reply");
        let parent = message(msg_type, id, client, "{}".into(), &json!({}));
        let parent = parent.header_bytes().clone();
        let reply = message(&name, "r", "k", parent, &json!({ "status": "ok" }));
        let client = ClientId::new(client.to_owned().into());
        self.bridge
            .kernel_message(self.now, &client, Channel::Shell, reply);
    }

    /// Time passes.
    pub(super) fn wait(&mut self, time: Duration) {
        let end = self.now.instant + time;
        while let Some(due) = self.bridge.poll_timeout().filter(|due| *due <= end) {
            self.now.instant = self.now.instant.max(due);
            self.bridge.handle_timeout(self.now);
        }
        self.now.instant = end;
    }

    /// Returns the actions of the bridge, as short texts.
    pub(super) fn told(&mut self) -> Vec<String> {
        actions(&mut self.bridge)
    }
}
