//! Errors in the communication with a kernel.

use std::error::Error;
use std::io;
use std::time::Duration;

use crate::wire::{Channel, Endpoint};

/// Why communication with a kernel fails.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ClientError {
    #[error("cannot reach the kernel's {channel} socket at {endpoint}")]
    Unreachable {
        channel: Channel,
        endpoint: Endpoint,
        source: io::Error,
    },
    #[error("what listens at {endpoint} does not answer as a kernel's {channel} socket does")]
    Handshake {
        channel: Channel,
        endpoint: Endpoint,
        source: Box<dyn Error + Send + Sync>,
    },
    #[error("cannot start the thread for the kernel's sockets")]
    Thread(#[source] io::Error),
    #[error("the kernel has not answered {request} on {channel} within {after:?}")]
    NoAnswer {
        request: String,
        channel: Channel,
        after: Duration,
    },
    /// The subscription is broken, and outputs would be lost.
    #[error(
        "the kernel answers, but has said nothing on iopub for {after:?}: that connection is broken"
    )]
    NoIopub { after: Duration },
    /// The kernel died, or another replaced it on the same sockets.
    #[error("the kernel is gone ({0})")]
    KernelGone(String),
}

impl ClientError {
    pub(super) fn handshake(
        channel: Channel,
        endpoint: &Endpoint,
        source: impl Error + Send + Sync + 'static,
    ) -> Self {
        Self::Handshake {
            channel,
            endpoint: endpoint.clone(),
            source: Box::new(source),
        }
    }

    /// Returns whether this process's sandbox allows no sockets at all (`socket: Operation not permitted`):
    /// it is then unknown whether the kernel lives.
    pub fn is_sandboxed(&self) -> bool {
        let not_permitted = rustix::io::Errno::PERM.raw_os_error();
        match self {
            // EACCES has another meaning: the socket belongs to another user.
            Self::Unreachable { source, .. } | Self::Thread(source) => {
                source.raw_os_error() == Some(not_permitted)
            }
            _ => false,
        }
    }

    /// Returns the text that says how the kernel ended.
    pub(super) fn into_why(self) -> String {
        match self {
            Self::KernelGone(why) => why,
            other => other.to_string(),
        }
    }

    /// Returns whether a kernel that is just starting may cause this error.
    pub fn may_come_up(&self) -> bool {
        match self {
            Self::Unreachable { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
            ),
            Self::Handshake { .. } => true,
            _ => false,
        }
    }
}
