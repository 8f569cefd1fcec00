//! The front end's side: the five ports of its connection file, which this process binds.

use std::io;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use bytes::Bytes;

use super::counters::Way;
use super::faults::is_logged;
use super::shell::Shell;
use crate::route::ClientId;
use crate::socket::{
    DeliveryProgress, DisconnectReason, EndpointHandler, EndpointLimits, KernelEndpoint, Limits,
    Message, PeerId, SpillTo, SubscriberBacklog, UnsentReason,
};
use crate::wire::{Channel, ConnectionInfo, Rejected, Verified};

/// The sockets that the front end dials.
pub(super) struct Front(KernelEndpoint);

/// What comes of them.
struct Events(Weak<Shell>);

impl Front {
    /// Binds all five ports.
    ///
    /// # Errors
    /// When one of them is taken: VS Code picks free ports without reserving them, so that two
    /// windows can collide. The front end then tries others.
    pub(super) fn bind(connection: &ConnectionInfo, shell: &Weak<Shell>) -> anyhow::Result<Self> {
        let limits = EndpointLimits {
            router: limits(),
            iopub: Limits {
                outbox_bytes: SUBSCRIBER_BYTES,
                ..limits()
            },
            spill: spill(),
        };
        let bound = KernelEndpoint::bind(connection, limits, Rc::new(Events(shell.clone())));
        Ok(Self(bound.map_err(|error| {
            anyhow!(
                "cannot bind the front end's {error} (try again: it picks other ports): {}",
                error.source
            )
        })?))
    }

    /// Sends a message to one client.
    ///
    /// # Errors
    /// When it is not delivered; a client that does not read is cut.
    pub(super) fn send(
        &self,
        client: &ClientId,
        channel: Channel,
        message: Verified,
    ) -> Result<(), UnsentReason> {
        tracing::debug!(%client, %channel, ?message, "to the client");
        let sent = self.0.send(channel, client.bytes(), message);
        match sent {
            Ok(()) => {}
            Err(UnsentReason::Full) => {
                tracing::warn!(%client, %channel, "the client does not read its replies: its connection is cut");
            }
            Err(UnsentReason::NoSuchPeer) => {
                tracing::warn!(%client, %channel, "a message could not be delivered: the client is not there");
            }
        }
        sent
    }

    /// Sends a message to every subscriber.
    pub(super) fn publish(&self, message: Verified) {
        self.0.publish(message);
    }

    /// Sends a heartbeat's echo back to who asked.
    pub(super) fn beat(&self, peer: &PeerId, frames: Message) {
        self.0.beat(peer, frames);
    }

    /// Stops reading a client's connections, or goes on.
    pub(super) fn set_paused(&self, client: &ClientId, paused: bool) {
        self.0.set_paused(client.bytes(), paused);
    }

    /// Returns how many messages were sent to all subscribers.
    pub(super) fn published(&self) -> u64 {
        self.0.published()
    }

    /// Returns how far one of them has come.
    pub(super) fn reach(&self, number: u64) -> DeliveryProgress {
        self.0.reach(number)
    }

    /// Returns how many subscribers iopub has.
    pub(super) fn subscribers(&self) -> usize {
        self.0.subscribers()
    }

    /// Returns what is queued for a client on its own connections, in bytes.
    pub(super) fn queued_bytes(&self, client: &ClientId) -> usize {
        self.0.queued_bytes(client.bytes())
    }

    /// Returns what each subscriber has not taken.
    pub(super) fn unread(&self) -> Vec<SubscriberBacklog> {
        self.0.backlogs()
    }

    /// Writes what is queued, then closes; within a second at most.
    ///
    /// Returns for how many connections something was left.
    pub(super) async fn close(&self) -> usize {
        self.0.close(Instant::now() + Duration::from_secs(1)).await
    }
}

fn id(client: &Bytes) -> ClientId {
    ClientId::new(client.clone())
}

impl EndpointHandler for Events {
    fn joined(&self, channel: Channel, client: &Bytes) {
        if let Some(shell) = self.0.upgrade() {
            shell.route(|bridge, _| bridge.client_joined(channel, &id(client)));
            shell.changed();
        }
    }

    fn message(&self, channel: Channel, client: &Bytes, message: Verified) {
        let Some(shell) = self.0.upgrade() else {
            return;
        };
        let client = id(client);
        shell
            .count
            .passed(Way::FromClients, channel, message.size());
        tracing::debug!(%client, %channel, ?message, "from the client");
        shell.refresh_before_an_error();
        shell.route(|bridge, now| bridge.client_message(now, channel, &client, message));
    }

