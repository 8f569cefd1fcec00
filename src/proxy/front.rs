//! The front end's side: the five ports of its connection file, bound by us.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::counters::Way;
use super::faults::{Fault, is_told};
use super::shell::Shell;
use crate::route::ClientId;
use crate::socket::{
    Backlog, Left, Limits, Message, PeerId, PeerInfo, Publisher, Reach, Router, ServerHandler,
    SpillTo, WhyUnsent,
};
use crate::wire::{Channel, ConnectionInfo, Replays, SigningKey, Unverified, Verified};

/// The sockets that the front end dials.
pub(super) struct Front {
    key: SigningKey,
    shell: Lane,
    control: Lane,
    stdin: Lane,
    iopub: Publisher,
    heartbeat: Router,
}

/// One ROUTER and who is connected to it.
struct Lane {
    router: Router,
    peers: Rc<Peers>,
}

/// Which connection a client has on one channel.
#[derive(Default)]
struct Peers(RefCell<HashMap<ClientId, PeerId>>);

/// What a ROUTER's events lead to.
struct Incoming {
    channel: Channel,
    shell: Weak<Shell>,
    peers: Rc<Peers>,
    key: SigningKey,
    /// One for the three channels: what was sent on one is no news on another.
    replays: Rc<RefCell<Replays>>,
    guests: Rc<RefCell<Guests>>,
}

/// The channels on which identities are connected that have not sent one rightly signed message.
///
/// Whoever can reach a port can announce any identity. Until somebody has shown that it knows the
/// key nothing is done for it: no socket to the kernel is opened, and nobody hears of it.
type Guests = HashMap<ClientId, Vec<Channel>>;

/// The heartbeat's and iopub's events.
struct Heartbeat(Weak<Shell>);
struct Subscribers(Weak<Shell>);

impl Front {
    /// Binds all five ports.
    ///
    /// # Errors
    /// When one of them is taken: VS Code picks free ports without reserving them, so that two
    /// windows can collide. The front end then tries others.
    pub(super) fn bind(connection: &ConnectionInfo, shell: &Weak<Shell>) -> anyhow::Result<Self> {
        let replays = Rc::new(RefCell::new(Replays::of(&connection.key)));
        let guests = Rc::<RefCell<Guests>>::default();
        let lane = |channel| -> anyhow::Result<Lane> {
            let peers = Rc::new(Peers::default());
            let incoming = Incoming {
                channel,
                shell: shell.clone(),
                peers: Rc::clone(&peers),
                key: connection.key.clone(),
                replays: Rc::clone(&replays),
                guests: Rc::clone(&guests),
            };
            let endpoint = connection.endpoint(channel);
            let router = Router::bind(&endpoint, limits(), Rc::new(incoming))
                .with_context(|| taken(channel, &endpoint))?;
            Ok(Lane { router, peers })
        };
        let endpoint = connection.endpoint(Channel::Iopub);
        let in_memory = Limits {
            outbox_bytes: SUBSCRIBER_BYTES,
            ..limits()
        };
        let iopub = Publisher::bind(
            &endpoint,
            in_memory,
            spill(),
            Rc::new(Subscribers(shell.clone())),
        )
        .with_context(|| taken(Channel::Iopub, &endpoint))?;
        let endpoint = connection.endpoint(Channel::Heartbeat);
        let heartbeat = Router::bind(&endpoint, limits(), Rc::new(Heartbeat(shell.clone())))
            .with_context(|| taken(Channel::Heartbeat, &endpoint))?;
        Ok(Self {
            key: connection.key.clone(),
            shell: lane(Channel::Shell)?,
            control: lane(Channel::Control)?,
            stdin: lane(Channel::Stdin)?,
            iopub,
            heartbeat,
        })
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
    ) -> Result<(), WhyUnsent> {
        let lane = self.lane(channel).ok_or(WhyUnsent::NoSuchPeer)?;
        let Some(peer) = lane.peers.0.borrow().get(client).cloned() else {
            tracing::warn!(%client, %channel, "a message could not be delivered: the client is not there");
            return Err(WhyUnsent::NoSuchPeer);
        };
        tracing::debug!(%client, %channel, ?message, "to the client");
        let Err(unsent) = lane.router.send(&peer, message.into_frames(&self.key)) else {
            return Ok(());
        };
        match unsent.why {
            WhyUnsent::Full => {
                tracing::warn!(%client, %channel, "the client does not read its replies: its connection is cut");
                lane.router
                    .disconnect(&peer, "it does not read its replies");
            }
            WhyUnsent::NoSuchPeer => {
                tracing::warn!(%client, %channel, "a message could not be delivered: the client is not there");
            }
        }
        Err(unsent.why)
    }

