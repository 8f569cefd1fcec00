//! Passes messages between the clients' sockets and the kernel's websocket, as [`RequestTable`] decides.

use std::cell::{Cell, OnceCell, RefCell};
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use jiff::Zoned;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use super::clients::{ConnectedClients, limits};
use super::log::log;
use super::recent::RecentMessages;
use super::requests::{RequestTable, Step};
use crate::server::{ServerClient, registry};
use crate::socket::{BindError, DisconnectReason, EndpointHandler, KernelEndpoint, PeerId};
use crate::wire::{Channel, ConnectionInfo, NewHeader, Rejected, Verified};

/// How many bytes of messages may wait for the connection before clients' connections are no longer read.
const WAITING_BYTES: usize = 64 << 20;

/// The bridge to one kernel.
pub(super) struct Bridge {
    server: RefCell<Rc<ServerClient>>,
    /// The kernel's id on the server.
    pub(super) kernel: String,
    /// The connection file of the sockets on this machine.
    pub(super) connection_file: PathBuf,
    /// How often the server is pinged, and how long it may send nothing at all after that. Pings also keep proxies on the
    /// way from closing a connection on which nothing happens.
    pub(super) ping_interval: Duration,
    clients: RefCell<ConnectedClients>,
    recent: RefCell<RecentMessages>,
    endpoint: OnceCell<KernelEndpoint>,
    table: RefCell<RequestTable>,
    /// The session of this process's own messages.
    session: String,
    /// The messages for the connection that is up. What is in it when the connection is lost counts as sent.
    outgoing: RefCell<Option<UnboundedSender<(Channel, Verified)>>>,
    outgoing_bytes: Cell<usize>,
    /// The clients whose connections are not read, since too many bytes wait.
    paused: RefCell<Vec<Bytes>>,
    /// Why the kernel has ended; empty while it runs.
    end_reason: OnceCell<String>,
    end_notify: Notify,
    /// Notified when the kernel sends its shutdown_reply.
    shutdown_notify: Notify,
    /// Notified when the connection is to be made at once, without the rest of the pause.
    retry_notify: Notify,
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
        ping_interval: Duration,
    ) -> Result<Rc<Self>, BindError> {
        let name = server.record().name.clone();
        let bridge = Rc::new(Self {
            server: RefCell::new(Rc::new(server)),
            kernel: kernel.to_owned(),
            connection_file,
            ping_interval,
            clients: RefCell::default(),
            recent: RefCell::new(RecentMessages::new(Instant::now())),
            endpoint: OnceCell::new(),
            table: RefCell::new(RequestTable::new(&name, session)),
            session: session.to_owned(),
            outgoing: RefCell::default(),
            outgoing_bytes: Cell::new(0),
            paused: RefCell::default(),
            end_reason: OnceCell::new(),
            end_notify: Notify::new(),
            shutdown_notify: Notify::new(),
            retry_notify: Notify::new(),
        });
        let events = Rc::new(SocketEvents(Rc::downgrade(&bridge)));
        let endpoint = KernelEndpoint::bind(connection, limits(), events)?;
        let _ = bridge.endpoint.set(endpoint);
        Ok(bridge)
    }

    pub(super) fn endpoint(&self) -> &KernelEndpoint {
        self.endpoint.get().expect("`bind` has set it")
    }

    pub(super) fn server(&self) -> Rc<ServerClient> {
        self.server.borrow().clone()
    }

    /// Reads the server's record again: the user may have given it another URL.
    pub(super) async fn take_new_record(&self) {
        let server = self.server();
        // A server that was removed since is used as it was known.
        let Ok(record) = registry::server(&server.record().name) else {
            return;
        };
        if record == *server.record() {
            return;
        }
        log(&format!("the server's record has changed: {}", record.url));
        match ServerClient::open(record).await {
            Ok(server) => *self.server.borrow_mut() = Rc::new(server),
            Err(error) => log(&format!("the new record cannot be used: {error}")),
        }
    }

    /// Makes the connection at once if it is lost, without the rest of the pause.
    pub(super) fn retry(&self) {
        self.retry_notify.notify_one();
    }

    /// Waits until the connection is to be made at once.
    pub(super) async fn wait_for_retry(&self) {
        self.retry_notify.notified().await;
    }

    /// Waits until the kernel has ended, and returns the reason.
    pub(super) async fn kernel_ended(&self) -> String {
        loop {
            if let Some(reason) = self.end_reason.get() {
                return reason.clone();
            }
            self.end_notify.notified().await;
        }
    }

    /// Waits until the kernel sends its shutdown_reply.
    pub(super) async fn wait_for_shutdown(&self) {
        self.shutdown_notify.notified().await;
    }

    /// Records that the kernel has ended.
    pub(super) fn end(&self, reason: String) {
        let _ = self.end_reason.set(reason);
        self.end_notify.notify_one();
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
            // A server interrupts a kernel as its kernelspec says; some kernels ignore the message.
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
            self.shutdown_notify.notify_one();
        }
        let steps = self
            .table
            .borrow_mut()
            .kernel_message(&Zoned::now(), channel, message);
        self.perform(steps);
    }

    /// Records that the websocket is open; messages for it go to `outgoing`.
    pub(super) fn connected(&self, outgoing: UnboundedSender<(Channel, Verified)>) {
        *self.outgoing.borrow_mut() = Some(outgoing);
        self.outgoing_bytes.set(0);
        let steps = self.table.borrow_mut().connected(&Zoned::now());
        self.perform(steps);
        self.resume_clients();
    }

    /// Ends the request that was too long for the server, which has closed the websocket.
    pub(super) fn message_was_too_long(&self) {
        let steps = self.table.borrow_mut().end_longest(&Zoned::now());
        self.perform(steps);
    }

    /// Records that the websocket is closed.
    pub(super) fn disconnected(&self) {
        self.outgoing.take();
        self.outgoing_bytes.set(0);
        self.table.borrow_mut().disconnected(&Zoned::now());
    }

    /// Returns whether the kernel has not handled all requests.
    pub(super) fn expects_messages(&self) -> bool {
        !self.table.borrow().is_empty()
    }

    /// Records that a message was written into the websocket.
    pub(super) fn written(&self, bytes: usize) {
        let remaining = self.outgoing_bytes.get().saturating_sub(bytes);
        self.outgoing_bytes.set(remaining);
        self.resume_clients();
    }

    fn waiting_bytes(&self) -> usize {
        self.outgoing_bytes.get() + self.table.borrow().waiting_bytes()
    }

    /// Reads the paused clients again, if few enough bytes wait.
    fn resume_clients(&self) {
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
                        // The receiver ends with the connection, whose end is reported next.
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
                Step::KernelEnded(reason) => self.end(reason),
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
        self.publish(self.kernel_message_about(
            request,
            "status",
            &json!({ "execution_state": "busy" }),
        ));
        let content = match self.server().interrupt(&self.kernel).await {
            Ok(()) => json!({ "status": "ok" }),
            Err(error) => {
                let text = error.to_string();
                log(&format!("the kernel is not interrupted: {text}"));
                json!({ "status": "error", "ename": "ServerError", "evalue": text, "traceback": [] })
            }
        };
        let reply = self.kernel_message_about(request, "interrupt_reply", &content);
        self.reply(Channel::Control, client, reply);
        self.publish(self.kernel_message_about(
            request,
            "status",
            &json!({ "execution_state": "idle" }),
        ));
    }

    /// Returns a message of this process about a request, in the kernel's name.
    fn kernel_message_about(
        &self,
        request: &Verified,
        msg_type: &str,
        content: &Value,
    ) -> Verified {
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

    fn left(&self, channel: Channel, client: &Bytes, _reason: &DisconnectReason) {
        if let Some(bridge) = self.0.upgrade() {
            bridge.clients.borrow_mut().left(channel, client);
        }
    }

    fn rejected(&self, channel: Channel, reason: &Rejected) {
        log(&format!("dropped a message on {channel}: {reason}"));
    }

    fn subscribed(&self, _subscriber: &PeerId, _topic: &[u8]) -> Vec<Verified> {
        let bridge = self.0.upgrade();
        bridge.map_or_else(Vec::new, |bridge| {
            bridge.recent.borrow().for_subscriber(Instant::now())
        })
    }
}
