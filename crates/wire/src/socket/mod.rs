//! ZMTP over TCP and Unix sockets: [`Router`], [`Publisher`] and [`Dialer`].
//!
//! Everything runs on one thread, in a [`tokio::task::LocalSet`] or a
//! [`tokio::runtime::LocalRuntime`]: `bind` and `connect` spawn local tasks and panic elsewhere.
//! Handlers are called on that thread from the task of one connection. They must not block, and may call any
//! method of any socket, including the socket that calls them. Several messages of one read are delivered in
//! a row; then the messages that the handlers sent are written, and other tasks run.
//!
//! A handler that panics on a message loses that connection, and `left` reports it; the socket goes on.
//!
//! Every queue has a limit:
//!
//! | queue | limit | when it is full |
//! |---|---|---|
//! | to a [`Router`]'s peer | [`SocketLimits::outbox_bytes`] | `send` returns the message; the caller decides |
//! | to a [`Publisher`]'s subscriber | [`SocketLimits::outbox_bytes`] in memory, then [`SpillTo::bytes`] on disk | only that subscriber is cut, and `left` reports it |
//! | to all subscribers of a [`Publisher`] | 32 times the former, 4 times the latter | the subscriber with the most unread bytes is cut |
//! | to a [`Dialer`]'s peer | [`SocketLimits::outbox_bytes`] | `send` returns the message; the caller decides |
//! | from a server's peer | one read buffer and one message of [`SocketLimits::max_message`] | that connection is closed; `left` says why |
//! | from a [`Dialer`]'s peer | the same | the message is read and dropped, and `oversized` reports it; one over 64 times the limit closes the connection |
//! | from a [`Dialer`]'s peer, read ahead | [`SocketLimits::read_ahead_bytes`] in memory, then, if [`Dialer::connect_spilling`] allows that, [`SpillTo::bytes`] on disk | messages are read no faster than delivered; the system's buffers fill, then the peer's own queue |
//! | from a [`Router`]'s peer that is not authenticated yet, and from a [`Publisher`]'s | [`SocketLimits::max_unauthenticated_message`] | the same |
//! | incomplete messages of all these peers | [`SocketLimits::max_unauthenticated_bytes`] | the peer with the longest one is closed |
//! | peers of a socket | [`SocketLimits::max_peers`], including those in their handshake; with [`SocketLimits::spares_descriptors`] at most an eighth of the descriptors | the oldest is closed that is neither authenticated nor subscribed to anything; without one the new one, and `refused` reports it |
//! | file descriptors | the system's limit; with [`SocketLimits::spares_descriptors`] less by a quarter, 16 at most | a connection is closed at once, or not made; `refused` reports it |
//! | topics of a subscriber | 1 MiB | only that subscriber is cut |
//! | answers to PING | 4 KiB in one read, 16 KiB in the queue | further PINGs go unanswered until the peer reads |
//!
//! An empty outbox accepts one message of any size: a budget limits the queue, not the size of a message.
//! While a peer's connection is [paused](Router::set_paused), the system's socket buffer fills and the peer
//! itself has to wait. A paused [`Dialer`] first reads ahead.
//!
//! Dropping a socket closes it at once: the address is free when `drop` returns, the connections are closed
//! when the thread next runs their tasks, and no handler is called any more. `close` first writes the queued
//! messages, until a deadline.

mod dialer;
mod disconnect;
mod endpoint;
mod link;
mod outbox;
mod outlet;
mod peer_user;
mod publisher;
mod read_ahead;
mod router;
mod server;
mod signal;
mod spill;
mod stream;
mod topics;
mod write_coalescing;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

pub use crate::zmtp::Message;
pub use dialer::{DialAs, DialHandler, DialRole, Dialer, OutboxFull};
pub use disconnect::{DisconnectReason, Responsible};
pub use endpoint::{BindError, EndpointHandler, EndpointLimits, KernelEndpoint};
pub use publisher::{DeliveryProgress, Publisher, SubscriberBacklog};
pub use router::{Router, UnsentMessage, UnsentReason};
pub use spill::SpillTo;
pub use stream::{other_user, peer_process};

