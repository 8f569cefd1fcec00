//! The proxy's counters in its record, up to date within a second, and in the log on SIGUSR1.

use std::rc::{Rc, Weak};
use std::time::Duration;

use super::counters::Counters;
use super::shell::Shell;
use crate::project::counters::Counters as Counted;

/// How much time lies between two of them at least.
const PACE: Duration = Duration::from_secs(1);

/// While something waits, how often it is looked at whether it still does, at the longest.
const SELDOM: Duration = Duration::from_secs(32);

/// Writes the record again whenever something was counted, at most once a second.
///
/// Nothing wakes while nothing happens. What waits in a queue may go without a message, so there
/// it is looked at once more, after pauses that double.
pub(super) async fn keep_record_current(me: Weak<Shell>, count: Rc<Counters>) {
    let mut pause = None;
    loop {
        let happened = match pause {
            None => {
                count.changed().await;
                true
            }
            Some(pause) => tokio::time::timeout(pause, count.changed()).await.is_ok(),
        };
        let Some(shell) = me.upgrade() else { return };
        let waits = shell.update_record(shell.counted());
        drop(shell);
        pause = match pause {
            _ if !waits => None,
            Some(before) if !happened => Some((before * 2).min(SELDOM)),
            _ => Some(PACE),
        };
        tokio::time::sleep(PACE).await;
    }
}

impl Shell {
    /// Writes the record; returns whether something waits in a queue.
    fn update_record(&self, counted: Counted) -> bool {
        let queued = counted.queued_bytes.to_clients + counted.queued_bytes.to_kernel;
        let waits = queued + counted.spilled_bytes + counted.held.messages > 0;
        if let Some(attachment) = self.attachment() {
            attachment.update_record(self.bridge.borrow().joined().count(), Some(counted));
        }
        waits
    }

    /// Counts what is there now.
    pub(super) fn counted(&self) -> Counted {
        let mut counted = self.count.snapshot();
        let bridge = self.bridge.borrow();
        counted.outstanding = bridge.outstanding() as u64;
        let Some(front) = self.front() else {
            return counted;
        };
        for (id, held) in bridge.held() {
            counted.held.messages += held.messages;
            counted.held.bytes += held.bytes;
            counted.queued_bytes.to_clients += front.queued_bytes(id) as u64;
        }
        let behind = front.unread();
        counted.subscribers = behind.len() as u64;
        for it in &behind {
            counted.queued_bytes.to_clients += it.queued_bytes as u64;
            counted.spilled_bytes += it.spilled_bytes;
        }
        counted.queued_bytes.to_kernel = self.queued_for_kernel() as u64;
        counted
    }

    /// Writes the counters down at once: in the record, and as a line of the log.
    pub(super) fn report(&self) {
        let counted = self.counted();
        self.update_record(counted.clone());
        tracing::info!(
            from_clients = counted.from_clients.total().messages,
            to_kernel = counted.to_kernel.total().messages,
            from_kernel = counted.from_kernel.total().messages,
            to_clients = counted.to_clients.total().messages,
            published = counted.to_clients.iopub.messages,
            outstanding = counted.outstanding,
            held = counted.held.messages,
            queued_bytes = counted.queued_bytes.to_clients + counted.queued_bytes.to_kernel,
            spilled_bytes = counted.spilled_bytes,
            dropped = counted.refused.messages(),
            refused = counted.refused.connections,
            lost = counted.lost,
            cut = counted.cut,
            restarts = counted.restarts,
            subscribers = counted.subscribers,
            "counters"
        );
    }
}
