//! The clients of the kernel's five sockets on this machine.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;

use crate::socket::{EndpointLimits, SocketLimits, SpillTo};
use crate::wire::Channel;

/// The clients that are connected on each channel.
#[derive(Debug, Default)]
pub(super) struct ConnectedClients(HashMap<Channel, HashSet<Bytes>>);

impl ConnectedClients {
    pub(super) fn joined(&mut self, channel: Channel, client: &Bytes) {
        self.0.entry(channel).or_default().insert(client.clone());
    }

    pub(super) fn left(&mut self, channel: Channel, client: &Bytes) {
        if let Some(clients) = self.0.get_mut(&channel) {
            clients.remove(client);
        }
    }

    /// Returns the client that has this session as its identity, as Jupyter's own clients do, or else all of them.
    pub(super) fn of_session(&self, channel: Channel, session: &str) -> Vec<Bytes> {
        let clients = self.0.get(&channel).into_iter().flatten();
        let by_identity = clients.clone().find(|it| **it == session.as_bytes());
        match by_identity {
            Some(client) => vec![client.clone()],
            None => clients.cloned().collect(),
        }
    }
}

/// How many bytes a subscriber may leave unread in memory, and how many on disk after that.
const SUBSCRIBER_BYTES: usize = 16 << 20;
const SPILL_BYTES: u64 = 1 << 30;

/// Returns the limits of the sockets.
pub(super) fn limits() -> EndpointLimits {
    EndpointLimits {
        router: SocketLimits::default(),
        iopub: SocketLimits {
            outbox_bytes: SUBSCRIBER_BYTES,
            ..SocketLimits::default()
        },
        spill: Some(SpillTo {
            folder: std::env::temp_dir(),
            bytes: SPILL_BYTES,
        }),
    }
}
