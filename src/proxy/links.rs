//! The sockets to one generation of the kernel.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::counters::Way;
use super::shell::Shell;
use super::target::LiveKernel;
use crate::route::ClientId;
use crate::socket::{
    DialAs, DialHandler, DialRole, Dialer, DisconnectReason, Limits, Message, OutboxFull, PeerId,
};
use crate::wire::{Channel, DELIMITER, Rejected, SigningKey, Verified};

/// All sockets to one generation of the kernel: its iopub, and each client's own.
///
/// Dropping it closes them at once.
pub(super) struct Links {
    shell: Weak<Shell>,
    kernel: LiveKernel,
    iopub: Dialer,
    own: RefCell<HashMap<(ClientId, Channel), Rc<Dialer>>>,
    beats: RefCell<HashMap<PeerId, Dialer>>,
    /// Identities for clients that announced none.
    named: Cell<u64>,
    is_held: Cell<bool>,
    id: String,
}

/// The events of one client's socket.
struct Own {
    shell: Weak<Shell>,
    client: ClientId,
    channel: Channel,
    key: SigningKey,
    refused_since: Cell<Option<Instant>>,
}

/// The events of iopub.
struct Iopub {
    shell: Weak<Shell>,
    key: SigningKey,
    /// Whether the kernel's process is known: then its end is noticed there.
    watched: bool,
    refused_since: Cell<Option<Instant>>,
}

/// The echoes of one heartbeat.
struct Echo {
    shell: Weak<Shell>,
    peer: PeerId,
}

/// A kernel of which only the sockets are known, and which refuses for this long, is gone.
const UNREACHABLE: Duration = Duration::from_secs(3);

/// A kernel whose process lives and whose sockets were removed is never reached again.
const SOCKETS_GONE: Duration = Duration::from_secs(10);

impl Links {
    /// Begins to dial the kernel's iopub; the rest follows by [`Links::open`].
    ///
    /// iopub first and always read: a kernel's PUB drops what its reader does not take fast enough.
    pub(super) fn connect(kernel: LiveKernel, id: String, shell: &Weak<Shell>) -> Self {
        let handler = Iopub {
            shell: shell.clone(),
            key: kernel.connection.key.clone(),
            watched: kernel.process.is_some(),
            refused_since: Cell::new(None),
        };
        let sub = DialAs {
            socket_type: DialRole::Sub,
            identity: Bytes::new(),
            subscribe: vec![Bytes::new()],
        };
        let iopub = Dialer::connect(
            kernel.connection.endpoint(Channel::Iopub),
            sub,
            Limits {
                read_ahead_bytes: READ_AHEAD_BYTES,
                ..limits()
            },
            Rc::new(handler),
        );
        Self {
            shell: shell.clone(),
            kernel,
            iopub,
            own: RefCell::default(),
            beats: RefCell::default(),
            named: Cell::new(0),
            is_held: Cell::new(false),
            id,
        }
    }

    /// Returns the kernel that these lead to.
    pub(super) fn kernel(&self) -> &LiveKernel {
        &self.kernel
    }

    /// Connects one client's own socket, under the client's identity.
    pub(super) fn open(&self, client: &ClientId, channel: Channel) {
        let identity = if client.is_anonymous() || client.bytes() == DELIMITER {
            // An identity that begins with a zero byte cannot be announced, and ipykernel takes
            // one that equals the delimiter for the delimiter.
            self.named.set(self.named.get() + 1);
            Bytes::from(format!("{}-{}", self.id, self.named.get()))
        } else {
            client.bytes().clone()
        };
        let handler = Own {
            shell: self.shell.clone(),
            client: client.clone(),
            channel,
            key: self.kernel.connection.key.clone(),
            refused_since: Cell::new(None),
        };
        let dealer = DialAs {
            socket_type: DialRole::Dealer,
            identity,
            subscribe: Vec::new(),
        };
        let dialer = Dialer::connect(
            self.kernel.connection.endpoint(channel),
            dealer,
            Limits {
                spares_descriptors: client.bytes() != self.id.as_bytes(),
                ..limits()
            },
            Rc::new(handler),
        );
        self.own
            .borrow_mut()
            .insert((client.clone(), channel), Rc::new(dialer));
    }

