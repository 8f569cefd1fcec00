//! The socket that connects to a peer, and connects again when the connection is lost.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};

use super::disconnect::DisconnectReason;
use super::link::{self, Link};
use super::outbox::{Item, Outbox};
use super::spill::SpillTo;
use super::stream::{self, Reader, Writer};
use super::{Message, SocketLimits};
use crate::wire::Endpoint;
use crate::zmtp::{Connection, ConnectionEvent, Role};

/// The longest pause between two dials.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// A connection to a listening socket, made again whenever it is lost.
///
/// It dials at once, then after pauses of 1, 2, 4 … up to 250 ms, until it is dropped; each dial starts after
/// the previous connection is closed. A message that is queued while it is not connected is written after the
/// next [`DialHandler::up`]. Messages that were not wholly written when a connection was lost are given to
/// [`DialHandler::down`]. They are not sent again on the next connection, since only the caller can judge
/// what the peer may have received.
pub struct Dialer {
    shared: Rc<Shared>,
    task: RefCell<Option<JoinHandle<()>>>,
    abort: AbortHandle,
}

/// The ZMTP socket type of a dialer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DialRole {
    /// Sends and receives freely.
    Dealer,
    /// Receives the topics to which it has subscribed.
    Sub,
    /// Like [`DialRole::Dealer`] with another type name: the caller must send the empty frame before the
    /// content, and one request at a time.
    Req,
}

/// How a dialer introduces itself to its peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialAs {
    /// The socket type.
    pub socket_type: DialRole,
    /// The routing identity, of at most 255 bytes; if empty, the peer generates one.
    pub identity: Bytes,
    /// The topics to which a [`DialRole::Sub`] subscribes.
    pub subscribe: Vec<Bytes>,
}

/// Handles the events of a [`Dialer`].
///
/// If a handler panics, the connection is lost, `down` is called, and dialling goes on.
pub trait DialHandler {
    /// The handshake is complete and the subscriptions are written.
    fn up(&self);

    /// A message has arrived.
    fn message(&self, message: Message);

    /// A message longer than [`SocketLimits::max_message`] was dropped: it had `bytes` in all, and `partial`
    /// are the frames before the one that was too long. The connection stays.
    fn oversized(&self, _partial: Message, _bytes: u64) {}

    /// The connection is lost; `unsent` are all messages that were not wholly written, in order. Messages
    /// that this handler sends go to the next connection.
    fn down(&self, reason: &DisconnectReason, unsent: Vec<Message>);

    /// A dial failed. The dialer tries again.
    fn refused(&self, error: &io::Error);
}

/// The budget is used up; holds the message.
#[derive(Debug)]
pub struct OutboxFull(pub Message);

struct Shared {
    endpoint: Endpoint,
    role: Role,
    identity: Bytes,
    subscribe: Vec<Bytes>,
    limits: SocketLimits,
    handler: Rc<dyn DialHandler>,
    link: Link,
    is_up: Cell<bool>,
    /// Whether the owner has dropped or closes the dialer: no handler is called any more.
    silent: Cell<bool>,
}

impl Dialer {
    /// Starts dialling.
    ///
    /// # Panics
    /// Outside a [`tokio::task::LocalSet`], or with an identity of more than 255 bytes.
    pub fn connect(
        endpoint: Endpoint,
        dial_as: DialAs,
        limits: SocketLimits,
        handler: Rc<dyn DialHandler>,
    ) -> Self {
        Self::connect_spilling(endpoint, dial_as, limits, None, handler)
    }

    /// Like [`Dialer::connect`]; what is read ahead beyond [`SocketLimits::read_ahead_bytes`] waits on disk, if that is
    /// allowed.
    ///
    /// # Panics
    /// Like [`Dialer::connect`].
    pub fn connect_spilling(
        endpoint: Endpoint,
        dial_as: DialAs,
        limits: SocketLimits,
        spill: Option<SpillTo>,
        handler: Rc<dyn DialHandler>,
    ) -> Self {
        assert!(
            dial_as.identity.len() <= crate::zmtp::IDENTITY_MAX,
            "an identity has at most 255 bytes"
        );
        let role = match dial_as.socket_type {
            DialRole::Dealer => Role::Dealer,
            DialRole::Sub => Role::Sub,
            DialRole::Req => Role::Req,
        };
        let shared = Rc::new(Shared {
            endpoint,
            role,
            identity: dial_as.identity,
            subscribe: dial_as.subscribe,
            limits,
            handler,
            link: Link::reading_ahead(
                Outbox::new(limits.outbox_bytes),
                limits.read_ahead_bytes,
                spill,
            ),
            is_up: Cell::new(false),
            silent: Cell::new(false),
        });
        let task = tokio::task::spawn_local(dial(Rc::clone(&shared)));
        Self {
            shared,
            abort: task.abort_handle(),
            task: RefCell::new(Some(task)),
        }
    }

    /// Queues a message; never waits.
    ///
    /// # Errors
    /// Returns the message when the budget is used up.
    pub fn send(&self, message: Message) -> Result<(), OutboxFull> {
        match self.shared.link.push(Item::Own(message)) {
            Err(Item::Own(message)) => Err(OutboxFull(message)),
            _ => Ok(()),
        }
    }

    /// Returns whether it is connected.
    pub fn is_up(&self) -> bool {
        self.shared.is_up.get()
    }

