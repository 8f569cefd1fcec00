//! The timer that wakes the loop.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use tokio::sync::Notify;

/// The one timer of the loop.
///
/// When the next time to wake becomes later, the timer stays as it is. One needless wake-up costs less than a
/// new timer for each request that starts a bridge timer and each reply that stops it.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    at: Cell<Option<Instant>>,
    rearm: Rc<Notify>,
}

impl Alarm {
    /// Returns the notification by which other parts report that something may be due sooner.
    pub(super) fn rearm(&self) -> Rc<Notify> {
        Rc::clone(&self.rearm)
    }

    /// Makes the loop wake no later than `due`.
    pub(super) fn wake_by(&self, due: Option<Instant>) {
        if self.is_sooner(due) {
            self.rearm.notify_one();
        }
    }

    /// Sets the alarm to the earliest of these times, if that is sooner than now set; returns it in that
    /// case.
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

    /// Removes the time: the loop has woken up.
    pub(super) fn clear(&self) {
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