    fn left(&self, channel: Channel, client: &Bytes, why: &DisconnectReason) {
        let Some(shell) = self.0.upgrade() else {
            return;
        };
        let client = id(client);
        tracing::debug!(%client, %channel, "disconnected: {why}");
        if why.responsible() == crate::socket::Responsible::Peer && is_logged(shell.count.broke()) {
            tracing::warn!(%client, %channel, "a client's connection was closed: {why}");
        }
        shell.route(|bridge, now| bridge.client_left(now, channel, &client));
        shell.changed();
    }

    fn rejected(&self, channel: Channel, why: &Rejected) {
        if let Some(shell) = self.0.upgrade() {
            shell.count.rejected("client", channel, why);
        }
    }

    fn knows(&self, client: &Bytes) -> bool {
        self.0
            .upgrade()
            .is_some_and(|shell| shell.knows(&id(client)))
    }

    fn subscriber_joined(&self) {
        if let Some(shell) = self.0.upgrade() {
            shell.count.touch();
        }
    }

    fn subscribed(&self, _: &PeerId, topic: &[u8]) -> Vec<Verified> {
        let mut first = Vec::new();
        if let Some(shell) = self.0.upgrade() {
            shell.route(|bridge, now| first = bridge.subscribed(now, topic));
        }
        first
    }

    fn subscriber_left(&self, subscriber: &PeerId, why: &DisconnectReason) {
        let Some(shell) = self.0.upgrade() else {
            return;
        };
        shell.parted.notify_one();
        if why.responsible() != crate::socket::Responsible::Nobody && is_logged(shell.count.broke())
        {
            tracing::warn!(channel = "iopub", %subscriber, "a subscriber's connection ended: {why}");
        }
        match why {
            DisconnectReason::Full { unread, since, .. } => {
                shell.count.cut();
                shell
                    .count
                    .lost(usize::try_from(*unread).unwrap_or(usize::MAX));
                shell.route(|bridge, now| bridge.subscriber_cut(now, *since));
            }
            _ => shell.count.touch(),
        }
    }

    fn heartbeat(&self, peer: &PeerId, frames: Message) -> Option<Message> {
        if let Some(shell) = self.0.upgrade() {
            shell.beat_kernel(peer, frames);
        }
        None
    }

    fn heartbeat_left(&self, peer: &PeerId) {
        if let Some(shell) = self.0.upgrade() {
            shell.heartbeat_left(peer);
        }
    }

    /// Logs a connection that never became a client's; one that only tried whether the port is open
    /// is no fault.
    fn refused(&self, channel: Channel, why: &DisconnectReason) {
        // VS Code dials shell and iopub and resets the connection, to see whether the port is open.
        let reset = matches!(why, DisconnectReason::Broken(error) if error.kind() == io::ErrorKind::ConnectionReset);
        if reset || why.responsible() == crate::socket::Responsible::Nobody {
            tracing::debug!(%channel, "a connection was closed before it was one: {why}");
            return;
        }
        let Some(shell) = self.0.upgrade() else {
            return;
        };
        if let DisconnectReason::NotAccepted(error) = why {
            shell.makes_room(error);
        }
        let count = shell.count.refused();
        if is_logged(count) {
            tracing::warn!(%channel, count, "a connection was refused: {why}");
        }
    }
}

/// What a subscriber may leave unread in memory, and then on disk.
const SUBSCRIBER_BYTES: usize = 16 << 20;
const SPILL_BYTES: u64 = 1 << 30;

/// What a subscriber may leave unread before it is cut, in a file beyond what memory is for: a
/// window that stands still for a while in a flood of output is to miss nothing.
fn spill() -> Option<SpillTo> {
    // Temporary files that outlive a start of the machine are on a disk; those of /tmp may well be
    // in memory, which is what is to be spared.
    let on_disk = [PathBuf::from("/var/tmp"), std::env::temp_dir()];
    let folder = on_disk.into_iter().find(|folder| folder.is_dir())?;
    Some(SpillTo {
        folder,
        bytes: SPILL_BYTES,
    })
}

/// The longest message of a client that has not sent one rightly signed message yet. The first of
/// every front end asks for kernel_info; a thousand strangers must not fill the memory.
const STRANGER_BYTES: usize = 16 << 20;

/// The bounds of every socket of a front end.
fn limits() -> Limits {
    Limits {
        outbox_bytes: 256 << 20,
        max_unauthenticated_message: STRANGER_BYTES,
        spares_descriptors: true,
        ..Limits::default()
    }
}