    /// Returns the size of the queued messages in bytes.
    pub fn queued_bytes(&self) -> usize {
        self.shared.link.outbox().cost()
    }

    /// Returns the size of the messages that were read and not delivered yet, in bytes.
    pub fn ahead_bytes(&self) -> usize {
        self.shared.link.ahead_bytes()
    }

    /// Stops or resumes the delivery of messages. While it is stopped, messages are read ahead. A new connection starts
    /// unpaused.
    pub fn set_paused(&self, paused: bool) {
        self.shared.link.set_paused(paused);
    }

    /// Waits until at most half of the budget is used; for callers that got [`OutboxFull`].
    pub async fn room(&self) {
        self.shared.link.room().await;
    }

    /// Removes and returns every message that is not wholly written, in order.
    ///
    /// If one of them is half written, its connection is closed, and [`DialHandler::down`] is called later.
    pub fn take_unsent(&self) -> Vec<Message> {
        self.shared.link.take_unsent()
    }

    /// Calls no handler from now on. [`Dialer::close`] must follow.
    pub fn silence(&self) {
        self.shared.silent.set(true);
    }

    /// Writes the queued messages, if it is connected, and closes, at the deadline at the latest.
    ///
    /// Returns the messages that were not wholly written. No handler is called after this call. If the future
    /// is dropped, writing goes on until the dialer is dropped.
    pub async fn close(&self, deadline: Instant) -> Vec<Message> {
        self.shared.silent.set(true);
        let task = self.task.take();
        if let Some(task) = task.filter(|_| self.is_up()) {
            self.shared.link.finish();
            let _ = tokio::time::timeout_at(deadline.into(), task).await;
        }
        self.abort.abort();
        self.shared.link.take_unsent()
    }
}

impl Drop for Dialer {
    fn drop(&mut self) {
        self.shared.silent.set(true);
        self.shared.link.cut(DisconnectReason::ShutDown);
        self.abort.abort();
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Dialer({} to {})",
            self.shared.role, self.shared.endpoint
        )
    }
}

/// Dials until the dialer is dropped, even after a handler has panicked.
async fn dial(shared: Rc<Shared>) {
    loop {
        let mut task = JoinSet::new();
        task.spawn_local(dial_until_silent(Rc::clone(&shared)));
        let panicked = matches!(task.join_next().await, Some(Err(error)) if error.is_panic());
        if !panicked || shared.silent.get() {
            return;
        }
        shared.is_up.set(false);
        let unsent = shared.link.take_unsent();
        let reason = DisconnectReason::Disconnected("a handler panicked".into());
        let _ = catch_unwind(AssertUnwindSafe(|| shared.handler.down(&reason, unsent)));
        tokio::time::sleep(PAUSE_MAX).await;
    }
}

async fn dial_until_silent(shared: Rc<Shared>) {
    let mut pause = Duration::ZERO;
    while !shared.silent.get() {
        match shared.open_connection().await {
            Ok((connection, reader, writer)) => {
                if shared.silent.get() {
                    return;
                }
                let connected_at = Instant::now();
                shared.link.renew();
                shared.is_up.set(true);
                shared.handler.up();
                let reason = {
                    let shared = Rc::clone(&shared);
                    link::run_in_task(async move {
                        let deliver = |event| shared.deliver(event);
                        shared
                            .link
                            .run(connection, reader, writer, deliver, || {})
                            .await
                    })
                    .await
                };
                shared.is_up.set(false);
                if shared.silent.get() {
                    return;
                }
                let unsent = shared.link.take_unsent();
                shared.handler.down(&reason, unsent);
                // A peer that accepts and closes at once must not be dialled without pauses.
                if connected_at.elapsed() >= PAUSE_MAX {
                    pause = Duration::ZERO;
                }
            }
            Err(_) if shared.silent.get() => return,
            Err(error) => shared.handler.refused(&error),
        }
        pause = (pause * 2).clamp(Duration::from_millis(1), PAUSE_MAX);
        tokio::time::sleep(pause).await;
    }
}

impl Shared {
    fn deliver(&self, event: ConnectionEvent) {
        if self.silent.get() {
            return;
        }
        match event {
            ConnectionEvent::Message(message) => self.handler.message(message),
            ConnectionEvent::Drained { partial, bytes } => self.handler.oversized(partial, bytes),
            // A dialer gets no subscriptions.
            ConnectionEvent::Ready(_)
            | ConnectionEvent::Subscribe(_)
            | ConnectionEvent::Cancel(_) => {}
        }
    }

    /// Connects, completes the handshake and subscribes.
    async fn open_connection(&self) -> io::Result<(Connection, Reader, Writer)> {
        let limit = self.limits.handshake;
        let connecting = stream::connect(&self.endpoint, self.limits.spares_descriptors);
        let connecting = tokio::time::timeout(limit, connecting);
        let (mut reader, mut writer) = connecting.await??;
        let identity = self.identity.clone();
        let handshake_result =
            link::handshake(self.role, identity, self.limits, &mut reader, &mut writer).await;
        let (connection, _) = handshake_result.map_err(DisconnectReason::into_io)?;
        let topics: Vec<u8> = self
            .subscribe
            .iter()
            .flat_map(|topic| connection.subscription(true, topic))
            .collect();
        tokio::time::timeout(limit, writer.write_all(&topics)).await??;
        Ok((connection, reader, writer))
    }
}
