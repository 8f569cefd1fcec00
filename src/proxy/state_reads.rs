//! Reads of `state.json`: any part may request one; another thread does them, one at a time.

use std::cell::Cell;
use std::sync::Arc;

use tokio::sync::Notify;

use super::storage::FileWork;

/// The requested reads, and the number of the latest.
#[derive(Debug, Default)]
pub(super) struct StateReads {
    pub(super) work: FileWork,
    /// Notified when a read is requested, also from the watcher's thread.
    requested: Arc<Notify>,
    /// Whether a read was requested that has not begun.
    is_queued: Cell<bool>,
    /// How often the state was read on the main thread; a read by another thread that began earlier is out of
    /// date.
    main_thread_reads: Cell<u64>,
}

impl StateReads {
    /// Returns the notification for changes of `state.json` or of the kernel's process.
    pub(super) fn notification(&self) -> &Arc<Notify> {
        &self.requested
    }

    /// Requests a read.
    pub(super) fn request(&self) {
        self.requested.notify_one();
    }

    /// Waits until a read is requested.
    pub(super) async fn requested(&self) {
        self.requested.notified().await;
    }

    /// Records that a read waits; returns whether no other one does.
    pub(super) fn queue_read(&self) -> bool {
        !self.is_queued.replace(true)
    }

    /// Begins a read; returns a number for [`StateReads::is_latest`].
    pub(super) fn begin(&self) -> u64 {
        self.is_queued.set(false);
        self.main_thread_reads.get()
    }

    /// Returns whether the state was not read on the main thread since that read began.
    pub(super) fn is_latest(&self, number: u64) -> bool {
        self.main_thread_reads.get() == number
    }

    /// Records that the state is read on the main thread.
    pub(super) fn record_main_thread_read(&self) {
        self.main_thread_reads.update(|count| count + 1);
    }
}
