//! One connection: its handshake, then reading and writing until it ends.

use std::cell::{Cell, Ref, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{BufMut, Bytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, timeout_at};

use super::disconnect::DisconnectReason;
use super::outbox::{Item, Outbox, message_cost};
use super::outlet::Outlet;
use super::read_ahead::ReadAhead;
use super::spill::SpillTo;
use super::stream::{Reader, Writer};
use super::write_coalescing;
use crate::zmtp::{Connection, ConnectionEvent, Message, Peer, Role};

/// The handle of a connection: its outbox and its state.
///
/// A [`Router`](super::Router) makes one for each connection, a [`Dialer`](super::Dialer) one for all:
/// messages are queued while it is not connected.
pub(super) struct Link {
    outlet: Rc<Outlet>,
    paused: Cell<bool>,
    /// The reason to end the connection at once.
    cut: RefCell<Option<DisconnectReason>>,
    /// Whether to end once the outbox is empty; messages that still arrive are not delivered.
    finishing: Cell<bool>,
    /// Whether the connection has ended.
    has_ended: Cell<bool>,
    /// A new limit for the peer's messages, in bytes, until it is applied.
    message_limit: Cell<Option<usize>>,
    /// How long the peer may take for a message that it has begun, until it is authenticated.
    message_time: Cell<Option<Duration>>,
    /// How many bytes of an incomplete message are held, of a peer that is not authenticated.
    held: Cell<usize>,
    /// How many bytes of messages may be in memory before they are delivered, and how many are.
    read_ahead: usize,
    ahead: Cell<usize>,
    /// Where further bytes may wait, and how many do.
    spill_ahead: Option<SpillTo>,
    undecoded: Cell<usize>,
}

/// Records the end of a connection and closes it, even when a handler panics.
struct CloseOnDrop<'a>(&'a Link);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.has_ended.set(true);
        self.0.outlet.close();
    }
}

/// The number of messages or bytes after which other tasks run.
const YIELD_AFTER_MESSAGES: usize = 64;
const YIELD_AFTER_BYTES: usize = 64 * 1024;

/// How many bytes are read in a row before some are delivered.
const READ_BEFORE_DELIVERY: usize = 4 << 20;

/// How long a closed connection with nothing to flush waits until the peer closes, too.
const IDLE_GRACE: Duration = Duration::from_millis(20);

/// How long a connection that cannot be written any more is still read.
const READ_AFTER_WRITE_ERROR: Duration = Duration::from_secs(1);

/// A dialer reads and drops a message that is too long up to this many times the limit.
const DRAINED_FACTOR: u64 = 64;

impl Link {
    pub(super) fn new(outbox: Outbox) -> Self {
        Self {
            outlet: Rc::new(Outlet::new(outbox)),
            paused: Cell::new(false),
            cut: RefCell::new(None),
            finishing: Cell::new(false),
            has_ended: Cell::new(false),
            message_limit: Cell::new(None),
            message_time: Cell::new(None),
            held: Cell::new(0),
            read_ahead: 0,
            ahead: Cell::new(0),
            spill_ahead: None,
            undecoded: Cell::new(0),
        }
    }

    /// Like [`Link::new`], for a peer whose messages are read ahead of their delivery.
    pub(super) fn reading_ahead(
        outbox: Outbox,
        read_ahead: usize,
        spill_ahead: Option<SpillTo>,
    ) -> Self {
        Self {
            read_ahead,
            spill_ahead,
            ..Self::new(outbox)
        }
    }

    /// Like [`Link::new`], for a peer that has not proven yet that it knows the key.
    pub(super) fn unauthenticated(outbox: Outbox, limits: &super::SocketLimits) -> Self {
        let link = Self::new(outbox);
        if limits.max_unauthenticated_message < limits.max_message {
            link.message_limit
                .set(Some(limits.max_unauthenticated_message));
        }
        link.message_time.set(Some(limits.unauthenticated_message));
        link
    }

    /// Allows a peer that has proven that it knows the key to send longer messages, of so many bytes.
    pub(super) fn authenticate(&self, bytes: usize) {
        self.message_limit.set(Some(bytes));
        self.message_time.set(None);
        self.held.set(0);
    }

    /// Returns whether the peer has proven that it knows the key.
    pub(super) fn is_authenticated(&self) -> bool {
        self.message_time.get().is_none()
    }

    /// Returns how many bytes of an incomplete message are held, of a peer that is not authenticated.
    pub(super) fn held_bytes(&self) -> usize {
        self.held.get()
    }

    /// Queues a message, or returns it when the budget is used up.
    pub(super) fn push(&self, item: Item) -> Result<(), Item> {
        self.outlet.push(item)?;
        // A finishing connection waits until its outbox is empty, and must be woken.
        if self.finishing.get() || !write_coalescing::defers(&self.outlet) {
            self.outlet.wake();
        }
        Ok(())
    }