/// The limits of one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketLimits {
    /// The longest message that a peer may send: the bytes of all its frames.
    pub max_message: usize,
    /// The longest message of a [`Router`]'s peer until [`Router::authenticate`] is called for it, and of a
    /// [`Publisher`]'s peer.
    pub max_unauthenticated_message: usize,
    /// How many bytes of incomplete messages all these peers may have sent together.
    pub max_unauthenticated_bytes: usize,
    /// How long one of these peers may take for a message that it has begun.
    pub unauthenticated_message: Duration,
    /// How long a peer may take from the connection to its READY.
    pub handshake: Duration,
    /// How many bytes of messages a [`Dialer`] holds in memory before they are delivered, including some overhead for
    /// each message and frame. If it is zero, each read is delivered before the next.
    pub read_ahead_bytes: usize,
    /// How many bytes may be queued for one peer, including some overhead for each frame and message.
    pub outbox_bytes: usize,
    /// How many connections may be open at once.
    pub max_peers: usize,
    /// Whether its connections leave the last of the process's file descriptors unused: files must be written
    /// and processes started even when peers have used up the rest.
    pub spares_descriptors: bool,
}

impl Default for SocketLimits {
    /// Returns 1 GiB for messages, also of unauthenticated peers, which may take 30 s for one and any number of bytes
    /// together, 10 s for the handshake, no reading ahead, 64 MiB for each outbox, and 1,024 peers; it spares no
    /// descriptors.
    fn default() -> Self {
        Self {
            max_message: 1 << 30,
            max_unauthenticated_message: 1 << 30,
            max_unauthenticated_bytes: usize::MAX,
            unauthenticated_message: Duration::from_secs(30),
            handshake: Duration::from_secs(10),
            read_ahead_bytes: 0,
            outbox_bytes: 64 << 20,
            max_peers: 1024,
            spares_descriptors: false,
        }
    }
}

/// The peer at the other end of one of a server's connections.
///
/// On a [`Router`] a peer that announced an identity has the same id after each reconnect. A peer without an
/// identity, and every subscriber of a [`Publisher`], gets a new id for each connection, which begins with a
/// zero byte: ZMTP reserves such identities for that. A peer that announces such an identity counts as one
/// without.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeerId(Bytes);

impl PeerId {
    /// Returns the id of the peer that announces this identity.
    pub fn announced(identity: Bytes) -> Self {
        Self(identity)
    }

    /// Returns the id with these bytes.
    fn of(bytes: &Bytes) -> Self {
        Self(bytes.clone())
    }

    fn generated(connection: u64) -> Self {
        Self([&[0], &connection.to_be_bytes()[..]].concat().into())
    }

    /// Returns whether the peer announced the id itself.
    pub fn is_announced(&self) -> bool {
        is_announceable(&self.0)
    }

    /// Returns the bytes: the announced identity, or the generated one.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }
}

/// Returns whether a peer may announce this identity.
fn is_announceable(identity: &[u8]) -> bool {
    identity.first().is_some_and(|first| *first != 0)
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.split_first_chunk::<9>() {
            Some(([0, number @ ..], [])) => write!(f, "#{}", u64::from_be_bytes(*number)),
            _ => write!(f, "{}", self.0.escape_ascii()),
        }
    }
}

/// The facts about a connection whose handshake is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// A number that no other connection of this process has.
    pub connection: u64,
    /// The identity as the peer announced it; empty for none.
    pub identity: Bytes,
    /// The peer's socket type, such as `DEALER`.
    pub socket_type: String,
}

/// Handles the events of a [`Router`] or [`Publisher`].
pub trait ServerHandler {
    /// A peer has connected. Called again without [`left`](Self::left) in between when a new connection with
    /// the same identity replaces the old one.
    fn joined(&self, peer: &PeerId, info: &PeerInfo);

    /// A message has arrived. On a [`Publisher`] it is one frame: 1 or 0, and the topic.
    fn message(&self, peer: &PeerId, message: Message);

    /// The peer has disconnected. Called once for each id that joined; no message comes from that id until it
    /// joins again. Messages that were queued for it are dropped.
    fn left(&self, peer: &PeerId, reason: &DisconnectReason);

    /// A connection ended before its handshake was complete, or there were too many peers.
    fn refused(&self, _reason: &DisconnectReason) {}
}

/// Returns a number that no other connection of this process has.
fn connection_number() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
