//! The socket that knows its peers by identity.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::time::Instant;

use super::disconnect::DisconnectReason;
use super::outbox::Item;
use super::server::Server;
use super::{Limits, Message, PeerId, ServerHandler};
use crate::wire::Endpoint;
use crate::zmtp::Role;

/// A ROUTER: takes DEALER, REQ and ROUTER peers and sends to each by its [`PeerId`].
///
/// A new connection with an identity that is already there takes over: the old one is closed
/// without a word to the handler, messages queued for it go to the new one, and
/// [`ServerHandler::joined`] is called again.
pub struct Router {
    server: Server,
}

/// A message that was not taken.
#[derive(Debug)]
pub struct UnsentMessage {
    /// The message.
    pub message: Message,
    /// Why it was not taken.
    pub why: UnsentReason,
}

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsentReason {
    /// The peer is not there, or is being closed.
    NoSuchPeer,
    /// What is queued for the peer has reached its budget.
    Full,
}

impl Router {
    /// Binds, listens and serves.
    ///
    /// # Errors
    /// When the address cannot be had. The file of a Unix socket that nobody listens on is
    /// replaced; one that is alive, or no socket, is left alone.
    ///
    /// # Panics
    /// Outside a [`tokio::task::LocalSet`].
    pub fn bind(
        endpoint: &Endpoint,
        limits: Limits,
        handler: Rc<dyn ServerHandler>,
    ) -> io::Result<Self> {
        let server = Server::bind(Role::Router, endpoint, limits, None, handler)?;
        Ok(Self { server })
    }

    /// Returns where it listens, with the port that the system chose.
    pub fn local_endpoint(&self) -> &Endpoint {
        self.server.endpoint()
    }

    /// Queues a message for a peer; never waits.
    ///
    /// # Errors
    /// Gives the message back when the peer is not there or its budget is used up.
    pub fn send(&self, peer: &PeerId, message: Message) -> Result<(), UnsentMessage> {
        let Some(slot) = self.server.slot(peer) else {
            return Err(UnsentMessage {
                message,
                why: UnsentReason::NoSuchPeer,
            });
        };
        match slot.link.push(Item::Own(message)) {
            Err(Item::Own(message)) => Err(UnsentMessage {
                message,
                why: UnsentReason::Full,
            }),
            _ => Ok(()),
        }
    }

    /// Lets a peer that has shown that it knows the key send messages of [`Limits::max_message`].
    pub fn authenticate(&self, peer: &PeerId) {
        self.server.authenticate(peer);
    }

    /// Returns what is queued for a peer, in bytes; 0 when it is not there.
    pub fn queued_bytes(&self, peer: &PeerId) -> usize {
        let slot = self.server.slot(peer);
        slot.map_or(0, |slot| slot.link.queued_bytes())
    }

    /// Stops reading from a peer, which then has to wait. A new connection starts unpaused.
    ///
    /// That a paused peer went away is noticed when it is resumed, or written to.
    pub fn pause(&self, peer: &PeerId) {
        if let Some(slot) = self.server.slot(peer) {
            slot.link.set_paused(true);
        }
    }

    /// Goes on reading from a peer.
    pub fn resume(&self, peer: &PeerId) {
        if let Some(slot) = self.server.slot(peer) {
            slot.link.set_paused(false);
        }
    }

    /// Closes a peer's connection at once; what is queued for it is dropped.
    ///
    /// [`ServerHandler::left`] is called later, not from here.
    pub fn disconnect(&self, peer: &PeerId, reason: impl Into<Cow<'static, str>>) {
        if let Some(slot) = self.server.slot(peer) {
            slot.link.cut(DisconnectReason::Disconnected(reason.into()));
        }
    }

    /// Stops accepting, writes what is queued and closes; at the deadline at the latest.
    ///
    /// Returns for how many peers something was left unwritten. From the call on no handler is
    /// called, and what still comes is thrown away. When this is dropped halfway, writing goes on
    /// until the router is dropped.
    pub async fn close(&self, deadline: Instant) -> usize {
        self.server.close(deadline).await
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Router({})", self.local_endpoint())
    }
}
