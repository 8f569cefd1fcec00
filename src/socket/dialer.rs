//! The socket that connects, and connects again.

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
use super::stream::{self, Reader, Writer};
use super::{Limits, Message};
use crate::wire::Endpoint;
use crate::zmtp::{Connection, Event, Role};

/// The longest pause between two dials.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// One connection to a listening socket, made anew whenever it is lost.
///
/// It dials at once, then after pauses of 1, 2, 4 … up to 250 ms, for as long as it lives; each
/// dial starts after the connection before it is closed. A message that is queued while it is
/// not connected is written after the next [`DialHandler::up`]. What was queued on a connection
/// that is lost and was not wholly written is given to [`DialHandler::down`], never sent by
/// itself on the next one: what the peer has seen of it is for the caller to judge.
pub struct Dialer {
    shared: Rc<Shared>,
    task: RefCell<Option<JoinHandle<()>>>,
    abort: AbortHandle,
}

/// The part that a dialer plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DialRole {
    /// Sends and receives freely.
    Dealer,
    /// Receives what it subscribed to.
    Sub,
    /// As [`DialRole::Dealer`] under another name: the empty frame before the content, and one
    /// request at a time, are the caller's to keep.
    Req,
}

/// As what a dialer introduces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialAs {
    /// Its part.
    pub socket_type: DialRole,
    /// Its routing identity, of at most 255 bytes; empty to have one made up by the peer.
    pub identity: Bytes,
    /// The topics to subscribe to, as [`DialRole::Sub`].
    pub subscribe: Vec<Bytes>,
}

/// Is told what happens on a [`Dialer`].
///
/// Where one of these panics, the connection is lost, `down` is called, and dialling goes on.
pub trait DialHandler {
    /// The handshake is complete and the subscriptions are written.
    fn up(&self);

    /// A message came.
    fn message(&self, message: Message);

    /// A message that was longer than [`Limits::max_message`] was thrown away, `bytes` in all;
    /// `begun` are the frames before the one that was too long. The connection stays.
    fn oversized(&self, begun: Message, bytes: u64) {
        let _ = (begun, bytes);
    }

    /// The connection is lost, with every message that is not wholly written, in order. What is
    /// sent from within goes to the next connection.
    fn down(&self, why: &DisconnectReason, unsent: Vec<Message>);

    /// A dial failed. It goes on trying.
    fn refused(&self, error: &io::Error);
}

/// The budget is used up; with the message.
#[derive(Debug)]
pub struct OutboxFull(pub Message);

struct Shared {
    endpoint: Endpoint,
    role: Role,
    identity: Bytes,
    subscribe: Vec<Bytes>,
    limits: Limits,
    handler: Rc<dyn DialHandler>,
    link: Link,
    is_up: Cell<bool>,
    /// The owner is gone, or closes: no handler is called any more.
    silent: Cell<bool>,
}

