//! File work on other threads, so that neither a file lock nor a disk delays a message.
//!
//! The pieces of one kind of work (the journal, the record of this proxy, outputs of cells, the state) are
//! done one after the other. Data that arrives during a piece waits with its owner, which limits how much may
//! wait and decides what is dropped then. So only a few threads are busy at a time, and each only as long as
//! the disk and the deadlines of locks require.
//!
//! | data | how much may wait | when the limit is reached |
//! |---|---|---|
//! | entries of the journal | 1,000 | the oldest are dropped; the log says how many |
//! | the record of this proxy | the latest | a newer one replaces it |
//! | outputs of a cell | 8 MB while a write is under way | iopub is read and not routed; after a second the waiting outputs are dropped, and the cell's job says that it is incomplete |
//! | outputs of a cell that cannot be written | 32 MB | they are dropped, and the job says so |
//! | reads of the state | one | all parts that requested one get its result |
//! | lines of the log | 500 | further lines are lost; their number is printed at the end |
//!
//! The loop itself writes messages that subscribers have not read ([`crate::socket::SpillTo`]): into a file
//! without a name, which no other process can lock. The loop itself also reads the state before it serves a
//! kernel, and before it answers that there is none.

use std::io;

use tokio::sync::{Mutex, MutexGuard};

/// The file work of one kind.
#[derive(Debug, Default)]
pub(super) struct FileWork(Mutex<()>);

/// The right to do file work of one kind, until it is dropped.
#[derive(Debug)]
pub(super) struct FileWorkPermit<'a> {
    _alone: MutexGuard<'a, ()>,
}

impl FileWork {
    /// Waits until no other work of this kind is under way. Callers get their turns in the order of their
    /// calls.
    pub(super) async fn acquire(&self) -> FileWorkPermit<'_> {
        FileWorkPermit {
            _alone: self.0.lock().await,
        }
    }

    /// Returns whether no work of this kind is being done.
    pub(super) fn is_idle(&self) -> bool {
        self.0.try_lock().is_ok()
    }
}

impl FileWorkPermit<'_> {
    /// Does a piece of work on another thread.
    ///
    /// # Errors
    /// If the work panicked.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|error| io::Error::other(error.to_string()))
    }
}
