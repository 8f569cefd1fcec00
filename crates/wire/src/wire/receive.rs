//! Parses and verifies the messages of a peer, or rejects them.

use bytes::Bytes;

use super::{SigningKey, Unverified, Verified};

/// A message of a peer that is rejected and must not be acted on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Rejected {
    /// The kind of fault, for counting.
    pub fault: MessageFault,
    /// The text that says what is wrong.
    pub reason: String,
}

/// The kinds of faults of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MessageFault {
    /// It is not a message of Jupyter's protocol.
    Malformed,
    /// Its signature is missing or wrong.
    BadSignature,
    /// The same message was sent before.
    Replayed,
}

impl Rejected {
    /// Returns the rejection of frames that are not a message of Jupyter's protocol.
    pub fn malformed(reason: &dyn std::fmt::Display) -> Self {
        Self {
            fault: MessageFault::Malformed,
            reason: reason.to_string(),
        }
    }

    /// Returns the rejection of a message that was sent before.
    pub fn replayed() -> Self {
        Self {
            fault: MessageFault::Replayed,
            reason: "it was sent before".to_owned(),
        }
    }
}

impl SigningKey {
    /// Parses and verifies the frames of a peer.
    ///
    /// # Errors
    /// If they are not a Jupyter message, or the signature is wrong.
    pub fn receive(&self, frames: Vec<Bytes>) -> Result<Verified, Rejected> {
        let message = Unverified::parse(frames).map_err(|error| Rejected::malformed(&error))?;
        self.verify(message).map_err(|error| Rejected {
            fault: MessageFault::BadSignature,
            reason: error.to_string(),
        })
    }
}
