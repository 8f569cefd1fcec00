//! The proxy's counters in its record, up to date within a second, and in the log on SIGUSR1.

use std::time::Duration;

use super::Shell;
use crate::project::counters::Counters;

/// The shortest time between two writes of the record.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// The longest pause between two checks whether messages still wait.
const PAUSE_MAX: Duration = Duration::from_secs(32);

impl Shell {
    /// Writes the record whenever a counter has changed, at most once a second.
    ///
    /// It does not wake up while nothing happens. A queue may become shorter without a new message; so while
    /// messages wait, the record is written again after pauses that double.
    pub(super) async fn update_record_when_changed(&self) {
        let mut pause = None;
        loop {
            let is_changed = match pause {
                None => {
                    self.counters.changed().await;
                    true
                }
                Some(pause) => tokio::time::timeout(pause, self.counters.changed())
                    .await
                    .is_ok(),
            };
            let has_waiting = self.update_record(self.counters());
            pause = match pause {
                _ if !has_waiting => None,
                Some(before) if !is_changed => Some((before * 2).min(PAUSE_MAX)),
                _ => Some(WRITE_INTERVAL),
            };
            tokio::time::sleep(WRITE_INTERVAL).await;
        }
    }

    /// Writes the record; returns whether messages wait in a queue.
    fn update_record(&self, counters: Counters) -> bool {
        let queued = counters.queued_bytes.to_clients + counters.queued_bytes.to_kernel;
        let has_waiting = queued + counters.spilled_bytes + counters.held.messages > 0;
        if let Some(attachment) = self.attachment() {
            let clients = self.bridge.borrow().joined().count();
            attachment.presence.update(clients, Some(counters));
        }
        has_waiting
    }

    /// Returns the counters, with the present lengths of the queues.
    fn counters(&self) -> Counters {
        let mut counters = self.counters.snapshot();
        let bridge = self.bridge.borrow();
        counters.outstanding = bridge.outstanding() as u64;
        for (id, held) in bridge.held() {
            counters.held.messages += held.messages;
            counters.held.bytes += held.bytes;
            counters.queued_bytes.to_clients += self.endpoint.queued_bytes(id.bytes()) as u64;
        }
        let backlogs = self.endpoint.backlogs();
        counters.subscribers = backlogs.len() as u64;
        for backlog in &backlogs {
            counters.queued_bytes.to_clients += backlog.queued_bytes as u64;
            counters.spilled_bytes += backlog.spilled_bytes;
        }
        let links = self.links();
        counters.queued_bytes.to_kernel = links.map_or(0, |links| links.queued_bytes()) as u64;
        counters
    }

    /// Writes the counters at once, into the record and as a line of the log.
    pub(super) fn report(&self) {
        let counters = self.counters();
        self.update_record(counters.clone());
        tracing::info!(
            from_clients = counters.from_clients.total().messages,
            to_kernel = counters.to_kernel.total().messages,
            from_kernel = counters.from_kernel.total().messages,
            to_clients = counters.to_clients.total().messages,
            published = counters.to_clients.iopub.messages,
            outstanding = counters.outstanding,
            held = counters.held.messages,
            queued_bytes = counters.queued_bytes.to_clients + counters.queued_bytes.to_kernel,
            spilled_bytes = counters.spilled_bytes,
            dropped = counters.refused.messages(),
            refused = counters.refused.connections,
            lost = counters.lost,
            cut = counters.cut,
            restarts = counters.restarts,
            subscribers = counters.subscribers,
            "counters"
        );
    }
}
