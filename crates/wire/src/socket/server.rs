//! The server that [`Router`](super::Router) and [`Publisher`](super::Publisher) share: it accepts peers and
//! moves the queue of a reconnecting peer to its new connection.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};

use super::disconnect::DisconnectReason;
use super::link::{self, Link};
use super::outbox::{Item, Outbox};
use super::peer_user;
use super::signal::Signal;
use super::spill::SpillTo;
use super::stream::{self, Accepted, Addresses, Listener, Reader, Writer};
use super::topics::{TOPICS_BYTES_MAX, TooManyTopics, Topics};
use super::{PeerId, PeerInfo, ServerHandler, SocketLimits, connection_number, is_announceable};
use crate::wire::Endpoint;
use crate::zmtp::{ConnectionEvent, Peer, Role};

/// The pause after a failed accept. Without it, the loop would spin while no file descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The owner of a bound socket. Dropping it closes everything.
pub(super) struct Server {
    shared: Rc<Shared>,
    endpoint: Endpoint,
    task: RefCell<Option<JoinHandle<()>>>,
    abort: AbortHandle,
}

pub(super) struct Shared {
    role: Role,
    limits: SocketLimits,
    spill: Option<SpillTo>,
    handler: Rc<dyn ServerHandler>,
    listener: RefCell<Option<Listener>>,
    listener_closed: Signal,
    slots: RefCell<HashMap<PeerId, Rc<PeerSlot>>>,
    /// All connections by their number, including those in their handshake.
    connections: RefCell<BTreeMap<u64, Rc<PeerSlot>>>,
    /// Whether the owner closes or has dropped the server: no handler is called any more.
    silent: Cell<bool>,
    /// Ends the handshakes in progress.
    stopped: Notify,
}

/// A connection to a peer: its link and its subscriptions.
pub(super) struct PeerSlot {
    pub(super) link: Link,
    pub(super) topics: RefCell<Topics>,
    /// The number of the first message that a publisher queued for it.
    pub(super) first_message: Cell<Option<u64>>,
    addresses: Option<Addresses>,
}

impl PeerSlot {
    /// Returns whether the connection gives way to a new one where there are too many: nothing shows that its peer
    /// knows the key, or wants to read.
    fn gives_way(&self) -> bool {
        self.link.is_open() && !self.link.is_authenticated() && self.topics.borrow().is_empty()
    }

    /// Returns whether the peer's process has read all messages that were ever queued for it, except the last
    /// `messages`.
    ///
    /// If the system does not report how much it still holds, written messages count as read.
    pub(super) fn has_read_all_but(&self, messages: u64) -> bool {
        let unread = |it: Addresses| peer_user::unread_bytes(it.local, it.peer).unwrap_or(0);
        self.link.outbox().unread() <= messages && self.addresses.map_or(0, unread) == 0
    }
}

