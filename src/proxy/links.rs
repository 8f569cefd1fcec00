//! The sockets to one generation of the kernel.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::io::Errno;

use super::counters::{Counters, Direction};
use super::front;
use super::heartbeats::Heartbeats;
use super::target::LiveKernel;
use crate::kernel::process::Process;
use crate::route::ClientId;
use crate::socket::{
    DialAs, DialHandler, DialRole, Dialer, DisconnectReason, Message, OutboxFull, PeerId,
    SocketLimits,
};
use crate::wire::{Channel, DELIMITER, Rejected, SigningKey, Verified};

/// All sockets to one generation of the kernel: its iopub, the heartbeat, and each client's own.
///
/// Dropping it closes them at once.
pub(super) struct Links {
    kernel: LiveKernel,
    incoming: Rc<Incoming>,
    iopub: Dialer,
    sockets: Rc<RefCell<ClientSockets>>,
    heartbeat: Rc<HeartbeatSocket>,
    /// How many identities were made for clients without a usable one.
    generated_ids: Cell<u64>,
    is_held: Cell<bool>,
    id: String,
}

type ClientSockets = HashMap<(ClientId, Channel), Rc<Dialer>>;

/// The events on the sockets to the kernel.
pub(super) enum LinkEvent<'a> {
    /// A client's own socket is connected, or accepts messages again.
    Up(&'a ClientId, Channel),
    /// A client's own socket was lost; holds the messages that were not wholly written.
    Down(&'a ClientId, Channel, Vec<Verified>),
    /// A client's own socket is full; holds the messages that did not fit.
    Full(&'a ClientId, Channel, Vec<Verified>),
    /// The kernel has sent a message to a client.
    Message(&'a ClientId, Channel, Verified),
    /// A client's stdin socket could not be connected for long.
    StdinAbsent(&'a ClientId),
    /// iopub is connected.
    IopubUp,
    /// iopub was lost.
    IopubDown,
    /// The kernel has published a message.
    Published(Verified),
    /// A message was too long and was dropped: its channel, the unverified bytes of its parent header, its
    /// length in bytes.
    Oversized(Channel, Bytes, u64),
    /// The answer to a peer's heartbeat.
    Heartbeat(&'a PeerId, Message),
    /// The kernel has refused connections for so long that the proxy gives up.
    Unreachable(&'a io::Error),
    /// A socket could not be opened because no file descriptors are left.
    NoDescriptors,
}

/// The data that the handlers of all sockets share.
struct Incoming {
    handler: Box<dyn Fn(LinkEvent<'_>)>,
    key: SigningKey,
    /// The kernel's process, if it is known.
    process: Option<Process>,
    counters: Rc<Counters>,
}

/// Handles the events of one client's socket.
struct ClientSocket {
    incoming: Rc<Incoming>,
    client: ClientId,
    channel: Channel,
    refused_since: Cell<Option<Instant>>,
}

/// Handles the events of iopub.
struct Iopub {
    incoming: Rc<Incoming>,
    /// Whether the kernel's process is known: the end of the process is then noticed without the sockets.
    has_process: bool,
    refused_since: Cell<Option<Instant>>,
}

/// The heartbeats of all peers, and the one socket for them, once it is needed.
#[derive(Default)]
struct HeartbeatSocket {
    beats: RefCell<Heartbeats>,
    dialer: RefCell<Option<Dialer>>,
}

/// Handles the events of the heartbeat's socket.
struct Heartbeat {
    incoming: Rc<Incoming>,
    socket: Weak<HeartbeatSocket>,
}

/// How long a kernel whose process is unknown may refuse connections before it counts as dead.
const REFUSED_MAX: Duration = Duration::from_secs(3);

/// How long a kernel whose process lives may refuse connections before it counts as unreachable: its sockets
/// were removed.
const REFUSED_MAX_WHILE_ALIVE: Duration = Duration::from_secs(10);

impl Links {
    /// Starts to dial the kernel's iopub; [`Links::open`] dials the other channels. `id` is the identity of
    /// the proxy's own sockets.
    ///
    /// iopub is dialled first and always read: a kernel's PUB socket drops messages that are not read fast
    /// enough.
    pub(super) fn connect(
        kernel: LiveKernel,
        id: String,
        counters: Rc<Counters>,
        handler: impl Fn(LinkEvent<'_>) + 'static,
    ) -> Self {
        let incoming = Rc::new(Incoming {
            handler: Box::new(handler),
            key: kernel.connection.key.clone(),
            process: kernel.process.clone(),
            counters,
        });
        let iopub_handler = Iopub {
            incoming: Rc::clone(&incoming),
            has_process: kernel.process.is_some(),
            refused_since: Cell::new(None),
        };
        let sub = DialAs {
            socket_type: DialRole::Sub,
            identity: Bytes::new(),
            subscribe: vec![Bytes::new()],
        };
        let iopub = Dialer::connect_spilling(
            kernel.connection.endpoint(Channel::Iopub),
            sub,
            SocketLimits {
                read_ahead_bytes: READ_AHEAD_BYTES,
                ..limits()
            },
            front::spill(),
            Rc::new(iopub_handler),
        );
        Self {
            kernel,
            incoming,
            iopub,
            sockets: Rc::default(),
            heartbeat: Rc::default(),
            generated_ids: Cell::new(0),
            is_held: Cell::new(false),
            id,
        }
    }

    /// Returns the kernel to which the sockets lead.
    pub(super) fn kernel(&self) -> &LiveKernel {
        &self.kernel
    }

    /// Connects one client's own socket, under the client's identity.
    pub(super) fn open(&self, client: &ClientId, channel: Channel) {
        let identity = if client.is_anonymous() || client.bytes() == DELIMITER {
            // An identity that begins with a zero byte cannot be announced, and ipykernel takes an identity
            // that equals the delimiter for the delimiter.
            self.generated_ids.update(|count| count + 1);
            Bytes::from(format!("{}-{}", self.id, self.generated_ids.get()))
        } else {
            client.bytes().clone()
        };
        let handler = ClientSocket {
            incoming: Rc::clone(&self.incoming),
            client: client.clone(),
            channel,
            refused_since: Cell::new(None),
        };
        let spares_descriptors = client.bytes() != self.id.as_bytes();
        let dialer = self.dial(channel, identity, spares_descriptors, Rc::new(handler));
        self.sockets
            .borrow_mut()
            .insert((client.clone(), channel), Rc::new(dialer));
    }

    fn dial(
        &self,
        channel: Channel,
        identity: Bytes,
        spares_descriptors: bool,
        handler: Rc<dyn DialHandler>,
    ) -> Dialer {
        let dealer = DialAs {
            socket_type: DialRole::Dealer,
            identity,
            subscribe: Vec::new(),
        };
        let limits = SocketLimits {
            spares_descriptors,
            ..limits()
        };
        Dialer::connect(
            self.kernel.connection.endpoint(channel),
            dealer,
            limits,
            handler,
        )
    }

    /// Sends a message on one client's socket; one that does not fit goes back to the bridge until there is
    /// room.
    pub(super) fn send(&self, client: &ClientId, channel: Channel, message: Verified) {
        let key = (client.clone(), channel);
        let dialer = self.sockets.borrow().get(&key).cloned();
        let Some(dialer) = dialer else {
            return tracing::warn!(%client, %channel, "a message for the kernel was dropped: its socket is closed");
        };
        tracing::debug!(%client, %channel, ?message, "to the kernel");
        let Err(OutboxFull(frames)) = dialer.send(message.into_frames(&self.incoming.key)) else {
            return;
        };
        tracing::info!(%client, %channel, "the kernel does not read its socket: the client waits");
        // Reported at once: later messages for this socket must not overtake it.
        let unsent = self.incoming.verified([frames]).collect();
        (self.incoming.handler)(LinkEvent::Full(client, channel, unsent));
        let (incoming, sockets) = (Rc::clone(&self.incoming), Rc::downgrade(&self.sockets));
        tokio::task::spawn_local(async move {
            dialer.room().await;
            let is_open = sockets.upgrade().is_some_and(|sockets| {
                let sockets = sockets.borrow();
                let current = sockets.get(&key);
                current.is_some_and(|current| Rc::ptr_eq(current, &dialer))
            });
            if is_open && dialer.is_up() {
                let (client, channel) = key;
                (incoming.handler)(LinkEvent::Up(&client, channel));
            }
        });
    }

    /// Closes a client's sockets, after what is queued in them.
    pub(super) fn close(&self, client: &ClientId) {
        for channel in [Channel::Shell, Channel::Control, Channel::Stdin] {
            if let Some(dialer) = self.sockets.borrow_mut().remove(&(client.clone(), channel)) {
                // Silenced at once: the client's next socket has the same identity, and may be opened before
                // this one is closed.
                dialer.silence();
                tokio::task::spawn_local(async move {
                    dialer.close(Instant::now() + Duration::from_secs(5)).await;
                });
            }
        }
    }

    /// Writes the queued messages to the kernel and closes all sockets, at the deadline at the latest.
    pub(super) async fn finish(&self, deadline: Instant) {
        // All sockets close at the same time: each waits until its peer has closed.
        let mut closing = tokio::task::JoinSet::new();
        for (_, dialer) in self.sockets.borrow_mut().drain() {
            closing.spawn_local(async move { dialer.close(deadline).await });
        }
        while closing.join_next().await.is_some() {}
        self.iopub.close(Instant::now()).await;
    }

    /// Removes and returns the messages that were not written to a kernel, in order for each socket.
    pub(super) fn take_unsent(&self) -> Vec<(ClientId, Channel, Verified)> {
        let mut unsent = Vec::new();
        for ((client, channel), dialer) in self.sockets.borrow_mut().drain() {
            // The proxy sends its own requests again.
            if client.bytes() != self.id.as_bytes() {
                let messages = self.incoming.verified(dialer.take_unsent());
                unsent.extend(messages.map(|message| (client.clone(), channel, message)));
            }
        }
        unsent
    }

    /// Asks the kernel for a sign of life in the name of a peer of the heartbeat.
    pub(super) fn send_heartbeat(&self, peer: &PeerId, frames: Message) {
        let now = Instant::now();
        let socket = &self.heartbeat;
        if socket.beats.borrow().is_overdue(now) {
            socket.beats.borrow_mut().lose();
            socket.dialer.take();
        }
        socket.beats.borrow_mut().add(peer, frames);
        socket.dialer.borrow_mut().get_or_insert_with(|| {
            let handler = Heartbeat {
                incoming: Rc::clone(&self.incoming),
                socket: Rc::downgrade(socket),
            };
            self.dial(Channel::Heartbeat, Bytes::new(), false, Rc::new(handler))
        });
        socket.ask();
    }

    /// Forgets a peer of the heartbeat.
    pub(super) fn stop_heartbeat(&self, peer: &PeerId) {
        self.heartbeat.beats.borrow_mut().remove(peer);
    }

    /// Returns whether iopub messages were read from the socket that are not checked and routed yet.
    pub(super) fn iopub_is_behind(&self) -> bool {
        self.iopub.ahead_bytes() > 0
    }

    /// Stops or resumes the routing of iopub messages; the socket is read in both cases.
    pub(super) fn hold_iopub(&self, holds: bool) {
        if self.is_held.replace(holds) != holds {
            self.iopub.set_paused(holds);
        }
    }

    /// Returns how many bytes are queued for the kernel.
    pub(super) fn queued_bytes(&self) -> usize {
        let sockets = self.sockets.borrow();
        sockets.values().map(|dialer| dialer.queued_bytes()).sum()
    }
}

impl Incoming {
    /// Reads messages back that this proxy itself signed with the kernel's key.
    fn verified(
        &self,
        unsent: impl IntoIterator<Item = Message>,
    ) -> impl Iterator<Item = Verified> {
        let verified = |frames| self.key.receive(frames).ok();
        unsent.into_iter().filter_map(verified)
    }

    /// Verifies a message of the kernel; counts and drops a rejected one.
    fn receive(&self, channel: Channel, frames: Message) -> Option<Verified> {
        let message = self.key.receive(frames).and_then(|mut message| {
            // A message like this would end VS Code's reader of this channel for good.
            let reason = "its header, parent header or metadata is not a JSON object";
            let is_readable = message.read_headers();
            is_readable
                .then_some(message)
                .ok_or_else(|| Rejected::malformed(&reason))
        });
        match message {
            Ok(message) => {
                self.counters
                    .count_message(Direction::FromKernel, channel, message.size());
                Some(message)
            }
            Err(rejected) => {
                self.counters.count_rejected("kernel", channel, &rejected);
                None
            }
        }
    }

    /// Takes a message that was too long. Its content was dropped, so its signature cannot be checked; only
    /// its parent header is read, to find a known request.
    fn oversized(&self, channel: Channel, partial: &Message, bytes: u64) {
        tracing::warn!(%channel, bytes, "a message of the kernel is longer than allowed: it was not passed on");
        let mut frames = partial.iter().skip_while(|frame| *frame != DELIMITER);
        let parent = frames.nth(3).cloned().unwrap_or_default();
        (self.handler)(LinkEvent::Oversized(channel, parent, bytes));
    }

    /// Records that a socket could not be connected. Returns since when the kernel refuses connections;
    /// `None` if the cause is here.
    fn refused(&self, since: &Cell<Option<Instant>>, error: &io::Error) -> Option<Instant> {
        if is_out_of_descriptors(error) {
            (self.handler)(LinkEvent::NoDescriptors);
            return None;
        }
        let first = since.get().unwrap_or_else(Instant::now);
        since.set(Some(first));
        Some(first)
    }
}

/// Returns whether an error means that no file descriptors are left.
pub(super) fn is_out_of_descriptors(error: &io::Error) -> bool {
    let codes = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    error
        .raw_os_error()
        .is_some_and(|code| codes.contains(&code))
}

impl DialHandler for ClientSocket {
    fn up(&self) {
        self.refused_since.set(None);
        // The next kernel listens at the same address, and must not get what was meant for this one.
        let process = self.incoming.process.as_ref();
        if process.is_none_or(Process::is_alive) {
            (self.incoming.handler)(LinkEvent::Up(&self.client, self.channel));
        }
    }

    fn message(&self, message: Message) {
        if let Some(message) = self.incoming.receive(self.channel, message) {
            tracing::debug!(client = %self.client, channel = %self.channel, ?message, "from the kernel");
            (self.incoming.handler)(LinkEvent::Message(&self.client, self.channel, message));
        }
    }

    fn oversized(&self, partial: Message, bytes: u64) {
        self.incoming.oversized(self.channel, &partial, bytes);
    }

    fn down(&self, reason: &DisconnectReason, unsent: Vec<Message>) {
        tracing::debug!(client = %self.client, channel = %self.channel, "the kernel's socket was lost: {reason}");
        let unsent = self.incoming.verified(unsent).collect();
        (self.incoming.handler)(LinkEvent::Down(&self.client, self.channel, unsent));
    }

    fn refused(&self, error: &io::Error) {
        let Some(since) = self.incoming.refused(&self.refused_since, error) else {
            return;
        };
        tracing::debug!(client = %self.client, channel = %self.channel, "the kernel cannot be reached: {error}");
        if self.channel == Channel::Stdin && since.elapsed() > REFUSED_MAX {
            (self.incoming.handler)(LinkEvent::StdinAbsent(&self.client));
        }
    }
}

impl DialHandler for Iopub {
    fn up(&self) {
        self.refused_since.set(None);
        (self.incoming.handler)(LinkEvent::IopubUp);
    }

    fn message(&self, message: Message) {
        if let Some(message) = self.incoming.receive(Channel::Iopub, message) {
            tracing::debug!(channel = "iopub", ?message, "from the kernel");
            (self.incoming.handler)(LinkEvent::Published(message));
        }
    }

    fn oversized(&self, partial: Message, bytes: u64) {
        self.incoming.oversized(Channel::Iopub, &partial, bytes);
    }

    fn down(&self, reason: &DisconnectReason, _: Vec<Message>) {
        tracing::info!(channel = "iopub", "the kernel's socket was lost: {reason}");
        (self.incoming.handler)(LinkEvent::IopubDown);
    }

    fn refused(&self, error: &io::Error) {
        let Some(since) = self.incoming.refused(&self.refused_since, error) else {
            return;
        };
        // A kernel that is stopped or in a debugger still accepts connections.
        let listens = !matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
        );
        let limit = match self.has_process {
            false => REFUSED_MAX,
            true if listens => return,
            true => REFUSED_MAX_WHILE_ALIVE,
        };
        if since.elapsed() > limit {
            (self.incoming.handler)(LinkEvent::Unreachable(error));
        }
    }
}

impl HeartbeatSocket {
    /// Pings the kernel if that is due.
    fn ask(&self) {
        if let Some(dialer) = &*self.dialer.borrow()
            && let Some(ping) = self.beats.borrow_mut().poll_ping(Instant::now())
        {
            let _ = dialer.send(ping);
        }
    }
}

impl DialHandler for Heartbeat {
    fn up(&self) {}

    fn message(&self, _: Message) {
        let Some(socket) = self.socket.upgrade() else {
            return;
        };
        let answered = socket.beats.borrow_mut().answer();
        socket.ask();
        for (peer, frames) in answered {
            (self.incoming.handler)(LinkEvent::Heartbeat(&peer, frames));
        }
    }

    fn down(&self, _: &DisconnectReason, _: Vec<Message>) {
        if let Some(socket) = self.socket.upgrade() {
            socket.beats.borrow_mut().lose();
            socket.ask();
        }
    }

    fn refused(&self, error: &io::Error) {
        if is_out_of_descriptors(error) {
            (self.incoming.handler)(LinkEvent::NoDescriptors);
        }
    }
}

/// How many bytes of the kernel's iopub are in memory before they are checked and routed: a kernel drops messages that
/// are not read in time. What exceeds this limit waits on disk.
const READ_AHEAD_BYTES: usize = 4 << 20;

/// Returns the limits of every socket to the kernel.
fn limits() -> SocketLimits {
    SocketLimits {
        outbox_bytes: 64 << 20,
        ..SocketLimits::default()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::route::Interrupt;
    use crate::socket::EndpointHandler;
    use crate::wire::ConnectionInfo;

    /// A kernel's side of the sockets, which takes all messages.
    struct Kernel;

    impl EndpointHandler for Kernel {
        fn message(&self, _: Channel, _: &Bytes, _: Verified) {}
    }

    #[tokio::test]
    async fn a_socket_to_the_next_kernel_at_the_same_address_is_not_usable() {
        let local = tokio::task::LocalSet::new();
        local.run_until(two_kernels_at_one_address()).await;
    }

    async fn two_kernels_at_one_address() {
        let temp = tempfile::tempdir().unwrap();
        let file = serde_json::json!({
            "transport": "ipc", "ip": temp.path().join("k"), "key": "a key",
            "signature_scheme": "hmac-sha256",
            "shell_port": 1, "iopub_port": 2, "stdin_port": 3, "control_port": 4, "hb_port": 5,
        });
        let connection = ConnectionInfo::parse(file.to_string().as_bytes()).unwrap();
        let _kernel = front::bind(&connection, Rc::new(Kernel)).await.unwrap();
        let ups = Rc::new(RefCell::new(Vec::new()));
        let changed = Rc::new(tokio::sync::Notify::new());
        let links = |name: &str, process: Process| {
            let kernel = LiveKernel {
                owner: "t.ipynb".to_owned(),
                connection_file: temp.path().join("k.json"),
                connection: connection.clone(),
                process: Some(process),
                generation: 1,
                interrupt: Interrupt::Message,
                info: None,
                is_disconnected: false,
                previous_end: None,
                widgets: None,
                handed_over: None,
            };
            let (name, ups, changed) = (name.to_owned(), Rc::clone(&ups), Rc::clone(&changed));
            let links = Links::connect(kernel, "own".to_owned(), Rc::default(), move |event| {
                let kind = match event {
                    LinkEvent::Up(..) => "up",
                    LinkEvent::IopubUp => "iopub",
                    _ => return,
                };
                ups.borrow_mut().push(format!("{name} {kind}"));
                changed.notify_one();
            });
            links.open(&ClientId::new("c".into()), Channel::Shell);
            links
        };
        let living = Process::current();
        let mut ended = living.clone();
        ended.start_time += 1;
        let _old = links("old", ended);
        while ups.borrow().is_empty() {
            changed.notified().await;
        }
        let _new = links("new", living);
        while !ups.borrow().contains(&"new up".to_owned()) {
            changed.notified().await;
        }
        assert!(!ups.borrow().contains(&"old up".to_owned()), "{ups:?}");
    }
}
