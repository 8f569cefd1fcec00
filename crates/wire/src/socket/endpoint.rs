//! The five bound sockets of the kernel's side, as a connection file names them.
//!
//! An [`EndpointHandler`] gets verified messages; [`KernelEndpoint`] parses, checks signatures, drops replays
//! and knows which peers have proven that they know the key.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::{Rc, Weak};
use std::time::Instant;

use bytes::Bytes;

use super::{
    DeliveryProgress, DisconnectReason, Message, PeerId, PeerInfo, Publisher, Router,
    ServerHandler, SocketLimits, SpillTo, SubscriberBacklog, UnsentReason,
};
use crate::wire::{Channel, ConnectionInfo, Rejected, Replays, SigningKey, Verified};

/// Handles the events of a kernel's sockets. A client is named by the identity that it announced; the same
/// identity on shell, control and stdin is the same client.
pub trait EndpointHandler {
    /// A client that knows the key is connected on a channel.
    fn joined(&self, _channel: Channel, _client: &Bytes) {}

    /// A client has sent a message, which is not a replay.
    fn message(&self, channel: Channel, client: &Bytes, message: Verified);

    /// A client, or a peer that has never proven that it knows the key, is no longer connected on a channel.
    fn left(&self, _channel: Channel, _client: &Bytes, _reason: &DisconnectReason) {}

    /// A message of a client was dropped because it was malformed, wrongly signed or a replay.
    fn rejected(&self, _channel: Channel, _reason: &Rejected) {}

    /// Returns whether an identity that connects has proven earlier that it knows the key.
    fn knows(&self, _client: &Bytes) -> bool {
        false
    }

    /// A subscriber is connected to iopub.
    fn subscriber_joined(&self) {}

    /// A subscriber subscribes to a topic. Returns the messages for this subscriber alone, sent before the
    /// next publication.
    fn subscribed(&self, _subscriber: &PeerId, _topic: &[u8]) -> Vec<Verified> {
        Vec::new()
    }

    /// A subscriber is no longer connected.
    fn subscriber_left(&self, _subscriber: &PeerId, _reason: &DisconnectReason) {}

    /// A heartbeat has arrived. Returns the answer to send at once; with `None`, [`KernelEndpoint::beat`]
    /// sends it later.
    fn heartbeat(&self, _peer: &PeerId, frames: Message) -> Option<Message> {
        Some(frames)
    }

    /// A peer of the heartbeat is no longer connected.
    fn heartbeat_left(&self, _peer: &PeerId) {}

    /// A connection ended before its handshake was complete.
    fn refused(&self, _channel: Channel, _reason: &DisconnectReason) {}
}

/// The limits of a kernel's sockets.
#[derive(Clone, Debug, Default)]
pub struct EndpointLimits {
    /// The limits of shell, control and stdin; the heartbeat's messages and queues are shorter.
    pub router: SocketLimits,
    /// The limits of iopub.
    pub iopub: SocketLimits,
    /// Where messages go that iopub's subscribers have not read, beyond the limit for memory.
    pub spill: Option<SpillTo>,
}

/// Says that a socket cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("the {channel} port {endpoint}")]
pub struct BindError {
    /// The channel.
    pub channel: Channel,
    /// The address.
    pub endpoint: crate::wire::Endpoint,
    /// The error of the system.
    pub source: io::Error,
}

/// The longest ping, the most frames of one that is answered, and how many bytes of answers a peer may leave unread;
/// further ones are dropped. No peer of the heartbeat proves that it knows the key.
const HEARTBEAT_BYTES: usize = 4 * 1024;
const HEARTBEAT_FRAMES: usize = 16;
const HEARTBEAT_OUTBOX_BYTES: usize = 16 * 1024;

/// The five bound sockets of a kernel's side. Dropping it closes them at once.
pub struct KernelEndpoint(Rc<Shared>);

/// The data that the sockets' handlers share.
struct Shared {
    key: SigningKey,
    /// One for all three channels: a message that was sent on one channel is a replay on another.
    replays: RefCell<Replays>,
    /// For each identity without a correctly signed message, the channels on which it is connected.
    ///
    /// Any process that can reach a port can announce any identity. So the handler does not learn of an identity
    /// until it has proven that it knows the key.
    unauthenticated: RefCell<HashMap<Bytes, Vec<Channel>>>,
    handler: Rc<dyn EndpointHandler>,
    sockets: OnceCell<Sockets>,
}

struct Sockets {
    shell: Router,
    control: Router,
    stdin: Router,
    iopub: Publisher,
    heartbeat: Router,
}