impl Dialer {
    /// Starts dialling.
    ///
    /// # Panics
    /// Outside a [`tokio::task::LocalSet`], or with an identity of more than 255 bytes.
    pub fn connect(
        endpoint: Endpoint,
        as_: DialAs,
        limits: Limits,
        handler: Rc<dyn DialHandler>,
    ) -> Self {
        assert!(
            as_.identity.len() <= crate::zmtp::IDENTITY_MAX,
            "an identity has at most 255 bytes"
        );
        let role = match as_.socket_type {
            DialRole::Dealer => Role::Dealer,
            DialRole::Sub => Role::Sub,
            DialRole::Req => Role::Req,
        };
        let shared = Rc::new(Shared {
            endpoint,
            role,
            identity: as_.identity,
            subscribe: as_.subscribe,
            limits,
            handler,
            link: Link::reading_ahead(Outbox::new(limits.outbox_bytes), limits.read_ahead_bytes),
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
    /// Gives the message back when the budget is used up.
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

    /// Returns what is queued, in bytes.
    pub fn queued_bytes(&self) -> usize {
        self.shared.link.queued_bytes()
    }

    /// Returns how much was read and is not delivered yet, in bytes.
    pub fn ahead_bytes(&self) -> usize {
        self.shared.link.ahead_bytes()
    }

    /// Stops or goes on delivering what is read. Meanwhile it is read ahead, up to
    /// [`Limits::read_ahead_bytes`]. A new connection begins unpaused.
    pub fn set_paused(&self, paused: bool) {
        self.shared.link.set_paused(paused);
    }

    /// Waits until no more than half of the budget is used; for callers that [`OutboxFull`] stopped.
    pub async fn room(&self) {
        self.shared.link.room().await;
    }

    /// Takes back every message that is not wholly written, in order.
    ///
    /// When one of them is half written, its connection is lost by that, and
    /// [`DialHandler::down`] is called later.
    pub fn take_unsent(&self) -> Vec<Message> {
        self.shared.link.take_unsent()
    }

    /// Calls no handler any more, from now on. [`Dialer::close`] follows.
    pub fn silence(&self) {
        self.shared.silent.set(true);
    }

    /// Writes what is queued, if it is connected, and closes; at the deadline at the latest.
    ///
    /// Returns what was not wholly written. From the call on no handler is called. When this is
    /// dropped halfway, writing goes on until the dialer is dropped.
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

/// Dials for as long as the dialer lives, also when a handler has panicked.
async fn dial(shared: Rc<Shared>) {
    loop {
        let mut task = JoinSet::new();
        task.spawn_local(dial_on(Rc::clone(&shared)));
        let panicked = matches!(task.join_next().await, Some(Err(error)) if error.is_panic());
        if !panicked || shared.silent.get() {
            return;
        }
        shared.is_up.set(false);
        let unsent = shared.link.take_unsent();
        let why = DisconnectReason::Disconnected("a handler panicked".into());
        let _ = catch_unwind(AssertUnwindSafe(|| shared.handler.down(&why, unsent)));
        tokio::time::sleep(PAUSE_MAX).await;
    }
}

async fn dial_on(shared: Rc<Shared>) {
    let mut pause = Duration::ZERO;
    while !shared.silent.get() {
        match shared.reach().await {
            Ok((connection, reader, writer)) => {
                if shared.silent.get() {
                    return;
                }
                let since = Instant::now();
                shared.link.renew();
                shared.is_up.set(true);
                shared.handler.up();
                let left = {
                    let shared = Rc::clone(&shared);
                    link::guarded(async move {
                        let deliver = |event| shared.deliver(event);
                        shared.link.run(connection, reader, writer, deliver).await
                    })
                    .await
                };
                shared.is_up.set(false);
                if shared.silent.get() {
                    return;
                }
                let unsent = shared.link.take_unsent();
                shared.handler.down(&left, unsent);
                // A peer that accepts and closes at once must not be dialled without end.
                if since.elapsed() >= PAUSE_MAX {
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
    fn deliver(&self, event: Event) {
        if self.silent.get() {
            return;
        }
        match event {
            Event::Message(message) => self.handler.message(message),
            Event::Drained { begun, bytes } => self.handler.oversized(begun, bytes),
            // Nobody subscribes to a dialer.
            Event::Ready(_) | Event::Subscribe(_) | Event::Cancel(_) => {}
        }
    }

    /// Connects, goes through the handshake and subscribes.
    async fn reach(&self) -> io::Result<(Connection, Reader, Writer)> {
        let time = self.limits.handshake;
        let connecting = stream::connect(&self.endpoint, self.limits.spares_descriptors);
        let connecting = tokio::time::timeout(time, connecting);
        let (mut reader, mut writer) = connecting.await??;
        let identity = self.identity.clone();
        let greeted =
            link::handshake(self.role, identity, self.limits, &mut reader, &mut writer).await;
        let (connection, _) = greeted.map_err(DisconnectReason::into_io)?;
        let topics: Vec<u8> = self
            .subscribe
            .iter()
            .flat_map(|topic| connection.subscription(true, topic))
            .collect();
        tokio::time::timeout(time, writer.write_all(&topics)).await??;
        Ok((connection, reader, writer))
    }
}
