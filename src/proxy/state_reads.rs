//! Reads of `state.json`: any part may request one; another thread does them, one at a time.

use std::cell::Cell;
use std::sync::Arc;

use tokio::sync::Notify;

use super::storage::FileWork;

/// The requested reads, and the number of the latest.
#[derive(Debug, Default)]
pub(super) struct StateReads {
    pub(super) work: FileWork,
    /// Notified when a read is wanted, also from the watcher's thread.
    wanted: Arc<Notify>,
    /// Whether a read was requested that has not begun.
    is_waiting: Cell<bool>,
    /// How often the state was read on the main thread; a read by another thread that began earlier is out of
    /// date.
    read_here: Cell<u64>,
}

impl StateReads {
    /// Returns the notification for changes of `state.json` or of the kernel's process.
    pub(super) fn wanted(&self) -> &Arc<Notify> {
        &self.wanted
    }

    /// Requests a read.
    pub(super) fn want(&self) {
        self.wanted.notify_one();
    }

    /// Waits until a read is wanted.
    pub(super) async fn is_wanted(&self) {
        self.wanted.notified().await;
    }

    /// Records that a read waits; returns whether no other one does.
    pub(super) fn begin_to_wait(&self) -> bool {
        !self.is_waiting.replace(true)
    }

    /// Begins a read; returns a number for [`StateReads::is_latest`].
    pub(super) fn begin(&self) -> u64 {
        self.is_waiting.set(false);
        self.read_here.get()
    }

    /// Returns whether the state was not read on the main thread since that read began.
    pub(super) fn is_latest(&self, number: u64) -> bool {
        self.read_here.get() == number
    }

    /// Records that the state is read on the main thread.
    pub(super) fn read_here(&self) {
        self.read_here.update(|count| count + 1);
    }
}
