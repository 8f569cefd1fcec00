//! Passes messages between the clients' sockets and the kernel's websocket, as [`RequestTable`] decides.

use std::cell::{Cell, OnceCell, RefCell};
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::time::Instant;

use bytes::Bytes;
use jiff::Zoned;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use super::clients::{ConnectedClients, limits};
use super::log::log;
use super::recent::RecentMessages;
use super::requests::{RequestTable, Step};
use crate::server::ServerClient;
use crate::socket::{BindError, DisconnectReason, EndpointHandler, KernelEndpoint, PeerId};
use crate::wire::{Channel, ConnectionInfo, NewHeader, Rejected, Verified};

/// How many bytes of messages may wait for the connection before clients are read no further.
const WAITING_BYTES: usize = 64 << 20;

/// The bridge to one kernel.
pub(super) struct Bridge {
    pub(super) server: ServerClient,
    /// The kernel's id on the server.
    pub(super) kernel: String,
    /// The connection file of the sockets on this machine.
    pub(super) connection_file: PathBuf,
    clients: RefCell<ConnectedClients>,
    recent: RefCell<RecentMessages>,
    endpoint: OnceCell<KernelEndpoint>,
    table: RefCell<RequestTable>,
    /// The session of this process's own messages.
    session: String,
    /// The messages for the connection that is up. What is in it when the connection is lost counts as sent.
    outgoing: RefCell<Option<UnboundedSender<(Channel, Verified)>>>,
    outgoing_bytes: Cell<usize>,
    /// The clients that are not read, since too much waits.
    paused: RefCell<Vec<Bytes>>,
    /// Why the kernel has ended, once it has.
    ended: OnceCell<String>,
    has_ended: Notify,
    /// Is notified when the kernel says that it shuts down.
    shuts_down: Notify,
}

impl Bridge {
    /// Binds the sockets of the connection file.
    ///
    /// # Errors
    /// When an address is taken or cannot be bound.
    pub(super) fn bind(
        server: ServerClient,
        kernel: &str,
        session: &str,
        connection_file: PathBuf,
        connection: &ConnectionInfo,
    ) -> Result<Rc<Self>, BindError> {
        let name = server.record().name.clone();
        let bridge = Rc::new(Self {
            server,
            kernel: kernel.to_owned(),
            connection_file,
            clients: RefCell::default(),
            recent: RefCell::new(RecentMessages::new(Instant::now())),
            endpoint: OnceCell::new(),
            table: RefCell::new(RequestTable::new(&name, session)),
            session: session.to_owned(),
            outgoing: RefCell::default(),
            outgoing_bytes: Cell::new(0),
            paused: RefCell::default(),
            ended: OnceCell::new(),
            has_ended: Notify::new(),
            shuts_down: Notify::new(),
        });
        let events = Rc::new(SocketEvents(Rc::downgrade(&bridge)));
        let endpoint = KernelEndpoint::bind(connection, limits(), events)?;
        let _ = bridge.endpoint.set(endpoint);
        Ok(bridge)
    }

    pub(super) fn endpoint(&self) -> &KernelEndpoint {
        self.endpoint.get().expect("`bind` has set it")
    }

    /// Waits until the kernel has ended, and returns why.
    pub(super) async fn kernel_ended(&self) -> String {
        loop {
            if let Some(why) = self.ended.get() {
                return why.clone();
            }
            self.has_ended.notified().await;
        }
    }

    /// Waits until the kernel says that it shuts down.
    pub(super) async fn shuts_down(&self) {
        self.shuts_down.notified().await;
    }

    /// Records that the kernel has ended.
    pub(super) fn end(&self, why: String) {
        let _ = self.ended.set(why);
        self.has_ended.notify_one();
    }

    /// Takes a message of a client.
    pub(super) fn client_message(
        self: &Rc<Self>,
        channel: Channel,
        client: &Bytes,
        message: Verified,
    ) {
        let is_interrupt = channel == Channel::Control
            && message
                .header()
                .is_ok_and(|header| header.msg_type == "interrupt_request");
        if is_interrupt {
            // A server interrupts a kernel as its kernelspec says; not every kernel heeds the message.
            let (bridge, client) = (Rc::clone(self), client.clone());
            tokio::task::spawn_local(async move { bridge.interrupt(&client, &message).await });
            return;
        }
        let steps = self
            .table
            .borrow_mut()
            .client_message(channel, client, message);
        self.perform(steps);
        if self.waiting_bytes() > WAITING_BYTES {
            self.endpoint().set_paused(client, true);
            self.paused.borrow_mut().push(client.clone());
        }
    }

    /// Takes a message of the kernel.
    pub(super) fn kernel_message(&self, channel: Channel, message: Verified) {
        let header = message.header();
        if header.is_ok_and(|header| header.msg_type == "shutdown_reply") {
            self.shuts_down.notify_one();
        }
        let steps = self
            .table
            .borrow_mut()
            .kernel_message(&Zoned::now(), channel, message);
        self.perform(steps);
    }