impl Server {
    pub(super) fn bind(
        role: Role,
        endpoint: &Endpoint,
        limits: SocketLimits,
        spill: Option<SpillTo>,
        handler: Rc<dyn ServerHandler>,
    ) -> io::Result<Self> {
        let limits = SocketLimits {
            max_peers: limits
                .max_peers
                .min(stream::places(limits.spares_descriptors)),
            ..limits
        };
        let listener = Listener::bind(endpoint)?;
        let endpoint = listener.endpoint()?;
        let shared = Rc::new(Shared {
            role,
            limits,
            spill,
            handler,
            listener: RefCell::new(Some(listener)),
            listener_closed: Signal::default(),
            slots: RefCell::default(),
            connections: RefCell::default(),
            silent: Cell::new(false),
            stopped: Notify::new(),
        });
        let task = tokio::task::spawn_local(accept(Rc::clone(&shared)));
        Ok(Self {
            shared,
            endpoint,
            abort: task.abort_handle(),
            task: RefCell::new(Some(task)),
        })
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns a connected peer to which messages can be sent.
    pub(super) fn slot(&self, peer: &PeerId) -> Option<Rc<PeerSlot>> {
        let slots = self.shared.slots.borrow();
        slots.get(peer).filter(|slot| slot.link.is_open()).cloned()
    }

    pub(super) fn authenticate(&self, peer: &PeerId) {
        if let Some(slot) = self.slot(peer) {
            slot.link.authenticate(self.shared.limits.max_message);
        }
    }

    /// Calls `visit` for each peer to which messages can be sent. `visit` must not call a handler.
    pub(super) fn each(&self, mut visit: impl FnMut(&PeerSlot)) {
        self.each_peer(|_, slot| visit(slot));
    }

    /// Like [`Server::each`], with the peer's id.
    pub(super) fn each_peer(&self, mut visit: impl FnMut(&PeerId, &PeerSlot)) {
        for (peer, slot) in &*self.shared.slots.borrow() {
            if slot.link.is_open() {
                visit(peer, slot);
            }
        }
    }

    /// Stops accepting, writes the queued messages and closes, at the deadline at the latest.
    ///
    /// Returns for how many peers some messages were left unwritten. No handler is called any more.
    pub(super) async fn close(&self, deadline: Instant) -> usize {
        self.stop();
        let slots: Vec<_> = self.shared.slots.borrow().values().cloned().collect();
        for slot in &slots {
            slot.link.finish();
        }
        let task = self.task.take();
        if let Some(task) = task {
            let _ = tokio::time::timeout_at(deadline.into(), task).await;
            self.abort.abort();
        }
        let unwritten = slots
            .iter()
            .filter(|slot| slot.link.outbox().has_messages());
        unwritten.count()
    }

    fn stop(&self) {
        self.shared.silent.set(true);
        self.shared.listener.take();
        self.shared.listener_closed.wake();
        self.shared.stopped.notify_waiters();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        for slot in self.shared.slots.borrow().values() {
            slot.link.cut(DisconnectReason::ShutDown);
        }
        self.abort.abort();
    }
}

/// Accepts connections until the listener is closed, then waits until they have ended. This task owns them.
async fn accept(shared: Rc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = poll_fn(|cx| shared.poll_accept(cx)) => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            None => break,
            // The peer closed the connection before it was accepted.
            Some(Err(error)) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Some(Err(error)) => {
                shared.refused(&DisconnectReason::NotAccepted(error));
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            Some(Ok(Accepted::OtherUser(user))) => {
                shared.refused(&DisconnectReason::OtherUser(user));
            }
            Some(Ok(Accepted::Peer(reader, writer, addresses))) => {
                // Connections that have ended do not count.
                while connections.try_join_next().is_some() {}
                let is_full = connections.len() >= shared.limits.max_peers;
                if is_full && !shared.displace_oldest() {
                    shared.refused(&DisconnectReason::TooManyPeers(shared.limits.max_peers));
                } else {
                    let number = connection_number();
                    let slot = shared.open(number, addresses);
                    connections.spawn_local(serve(
                        Rc::clone(&shared),
                        number,
                        slot,
                        reader,
                        writer,
                    ));
                }
            }
        }
    }
    while connections.join_next().await.is_some() {}
}

async fn serve(
    shared: Rc<Shared>,
    number: u64,
    slot: Rc<PeerSlot>,
    mut reader: Reader,
    mut writer: Writer,
) {
    let (role, limits) = (shared.role, shared.limits);
    let _listed = Listed(&shared, number);
    let handshake = tokio::select! {
        handshake = link::handshake(role, Bytes::new(), limits, &mut reader, &mut writer) => handshake,
        reason = poll_fn(|cx| slot.link.poll_cut(cx)) => Err(reason),
        () = shared.stopped.notified() => return,
    };
    let (connection, peer) = match handshake {
        Ok(_) if shared.silent.get() => return,
        Ok(handshake) => handshake,
        Err(reason) => return shared.refused(&reason),
    };
    let occupied = shared.join(&peer, number, slot);
    let OccupiedSlot { id, slot, .. } = &occupied;
    let reason = {
        let (shared, id, slot) = (Rc::clone(&shared), id.clone(), Rc::clone(slot));
        link::run_in_task(async move {
            let deliver = |event| shared.deliver(&id, &slot, event);
            let on_held = || shared.limit_held();
            let run = slot.link.run(connection, reader, writer, deliver, on_held);
            run.await
        })
        .await
    };
    if occupied.release() && !shared.silent.get() {
        shared.handler.left(id, &reason);
    }
}

/// An entry of [`Shared::connections`]; removed on drop.
struct Listed<'a>(&'a Shared, u64);

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.0.connections.borrow_mut().remove(&self.1);
    }
}

/// A connected peer's slot; removed on drop, even when a handler panics.
struct OccupiedSlot<'a> {
    shared: &'a Shared,
    id: PeerId,
    slot: Rc<PeerSlot>,
}

impl OccupiedSlot<'_> {
    /// Removes the slot; returns whether no other connection had replaced it.
    fn release(&self) -> bool {
        let mut slots = self.shared.slots.borrow_mut();
        let is_current = slots
            .get(&self.id)
            .is_some_and(|slot| Rc::ptr_eq(slot, &self.slot));
        if is_current {
            slots.remove(&self.id);
        }
        is_current
    }
}

impl Drop for OccupiedSlot<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

impl Shared {
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Accepted>>> {
        self.listener_closed.register(cx);
        match &*self.listener.borrow() {
            Some(listener) => {
                let accepted = listener.poll_accept(cx, self.limits.spares_descriptors);
                accepted.map(Some)
            }
            None => Poll::Ready(None),
        }
    }

