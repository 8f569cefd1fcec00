//! ZMTP over TCP and Unix sockets: [`Router`], [`Publisher`] and [`Dialer`].
//!
//! Everything runs on one thread, in a [`tokio::task::LocalSet`] or a
//! [`tokio::runtime::LocalRuntime`]: `bind` and `connect` spawn local tasks and panic elsewhere.
//! Handlers are called on that thread from the task of one connection; they must not block, and may
//! call any method of any socket, also of the one that calls them. Several messages of one read are
//! delivered in a row; what they led to is written, and then others get their turn.
//!
//! A handler that panics with a message loses that connection and is told so; the socket lives on.
//!
//! Every queue has a bound, and this is what happens when it is full:
//!
//! | queue | bound | when it is full |
//! |---|---|---|
//! | towards a [`Router`]'s peer | [`Limits::outbox_bytes`] | `send` gives the message back; the caller decides |
//! | towards a [`Publisher`]'s subscriber | [`Limits::outbox_bytes`] in memory, then [`SpillTo::bytes`] on disk | that subscriber alone is cut, and `left` says so |
//! | from a [`Dialer`] | [`Limits::outbox_bytes`] | `send` gives the message back; the caller decides |
//! | from a server's peer | one read buffer and one message of [`Limits::max_message`] | that connection is closed; `left` says why |
//! | from what a [`Dialer`] reached | the same | the message is read and thrown away, `oversized` says so; one over 64 times the limit closes the connection |
//! | from what a [`Dialer`] reached, read ahead | [`Limits::read_ahead_bytes`] | it is read no faster than delivered; the system's buffers fill, then the peer's own queue |
//! | from a [`Router`]'s peer that is not authenticated yet | [`Limits::max_unauthenticated_message`] | the same |
//! | peers of a socket | [`Limits::max_peers`], those in their handshake included | a new one is closed at once; `refused` says so |
//! | file descriptors | the system's limit; less by a quarter, 16 at most, with [`Limits::spares_descriptors`] | a connection is closed at once, or not made; `refused` says so |
//! | topics of a subscriber | 1 MiB | that subscriber alone is cut |
//! | answers to PING | 4 KiB | further PINGs go unanswered until the peer reads |
//!
//! An outbox that is empty takes one message of any size: a budget bounds what queues up, not
//! what can be said. While a peer's connection is [paused](Router::pause), the system's socket
//! buffer fills and the peer itself has to wait. What a paused [`Dialer`] reaches is read ahead first.
//!
//! Dropping a socket closes it at once: the address is free when `drop` returns, its
//! connections are closed when the thread next comes round to them, no handler is called any
//! more. `close` first writes what is queued, until a deadline.

mod dialer;
mod disconnect;
mod endpoint;
mod link;
mod outbox;
mod outlet;
mod peer_user;
mod publisher;
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

/// The bounds of one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest message that a peer may send: the bytes of all its frames.
    pub max_message: usize,
    /// The same for a [`Router`]'s peer until [`Router::authenticate`] is called for it.
    pub max_unauthenticated_message: usize,
    /// How long a peer may take from the connection to its READY.
    pub handshake: Duration,
    /// How many bytes of messages a [`Dialer`] takes from the system before they are delivered, with some for
    /// each message and frame. Where it is zero, each read is delivered before the next.
    pub read_ahead_bytes: usize,
    /// What may queue up towards one peer, in bytes (with some for each frame and message).
    pub outbox_bytes: usize,
    /// How many connections may be open at once.
    pub max_peers: usize,
    /// Whether its connections leave the last of the process's file descriptors to others: files
    /// are to be written, and processes to be started, when peers have used up the rest.
    pub spares_descriptors: bool,
}

impl Default for Limits {
    /// Returns 1 GiB, for strangers too, 10 s, nothing read ahead, 64 MiB and 1,024; it spares no descriptors.
    fn default() -> Self {
        Self {
            max_message: 1 << 30,
            max_unauthenticated_message: 1 << 30,
            handshake: Duration::from_secs(10),
            read_ahead_bytes: 0,
            outbox_bytes: 64 << 20,
            max_peers: 1024,
            spares_descriptors: false,
        }
    }
}

/// Who is at the other end of one of a server's connections.
///
/// On a [`Router`] a peer that announced an identity keeps its id over reconnects. One that did
/// not, and every subscriber of a [`Publisher`], has an id of its own for each connection; it
/// begins with a zero byte and never equals an announced one, not even of the same bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeerId {
    bytes: Bytes,
    announced: bool,
}

impl PeerId {
    /// Returns the id of the peer that announces this identity.
    pub fn announced(identity: Bytes) -> Self {
        Self {
            bytes: identity,
            announced: true,
        }
    }

    fn made_up(connection: u64) -> Self {
        let bytes = [&[0], &connection.to_be_bytes()[..]].concat();
        Self {
            bytes: bytes.into(),
            announced: false,
        }
    }

    /// Returns whether the peer announced it itself.
    pub fn is_announced(&self) -> bool {
        self.announced
    }

    /// Returns its bytes: the announced identity, or the made-up one.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes.split_first_chunk::<9>() {
            Some(([0, number @ ..], [])) if !self.announced => {
                write!(f, "#{}", u64::from_be_bytes(*number))
            }
            _ => write!(f, "{}", self.bytes.escape_ascii()),
        }
    }
}

/// What is known of a connection when its handshake is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// A number that no other connection of this process has.
    pub connection: u64,
    /// The identity as the peer announced it; empty for none.
    pub identity: Bytes,
    /// The peer's socket type, such as `DEALER`.
    pub socket_type: String,
}

/// Is told what happens on a [`Router`] or [`Publisher`].
pub trait ServerHandler {
    /// A peer is there. Called again without [`left`](Self::left) in between when a new
    /// connection with the same identity takes over from the old one.
    fn joined(&self, peer: &PeerId, info: &PeerInfo);

    /// A message came. On a [`Publisher`]: one frame, 1 or 0 and the topic.
    fn message(&self, peer: &PeerId, message: Message);

    /// The peer is gone, once for each id that joined; after it nothing comes from that id
    /// until it joins again. What was queued towards it is dropped.
    fn left(&self, peer: &PeerId, why: &DisconnectReason);

    /// A connection ended before it was a peer: no handshake, or too many peers.
    fn refused(&self, why: &DisconnectReason) {
        let _ = why;
    }
}

/// Returns a number that no other connection of this process has.
fn connection_number() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
