//! The five bound sockets of a kernel's side, as a connection file names them.
//!
//! An [`EndpointHandler`] gets verified messages; [`KernelEndpoint`] parses, checks signatures, drops replays
//! and knows which peers have shown that they know the key.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::{Rc, Weak};
use std::time::Instant;

use bytes::Bytes;

use super::{
    DeliveryProgress, DisconnectReason, Limits, Message, PeerId, PeerInfo, Publisher, Router,
    ServerHandler, SpillTo, SubscriberBacklog, UnsentReason,
};
use crate::wire::{Channel, ConnectionInfo, Rejected, Replays, SigningKey, Verified};

/// What comes of a kernel's sockets. A client is named by the identity that it announced; it is the same
/// client on shell, control and stdin.
pub trait EndpointHandler {
    /// A client that knows the key is connected on a channel.
    fn joined(&self, _channel: Channel, _client: &Bytes) {}

    /// A client has sent a message, which was not sent before.
    fn message(&self, channel: Channel, client: &Bytes, message: Verified);

    /// A client is no longer connected on a channel, or one that never showed that it knows the key.
    fn left(&self, _channel: Channel, _client: &Bytes, _why: &DisconnectReason) {}

    /// A message of a client was dropped, since it is not one of a client that knows the key, or not new.
    fn rejected(&self, _channel: Channel, _why: &Rejected) {}

    /// Returns whether an identity that connects has shown before that it knows the key.
    fn knows(&self, _client: &Bytes) -> bool {
        false
    }

    /// A subscriber is connected to iopub.
    fn subscriber_joined(&self) {}

    /// A subscriber subscribes to a topic. Returns what is sent to it alone, before what is published next.
    fn subscribed(&self, _subscriber: &PeerId, _topic: &[u8]) -> Vec<Verified> {
        Vec::new()
    }

    /// A subscriber is no longer connected.
    fn subscriber_left(&self, _subscriber: &PeerId, _why: &DisconnectReason) {}

    /// A heartbeat. Returns what is sent back at once; [`KernelEndpoint::beat`] sends it later.
    fn heartbeat(&self, _peer: &PeerId, frames: Message) -> Option<Message> {
        Some(frames)
    }

    /// A peer of the heartbeat is no longer connected.
    fn heartbeat_left(&self, _peer: &PeerId) {}

    /// A connection was closed before it was one.
    fn refused(&self, _channel: Channel, _why: &DisconnectReason) {}
}

/// The bounds of a kernel's sockets.
#[derive(Clone, Debug, Default)]
pub struct EndpointLimits {
    /// Those of shell, control, stdin and heartbeat.
    pub router: Limits,
    /// Those of iopub.
    pub iopub: Limits,
    /// Where what iopub's subscribers have not read waits beyond that.
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
    /// What the system said.
    pub source: io::Error,
}

/// The five bound sockets of a kernel's side. Dropping it closes them at once.
pub struct KernelEndpoint(Rc<Sockets>);

struct Sockets {
    key: SigningKey,
    /// One for the three channels: what was sent on one is not new on another.
    replays: RefCell<Replays>,
    /// The channels on which identities are connected that have not sent one rightly signed message.
    ///
    /// Any process that can reach a port can announce any identity: until it has shown that it knows the
    /// key, the handler does not hear of it.
    unauthenticated: RefCell<HashMap<Bytes, Vec<Channel>>>,
    handler: Rc<dyn EndpointHandler>,
    shell: OnceCell<RouterSocket>,
    control: OnceCell<RouterSocket>,
    stdin: OnceCell<RouterSocket>,
    iopub: OnceCell<Publisher>,
    heartbeat: OnceCell<Router>,
}

