//! The reasons why a connection ended, with texts for the log.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use crate::zmtp;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum DisconnectReason {
    /// The peer closed the connection.
    #[error("it closed the connection")]
    Closed,
    /// Reading or writing failed.
    #[error("the connection broke: {0}")]
    Broken(#[source] io::Error),
    /// The peer did what ZMTP or a limit forbids.
    #[error("{0}")]
    Protocol(#[source] zmtp::Error),
    /// The peer did not complete its handshake in time.
    #[error("it did not complete its handshake within {0:?}")]
    HandshakeTimeout(Duration),
    /// The peer has not proven that it knows the key, and did not complete a message in time.
    #[error(
        "it did not complete a message within {0:?}, and has not shown yet that it has the key"
    )]
    MessageTimeout(Duration),
    /// The incomplete messages of peers that have not proven that they know the key exceed their bound.
    #[error(
        "its incomplete message was the longest where such messages took more than {0} bytes, and it has not shown yet that it has the key"
    )]
    TooMuchUnauthenticated(usize),
    /// The peer does not read, and its outbox, or those of all subscribers, reached their budget.
    #[error(
        "it does not read: {unread} messages of {queued_bytes} bytes were queued for it, the budget is used up"
    )]
    Full {
        /// The bytes that were queued.
        queued_bytes: usize,
        /// The number of messages that it has not received whole, with the one that did not fit.
        unread: u64,
        /// The number of the first of these messages among all messages sent, from 1.
        first_unread: u64,
    },
    /// The most allowed peers are connected.
    #[error("there are {0} peers already")]
    TooManyPeers(usize),
    /// There were too many connections, and this one was the oldest whose peer has not proven that it knows the key.
    #[error("there were {0} peers, and it was the oldest that has not shown that it has the key")]
    Displaced(usize),
    /// The peer's subscriptions exceed their bound.
    #[error("its subscriptions take more than {0} bytes")]
    TooManyTopics(usize),
    /// The peer is a process of another user of this machine.
    #[error("it is of another user of this machine ({0})")]
    OtherUser(u32),
    /// A connection could not be accepted, for example because no file descriptors were left.
    #[error("cannot accept a connection: {0}")]
    NotAccepted(#[source] io::Error),
    /// This process disconnected the peer, for this reason.
    #[error("it was disconnected: {0}")]
    Disconnected(Cow<'static, str>),
    /// This process closed its own socket.
    #[error("our socket was closed")]
    ShutDown,
}

/// Who caused the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Responsible {
    /// No one: the connection was closed in good order.
    NoOne,
    /// The peer.
    Peer,
    /// The system between this process and the peer.
    System,
    /// This process, by a decision or a limit.
    ThisProcess,
}

impl DisconnectReason {
    /// Returns who caused the end.
    pub fn responsible(&self) -> Responsible {
        match self {
            Self::Closed | Self::ShutDown => Responsible::NoOne,
            Self::Protocol(_)
            | Self::HandshakeTimeout(_)
            | Self::MessageTimeout(_)
            | Self::TooMuchUnauthenticated(_)
            | Self::Full { .. }
            | Self::OtherUser(_)
            | Self::Displaced(_)
            | Self::TooManyTopics(_) => Responsible::Peer,
            Self::Broken(_) | Self::NotAccepted(_) => Responsible::System,
            Self::TooManyPeers(_) | Self::Disconnected(_) => Responsible::ThisProcess,
        }
    }

    /// Converts the reason into the error of a failed dial.
    pub(super) fn into_io(self) -> io::Error {
        let kind = match &self {
            Self::Closed => io::ErrorKind::UnexpectedEof,
            Self::Broken(error) => error.kind(),
            Self::HandshakeTimeout(_) => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, self)
    }
}
