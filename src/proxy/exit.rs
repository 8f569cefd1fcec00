//! Why and when this process ends.

use std::cell::RefCell;

use tokio::sync::Notify;

/// Why this process ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExitReason {
    /// SIGTERM or SIGHUP.
    Signal,
    /// The front end has asked for a shutdown.
    Shutdown,
    /// The front end has asked for a restart of its kernel.
    Restart,
    /// The kernel has ended under a front end that runs cells without a person and watches this process.
    KernelEnded(String),
    /// The front end was killed.
    Orphaned,
    /// There were too many panics.
    Faults,
}

impl ExitReason {
    /// Returns the reason for the log.
    fn text(&self) -> &'static str {
        match self {
            Self::Signal => "SIGTERM",
            Self::Shutdown => "its front end has shut it down",
            Self::Restart => "its front end restarts the kernel",
            Self::KernelEnded(_) => "the kernel has ended, and its front end is to see that",
            Self::Orphaned => "its front end is gone",
            Self::Faults => "of its internal faults",
        }
    }
}

/// The end of this process, once it is decided.
#[derive(Debug, Default)]
pub(super) struct Exit {
    reason: RefCell<Option<ExitReason>>,
    decided: Notify,
}

impl Exit {
    /// Decides to end. Only the first reason counts.
    pub(super) fn decide(&self, reason: ExitReason) {
        self.reason.borrow_mut().get_or_insert(reason);
        self.decided.notify_one();
    }

    /// Waits until the end is decided. Any number of callers may wait, one after another.
    pub(super) async fn is_decided(&self) {
        self.decided.notified().await;
        // Notifies the next caller.
        self.decided.notify_one();
    }

    pub(super) fn reason(&self) -> Option<ExitReason> {
        self.reason.borrow().clone()
    }

    /// Returns the reason for the log.
    pub(super) fn text(&self) -> &'static str {
        let reason = self.reason.borrow();
        reason.as_ref().map_or("asked to", ExitReason::text)
    }
}
