//! An outbox and, while there is a connection, what it is written to.

use std::cell::{Cell, Ref, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;
use tokio::sync::Notify;

use super::outbox::{Item, Outbox};
use super::signal::Signal;
use super::stream::Writer;
use crate::zmtp::Message;

/// What is queued towards a peer and the half of its connection that is written.
///
/// The connection's own task writes, or whoever has queued something and knows that it is all for now.
pub(super) struct Outlet {
    outbox: RefCell<Outbox>,
    /// Nothing between two connections.
    writer: RefCell<Option<Writer>>,
    /// The connection's task.
    signal: Signal,
    /// Why the last write failed, for the connection's task.
    failed: Cell<Option<io::Error>>,
    /// Told to those who wait for room in the outbox.
    room: Notify,
    /// Whether the reader whose turn it is writes it.
    awaits: Cell<bool>,
}

impl Outlet {
    pub(super) fn new(outbox: Outbox) -> Self {
        Self {
            outbox: RefCell::new(outbox),
            writer: RefCell::default(),
            signal: Signal::default(),
            failed: Cell::default(),
            room: Notify::new(),
            awaits: Cell::new(false),
        }
    }

    /// Takes a new connection.
    pub(super) fn open(&self, writer: Writer) {
        self.failed.take();
        self.writer.replace(Some(writer));
    }

    /// Closes the half that is written.
    pub(super) fn close(&self) {
        self.writer.take();
    }

    /// Queues an item, or gives it back when the budget is used up.
    pub(super) fn push(&self, item: Item) -> Result<(), Item> {
        self.outbox.borrow_mut().push(item)
    }

    pub(super) fn outbox(&self) -> Ref<'_, Outbox> {
        self.outbox.borrow()
    }

    /// Takes out every message that is not wholly written.
    pub(super) fn take(&self) -> Vec<Message> {
        let unsent = self.outbox.borrow_mut().take();
        self.room.notify_waiters();
        unsent
    }

    /// Asks for this task to be woken: the connection's.
    pub(super) fn register(&self, cx: &Context<'_>) {
        self.signal.register(cx);
    }

    /// Wakes the connection's task.
    pub(super) fn wake(&self) {
        self.signal.wake();
    }

    /// Notes that a turn's end writes it; returns whether that is news.
    pub(super) fn awaits(&self) -> bool {
        !self.awaits.replace(true)
    }

    /// Writes what the system takes now. The connection's task does the rest, and hears of what fails.
    pub(super) fn flush(&self) {
        self.awaits.set(false);
        let written = self.signal.with(|cx| self.poll_write(cx));
        if let Some(Poll::Ready(Err(error))) = written {
            self.failed.set(Some(error));
            self.wake();
        }
    }

    /// Leaves what is queued to the connection's task.
    pub(super) fn leave(&self) {
        self.awaits.set(false);
        self.wake();
    }

    /// Writes until nothing is left.
    pub(super) fn poll_write(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        let mut writer = self.writer.borrow_mut();
        let Some(writer) = &mut *writer else {
            // The next connection's task begins with this.
            return Poll::Pending;
        };
        let mut outbox = self.outbox.borrow_mut();
        let written = outbox.poll_write(writer, cx);
        if outbox.has_room() {
            self.room.notify_waiters();
        }
        written
    }

    /// Tells the peer that nothing more comes.
    pub(super) async fn shutdown(&self) -> io::Result<()> {
        poll_fn(|cx| match &mut *self.writer.borrow_mut() {
            Some(writer) => Pin::new(writer).poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        })
        .await
    }

    /// Waits until no more than half of the budget is used.
    pub(super) async fn room(&self) {
        loop {
            let told = self.room.notified();
            if self.outbox().has_room() {
                return;
            }
            told.await;
        }
    }
}