    /// Sends a message to every subscriber.
    pub(super) fn publish(&self, message: Verified) {
        self.iopub.send(&message.into_frames(&self.key));
    }

    /// Sends a heartbeat's echo back to who asked.
    pub(super) fn beat(&self, peer: &PeerId, frames: Message) {
        // A heartbeat that cannot be delivered is one that was missed.
        let _ = self.heartbeat.send(peer, frames);
    }

    /// Stops reading a client's connections, or goes on.
    pub(super) fn set_paused(&self, client: &ClientId, paused: bool) {
        for lane in [&self.shell, &self.control, &self.stdin] {
            if let Some(peer) = lane.peers.0.borrow().get(client) {
                if paused {
                    lane.router.pause(peer);
                } else {
                    lane.router.resume(peer);
                }
            }
        }
    }

    /// Returns how many messages were sent to all subscribers.
    pub(super) fn published(&self) -> u64 {
        self.iopub.sent()
    }

    /// Returns how far one of them has come.
    pub(super) fn reach(&self, number: u64) -> Reach {
        self.iopub.reach(number)
    }

    /// Returns how many subscribers iopub has.
    pub(super) fn subscribers(&self) -> usize {
        self.iopub.subscriber_count()
    }

    /// Lets a client send messages of full length on one channel.
    fn trust(&self, client: &ClientId, channel: Channel) {
        if let Some(lane) = self.lane(channel)
            && let Some(peer) = lane.peers.0.borrow().get(client)
        {
            lane.router.trust(peer);
        }
    }

    /// Returns what is queued for a client on its own connections, in bytes.
    pub(super) fn queued_bytes(&self, client: &ClientId) -> usize {
        let lanes = [&self.shell, &self.control, &self.stdin];
        let queued = lanes
            .iter()
            .map(|lane| match lane.peers.0.borrow().get(client) {
                Some(peer) => lane.router.queued_bytes(peer),
                None => 0,
            });
        queued.sum()
    }

    /// Returns what each subscriber has not taken.
    pub(super) fn unread(&self) -> Vec<Backlog> {
        self.iopub.backlogs()
    }

    /// Writes what is queued, then closes; within a second at most.
    ///
    /// Returns for how many connections something was left.
    pub(super) async fn close(&self) -> usize {
        let deadline = Instant::now() + Duration::from_secs(1);
        let (shell, control, stdin, iopub, _) = tokio::join!(
            self.shell.router.close(deadline),
            self.control.router.close(deadline),
            self.stdin.router.close(deadline),
            self.iopub.close(deadline),
            self.heartbeat.close(deadline),
        );
        shell + control + stdin + iopub
    }

    fn lane(&self, channel: Channel) -> Option<&Lane> {
        match channel {
            Channel::Shell => Some(&self.shell),
            Channel::Control => Some(&self.control),
            Channel::Stdin => Some(&self.stdin),
            Channel::Iopub | Channel::Heartbeat => None,
        }
    }
}

impl Incoming {
    /// Lets a client that has shown who it is take part on a channel where it is connected.
    fn admit(&self, shell: &Shell, channel: Channel, client: &ClientId) {
        if let Some(front) = shell.front() {
            front.trust(client, channel);
        }
        shell.route(|bridge, _| bridge.client_joined(channel, client));
        shell.changed();
    }

    /// Forgets that somebody was connected here who never showed who it is.
    fn no_guest(&self, client: &ClientId) {
        let mut guests = self.guests.borrow_mut();
        if let Some(channels) = guests.get_mut(client) {
            channels.retain(|channel| *channel != self.channel);
            if channels.is_empty() {
                guests.remove(client);
            }
        }
    }
}

impl ServerHandler for Incoming {
    fn joined(&self, peer: &PeerId, info: &PeerInfo) {
        let client = ClientId::new(peer.bytes().clone());
        tracing::debug!(%client, channel = %self.channel, connection = info.connection, "connected");
        self.peers
            .0
            .borrow_mut()
            .insert(client.clone(), peer.clone());
        let Some(shell) = self.shell.upgrade() else {
            return;
        };
        if shell.knows(&client) {
            self.admit(&shell, self.channel, &client);
        } else {
            let mut guests = self.guests.borrow_mut();
            let channels = guests.entry(client).or_default();
            if !channels.contains(&self.channel) {
                channels.push(self.channel);
            }
        }
    }

