//! File work on other threads: no lock of a file and no disk holds up a message.
//!
//! Each kind of work (the journal, the record of this proxy's record, outputs of cells, the state) is done one piece
//! after the other. What comes during a piece waits with its owner, which bounds how much may wait and says what is
//! dropped then. So few threads are busy at a time, and each for no longer than the disk and the deadlines of
//! locks let it be.
//!
//! | what | how much waits | and when that is full |
//! |---|---|---|
//! | entries of the journal | 1,000 | the oldest are dropped; the log says how many |
//! | the record of this proxy | the latest | a newer one takes its place |
//! | outputs of a cell | 8 MB while a write is under way | iopub is read and not routed; after a second what waits is dropped, and the cell's job says that it is not whole |
//! | the same, where it cannot be written | 32 MB | it is dropped, and the job says so |
//! | reads of the state | one | all who ask get its result |
//! | lines of the log | 500 | those that come then are lost; their number is printed at the end |
//!
//! What subscribers have not read is written by the loop itself ([`crate::socket::SpillTo`]): into a file
//! without a name, which no other process can lock. Until it serves a kernel, and before it
//! answers that there is none, the loop itself reads the state.

use std::io;

use tokio::sync::{Mutex, MutexGuard};

/// The file work of one kind.
#[derive(Debug, Default)]
pub(super) struct FileWork(Mutex<()>);

/// The right to do file work of one kind, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    _alone: MutexGuard<'a, ()>,
}

impl FileWork {
    /// Waits until no other work of this kind is done. Those who wait have their turns in order.
    pub(super) async fn turn(&self) -> Turn<'_> {
        Turn {
            _alone: self.0.lock().await,
        }
    }

    /// Returns whether no work of this kind is being done.
    pub(super) fn is_idle(&self) -> bool {
        self.0.try_lock().is_ok()
    }
}

impl Turn<'_> {
    /// Does a piece of work on another thread.
    ///
    /// # Errors
    /// It panicked.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|error| io::Error::other(error.to_string()))
    }
}