    /// Sends on one client's socket; what does not fit goes back to the bridge until it does.
    pub(super) fn send(&self, client: &ClientId, channel: Channel, message: Verified) {
        let dialer = self.own.borrow().get(&(client.clone(), channel)).cloned();
        let Some(dialer) = dialer else {
            return tracing::warn!(%client, %channel, "a message for the kernel was dropped: its socket is closed");
        };
        tracing::debug!(%client, %channel, ?message, "to the kernel");
        let Err(OutboxFull(frames)) = dialer.send(message.into_frames(&self.kernel.connection.key))
        else {
            return;
        };
        tracing::info!(%client, %channel, "the kernel does not read: the client waits");
        // At once: what follows for this socket must not overtake it.
        if let Some(shell) = self.shell.upgrade() {
            let unsent = self.verified(frames).into_iter().collect();
            shell.route(|bridge, _| bridge.link_down(client, channel, unsent));
        }
        let (shell, client) = (self.shell.clone(), client.clone());
        tokio::task::spawn_local(async move {
            dialer.room().await;
            let Some(strong) = shell.upgrade() else {
                return;
            };
            if strong.has_link(&client, channel, &dialer) && dialer.is_up() {
                strong.route(|bridge, now| bridge.link_up(now, &client, channel));
            }
        });
    }

    /// Returns whether this socket is still the client's.
    pub(super) fn has(&self, client: &ClientId, channel: Channel, dialer: &Rc<Dialer>) -> bool {
        self.own
            .borrow()
            .get(&(client.clone(), channel))
            .is_some_and(|own| Rc::ptr_eq(own, dialer))
    }

    /// Closes a client's sockets, after what is queued in them.
    pub(super) fn close(&self, client: &ClientId) {
        for channel in [Channel::Shell, Channel::Control, Channel::Stdin] {
            if let Some(dialer) = self.own.borrow_mut().remove(&(client.clone(), channel)) {
                // At once: the client's next socket is another, and may be opened before this one
                // is closed.
                dialer.silence();
                tokio::task::spawn_local(async move {
                    dialer.close(Instant::now() + Duration::from_secs(5)).await;
                });
            }
        }
    }

    /// Writes what is queued for the kernel and closes everything, at the deadline at the latest.
    pub(super) async fn finish(&self, deadline: Instant) {
        // At once: each takes its time to see its peer close.
        let mut closing = tokio::task::JoinSet::new();
        for (_, dialer) in self.own.borrow_mut().drain() {
            closing.spawn_local(async move { dialer.close(deadline).await });
        }
        while closing.join_next().await.is_some() {}
        self.iopub.close(Instant::now()).await;
    }

    /// Takes what no kernel has got, in order for each socket.
    pub(super) fn take_unsent(&self) -> Vec<(ClientId, Channel, Verified)> {
        let mut unsent = Vec::new();
        for ((client, channel), dialer) in self.own.borrow_mut().drain() {
            for frames in dialer.take_unsent() {
                unsent.extend(
                    self.verified(frames)
                        .map(|message| (client.clone(), channel, message)),
                );
            }
        }
        // What the proxy asked for itself is asked anew.
        unsent.retain(|(client, _, _)| client.bytes() != self.id.as_bytes());
        unsent
    }

