//! Write coalescing: the messages that a reader's handlers send are written once the reader has no more
//! messages, in one write for each connection.
//!
//! If each connection's task were woken instead, the next reader would run before the first write: of two
//! sockets that are ready at once, the peer of the first would wait for the work of the second.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;

use super::outlet::Outlet;

thread_local! {
    static WRITE_QUEUE: WriteQueue = const { WriteQueue { reading: Cell::new(false), queued: RefCell::new(Vec::new()) } };
}

/// The writes to do after the present poll of a reader on this thread.
struct WriteQueue {
    /// Whether a reader is being polled.
    reading: Cell<bool>,
    /// The connections for which messages were queued.
    queued: RefCell<Vec<Rc<Outlet>>>,
}

/// Polls a reader; after each poll, writes the messages that were queued during it.
pub(super) async fn run<T>(reader: impl Future<Output = T>) -> T {
    let mut reader = pin!(reader);
    poll_fn(|cx| {
        let _flush = begin();
        reader.as_mut().poll(cx)
    })
    .await
}

/// Returns whether a connection's queue is written after the current poll of a reader.
pub(super) fn defers(outlet: &Rc<Outlet>) -> bool {
    WRITE_QUEUE.with(|writes| {
        let is_reading = writes.reading.get();
        if is_reading && outlet.set_deferred() {
            writes.queued.borrow_mut().push(Rc::clone(outlet));
        }
        is_reading
    })
}

/// Writes the queued messages when a poll ends; after a handler's panic it leaves them to their tasks.
struct FlushOnDrop;

fn begin() -> FlushOnDrop {
    WRITE_QUEUE.with(|writes| writes.reading.set(true));
    FlushOnDrop
}

impl Drop for FlushOnDrop {
    fn drop(&mut self) {
        WRITE_QUEUE.with(|writes| {
            writes.reading.set(false);
            let mut queued = writes.queued.take();
            for outlet in queued.drain(..) {
                if std::thread::panicking() {
                    outlet.wake_task();
                } else {
                    outlet.flush();
                }
            }
            // Reuses the memory of the list.
            writes.queued.replace(queued);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::io;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    use bytes::Bytes;
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};

    use super::*;
    use crate::socket::outbox::{Item, Outbox};

    /// A connection's task; counts how often it is woken.
    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns both ends of a connection: ours with its task, and the peer's.
    fn connected() -> (Rc<Outlet>, Arc<Task>, DuplexStream) {
        let outlet = Rc::new(Outlet::new(Outbox::new(1 << 20)));
        let (local, remote) = duplex(1 << 20);
        outlet.open(Box::new(local));
        let task = Arc::<Task>::default();
        let waker = Waker::from(Arc::clone(&task));
        outlet.register(&Context::from_waker(&waker));
        (outlet, task, remote)
    }

    /// Returns the bytes that a peer has received since the last call.
    fn received(peer: &mut DuplexStream) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        let _ = pin!(peer.read_buf(&mut bytes)).poll(&mut cx);
        bytes
    }

    fn queue(outlet: &Rc<Outlet>, text: &'static str) -> bool {
        let item = Item::Raw(Bytes::from_static(text.as_bytes()));
        outlet.push(item).expect("there is room");
        defers(outlet)
    }

    fn poll_once(reader: impl Future) {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(pin!(run(reader)).poll(&mut cx).is_pending());
    }

    #[test]
    fn queued_messages_are_written_after_the_readers_poll_without_a_wake_up() {
        let (one, one_task, mut first) = connected();
        let (two, two_task, mut second) = connected();
        poll_once(async {
            assert!(queue(&one, "a") && queue(&two, "x") && queue(&one, "b"));
            assert!(received(&mut first).is_empty(), "one write for all");
            pending::<()>().await;
        });
        assert_eq!(received(&mut first), b"ab");
        assert_eq!(received(&mut second), b"x");
        poll_once(async {
            assert!(queue(&one, "c"));
            pending::<()>().await;
        });
        assert_eq!(received(&mut first), b"c");
        for task in [one_task, two_task] {
            assert_eq!(task.0.load(Ordering::Relaxed), 0);
        }
        assert!(!queue(&one, "d"), "no reader is polled");
    }

    #[test]
    fn the_connections_task_gets_the_error_of_a_failed_write() {
        let (outlet, task, peer) = connected();
        drop(peer);
        poll_once(async {
            assert!(queue(&outlet, "a"));
            pending::<()>().await;
        });
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(
            matches!(outlet.poll_write(&mut cx), Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe)
        );
    }

    #[test]
    fn after_a_handlers_panic_the_connections_task_writes() {
        let (outlet, task, mut peer) = connected();
        let panics = AssertUnwindSafe(|| {
            poll_once(async {
                assert!(queue(&outlet, "a"));
                panic!("a handler's");
            });
        });
        assert!(catch_unwind(panics).is_err());
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
        assert!(received(&mut peer).is_empty());
        assert!(!queue(&outlet, "b"), "the poll is over");
    }
}
