//! The errors of a peer that end its connection.

use super::{IDENTITY_MAX, Role};

/// The reason why a peer's connection ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Error {
    #[error("it does not speak ZMTP (its first bytes were {0:02x?})")]
    NotZmtp(Vec<u8>),
    #[error("it speaks ZMTP {0}; 3.0 or later is needed")]
    OldVersion(&'static str),
    #[error("it asks for the security mechanism {0:?}; only NULL is spoken here")]
    Mechanism(String),
    #[error("it is a {peer:?} socket, which cannot talk with our {own}")]
    Incompatible { own: Role, peer: String },
    #[error("it announced an identity of {0} bytes; {IDENTITY_MAX} are allowed")]
    IdentityTooLong(usize),
    #[error("it refused us: {0:?}")]
    Refused(String),
    #[error("it sent {0} before its READY")]
    TooEarly(&'static str),
    #[error("its {0} command is malformed")]
    Malformed(&'static str),
    #[error("it sent a frame with the reserved flags {0:#04x}")]
    ReservedFlags(u8),
    #[error("it sent a command of {0} bytes, which is too long")]
    CommandTooLong(u64),
    #[error("it announced a frame of {announced} bytes; a message may have {limit} in all")]
    MessageTooLong { announced: u64, limit: usize },
    #[error("its message has more than {limit} frames")]
    TooManyFrames { limit: usize },
}
