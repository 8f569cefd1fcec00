//! An outbox, and the writer of the present connection.

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

/// The outbox of a peer and the write half of its connection.
///
/// The connection's own task writes, or a caller that has queued messages and knows that these are all for
/// now.
pub(super) struct Outlet {
    outbox: RefCell<Outbox>,
    /// `None` between two connections.
    writer: RefCell<Option<Writer>>,
    /// Wakes the connection's task.
    signal: Signal,
    /// The error of the last write, for the connection's task.
    write_error: Cell<Option<io::Error>>,
    /// Notifies tasks that wait for room in the outbox.
    room: Notify,
    /// Whether the current reader's `write_coalescing` will write it.
    is_deferred: Cell<bool>,
}

impl Outlet {
    pub(super) fn new(outbox: Outbox) -> Self {
        Self {
            outbox: RefCell::new(outbox),
            writer: RefCell::default(),
            signal: Signal::default(),
            write_error: Cell::default(),
            room: Notify::new(),
            is_deferred: Cell::new(false),
        }
    }

    /// Sets the writer of a new connection.
    pub(super) fn open(&self, writer: Writer) {
        self.write_error.take();
        self.writer.replace(Some(writer));
    }

    /// Closes the write half.
    pub(super) fn close(&self) {
        self.writer.take();
    }

    /// Queues an item, or returns it when the budget is used up.
    pub(super) fn push(&self, item: Item) -> Result<(), Item> {
        self.outbox.borrow_mut().push(item)
    }

    pub(super) fn outbox(&self) -> Ref<'_, Outbox> {
        self.outbox.borrow()
    }

    /// Removes and returns every message that is not wholly written.
    pub(super) fn take(&self) -> Vec<Message> {
        let unsent = self.outbox.borrow_mut().take();
        self.room.notify_waiters();
        unsent
    }

    /// Registers the connection's task to be woken.
    pub(super) fn register(&self, cx: &Context<'_>) {
        self.signal.register(cx);
    }

    /// Wakes the connection's task.
    pub(super) fn wake(&self) {
        self.signal.wake();
    }

    /// Records that write coalescing will write it; returns whether that is new.
    pub(super) fn set_deferred(&self) -> bool {
        !self.is_deferred.replace(true)
    }

    /// Writes as much as the system accepts now. The connection's task writes the rest, and gets the error if
    /// this fails.
    pub(super) fn flush(&self) {
        self.is_deferred.set(false);
        let written = self.signal.with(|cx| self.poll_write(cx));
        if let Some(Poll::Ready(Err(error))) = written {
            self.write_error.set(Some(error));
            self.wake();
        }
    }

    /// Leaves the queued messages to the connection's task.
    pub(super) fn wake_task(&self) {
        self.is_deferred.set(false);
        self.wake();
    }

    /// Writes until the queue is empty.
    pub(super) fn poll_write(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.write_error.take() {
            return Poll::Ready(Err(error));
        }
        let mut writer = self.writer.borrow_mut();
        let Some(writer) = &mut *writer else {
            // The next connection's task begins with a write.
            return Poll::Pending;
        };
        let mut outbox = self.outbox.borrow_mut();
        let written = outbox.poll_write(writer, cx);
        if outbox.has_room() {
            self.room.notify_waiters();
        }
        written
    }

    /// Closes the connection for writing, so that the peer knows that nothing more comes.
    pub(super) async fn shutdown(&self) -> io::Result<()> {
        poll_fn(|cx| match &mut *self.writer.borrow_mut() {
            Some(writer) => Pin::new(writer).poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        })
        .await
    }

    /// Waits until at most half of the budget is used.
    pub(super) async fn room(&self) {
        loop {
            let notified = self.room.notified();
            if self.outbox().has_room() {
                return;
            }
            notified.await;
        }
    }
}
