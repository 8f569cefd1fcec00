//! Handles the events of the front end's sockets.

use std::io;

use bytes::Bytes;

use super::{Handle, Shell};
use crate::proxy::counters::Direction;
use crate::proxy::faults::is_logged;
use crate::proxy::links::is_out_of_descriptors;
use crate::route::ClientId;
use crate::socket::{DisconnectReason, EndpointHandler, Message, PeerId, Responsible};
use crate::wire::{Channel, Rejected, Verified};

impl Shell {
    /// Updates the record after a client has connected or left.
    fn clients_changed(&self) {
        if let Some(attachment) = self.attachment() {
            let clients = self.bridge.borrow().joined().count();
            attachment.presence.update(clients, None);
        }
        self.counters.mark_changed();
    }

    /// Closes sockets that no client needs now: no file descriptors are left.
    pub(super) fn free_descriptors(&self) {
        self.route(|bridge, _| bridge.close_idle_links());
    }

    /// Counts a heartbeat.
    pub(super) fn count_heartbeat(&self, direction: Direction, frames: &Message) {
        let size = frames.iter().map(Bytes::len).sum();
        self.counters
            .count_message(direction, Channel::Heartbeat, size);
    }
}

fn id(client: &Bytes) -> ClientId {
    ClientId::new(client.clone())
}

impl EndpointHandler for Handle {
    fn joined(&self, channel: Channel, client: &Bytes) {
        if let Some(shell) = self.shell() {
            shell.route(|bridge, _| bridge.client_joined(channel, &id(client)));
            shell.record_client(&id(client));
            shell.clients_changed();
        }
    }

    fn message(&self, channel: Channel, client: &Bytes, message: Verified) {
        let Some(shell) = self.shell() else { return };
        let client = id(client);
        let size = message.size();
        shell
            .counters
            .count_message(Direction::FromClients, channel, size);
        tracing::debug!(%client, %channel, ?message, "from the client");
        shell.refresh_before_an_error();
        shell.route(|bridge, now| bridge.client_message(now, channel, &client, message));
    }

    fn left(&self, channel: Channel, client: &Bytes, reason: &DisconnectReason) {
        let Some(shell) = self.shell() else { return };
        let client = id(client);
        tracing::debug!(%client, %channel, "disconnected: {reason}");
        if reason.responsible() == Responsible::Peer && is_logged(shell.counters.count_broken()) {
            tracing::warn!(%client, %channel, "a client's connection was closed: {reason}");
        }
        shell.route(|bridge, now| bridge.client_left(now, channel, &client));
        shell.record_client(&client);
        shell.clients_changed();
    }

    fn rejected(&self, channel: Channel, rejected: &Rejected) {
        if let Some(shell) = self.shell() {
            shell.counters.count_rejected("client", channel, rejected);
        }
    }

    fn knows(&self, client: &Bytes) -> bool {
        let shell = self.shell();
        shell.is_some_and(|shell| shell.bridge.borrow().knows(&id(client)))
    }

    fn subscriber_joined(&self) {
        if let Some(shell) = self.shell() {
            shell.counters.mark_changed();
        }
    }

    fn subscribed(&self, _: &PeerId, topic: &[u8]) -> Vec<Verified> {
        let mut first = Vec::new();
        if let Some(shell) = self.shell() {
            shell.route(|bridge, now| first = bridge.subscribed(now, topic));
        }
        first
    }

    fn subscriber_left(&self, subscriber: &PeerId, reason: &DisconnectReason) {
        let Some(shell) = self.shell() else { return };
        shell.orphan.subscriber_left();
        if reason.responsible() != Responsible::NoOne && is_logged(shell.counters.count_broken()) {
            tracing::warn!(channel = "iopub", %subscriber, "a subscriber's connection ended: {reason}");
        }
        match reason {
            DisconnectReason::Full {
                unread,
                first_unread,
                ..
            } => {
                let unread = usize::try_from(*unread).unwrap_or(usize::MAX);
                shell.counters.count_cut();
                shell.counters.count_lost(unread);
                shell.route(|bridge, now| bridge.subscriber_cut(now, *first_unread));
            }
            _ => shell.counters.mark_changed(),
        }
    }

    fn heartbeat(&self, peer: &PeerId, frames: Message) -> Option<Message> {
        if let Some(shell) = self.shell()
            && shell.is_live()
            && let Some(links) = shell.links()
        {
            shell.count_heartbeat(Direction::FromClients, &frames);
            links.send_heartbeat(peer, frames);
        }
        None
    }

    fn heartbeat_left(&self, peer: &PeerId) {
        if let Some(links) = self.shell().and_then(|shell| shell.links()) {
            links.stop_heartbeat(peer);
        }
    }

    /// Logs a connection that ended before its handshake was complete. One that only checked whether the port
    /// is open is not a fault.
    fn refused(&self, channel: Channel, reason: &DisconnectReason) {
        // VS Code dials shell and iopub and resets the connection, to check whether the port is open.
        let is_reset = matches!(reason, DisconnectReason::Broken(error) if error.kind() == io::ErrorKind::ConnectionReset);
        if is_reset || reason.responsible() == Responsible::NoOne {
            tracing::debug!(%channel, "a connection was closed before its handshake was complete: {reason}");
            return;
        }
        let Some(shell) = self.shell() else { return };
        if let DisconnectReason::NotAccepted(error) = reason
            && is_out_of_descriptors(error)
        {
            shell.free_descriptors();
        }
        let count = shell.counters.count_refused();
        if is_logged(count) {
            tracing::warn!(%channel, count, "a connection was refused: {reason}");
        }
    }
}