    /// Returns the outbox.
    pub(super) fn outbox(&self) -> Ref<'_, Outbox> {
        self.outlet.outbox()
    }

    /// Returns the size of the messages that were read and not delivered yet, in bytes.
    pub(super) fn ahead_bytes(&self) -> usize {
        self.ahead.get() + self.undecoded.get()
    }

    /// Waits until at most half of the budget is used.
    pub(super) async fn room(&self) {
        self.outlet.room().await;
    }

    /// Removes and returns every message that is not wholly written.
    ///
    /// A live connection with a half-written message is cut: the peer waits for the other half.
    pub(super) fn take_unsent(&self) -> Vec<Message> {
        if self.outbox().is_amid_message() {
            self.cut(DisconnectReason::Disconnected(
                "a half-written message was withdrawn".into(),
            ));
        }
        self.outlet.take()
    }

    /// Stops or resumes reading.
    pub(super) fn set_paused(&self, paused: bool) {
        self.paused.set(paused);
        self.outlet.wake();
    }

    /// Ends the connection at once. Only the first reason counts.
    pub(super) fn cut(&self, reason: DisconnectReason) {
        self.cut.borrow_mut().get_or_insert(reason);
        self.outlet.wake();
    }

    /// Ends the connection once its outbox is empty and the peer has closed, too.
    pub(super) fn finish(&self) {
        self.finishing.set(true);
        self.outlet.wake();
    }

    /// Returns whether the connection still takes messages.
    pub(super) fn is_open(&self) -> bool {
        !self.finishing.get() && !self.has_ended.get() && self.cut.borrow().is_none()
    }

    /// Prepares the link for another connection, after [`Link::take_unsent`].
    pub(super) fn renew(&self) {
        self.cut.replace(None);
        self.paused.set(false);
        self.has_ended.set(false);
    }

    /// Reads and writes until the connection ends; returns the reason. Both halves are closed then.
    ///
    /// `on_held` is called when more is held of a peer that is not authenticated.
    pub(super) async fn run(
        &self,
        mut connection: Connection,
        mut reader: Reader,
        writer: Writer,
        deliver: impl Fn(ConnectionEvent),
        on_held: impl Fn(),
    ) -> DisconnectReason {
        self.outlet.open(writer);
        let _close = CloseOnDrop(self);
        tokio::select! {
            biased;
            reason = poll_fn(|cx| self.poll_cut(cx)) => reason,
            reason = self.write() => reason,
            reason = write_coalescing::run(self.read_messages(&mut connection, &mut reader, deliver, on_held)) => reason,
        }
    }

    /// Waits until the connection is to end at once.
    pub(super) fn poll_cut(&self, cx: &Context<'_>) -> Poll<DisconnectReason> {
        self.outlet.register(cx);
        match self.cut.borrow_mut().take() {
            Some(reason) => Poll::Ready(reason),
            None => Poll::Pending,
        }
    }

    async fn read_messages(
        &self,
        connection: &mut Connection,
        reader: &mut Reader,
        deliver: impl Fn(ConnectionEvent),
        on_held: impl Fn(),
    ) -> DisconnectReason {
        self.ahead.set(0);
        self.undecoded.set(0);
        match self.read_ahead {
            0 => self.read(connection, reader, deliver, on_held).await,
            _ => {
                self.read_ahead_of_delivery(connection, reader, deliver)
                    .await
            }
        }
    }

    /// Reads all that has arrived, within the limits, before it delivers anything; then delivers a little,
    /// lets other tasks run, and reads again.
    ///
    /// A kernel's PUB socket drops messages that are not read in time, and reading a message costs a tenth of
    /// handling it. What is too much for memory is not even decoded.
    async fn read_ahead_of_delivery(
        &self,
        connection: &mut Connection,
        reader: &mut Reader,
        deliver: impl Fn(ConnectionEvent),
    ) -> DisconnectReason {
        let mut ahead = ReadAhead::new(self.spill_ahead.clone());
        let mut end_reason = None;
        // Whether nothing is left to decode.
        let mut is_decoded = false;
        loop {
            let mut read = 0;
            while !is_decoded {
                let is_full = self.ahead.get() >= self.read_ahead;
                if !is_full {
                    match self.decode(connection, &mut ahead) {
                        Ok(true) => continue,
                        Ok(false) => is_decoded = end_reason.is_some(),
                        Err(reason) => {
                            end_reason = Some(reason);
                            is_decoded = true;
                        }
                    }
                }
                let has_read_enough = read >= READ_BEFORE_DELIVERY && !self.is_held();
                let may_read = !is_full || ahead.takes_bytes();
                let delivers = has_read_enough || !may_read;
                if end_reason.is_some() || delivers && !ahead.events.is_empty() {
                    break;
                }
                // There is nothing to deliver, or nothing may be delivered now.
                let is_empty = ahead.events.is_empty();
                let waits = || is_empty || self.is_held();
                let result = match is_full {
                    true => read_now(reader, ahead.space(), waits).await,
                    false => read_now(reader, connection.space(), waits).await,
                };
                if is_full {
                    ahead.spill();
                    self.undecoded.set(ahead.undecoded());
                }
                match result {
                    None => break,
                    Some(Ok(0)) => end_reason = Some(DisconnectReason::Closed),
                    Some(Ok(bytes)) => read += bytes,
                    Some(Err(error)) => end_reason = Some(DisconnectReason::Broken(error)),
                }
            }
            let (mut messages, mut bytes) = (0, 0);
            while messages < YIELD_AFTER_MESSAGES && bytes < YIELD_AFTER_BYTES {
                if self.is_held() {
                    let has_room = self.ahead.get() < self.read_ahead || ahead.takes_bytes();
                    if end_reason.is_none() && has_room && self.cut.borrow().is_none() {
                        break;
                    }
                    self.wait_for_delivery().await;
                }
                let Some(event) = ahead.events.pop_front() else {
                    break;
                };
                messages += 1;
                bytes += cost(&event);
                self.ahead.update(|ahead| ahead - cost(&event));
                if !self.finishing.get() {
                    deliver(event);
                }
            }
            if ahead.events.is_empty() {
                if let Some(reason) = end_reason.take_if(|_| is_decoded) {
                    return reason;
                }
                // The memory for one burst must not be held for ever.
                ahead.events.shrink_to(YIELD_AFTER_MESSAGES);
            }
            if !ahead.events.is_empty() || read >= YIELD_AFTER_BYTES {
                yield_now().await;
            }
        }
    }

    /// Decodes a message of what was read, or gives the decoder more; says whether it did something.
    fn decode(
        &self,
        connection: &mut Connection,
        ahead: &mut ReadAhead,
    ) -> Result<bool, DisconnectReason> {
        match connection.poll_event() {
            Ok(Some(event)) => {
                self.ahead.update(|ahead| ahead + cost(&event));
                ahead.events.push_back(event);
                Ok(true)
            }
            Ok(None) => {
                self.answer(connection);
                let has_more = ahead.decode(connection).map_err(DisconnectReason::Broken)?;
                self.undecoded.set(ahead.undecoded());
                Ok(has_more)
            }
            Err(error) => {
                self.answer(connection);
                Err(DisconnectReason::Protocol(error))
            }
        }
    }

    async fn read(
        &self,
        connection: &mut Connection,
        reader: &mut Reader,
        deliver: impl Fn(ConnectionEvent),
        on_held: impl Fn(),
    ) -> DisconnectReason {
        let mut messages = 0;
        let mut bytes = 0;
        let mut begun_at = None;
        loop {
            loop {
                self.wait_for_delivery().await;
                if let Some(bytes) = self.message_limit.take() {
                    connection.set_message_limit(bytes);
                }
                match connection.poll_event() {
                    Ok(None) => break,
                    Ok(Some(_)) if self.finishing.get() => {}
                    Ok(Some(event)) => {
                        begun_at = None;
                        deliver(event);
                    }
                    Err(error) => {
                        self.answer(connection);
                        return DisconnectReason::Protocol(error);
                    }
                }
                messages += 1;
                if messages >= YIELD_AFTER_MESSAGES {
                    messages = 0;
                    yield_now().await;
                }
            }
            self.answer(connection);
            let limit = self.message_time.get();
            let held = limit.map_or(0, |_| connection.held_bytes());
            if self.held.replace(held) < held {
                on_held();
            }
            begun_at = match held {
                0 => None,
                _ => begun_at.or_else(|| Some(Instant::now())),
            };
            let mut space = connection.space();
            let reading = reader.read_buf(&mut space);
            let read = match begun_at.zip(limit) {
                None => reading.await,
                Some((begun_at, limit)) => match timeout_at(begun_at + limit, reading).await {
                    Ok(read) => read,
                    Err(_) => return DisconnectReason::MessageTimeout(limit),
                },
            };
            match read {
                Ok(0) => return DisconnectReason::Closed,
                Ok(read) => bytes += read,
                Err(error) => return DisconnectReason::Broken(error),
            }
            if bytes >= YIELD_AFTER_BYTES {
                // Answers to the delivered messages are written before more is read, and the read buffer
                // becomes free again.
                bytes = 0;
                messages = 0;
                yield_now().await;
            }
        }
    }

    /// Waits while the link is paused, and for ever once it is cut: no message is delivered after that.
    async fn wait_for_delivery(&self) {
        poll_fn(|_| match self.is_held() {
            // `poll_cut` has registered this task.
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await;
    }

    /// Returns whether no message may be delivered now.
    fn is_held(&self) -> bool {
        let paused = self.paused.get() && !self.finishing.get();
        paused || self.cut.borrow().is_some()
    }

    /// Queues the protocol's own answers.
    fn answer(&self, connection: &mut Connection) {
        if let Some(bytes) = connection.poll_transmit()
            && !self.finishing.get()
        {
            // If too much is queued, that is as much a sign of life as a PONG.
            let _ = self.push(Item::Raw(bytes));
        }
    }

    async fn write(&self) -> DisconnectReason {
        let mut flushing = false;
        let result = poll_fn(|cx| {
            let finishing = self.finishing.get();
            flushing |= finishing && !self.outbox().is_empty();
            ready!(self.outlet.poll_write(cx))?;
            if finishing {
                Poll::Ready(Ok(()))
            } else {
                // `poll_cut` has registered this task.
                Poll::Pending
            }
        })
        .await;
        if let Err(error) = result {
            // The messages that the peer sent before the connection broke must still be read; that ends by
            // itself.
            tokio::time::sleep(READ_AFTER_WRITE_ERROR).await;
            return DisconnectReason::Broken(error);
        }
        // Closes only our side for writing. If both sides were closed while the peer still sends, the system
        // would discard data that the peer has not read yet.
        if let Err(error) = self.outlet.shutdown().await {
            return DisconnectReason::Broken(error);
        }
        if flushing {
            std::future::pending().await
        } else {
            tokio::time::sleep(IDLE_GRACE).await;
            DisconnectReason::ShutDown
        }
    }
}

/// Reads what has arrived, or waits for it as long as `waits` says so; `None` if nothing has arrived.
async fn read_now(
    reader: &mut Reader,
    mut space: impl BufMut,
    waits: impl Fn() -> bool,
) -> Option<io::Result<usize>> {
    let mut reading = pin!(reader.read_buf(&mut space));
    poll_fn(|cx| match reading.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending if waits() => Poll::Pending,
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Returns the memory that an event takes until it is delivered, in bytes.
fn cost(event: &ConnectionEvent) -> usize {
    match event {
        ConnectionEvent::Message(message)
        | ConnectionEvent::Drained {
            partial: message, ..
        } => message_cost(message),
        ConnectionEvent::Ready(_) | ConnectionEvent::Subscribe(_) | ConnectionEvent::Cancel(_) => 0,
    }
}

/// Runs a connection in a separate task, so that a handler's panic ends only this connection.
///
/// If the future is dropped, the connection is closed.
pub(super) async fn run_in_task(
    connection: impl Future<Output = DisconnectReason> + 'static,
) -> DisconnectReason {
    let mut task = JoinSet::new();
    task.spawn_local(connection);
    match task.join_next().await {
        Some(Ok(reason)) => reason,
        _ => DisconnectReason::Disconnected("a handler panicked".into()),
    }
}

/// Completes the handshake within its time limit; returns the connection and its peer.
pub(super) async fn handshake(
    role: Role,
    identity: Bytes,
    limits: super::SocketLimits,
    reader: &mut Reader,
    writer: &mut Writer,
) -> Result<(Connection, Peer), DisconnectReason> {
    let frame_limits = crate::zmtp::FrameLimits {
        message_bytes: limits.max_message,
        // A server does not know its peers; a dialer wants to keep the connection to the peer that it chose.
        drained_bytes: match role {
            Role::Router | Role::Xpub => 0,
            Role::Dealer | Role::Sub | Role::Req => {
                (limits.max_message as u64).saturating_mul(DRAINED_FACTOR)
            }
        },
        ..crate::zmtp::FrameLimits::default()
    };
    let mut connection = Connection::new(role, identity, frame_limits);
    let peer = tokio::time::timeout(limits.handshake, async {
        loop {
            let event = connection.poll_event();
            while let Some(bytes) = connection.poll_transmit() {
                writer
                    .write_all(&bytes)
                    .await
                    .map_err(DisconnectReason::Broken)?;
            }
            match event.map_err(DisconnectReason::Protocol)? {
                Some(ConnectionEvent::Ready(peer)) => return Ok(peer),
                Some(_) => unreachable!("the first event is Ready"),
                None => {}
            }
            match reader.read_buf(&mut connection.space()).await {
                Ok(0) => return Err(DisconnectReason::Closed),
                Ok(_) => {}
                Err(error) => return Err(DisconnectReason::Broken(error)),
            }
        }
    })
    .await
    .unwrap_or(Err(DisconnectReason::HandshakeTimeout(limits.handshake)))?;
    Ok((connection, peer))
}