impl KernelEndpoint {
    /// Binds all five sockets.
    ///
    /// # Errors
    /// When an address is taken or cannot be bound.
    pub fn bind(
        connection: &ConnectionInfo,
        limits: EndpointLimits,
        handler: Rc<dyn EndpointHandler>,
    ) -> Result<Self, BindError> {
        let shared = Rc::new(Shared {
            key: connection.key.clone(),
            replays: RefCell::new(Replays::of(&connection.key)),
            unauthenticated: RefCell::default(),
            handler,
            sockets: OnceCell::new(),
        });
        let handler = |channel| {
            let shared = Rc::downgrade(&shared);
            Rc::new(SocketHandler { channel, shared })
        };
        let bind_error = |channel| {
            move |source| BindError {
                channel,
                endpoint: connection.endpoint(channel),
                source,
            }
        };
        let heartbeat = SocketLimits {
            max_message: HEARTBEAT_BYTES,
            max_unauthenticated_message: HEARTBEAT_BYTES,
            outbox_bytes: HEARTBEAT_OUTBOX_BYTES,
            ..limits.router
        };
        let router = |channel| {
            let endpoint = connection.endpoint(channel);
            let limits = match channel {
                Channel::Heartbeat => heartbeat,
                _ => limits.router,
            };
            let router = Router::bind(&endpoint, limits, handler(channel));
            router.map_err(bind_error(channel))
        };
        let iopub = Publisher::bind(
            &connection.endpoint(Channel::Iopub),
            limits.iopub,
            limits.spill,
            handler(Channel::Iopub),
        );
        let sockets = Sockets {
            iopub: iopub.map_err(bind_error(Channel::Iopub))?,
            heartbeat: router(Channel::Heartbeat)?,
            shell: router(Channel::Shell)?,
            control: router(Channel::Control)?,
            stdin: router(Channel::Stdin)?,
        };
        let _ = shared.sockets.set(sockets);
        Ok(Self(shared))
    }

    /// Sends a message to one client.
    ///
    /// # Errors
    /// If the client is not connected there, or does not read; in the second case its connection is closed.
    pub fn send(
        &self,
        channel: Channel,
        client: &Bytes,
        message: Verified,
    ) -> Result<(), UnsentReason> {
        let router = self.0.router(channel).ok_or(UnsentReason::NoSuchPeer)?;
        let peer = PeerId::of(client);
        let result = router.send(&peer, message.into_frames(&self.0.key));
        result.map_err(|unsent| {
            if unsent.reason == UnsentReason::Full {
                router.disconnect(&peer, "it does not read its replies");
            }
            unsent.reason
        })
    }

    /// Sends a message to every subscriber.
    pub fn publish(&self, message: Verified) {
        let frames = message.into_frames(&self.0.key);
        self.0.sockets().iopub.send(&frames);
    }

    /// Sends a heartbeat back. A heartbeat that cannot be delivered counts as missed.
    pub fn beat(&self, peer: &PeerId, frames: Message) {
        let _ = self.0.sockets().heartbeat.send(peer, frames);
    }

    /// Stops or resumes the reading of a client's connections.
    pub fn set_paused(&self, client: &Bytes, paused: bool) {
        let peer = PeerId::of(client);
        for router in self.0.sockets().routers() {
            router.set_paused(&peer, paused);
        }
    }

    /// Returns how many messages were published.
    pub fn published(&self) -> u64 {
        self.0.sockets().iopub.sent()
    }

    /// Returns how far a published message has been delivered.
    pub fn delivery_progress(&self, number: u64) -> DeliveryProgress {
        self.0.sockets().iopub.delivery_progress(number)
    }

    /// Returns how many subscribers iopub has.
    pub fn subscribers(&self) -> usize {
        self.0.sockets().iopub.subscriber_count()
    }

    /// Returns the messages that each subscriber has not read, by size.
    pub fn backlogs(&self) -> Vec<SubscriberBacklog> {
        self.0.sockets().iopub.backlogs()
    }

    /// Returns the size of the messages that are queued for a client on shell, control and stdin, in bytes.
    pub fn queued_bytes(&self, client: &Bytes) -> usize {
        let peer = PeerId::of(client);
        let routers = self.0.sockets().routers().into_iter();
        routers.map(|router| router.queued_bytes(&peer)).sum()
    }

    /// Writes the queued messages and closes, at the deadline at the latest. Returns for how many connections
    /// some messages were left.
    pub async fn close(&self, deadline: Instant) -> usize {
        let sockets = self.0.sockets();
        let (shell, control, stdin, iopub, _) = tokio::join!(
            sockets.shell.close(deadline),
            sockets.control.close(deadline),
            sockets.stdin.close(deadline),
            sockets.iopub.close(deadline),
            sockets.heartbeat.close(deadline),
        );
        shell + control + stdin + iopub
    }
}

