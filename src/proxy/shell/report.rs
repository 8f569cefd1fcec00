//! The proxy's counters in its record, up to date within a second, and in the log on SIGUSR1.

use std::time::Duration;

use super::Shell;
use crate::project::counters::Counters;

/// The shortest time between two writes of the record.
const PACE: Duration = Duration::from_secs(1);

/// The longest pause between two checks whether messages still wait.
const SELDOM: Duration = Duration::from_secs(32);

impl Shell {
    /// Writes the record whenever something was counted, at most once a second.
    ///
    /// It does not wake up while nothing happens. A queue may become shorter without a new message; so while
    /// messages wait, the record is written again after pauses that double.
    pub(super) async fn keep_record_current(&self) {
        let mut pause = None;
        loop {
            let happened = match pause {
                None => {
                    self.count.changed().await;
                    true
                }
                Some(pause) => tokio::time::timeout(pause, self.count.changed())
                    .await
                    .is_ok(),
            };
            let waits = self.update_record(self.counted());
            pause = match pause {
                _ if !waits => None,
                Some(before) if !happened => Some((before * 2).min(SELDOM)),
                _ => Some(PACE),
            };
            tokio::time::sleep(PACE).await;
        }
    }

    /// Writes the record; returns whether messages wait in a queue.
    fn update_record(&self, counted: Counters) -> bool {
        let queued = counted.queued_bytes.to_clients + counted.queued_bytes.to_kernel;
        let waits = queued + counted.spilled_bytes + counted.held.messages > 0;
        if let Some(attachment) = self.attachment() {
            let clients = self.bridge.borrow().joined().count();
            attachment.presence.update(clients, Some(counted));
        }
        waits
    }

    /// Returns the counters, with the present lengths of the queues.
    fn counted(&self) -> Counters {
        let mut counted = self.count.snapshot();
        let bridge = self.bridge.borrow();
        counted.outstanding = bridge.outstanding() as u64;
        for (id, held) in bridge.held() {
            counted.held.messages += held.messages;
            counted.held.bytes += held.bytes;
            counted.queued_bytes.to_clients += self.endpoint.queued_bytes(id.bytes()) as u64;
        }
        let backlogs = self.endpoint.backlogs();
        counted.subscribers = backlogs.len() as u64;
        for backlog in &backlogs {
            counted.queued_bytes.to_clients += backlog.queued_bytes as u64;
            counted.spilled_bytes += backlog.spilled_bytes;
        }
        let links = self.links();
        counted.queued_bytes.to_kernel = links.map_or(0, |links| links.queued_bytes()) as u64;
        counted
    }

    /// Writes the counters at once, into the record and as a line of the log.
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
