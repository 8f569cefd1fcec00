//! Wakes the task of a connection, on the one thread.

use std::cell::RefCell;
use std::task::{Context, Waker};

/// Remembers the waker of the task that waits.
///
/// Only the connection's task waits. Its parts check their own conditions when they are polled, so one signal
/// serves them all.
#[derive(Debug, Default)]
pub(super) struct Signal(RefCell<Option<Waker>>);

impl Signal {
    /// Registers this task to be woken.
    pub(super) fn register(&self, cx: &Context<'_>) {
        let mut waker = self.0.borrow_mut();
        match &mut *waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
    }

    /// Polls on behalf of the task that registered last, which is woken if the poll is pending; returns
    /// `None` if no task has registered.
    pub(super) fn with<T>(&self, poll: impl FnOnce(&mut Context<'_>) -> T) -> Option<T> {
        let waker = self.0.borrow();
        let waker = waker.as_ref()?;
        Some(poll(&mut Context::from_waker(waker)))
    }

    /// Wakes the task that registered last, if any did.
    pub(super) fn wake(&self) {
        if let Some(waker) = &*self.0.borrow() {
            waker.wake_by_ref();
        }
    }
}
