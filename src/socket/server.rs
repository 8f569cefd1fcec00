//! The server that [`Router`](super::Router) and [`Publisher`](super::Publisher) share: it accepts peers
//! and hands a reconnecting peer's queue over.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
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
use super::stream::{Accepted, Addresses, Listener, Reader, Writer};
use super::topics::{TOPICS_BYTES_MAX, TooMany, Topics};
use super::{Limits, PeerId, PeerInfo, ServerHandler, connection_number};
use crate::wire::Endpoint;
use crate::zmtp::{Event, Peer, Role};

/// The pause after a failed accept, which would otherwise spin without file descriptors.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// The owner of a bound socket. Dropping it closes everything.
pub(super) struct Server {
    shared: Rc<Shared>,
    endpoint: Endpoint,
    task: RefCell<Option<JoinHandle<()>>>,
    abort: AbortHandle,
}

pub(super) struct Shared {
    role: Role,
    limits: Limits,
    spill: Option<SpillTo>,
    handler: Rc<dyn ServerHandler>,
    listener: RefCell<Option<Listener>>,
    listener_gone: Signal,
    slots: RefCell<HashMap<PeerId, Rc<PeerSlot>>>,
    connections: Cell<usize>,
    /// Set when the owner closes or is dropped: no handler is called any more.
    silent: Cell<bool>,
    /// Ends the handshakes under way.
    stopped: Notify,
}

/// A connected peer: its link and its subscriptions.
pub(super) struct PeerSlot {
    pub(super) link: Link,
    pub(super) topics: RefCell<Topics>,
    /// The number of the first message that a publisher queued for it.
    pub(super) first: Cell<Option<u64>>,
    addresses: Option<Addresses>,
}

impl PeerSlot {
    /// Returns whether the peer's process has read all that was ever queued for it but so many messages.
    ///
    /// Where the system does not tell what it holds of that itself, what was written counts as read.
    pub(super) fn has_read_all_but(&self, messages: u64) -> bool {
        let held = |it: Addresses| peer_user::unread_bytes(it.local, it.peer).unwrap_or(0);
        self.link.unread() <= messages && self.addresses.map_or(0, held) == 0
    }
}

impl Server {
    pub(super) fn bind(
        role: Role,
        endpoint: &Endpoint,
        limits: Limits,
        spill: Option<SpillTo>,
        handler: Rc<dyn ServerHandler>,
    ) -> io::Result<Self> {
        let listener = Listener::bind(endpoint)?;
        let endpoint = listener.endpoint()?;
        let shared = Rc::new(Shared {
            role,
            limits,
            spill,
            handler,
            listener: RefCell::new(Some(listener)),
            listener_gone: Signal::default(),
            slots: RefCell::default(),
            connections: Cell::new(0),
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

    /// Returns a peer that can be sent to.
    pub(super) fn slot(&self, peer: &PeerId) -> Option<Rc<PeerSlot>> {
        let slots = self.shared.slots.borrow();
        slots.get(peer).filter(|slot| slot.link.is_open()).cloned()
    }

    pub(super) fn authenticate(&self, peer: &PeerId) {
        if let Some(slot) = self.slot(peer) {
            slot.link.set_message_limit(self.shared.limits.max_message);
        }
    }

    /// Calls `visit` for each peer that can be sent to. It must not call a handler.
    pub(super) fn each(&self, mut visit: impl FnMut(&PeerSlot)) {
        self.each_peer(|_, slot| visit(slot));
    }

    /// As [`Server::each`], with who it is.
    pub(super) fn each_peer(&self, mut visit: impl FnMut(&PeerId, &PeerSlot)) {
        for (peer, slot) in &*self.shared.slots.borrow() {
            if slot.link.is_open() {
                visit(peer, slot);
            }
        }
    }

    /// Stops accepting, writes what is queued, closes; at the deadline at the latest.
    ///
    /// Returns for how many peers something was left unwritten. No handler is called any more.
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
        let unwritten = slots.iter().filter(|slot| slot.link.has_messages());
        unwritten.count()
    }

    fn stop(&self) {
        self.shared.silent.set(true);
        self.shared.listener.take();
        self.shared.listener_gone.wake();
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

/// Accepts until the listener is gone, then waits for the connections; their owner.
async fn accept(shared: Rc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = poll_fn(|cx| shared.poll_accept(cx)) => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            None => break,
            // The peer's doing, and over.
            Some(Err(error)) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Some(Err(error)) => {
                shared.refused(&DisconnectReason::NotAccepted(error));
                tokio::time::sleep(ACCEPT_REST).await;
            }
            Some(Ok(Accepted::Peer(..))) if shared.connections.get() >= shared.limits.max_peers => {
                shared.refused(&DisconnectReason::TooManyPeers(shared.limits.max_peers));
            }
            Some(Ok(Accepted::OtherUser(user))) => {
                shared.refused(&DisconnectReason::OtherUser(user));
            }
            Some(Ok(Accepted::Peer(reader, writer, addresses))) => {
                let counted = ConnectionCount::new(&shared);
                connections.spawn_local(serve(counted, reader, writer, addresses));
            }
        }
    }
    while connections.join_next().await.is_some() {}
}

/// A connection that counts towards [`Limits::max_peers`].
struct ConnectionCount(Rc<Shared>);

impl ConnectionCount {
    fn new(shared: &Rc<Shared>) -> Self {
        shared.connections.update(|count| count + 1);
        Self(Rc::clone(shared))
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0.connections.update(|count| count - 1);
    }
}

async fn serve(
    counted: ConnectionCount,
    mut reader: Reader,
    mut writer: Writer,
    addresses: Option<Addresses>,
) {
    let shared = &counted.0;
    let (role, limits) = (shared.role, shared.limits);
    let greeted = tokio::select! {
        greeted = link::handshake(role, Bytes::new(), limits, &mut reader, &mut writer) => greeted,
        () = shared.stopped.notified() => return,
    };
    let (connection, peer) = match greeted {
        Ok(_) if shared.silent.get() => return,
        Ok(greeted) => greeted,
        Err(why) => return shared.refused(&why),
    };
    let taken = shared.join(&peer, addresses);
    let OccupiedSlot { id, slot, .. } = &taken;
    let left = {
        let (shared, id, slot) = (Rc::clone(shared), id.clone(), Rc::clone(slot));
        link::guarded(async move {
            let deliver = |event| shared.deliver(&id, &slot, event);
            slot.link.run(connection, reader, writer, deliver).await
        })
        .await
    };
    if taken.release() && !shared.silent.get() {
        shared.handler.left(id, &left);
    }
}

/// A connected peer's slot; emptied on drop, also when a handler panics.
struct OccupiedSlot<'a> {
    shared: &'a Shared,
    id: PeerId,
    slot: Rc<PeerSlot>,
}

impl OccupiedSlot<'_> {
    /// Gives up the slot; returns whether it had not been handed over.
    fn release(&self) -> bool {
        let mut slots = self.shared.slots.borrow_mut();
        let ours = slots
            .get(&self.id)
            .is_some_and(|slot| Rc::ptr_eq(slot, &self.slot));
        if ours {
            slots.remove(&self.id);
        }
        ours
    }
}