    /// Passes a heartbeat on, under a socket of its own for each client.
    pub(super) fn beat(&self, peer: &PeerId, frames: Message) {
        let mut beats = self.beats.borrow_mut();
        let dialer = beats.entry(peer.clone()).or_insert_with(|| {
            let echo = Echo {
                shell: self.shell.clone(),
                peer: peer.clone(),
            };
            let dealer = DialAs {
                socket_type: DialRole::Dealer,
                identity: Bytes::new(),
                subscribe: Vec::new(),
            };
            Dialer::connect(
                self.kernel.connection.endpoint(Channel::Heartbeat),
                dealer,
                Limits {
                    spares_descriptors: true,
                    ..limits()
                },
                Rc::new(echo),
            )
        });
        // One that does not fit is one that was missed.
        let _ = dialer.send(frames);
    }

    /// Forgets a client's heartbeat.
    pub(super) fn stop_beat(&self, peer: &PeerId) {
        self.beats.borrow_mut().remove(peer);
    }

    /// Returns whether messages of iopub were read that are still to be checked and routed.
    pub(super) fn iopub_is_behind(&self) -> bool {
        self.iopub.ahead_bytes() > 0
    }

    /// Stops or goes on routing what comes on iopub, which is read all the same.
    pub(super) fn hold_iopub(&self, holds: bool) {
        if self.is_held.replace(holds) != holds {
            self.iopub.set_paused(holds);
        }
    }

    /// Returns what is queued for the kernel, in bytes.
    pub(super) fn queued_bytes(&self) -> usize {
        self.own
            .borrow()
            .values()
            .map(|own| own.queued_bytes())
            .sum()
    }

    fn verified(&self, frames: Message) -> Option<Verified> {
        verified(frames, &self.kernel.connection.key)
    }
}

/// Reads back what was signed with the kernel's key.
fn verified(frames: Message, key: &SigningKey) -> Option<Verified> {
    key.receive(frames).ok()
}

/// Verifies a message of the kernel's; one that is rejected is counted and dropped.
fn receive(shell: &Shell, channel: Channel, key: &SigningKey, frames: Message) -> Option<Verified> {
    let message = key.receive(frames).and_then(|mut message| {
        // Passed on, it would end VS Code's reader of this channel for good.
        let why = "its header, parent header or metadata is no JSON object";
        let is_readable = message.read_headers();
        is_readable
            .then_some(message)
            .ok_or_else(|| Rejected::malformed(&why))
    });
    match message {
        Ok(message) => {
            shell.count.passed(Way::FromKernel, channel, message.size());
            Some(message)
        }
        Err(why) => {
            shell.count.rejected("kernel", channel, &why);
            None
        }
    }
}

/// Tells of a message that was too long to take. Its content is gone, so its signature cannot be
/// checked: of its beginning only the parent is read, and only to find a request that is known.
fn oversized(shell: &Weak<Shell>, channel: Channel, begun: &Message, bytes: u64) {
    let Some(shell) = shell.upgrade() else { return };
    tracing::warn!(%channel, bytes, "a message of the kernel is longer than allowed: it was not passed on");
    let parent = begun
        .iter()
        .skip_while(|frame| *frame != DELIMITER)
        .nth(3)
        .cloned()
        .unwrap_or_default();
    shell.route(|bridge, now| bridge.oversized(now, channel, &parent, bytes));
}

impl DialHandler for Own {
    fn up(&self) {
        self.refused_since.set(None);
        if let Some(shell) = self.shell.upgrade() {
            shell.route(|bridge, now| bridge.link_up(now, &self.client, self.channel));
        }
    }

    fn message(&self, message: Message) {
        let Some(shell) = self.shell.upgrade() else {
            return;
        };
        let Some(message) = receive(&shell, self.channel, &self.key, message) else {
            return;
        };
        tracing::debug!(client = %self.client, channel = %self.channel, ?message, "from the kernel");
        let asks = (self.channel == Channel::Stdin).then(|| message.clone());
        shell.route(|bridge, now| bridge.kernel_message(now, &self.client, self.channel, message));
        if let Some(message) = asks {
            shell.buffer_question(&self.client, &message);
        }
    }

