//! The order of a client's calls: those that edit or run take their turn in the order in which they arrive.
//!
//! A client may send several calls at once, and means them in this order. A call that runs cells ends its turn as soon
//! as its job is in the queue, so that the next one does not wait for the run. Calls that read, answer questions or
//! interrupt have no turn.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

/// The turns at each notebook of one client.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<PathBuf, Arc<tokio::sync::Mutex<()>>>>);

impl Turns {
    /// Waits for the turn at a notebook. Those that are polled first come first.
    pub(super) async fn next(&self, notebook: PathBuf) -> Turn {
        let last = {
            let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            turns.entry(notebook).or_default().clone()
        };
        Turn(RefCell::new(Some(last.lock_owned().await)))
    }
}

/// A call's turn; it ends when this is dropped.
#[derive(Debug, Default)]
pub(super) struct Turn(RefCell<Option<OwnedMutexGuard<()>>>);

impl Turn {
    /// Ends the turn, if the call has one.
    pub(super) fn end(&self) {
        self.0.take();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn calls_take_their_turn_in_the_order_in_which_they_arrive() {
        let turns = Turns::default();
        let notebook = || PathBuf::from("a.ipynb");
        let first = turns.next(notebook()).await;
        let mut second = Box::pin(turns.next(notebook()));
        assert!((&mut second).now_or_never().is_none());
        let mut third = Box::pin(turns.next(notebook()));
        assert!((&mut third).now_or_never().is_none());
        // Another notebook has turns of its own.
        assert!(turns.next("b.ipynb".into()).now_or_never().is_some());
        first.end();
        assert!((&mut third).now_or_never().is_none());
        drop(second.await);
        drop(third.await);
        drop(turns.next("c.ipynb".into()).await);
        assert_eq!(turns.0.lock().unwrap().len(), 1);
    }
}