    fn refused(&self, reason: &DisconnectReason) {
        if !self.silent.get() {
            // A panic of the handler must not end the accept loop.
            let _ = catch_unwind(AssertUnwindSafe(|| self.handler.refused(reason)));
        }
    }

    fn outbox(&self) -> Outbox {
        match &self.spill {
            Some(to) => Outbox::spilling(self.limits.outbox_bytes, to.clone()),
            None => Outbox::new(self.limits.outbox_bytes),
        }
    }

    /// Lists a new connection.
    fn open(&self, number: u64, addresses: Option<Addresses>) -> Rc<PeerSlot> {
        let slot = Rc::new(PeerSlot {
            link: Link::unauthenticated(self.outbox(), &self.limits),
            topics: RefCell::default(),
            first_message: Cell::new(None),
            addresses,
        });
        let mut connections = self.connections.borrow_mut();
        connections.insert(number, Rc::clone(&slot));
        slot
    }

    /// Closes the oldest connection that gives way to a new one; returns whether there is one.
    ///
    /// A client shows that it knows the key at once. So peers that only stay connected do not keep clients out.
    fn displace_oldest(&self) -> bool {
        let connections = self.connections.borrow();
        let oldest = connections.values().find(|slot| slot.gives_way());
        if let Some(oldest) = oldest {
            oldest
                .link
                .cut(DisconnectReason::Displaced(self.limits.max_peers));
        }
        oldest.is_some()
    }

    /// Adds a peer; a connection with the same identity hands its queue over.
    fn join(&self, peer: &Peer, number: u64, slot: Rc<PeerSlot>) -> OccupiedSlot<'_> {
        let info = PeerInfo {
            connection: number,
            identity: peer.identity.clone(),
            socket_type: peer.socket_type.clone(),
        };
        let id = if self.role == Role::Router && is_announceable(&info.identity) {
            PeerId::announced(info.identity.clone())
        } else {
            PeerId::generated(info.connection)
        };
        let previous = self.slots.borrow_mut().insert(id.clone(), Rc::clone(&slot));
        if let Some(previous) = previous {
            let was_open = previous.link.is_open();
            let unsent = previous.link.take_unsent();
            previous.link.cut(DisconnectReason::Closed);
            if was_open {
                for message in unsent {
                    // The messages fitted before.
                    let _ = slot.link.push(Item::Own(message));
                }
            }
        }
        let occupied = OccupiedSlot {
            shared: self,
            id,
            slot,
        };
        let joined = AssertUnwindSafe(|| self.handler.joined(&occupied.id, &info));
        if catch_unwind(joined).is_err() {
            let reason = DisconnectReason::Disconnected("a handler panicked".into());
            occupied.slot.link.cut(reason);
        }
        occupied
    }

    fn deliver(&self, id: &PeerId, slot: &PeerSlot, event: ConnectionEvent) {
        match event {
            ConnectionEvent::Message(message) if self.role == Role::Router => {
                self.handler.message(id, message);
            }
            ConnectionEvent::Subscribe(topic) => {
                let added = slot.topics.borrow_mut().add(&topic);
                match added {
                    Ok(true) => self.subscription(id, 1, &topic),
                    Ok(false) => {}
                    Err(TooManyTopics) => slot
                        .link
                        .cut(DisconnectReason::TooManyTopics(TOPICS_BYTES_MAX)),
                }
            }
            ConnectionEvent::Cancel(topic) => {
                let removed = slot.topics.borrow_mut().remove(&topic);
                if removed {
                    self.subscription(id, 0, &topic);
                }
            }
            // Other messages of a subscriber have no meaning.
            ConnectionEvent::Message(_)
            | ConnectionEvent::Drained { .. }
            | ConnectionEvent::Ready(_) => {}
        }
    }

    /// Closes the unauthenticated peer with the longest incomplete message if these take too much together.
    fn limit_held(&self) {
        let limit = self.limits.max_unauthenticated_bytes;
        let slots = self.slots.borrow();
        let open = || slots.values().filter(|slot| slot.link.is_open());
        let held: usize = open().map(|slot| slot.link.held_bytes()).sum();
        let longest = open().max_by_key(|slot| slot.link.held_bytes());
        if let Some(longest) = longest.filter(|_| held > limit) {
            longest
                .link
                .cut(DisconnectReason::TooMuchUnauthenticated(limit));
        }
    }

    fn subscription(&self, id: &PeerId, on: u8, topic: &[u8]) {
        let mut frame = BytesMut::with_capacity(1 + topic.len());
        frame.put_u8(on);
        frame.extend_from_slice(topic);
        self.handler.message(id, vec![frame.freeze()]);
    }
}