    /// Takes the news that the websocket is open; messages for it go to `outgoing`.
    pub(super) fn connected(&self, outgoing: UnboundedSender<(Channel, Verified)>) {
        *self.outgoing.borrow_mut() = Some(outgoing);
        self.outgoing_bytes.set(0);
        let steps = self.table.borrow_mut().connected(&Zoned::now());
        self.perform(steps);
        self.read_again();
    }

    /// Takes the news that the websocket is closed.
    pub(super) fn disconnected(&self) {
        self.outgoing.take();
        self.outgoing_bytes.set(0);
        self.table.borrow_mut().disconnected(&Zoned::now());
    }

    /// Returns whether the kernel has not handled all requests.
    pub(super) fn expects_messages(&self) -> bool {
        !self.table.borrow().is_empty()
    }

    /// Takes the news that a message was written into the websocket.
    pub(super) fn written(&self, bytes: usize) {
        let left = self.outgoing_bytes.get().saturating_sub(bytes);
        self.outgoing_bytes.set(left);
        self.read_again();
    }

    fn waiting_bytes(&self) -> usize {
        self.outgoing_bytes.get() + self.table.borrow().waiting_bytes()
    }

    /// Reads clients again, if they are not read and there is room.
    fn read_again(&self) {
        if self.paused.borrow().is_empty() || self.waiting_bytes() > WAITING_BYTES / 2 {
            return;
        }
        for client in self.paused.take() {
            self.endpoint().set_paused(&client, false);
        }
    }

    fn perform(&self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Send(channel, message) => {
                    let outgoing = self.outgoing.borrow();
                    if let Some(outgoing) = &*outgoing {
                        self.outgoing_bytes.update(|bytes| bytes + message.size());
                        // The receiver ends with the connection, which is told next.
                        let _ = outgoing.send((channel, message));
                    }
                }
                Step::Reply(channel, client, message) => self.reply(channel, &client, message),
                Step::ReplyToSession(channel, session, message) => {
                    let clients = self.clients.borrow().of_session(channel, &session);
                    for client in clients {
                        self.reply(channel, &client, message.clone());
                    }
                }
                Step::Publish(message) => self.publish(message),
                Step::KernelEnded(why) => self.end(why),
            }
        }
    }

    fn reply(&self, channel: Channel, client: &Bytes, message: Verified) {
        // A client that has gone needs no reply.
        let _ = self.endpoint().send(channel, client, message);
    }

    fn publish(&self, message: Verified) {
        self.recent.borrow_mut().take(Instant::now(), &message);
        self.endpoint().publish(message);
    }

    /// Interrupts the kernel and answers the request.
    async fn interrupt(&self, client: &Bytes, request: &Verified) {
        self.publish(self.about(request, "status", &json!({ "execution_state": "busy" })));
        let content = match self.server.interrupt(&self.kernel).await {
            Ok(()) => json!({ "status": "ok" }),
            Err(error) => {
                let text = error.to_string();
                log(&format!("the kernel is not interrupted: {text}"));
                json!({ "status": "error", "ename": "ServerError", "evalue": text, "traceback": [] })
            }
        };
        let reply = self.about(request, "interrupt_reply", &content);
        self.reply(Channel::Control, client, reply);
        self.publish(self.about(request, "status", &json!({ "execution_state": "idle" })));
    }

    /// Returns a message of this process about a request, in the kernel's name.
    fn about(&self, request: &Verified, msg_type: &str, content: &Value) -> Verified {
        let date = format!("{:.6}", jiff::Timestamp::now());
        let session = self.table.borrow().kernel_session().to_owned();
        let id = format!("{}_{}", self.session, uuid::Uuid::new_v4().simple());
        let header = NewHeader {
            msg_id: &id,
            session: &session,
            username: "nb",
            date: &date,
            msg_type,
        };
        Verified::new(&header, request.header_bytes().clone(), content)
    }
}

/// Passes the events of the sockets to the bridge.
struct SocketEvents(Weak<Bridge>);

impl EndpointHandler for SocketEvents {
    fn joined(&self, channel: Channel, client: &Bytes) {
        if let Some(bridge) = self.0.upgrade() {
            bridge.clients.borrow_mut().joined(channel, client);
        }
    }

    fn message(&self, channel: Channel, client: &Bytes, message: Verified) {
        if let Some(bridge) = self.0.upgrade() {
            bridge.client_message(channel, client, message);
        }
    }

    fn left(&self, channel: Channel, client: &Bytes, _why: &DisconnectReason) {
        if let Some(bridge) = self.0.upgrade() {
            bridge.clients.borrow_mut().left(channel, client);
        }
    }

    fn rejected(&self, channel: Channel, why: &Rejected) {
        log(&format!("dropped a message on {channel}: {why}"));
    }

    fn subscribed(&self, _subscriber: &PeerId, _topic: &[u8]) -> Vec<Verified> {
        let bridge = self.0.upgrade();
        bridge.map_or_else(Vec::new, |bridge| {
            bridge.recent.borrow().for_subscriber(Instant::now())
        })
    }
}