impl Sockets {
    /// Returns the sockets on which clients send messages.
    fn routers(&self) -> [&Router; 3] {
        [&self.shell, &self.control, &self.stdin]
    }
}

impl Shared {
    fn sockets(&self) -> &Sockets {
        self.sockets.get().expect("`bind` has set them")
    }

    fn router(&self, channel: Channel) -> Option<&Router> {
        let sockets = self.sockets();
        match channel {
            Channel::Shell => Some(&sockets.shell),
            Channel::Control => Some(&sockets.control),
            Channel::Stdin => Some(&sockets.stdin),
            Channel::Iopub | Channel::Heartbeat => None,
        }
    }

    fn client_joined(&self, channel: Channel, peer: &PeerId, info: &PeerInfo) {
        let client = peer.bytes();
        tracing::debug!(%peer, %channel, connection = info.connection, "connected");
        if self.handler.knows(client) {
            return self.admit(channel, client);
        }
        let mut unauthenticated = self.unauthenticated.borrow_mut();
        let channels = unauthenticated.entry(client.clone()).or_default();
        if !channels.contains(&channel) {
            channels.push(channel);
        }
    }

    /// Admits a client that knows the key to a channel on which it is connected.
    fn admit(&self, channel: Channel, client: &Bytes) {
        if let Some(router) = self.router(channel) {
            router.authenticate(&PeerId::of(client));
        }
        self.handler.joined(channel, client);
    }

    fn client_message(&self, channel: Channel, client: &Bytes, message: Message) {
        let message = self.key.receive(message).and_then(|message| {
            let is_new = self.replays.borrow_mut().is_new(&message);
            is_new.then_some(message).ok_or_else(Rejected::replayed)
        });
        let message = match message {
            Ok(message) => message,
            Err(reason) => return self.handler.rejected(channel, &reason),
        };
        if !self.unauthenticated.borrow().is_empty() {
            let channels = self.unauthenticated.borrow_mut().remove(client);
            for channel in channels.unwrap_or_default() {
                self.admit(channel, client);
            }
        }
        self.handler.message(channel, client, message);
    }

    fn client_left(&self, channel: Channel, client: &Bytes, reason: &DisconnectReason) {
        let mut unauthenticated = self.unauthenticated.borrow_mut();
        if let Some(channels) = unauthenticated.get_mut(client) {
            channels.retain(|other| *other != channel);
            if channels.is_empty() {
                unauthenticated.remove(client);
            }
        }
        drop(unauthenticated);
        self.handler.left(channel, client, reason);
    }

    fn subscription(&self, peer: &PeerId, subscription: &Message) {
        if let Some([1, topic @ ..]) = subscription.first().map(|frame| &**frame) {
            let first = self.handler.subscribed(peer, topic).into_iter();
            let first = first.map(|message| message.into_frames(&self.key));
            self.sockets().iopub.send_to(peer, first);
        }
    }

    fn heartbeat(&self, peer: &PeerId, frames: &[Bytes]) {
        if frames.len() > HEARTBEAT_FRAMES {
            return;
        }
        // Copied: a waiting frame must not hold a read buffer.
        let frames = frames.iter().map(|frame| Bytes::copy_from_slice(frame));
        let frames = frames.collect();
        if let Some(frames) = self.handler.heartbeat(peer, frames) {
            let _ = self.sockets().heartbeat.send(peer, frames);
        }
    }
}

/// Handles the events of one of the five sockets.
struct SocketHandler {
    channel: Channel,
    shared: Weak<Shared>,
}

impl ServerHandler for SocketHandler {
    fn joined(&self, peer: &PeerId, info: &PeerInfo) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        match self.channel {
            Channel::Iopub => shared.handler.subscriber_joined(),
            Channel::Heartbeat => {}
            channel => shared.client_joined(channel, peer, info),
        }
    }

    fn message(&self, peer: &PeerId, message: Message) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        match self.channel {
            Channel::Iopub => shared.subscription(peer, &message),
            Channel::Heartbeat => shared.heartbeat(peer, &message),
            channel => shared.client_message(channel, peer.bytes(), message),
        }
    }

    fn left(&self, peer: &PeerId, reason: &DisconnectReason) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        match self.channel {
            Channel::Iopub => shared.handler.subscriber_left(peer, reason),
            Channel::Heartbeat => shared.handler.heartbeat_left(peer),
            channel => shared.client_left(channel, peer.bytes(), reason),
        }
    }

    fn refused(&self, reason: &DisconnectReason) {
        if let Some(shared) = self.shared.upgrade() {
            shared.handler.refused(self.channel, reason);
        }
    }
}