    fn oversized(&self, begun: Message, bytes: u64) {
        oversized(&self.shell, self.channel, &begun, bytes);
    }

    fn down(&self, why: &DisconnectReason, unsent: Vec<Message>) {
        let Some(shell) = self.shell.upgrade() else {
            return;
        };
        tracing::debug!(client = %self.client, channel = %self.channel, "the kernel's socket was lost: {why}");
        let unsent = unsent
            .into_iter()
            .filter_map(|frames| verified(frames, &self.key))
            .collect();
        shell.route(|bridge, _| bridge.link_down(&self.client, self.channel, unsent));
        shell.look_again();
    }

    fn refused(&self, error: &io::Error) {
        if made_room(&self.shell, error) {
            return;
        }
        let since = self.refused_since.get().unwrap_or_else(Instant::now);
        self.refused_since.set(Some(since));
        tracing::debug!(client = %self.client, channel = %self.channel, "the kernel cannot be reached: {error}");
        if self.channel == Channel::Stdin
            && since.elapsed() > UNREACHABLE
            && let Some(shell) = self.shell.upgrade()
        {
            shell.route(|bridge, now| bridge.stdin_absent(now, &self.client));
        }
    }
}

impl DialHandler for Iopub {
    fn up(&self) {
        self.refused_since.set(None);
        if let Some(shell) = self.shell.upgrade() {
            shell.reached();
        }
    }

    fn message(&self, message: Message) {
        let Some(shell) = self.shell.upgrade() else {
            return;
        };
        let Some(message) = receive(&shell, Channel::Iopub, &self.key, message) else {
            return;
        };
        tracing::debug!(channel = "iopub", ?message, "from the kernel");
        if !shell.listens() {
            return;
        }
        shell.buffer_output(&message);
        shell.route(|bridge, now| bridge.iopub_message(now, message));
    }

    fn oversized(&self, begun: Message, bytes: u64) {
        oversized(&self.shell, Channel::Iopub, &begun, bytes);
    }

    fn down(&self, why: &DisconnectReason, _: Vec<Message>) {
        let Some(shell) = self.shell.upgrade() else {
            return;
        };
        tracing::info!(channel = "iopub", "the kernel's socket was lost: {why}");
        shell.route(|bridge, _| bridge.iopub_down());
        shell.look_again();
    }

    fn refused(&self, error: &io::Error) {
        if made_room(&self.shell, error) {
            return;
        }
        let since = self.refused_since.get().unwrap_or_else(Instant::now);
        self.refused_since.set(Some(since));
        // One that is stopped or in a debugger listens all the same.
        let listens = !matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
        );
        let limit = match self.watched {
            false => UNREACHABLE,
            true if listens => return,
            true => SOCKETS_GONE,
        };
        if since.elapsed() > limit
            && let Some(shell) = self.shell.upgrade()
        {
            shell.unreachable(error);
        }
    }
}

impl DialHandler for Echo {
    fn up(&self) {}

    fn message(&self, message: Message) {
        if let Some(shell) = self.shell.upgrade() {
            shell.beat_client(&self.peer, message);
        }
    }

    fn down(&self, _: &DisconnectReason, _: Vec<Message>) {}

    fn refused(&self, error: &io::Error) {
        made_room(&self.shell, error);
    }
}

/// Returns whether it was not the kernel that refused, but a want of descriptors.
fn made_room(shell: &Weak<Shell>, error: &io::Error) -> bool {
    shell.upgrade().is_some_and(|shell| shell.makes_room(error))
}

/// How many bytes of the kernel's iopub are read before they are checked, signed and written: a kernel
/// drops what is not read in time. Above this they are read as fast as they are dealt with.
const READ_AHEAD_BYTES: usize = 128 << 20;

/// The bounds of every socket to the kernel.
fn limits() -> Limits {
    Limits {
        outbox_bytes: 64 << 20,
        ..Limits::default()
    }
}