/// One ROUTER and the connection of each client.
struct RouterSocket {
    router: Router,
    peers: Rc<RefCell<HashMap<Bytes, PeerId>>>,
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
        let sockets = Rc::new(Sockets {
            key: connection.key.clone(),
            replays: RefCell::new(Replays::of(&connection.key)),
            unauthenticated: RefCell::default(),
            handler,
            shell: OnceCell::new(),
            control: OnceCell::new(),
            stdin: OnceCell::new(),
            iopub: OnceCell::new(),
            heartbeat: OnceCell::new(),
        });
        let failed = |channel| {
            move |source| BindError {
                channel,
                endpoint: connection.endpoint(channel),
                source,
            }
        };
        let channel = Channel::Iopub;
        let subscribers = Subscribers(Rc::downgrade(&sockets));
        let endpoint = connection.endpoint(channel);
        let EndpointLimits {
            router,
            iopub,
            spill,
        } = limits;
        let iopub = Publisher::bind(&endpoint, iopub, spill, Rc::new(subscribers))
            .map_err(failed(channel))?;
        let _ = sockets.iopub.set(iopub);
        let channel = Channel::Heartbeat;
        let heartbeats = Heartbeats(Rc::downgrade(&sockets));
        let endpoint = connection.endpoint(channel);
        let heartbeat =
            Router::bind(&endpoint, router, Rc::new(heartbeats)).map_err(failed(channel))?;
        let _ = sockets.heartbeat.set(heartbeat);
        for channel in [Channel::Shell, Channel::Control, Channel::Stdin] {
            let peers = Rc::default();
            let incoming = Incoming {
                channel,
                sockets: Rc::downgrade(&sockets),
                peers: Rc::clone(&peers),
            };
            let endpoint = connection.endpoint(channel);
            let router =
                Router::bind(&endpoint, router, Rc::new(incoming)).map_err(failed(channel))?;
            if let Some(socket) = sockets.socket(channel) {
                let _ = socket.set(RouterSocket { router, peers });
            }
        }
        Ok(Self(sockets))
    }

    /// Sends a message to one client.
    ///
    /// # Errors
    /// When the client is not connected there, or does not read: then its connection is closed.
    pub fn send(
        &self,
        channel: Channel,
        client: &Bytes,
        message: Verified,
    ) -> Result<(), UnsentReason> {
        let (router, peer) = self
            .0
            .connection(channel, client)
            .ok_or(UnsentReason::NoSuchPeer)?;
        let sent = router.send(&peer, message.into_frames(&self.0.key));
        sent.map_err(|unsent| {
            if unsent.why == UnsentReason::Full {
                router.disconnect(&peer, "it does not read its replies");
            }
            unsent.why
        })
    }

    /// Sends a message to every subscriber.
    pub fn publish(&self, message: Verified) {
        self.0.iopub().send(&message.into_frames(&self.0.key));
    }

    /// Sends a heartbeat back. One that cannot be delivered is one that was missed.
    pub fn beat(&self, peer: &PeerId, frames: Message) {
        self.0.beat(peer, frames);
    }

    /// Stops reading a client's connections, or goes on.
    pub fn set_paused(&self, client: &Bytes, paused: bool) {
        for channel in ROUTERS {
            if let Some((router, peer)) = self.0.connection(channel, client) {
                if paused {
                    router.pause(&peer);
                } else {
                    router.resume(&peer);
                }
            }
        }
    }

    /// Returns how many messages were published.
    pub fn published(&self) -> u64 {
        self.0.iopub().sent()
    }

    /// Returns how far one of them has come.
    pub fn reach(&self, number: u64) -> DeliveryProgress {
        self.0.iopub().reach(number)
    }

    /// Returns how many subscribers iopub has.
    pub fn subscribers(&self) -> usize {
        self.0.iopub().subscriber_count()
    }

    /// Returns what each subscriber has not taken.
    pub fn backlogs(&self) -> Vec<SubscriberBacklog> {
        self.0.iopub().backlogs()
    }

    /// Returns what is queued for a client on shell, control and stdin, in bytes.
    pub fn queued_bytes(&self, client: &Bytes) -> usize {
        let connections = ROUTERS
            .iter()
            .filter_map(|channel| self.0.connection(*channel, client));
        connections
            .map(|(router, peer)| router.queued_bytes(&peer))
            .sum()
    }

    /// Writes what is queued, then closes; at the deadline at the latest. Returns for how many connections
    /// something was left.
    pub async fn close(&self, deadline: Instant) -> usize {
        let close = async |socket: &OnceCell<RouterSocket>| match socket.get() {
            Some(socket) => socket.router.close(deadline).await,
            None => 0,
        };
        let heartbeat = async {
            if let Some(heartbeat) = self.0.heartbeat.get() {
                heartbeat.close(deadline).await;
            }
        };
        let (shell, control, stdin, iopub, ()) = tokio::join!(
            close(&self.0.shell),
            close(&self.0.control),
            close(&self.0.stdin),
            self.0.iopub().close(deadline),
            heartbeat,
        );
        shell + control + stdin + iopub
    }
}

/// The channels on which clients send messages.
const ROUTERS: [Channel; 3] = [Channel::Shell, Channel::Control, Channel::Stdin];

impl Sockets {
    fn socket(&self, channel: Channel) -> Option<&OnceCell<RouterSocket>> {
        match channel {
            Channel::Shell => Some(&self.shell),
            Channel::Control => Some(&self.control),
            Channel::Stdin => Some(&self.stdin),
            Channel::Iopub | Channel::Heartbeat => None,
        }
    }

    fn connection(&self, channel: Channel, client: &Bytes) -> Option<(&Router, PeerId)> {
        let socket = self.socket(channel)?.get()?;
        let peer = socket.peers.borrow().get(client).cloned()?;
        Some((&socket.router, peer))
    }

    fn iopub(&self) -> &Publisher {
        self.iopub.get().expect("`bind` has set it")
    }

