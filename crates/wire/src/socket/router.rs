//! The socket that addresses its peers by identity.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::time::Instant;

use super::disconnect::DisconnectReason;
use super::outbox::Item;
use super::server::Server;
use super::{Message, PeerId, ServerHandler, SocketLimits};
use crate::wire::Endpoint;
use crate::zmtp::Role;

/// A ROUTER: accepts DEALER, REQ and ROUTER peers and sends to each by its [`PeerId`].
///
/// A new connection with an identity that is connected already replaces the old one: the old one is closed
/// without a call of the handler, messages queued for it go to the new one, and [`ServerHandler::joined`] is
/// called again.
pub struct Router {
    server: Server,
}

/// A message that was not queued.
#[derive(Debug)]
pub struct UnsentMessage {
    /// The message.
    pub message: Message,
    /// The reason.
    pub reason: UnsentReason,
}

/// Why a message was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsentReason {
    /// The peer is not connected, or is being closed.
    NoSuchPeer,
    /// The messages queued for the peer have reached the budget.
    Full,
}

impl Router {
    /// Binds, listens and serves.
    ///
    /// # Errors
    /// If the address is not available. The file of a Unix socket on which no process listens is replaced; a
    /// file that is in use, or is not a socket, is left alone.
    ///
    /// # Panics
    /// Outside a [`tokio::task::LocalSet`].
    pub fn bind(
        endpoint: &Endpoint,
        limits: SocketLimits,
        handler: Rc<dyn ServerHandler>,
    ) -> io::Result<Self> {
        let server = Server::bind(Role::Router, endpoint, limits, None, handler)?;
        Ok(Self { server })
    }

    /// Returns the address on which it listens, with the port that the system chose.
    pub fn local_endpoint(&self) -> &Endpoint {
        self.server.endpoint()
    }

    /// Queues a message for a peer; never waits.
    ///
    /// # Errors
    /// Returns the message if the peer is not connected or its budget is used up.
    pub fn send(&self, peer: &PeerId, message: Message) -> Result<(), UnsentMessage> {
        let Some(slot) = self.server.slot(peer) else {
            return Err(UnsentMessage {
                message,
                reason: UnsentReason::NoSuchPeer,
            });
        };
        match slot.link.push(Item::Own(message)) {
            Err(Item::Own(message)) => Err(UnsentMessage {
                message,
                reason: UnsentReason::Full,
            }),
            _ => Ok(()),
        }
    }

    /// Allows a peer that has proven that it knows the key to send messages of [`SocketLimits::max_message`].
    pub fn authenticate(&self, peer: &PeerId) {
        self.server.authenticate(peer);
    }

    /// Returns the size of the messages that are queued for a peer, in bytes; 0 if it is not connected.
    pub fn queued_bytes(&self, peer: &PeerId) -> usize {
        let slot = self.server.slot(peer);
        slot.map_or(0, |slot| slot.link.outbox().cost())
    }

    /// Stops or resumes the reading of a peer, which has to wait in between. A new connection starts
    /// unpaused.
    ///
    /// The end of a paused peer's connection is noticed only when it is read or written again.
    pub fn set_paused(&self, peer: &PeerId, paused: bool) {
        if let Some(slot) = self.server.slot(peer) {
            slot.link.set_paused(paused);
        }
    }

    /// Closes a peer's connection at once; messages queued for it are dropped.
    ///
    /// [`ServerHandler::left`] is called later, not from here.
    pub fn disconnect(&self, peer: &PeerId, reason: impl Into<Cow<'static, str>>) {
        if let Some(slot) = self.server.slot(peer) {
            slot.link.cut(DisconnectReason::Disconnected(reason.into()));
        }
    }

    /// Stops accepting, writes the queued messages and closes, at the deadline at the latest.
    ///
    /// Returns for how many peers some messages were left unwritten. No handler is called after this call,
    /// and messages that still arrive are dropped. If the future is dropped, writing goes on until the router
    /// is dropped.
    pub async fn close(&self, deadline: Instant) -> usize {
        self.server.close(deadline).await
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Router({})", self.local_endpoint())
    }
}
