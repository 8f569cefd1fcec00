//! Handles the events of the front end's sockets.

use std::io;

use bytes::Bytes;

use super::{Handle, Shell};
use crate::proxy::counters::Way;
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
        self.count.touch();
    }

    /// Closes sockets that no client needs now: no file descriptors are left.
    pub(super) fn free_descriptors(&self) {
        self.route(|bridge, _| bridge.close_idle_links());
    }

    /// Counts a heartbeat.
    pub(super) fn count_heartbeat(&self, way: Way, frames: &Message) {
        let size = frames.iter().map(Bytes::len).sum();
        self.count.passed(way, Channel::Heartbeat, size);
    }
}

fn id(client: &Bytes) -> ClientId {
    ClientId::new(client.clone())
}

impl EndpointHandler for Handle {
    fn joined(&self, channel: Channel, client: &Bytes) {
        if let Some(shell) = self.shell() {
            shell.route(|bridge, _| bridge.client_joined(channel, &id(client)));
            shell.note_client(&id(client));
            shell.clients_changed();
        }
    }

    fn message(&self, channel: Channel, client: &Bytes, message: Verified) {
        let Some(shell) = self.shell() else { return };
        let client = id(client);
        let size = message.size();
        shell.count.passed(Way::FromClients, channel, size);
        tracing::debug!(%client, %channel, ?message, "from the client");
        shell.refresh_before_an_error();
        shell.route(|bridge, now| bridge.client_message(now, channel, &client, message));
    }

    fn left(&self, channel: Channel, client: &Bytes, why: &DisconnectReason) {
        let Some(shell) = self.shell() else { return };
        let client = id(client);
        tracing::debug!(%client, %channel, "disconnected: {why}");
        if why.responsible() == Responsible::Peer && is_logged(shell.count.broke()) {
            tracing::warn!(%client, %channel, "a client's connection was closed: {why}");
        }
        shell.route(|bridge, now| bridge.client_left(now, channel, &client));
        shell.note_client(&client);
        shell.clients_changed();
    }

    fn rejected(&self, channel: Channel, why: &Rejected) {
        if let Some(shell) = self.shell() {
            shell.count.rejected("client", channel, why);
        }
    }

    fn knows(&self, client: &Bytes) -> bool {
        let shell = self.shell();
        shell.is_some_and(|shell| shell.bridge.borrow().knows(&id(client)))
    }

    fn subscriber_joined(&self) {
        if let Some(shell) = self.shell() {
            shell.count.touch();
        }
    }

    fn subscribed(&self, _: &PeerId, topic: &[u8]) -> Vec<Verified> {
        let mut first = Vec::new();
        if let Some(shell) = self.shell() {
            shell.route(|bridge, now| first = bridge.subscribed(now, topic));
        }
        first
    }

    fn subscriber_left(&self, subscriber: &PeerId, why: &DisconnectReason) {
        let Some(shell) = self.shell() else { return };
        shell.orphan.subscriber_left();
        if why.responsible() != Responsible::NoOne && is_logged(shell.count.broke()) {
            tracing::warn!(channel = "iopub", %subscriber, "a subscriber's connection ended: {why}");
        }
        match why {
            DisconnectReason::Full { unread, since, .. } => {
                let unread = usize::try_from(*unread).unwrap_or(usize::MAX);
                shell.count.cut();
                shell.count.lost(unread);
                shell.route(|bridge, now| bridge.subscriber_cut(now, *since));
            }
            _ => shell.count.touch(),
        }
    }

    fn heartbeat(&self, peer: &PeerId, frames: Message) -> Option<Message> {
        if let Some(shell) = self.shell()
            && shell.is_live()
            && let Some(links) = shell.links()
        {
            shell.count_heartbeat(Way::FromClients, &frames);
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
    /// is open is no fault.
    fn refused(&self, channel: Channel, why: &DisconnectReason) {
        // VS Code dials shell and iopub and resets the connection, to check whether the port is open.
        let reset = matches!(why, DisconnectReason::Broken(error) if error.kind() == io::ErrorKind::ConnectionReset);
        if reset || why.responsible() == Responsible::NoOne {
            tracing::debug!(%channel, "a connection was closed before its handshake was complete: {why}");
            return;
        }
        let Some(shell) = self.shell() else { return };
        if let DisconnectReason::NotAccepted(error) = why
            && is_out_of_descriptors(error)
        {
            shell.free_descriptors();
        }
        let count = shell.count.refused();
        if is_logged(count) {
            tracing::warn!(%channel, count, "a connection was refused: {why}");
        }
    }
}