    fn beat(&self, peer: &PeerId, frames: Message) {
        if let Some(heartbeat) = self.heartbeat.get() {
            let _ = heartbeat.send(peer, frames);
        }
    }

    /// Lets a client that knows the key take part on a channel where it is connected.
    fn admit(&self, channel: Channel, client: &Bytes) {
        if let Some((router, peer)) = self.connection(channel, client) {
            router.authenticate(&peer);
        }
        self.handler.joined(channel, client);
    }
}

/// What happens on shell, control or stdin.
struct Incoming {
    channel: Channel,
    sockets: Weak<Sockets>,
    peers: Rc<RefCell<HashMap<Bytes, PeerId>>>,
}

impl ServerHandler for Incoming {
    fn joined(&self, peer: &PeerId, info: &PeerInfo) {
        let client = peer.bytes();
        tracing::debug!(%peer, channel = %self.channel, connection = info.connection, "connected");
        self.peers.borrow_mut().insert(client.clone(), peer.clone());
        let Some(sockets) = self.sockets.upgrade() else {
            return;
        };
        if sockets.handler.knows(client) {
            sockets.admit(self.channel, client);
        } else {
            let mut unauthenticated = sockets.unauthenticated.borrow_mut();
            let channels = unauthenticated.entry(client.clone()).or_default();
            if !channels.contains(&self.channel) {
                channels.push(self.channel);
            }
        }
    }

    fn message(&self, peer: &PeerId, message: Message) {
        let Some(sockets) = self.sockets.upgrade() else {
            return;
        };
        let message = sockets.key.receive(message).and_then(|message| {
            let is_new = sockets.replays.borrow_mut().is_new(&message);
            is_new.then_some(message).ok_or_else(Rejected::replayed)
        });
        let message = match message {
            Ok(message) => message,
            Err(why) => return sockets.handler.rejected(self.channel, &why),
        };
        let client = peer.bytes();
        if !sockets.unauthenticated.borrow().is_empty() {
            let channels = sockets.unauthenticated.borrow_mut().remove(client);
            for channel in channels.unwrap_or_default() {
                sockets.admit(channel, client);
            }
        }
        sockets.handler.message(self.channel, client, message);
    }

    fn left(&self, peer: &PeerId, why: &DisconnectReason) {
        let client = peer.bytes();
        self.peers.borrow_mut().remove(client);
        let Some(sockets) = self.sockets.upgrade() else {
            return;
        };
        let mut unauthenticated = sockets.unauthenticated.borrow_mut();
        if let Some(channels) = unauthenticated.get_mut(client) {
            channels.retain(|channel| *channel != self.channel);
            if channels.is_empty() {
                unauthenticated.remove(client);
            }
        }
        drop(unauthenticated);
        sockets.handler.left(self.channel, client, why);
    }

    fn refused(&self, why: &DisconnectReason) {
        if let Some(sockets) = self.sockets.upgrade() {
            sockets.handler.refused(self.channel, why);
        }
    }
}

/// What happens on iopub.
struct Subscribers(Weak<Sockets>);

impl ServerHandler for Subscribers {
    fn joined(&self, _: &PeerId, _: &PeerInfo) {
        if let Some(sockets) = self.0.upgrade() {
            sockets.handler.subscriber_joined();
        }
    }

    fn message(&self, peer: &PeerId, subscription: Message) {
        if let Some(sockets) = self.0.upgrade()
            && let Some([1, topic @ ..]) = subscription.first().map(|frame| &**frame)
        {
            let first = sockets.handler.subscribed(peer, topic).into_iter();
            let first = first.map(|message| message.into_frames(&sockets.key));
            sockets.iopub().send_to(peer, first);
        }
    }

    fn left(&self, peer: &PeerId, why: &DisconnectReason) {
        if let Some(sockets) = self.0.upgrade() {
            sockets.handler.subscriber_left(peer, why);
        }
    }

    fn refused(&self, why: &DisconnectReason) {
        if let Some(sockets) = self.0.upgrade() {
            sockets.handler.refused(Channel::Iopub, why);
        }
    }
}

/// What happens on the heartbeat's socket.
struct Heartbeats(Weak<Sockets>);

impl ServerHandler for Heartbeats {
    fn joined(&self, _: &PeerId, _: &PeerInfo) {}

    fn message(&self, peer: &PeerId, frames: Message) {
        if let Some(sockets) = self.0.upgrade()
            && let Some(frames) = sockets.handler.heartbeat(peer, frames)
        {
            sockets.beat(peer, frames);
        }
    }

    fn left(&self, peer: &PeerId, _: &DisconnectReason) {
        if let Some(sockets) = self.0.upgrade() {
            sockets.handler.heartbeat_left(peer);
        }
    }

    fn refused(&self, why: &DisconnectReason) {
        if let Some(sockets) = self.0.upgrade() {
            sockets.handler.refused(Channel::Heartbeat, why);
        }
    }
}