impl Drop for OccupiedSlot<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

impl Shared {
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Accepted>>> {
        self.listener_gone.register(cx);
        match &*self.listener.borrow() {
            Some(listener) => {
                let accepted = listener.poll_accept(cx, self.limits.spares_descriptors);
                accepted.map(Some)
            }
            None => Poll::Ready(None),
        }
    }

    fn refused(&self, why: &DisconnectReason) {
        if !self.silent.get() {
            // Its panic must not end the accepting.
            let _ = catch_unwind(AssertUnwindSafe(|| self.handler.refused(why)));
        }
    }

    fn outbox(&self) -> Outbox {
        match &self.spill {
            Some(to) => Outbox::spilling(self.limits.outbox_bytes, to.clone()),
            None => Outbox::new(self.limits.outbox_bytes),
        }
    }

    /// Seats a peer; one with the same identity hands over what is queued for it.
    fn join(&self, peer: &Peer, addresses: Option<Addresses>) -> OccupiedSlot<'_> {
        let info = PeerInfo {
            connection: connection_number(),
            identity: peer.identity.clone(),
            socket_type: peer.socket_type.clone(),
        };
        let id = if self.role == Role::Router && !info.identity.is_empty() {
            PeerId::announced(info.identity.clone())
        } else {
            PeerId::made_up(info.connection)
        };
        let slot = Rc::new(PeerSlot {
            link: Link::unauthenticated(self.outbox(), self.role, &self.limits),
            topics: RefCell::default(),
            first: Cell::new(None),
            addresses,
        });
        let before = self.slots.borrow_mut().insert(id.clone(), Rc::clone(&slot));
        if let Some(before) = before {
            let was_open = before.link.is_open();
            let unsent = before.link.take_unsent();
            before.link.cut(DisconnectReason::Closed);
            if was_open {
                for message in unsent {
                    // It fitted before.
                    let _ = slot.link.push(Item::Own(message));
                }
            }
        }
        let taken = OccupiedSlot {
            shared: self,
            id,
            slot,
        };
        let joined = AssertUnwindSafe(|| self.handler.joined(&taken.id, &info));
        if catch_unwind(joined).is_err() {
            let why = DisconnectReason::Disconnected("a handler panicked".into());
            taken.slot.link.cut(why);
        }
        taken
    }

    fn deliver(&self, id: &PeerId, slot: &PeerSlot, event: Event) {
        match event {
            Event::Message(message) if self.role == Role::Router => {
                self.handler.message(id, message);
            }
            Event::Subscribe(topic) => {
                let added = slot.topics.borrow_mut().add(&topic);
                match added {
                    Ok(true) => self.subscription(id, 1, &topic),
                    Ok(false) => {}
                    Err(TooMany) => slot
                        .link
                        .cut(DisconnectReason::TooManyTopics(TOPICS_BYTES_MAX)),
                }
            }
            Event::Cancel(topic) => {
                let removed = slot.topics.borrow_mut().remove(&topic);
                if removed {
                    self.subscription(id, 0, &topic);
                }
            }
            // A subscriber has nothing else to say.
            Event::Message(_) | Event::Drained { .. } | Event::Ready(_) => {}
        }
    }

    fn subscription(&self, id: &PeerId, on: u8, topic: &[u8]) {
        let mut frame = BytesMut::with_capacity(1 + topic.len());
        frame.put_u8(on);
        frame.extend_from_slice(topic);
        self.handler.message(id, vec![frame.freeze()]);
    }
}
