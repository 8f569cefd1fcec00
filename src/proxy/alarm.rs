//! When the loop wakes for what is due.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use tokio::sync::Notify;

/// The one timer of the loop.
///
/// A time that has become later leaves it as it is: to wake once for nothing is cheaper than to
/// set it anew with each request that starts a timer and each reply that stops it.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    at: Cell<Option<Instant>>,
    rearm: Rc<Notify>,
}

impl Alarm {
    /// Returns what is notified where something may have become due sooner.
    pub(super) fn rearm(&self) -> Rc<Notify> {
        Rc::clone(&self.rearm)
    }

    /// Sees to it that the loop wakes no later than then.
    pub(super) fn wake_by(&self, due: Option<Instant>) {
        if self.is_sooner(due) {
            self.rearm.notify_one();
        }
    }

    /// Sets the alarm to the first of some times, where that is sooner; returns it then.
    pub(super) fn set(&self, due: impl IntoIterator<Item = Option<Instant>>) -> Option<Instant> {
        let due = due.into_iter().flatten().min();
        let is_sooner = self.is_sooner(due);
        if is_sooner {
            self.at.set(due);
        }
        due.filter(|_| is_sooner)
    }

    pub(super) fn is_set(&self) -> bool {
        self.at.get().is_some()
    }

    /// Takes that the time has come.
    pub(super) fn went_off(&self) {
        self.at.set(None);
    }

    /// Waits until something may have become due sooner.
    pub(super) async fn may_be_sooner(&self) {
        self.rearm.notified().await;
    }

    fn is_sooner(&self, due: Option<Instant>) -> bool {
        let at = self.at.get();
        due.is_some_and(|due| at.is_none_or(|at| due < at))
    }
}
