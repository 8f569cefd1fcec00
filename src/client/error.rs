//! Why a kernel cannot be talked to.

use std::error::Error;
use std::io;
use std::time::Duration;

use crate::wire::{Channel, Endpoint};

/// Why a kernel cannot be talked to.
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
    /// Its outputs would be lost.
    #[error(
        "the kernel answers, but has said nothing on iopub for {after:?}: that connection is broken"
    )]
    NoIopub { after: Duration },
    /// It died, or was replaced by another on the same sockets.
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

    /// Returns whether the shell that this runs in may use no sockets at all (`socket: Operation
    /// not permitted`): whether the kernel lives is then unknown.
    pub fn is_sandboxed(&self) -> bool {
        let not_permitted = rustix::io::Errno::PERM.raw_os_error();
        match self {
            // EACCES says something else: that this socket is another user's.
            Self::Unreachable { source, .. } | Self::Thread(source) => {
                source.raw_os_error() == Some(not_permitted)
            }
            Self::Handshake { .. }
            | Self::NoAnswer { .. }
            | Self::NoIopub { .. }
            | Self::KernelGone(_) => false,
        }
    }

    /// Returns whether a kernel that is starting looks like that.
    pub fn may_come_up(&self) -> bool {
        match self {
            Self::Unreachable { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
            ),
            Self::Handshake { .. } => true,
            Self::Thread(_)
            | Self::NoAnswer { .. }
            | Self::NoIopub { .. }
            | Self::KernelGone(_) => false,
        }
    }
}