    fn message(&self, peer: &PeerId, message: Message) {
        let Some(shell) = self.shell.upgrade() else {
            return;
        };
        let fault = |fault, why: &str| shell.count.fault("client", self.channel, fault, why);
        let message = match Unverified::parse(message) {
            Ok(message) => message,
            Err(error) => return fault(Fault::Malformed, &error.to_string()),
        };
        let message = match self.key.verify(message) {
            Ok(message) => message,
            Err(error) => return fault(Fault::BadSignature, &error.to_string()),
        };
        if !self.replays.borrow_mut().is_new(&message) {
            return fault(Fault::Replayed, "it was sent before");
        }
        shell
            .count
            .came(Way::FromClients, self.channel, message.size());
        let client = ClientId::new(peer.bytes().clone());
        if !self.guests.borrow().is_empty() {
            let channels = self.guests.borrow_mut().remove(&client);
            for channel in channels.unwrap_or_default() {
                self.admit(&shell, channel, &client);
            }
        }
        tracing::debug!(%client, channel = %self.channel, ?message, "from the client");
        shell.route(|bridge, now| bridge.client_message(now, self.channel, &client, message));
    }

    fn left(&self, peer: &PeerId, why: &Left) {
        let client = ClientId::new(peer.bytes().clone());
        tracing::debug!(%client, channel = %self.channel, "disconnected: {why}");
        if why.fault() == crate::socket::Fault::Peer
            && let Some(shell) = self.shell.upgrade()
            && is_told(shell.count.broke())
        {
            tracing::warn!(%client, channel = %self.channel, "a client's connection was closed: {why}");
        }
        self.peers.0.borrow_mut().remove(&client);
        self.no_guest(&client);
        if let Some(shell) = self.shell.upgrade() {
            shell.route(|bridge, now| bridge.client_left(now, self.channel, &client));
            shell.changed();
        }
    }

    fn refused(&self, why: &Left) {
        refused(&self.shell, self.channel, why);
    }
}

impl ServerHandler for Subscribers {
    fn joined(&self, _: &PeerId, _: &PeerInfo) {
        if let Some(shell) = self.0.upgrade() {
            shell.count.touch();
        }
    }

    fn message(&self, peer: &PeerId, subscription: Message) {
        if let Some(shell) = self.0.upgrade()
            && let Some(front) = shell.front()
            && let Some([1, topic @ ..]) = subscription.first().map(|frame| &**frame)
        {
            let mut first = Vec::new();
            shell.route(|bridge, now| first = bridge.subscribed(now, topic));
            let first = first.into_iter();
            let first = first.map(|message| message.into_frames(&front.key));
            front.iopub.send_to(peer, first);
        }
    }

    fn left(&self, peer: &PeerId, why: &Left) {
        let Some(shell) = self.0.upgrade() else {
            return;
        };
        shell.parted.notify_one();
        if why.fault() != crate::socket::Fault::Nobody && is_told(shell.count.broke()) {
            tracing::warn!(channel = "iopub", subscriber = %peer, "a subscriber's connection ended: {why}");
        }
        match why {
            Left::Full { unread, since, .. } => {
                shell.count.cut();
                shell
                    .count
                    .lost(usize::try_from(*unread).unwrap_or(usize::MAX));
                shell.route(|bridge, now| bridge.subscriber_cut(now, *since));
            }
            _ => shell.count.touch(),
        }
    }

    fn refused(&self, why: &Left) {
        refused(&self.0, Channel::Iopub, why);
    }
}

impl ServerHandler for Heartbeat {
    fn joined(&self, _: &PeerId, _: &PeerInfo) {}

    fn message(&self, peer: &PeerId, message: Message) {
        if let Some(shell) = self.0.upgrade() {
            shell.beat_kernel(peer, message);
        }
    }

    fn left(&self, peer: &PeerId, _: &Left) {
        if let Some(shell) = self.0.upgrade() {
            shell.heartbeat_left(peer);
        }
    }

    fn refused(&self, why: &Left) {
        refused(&self.0, Channel::Heartbeat, why);
    }
}

/// Logs a connection that never became a client's; one that only looked whether the port is open
/// is nobody's fault.
fn refused(shell: &Weak<Shell>, channel: Channel, why: &Left) {
    // VS Code dials shell and iopub and resets the connection, to see whether somebody listens.
    let reset =
        matches!(why, Left::Broken(error) if error.kind() == io::ErrorKind::ConnectionReset);
    if reset || why.fault() == crate::socket::Fault::Nobody {
        tracing::debug!(%channel, "a connection was closed before it was one: {why}");
    } else {
        let Some(shell) = shell.upgrade() else {
            return;
        };
        if let Left::NotAccepted(error) = why {
            shell.makes_room(error);
        }
        let count = shell.count.refused();
        if is_told(count) {
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
        max_stranger_message: STRANGER_BYTES,
        spares_descriptors: true,
        ..Limits::default()
    }
}

fn taken(channel: Channel, endpoint: &crate::wire::Endpoint) -> String {
    format!(
        "cannot bind the front end's {channel} port {endpoint} (try again: it picks other ports)"
    )
}
