//! The loop: timers, the end of this process, and recovery from a panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::Shell;
use crate::proxy::exit::ExitReason;
use crate::proxy::messages;
use crate::proxy::panics;
use crate::proxy::stored_outputs::{HandOffScope, ReleaseReason, StoredOutputs};
use crate::route::Kernel;

/// The least time at the end for writing messages that are queued for the kernel.
const WRITE_TIME_MIN: Duration = Duration::from_millis(200);

impl Shell {
    /// Runs the loop until the end is decided, even after panics.
    pub(super) async fn run_until_exit(self: &Rc<Self>) {
        self.spawn(async |shell| {
            let subscribers = || shell.endpoint.subscribers();
            shell.orphan.wait(subscribers).await;
            shell.exit.decide(ExitReason::Orphaned);
        });
        self.spawn(async |shell| shell.update_record_when_changed().await);
        loop {
            let mut task = tokio::task::JoinSet::new();
            let shell = Rc::clone(self);
            task.spawn_local(async move { shell.run().await });
            match task.join_next().await {
                Some(Err(error)) if error.is_panic() => {}
                _ => return,
            }
        }
    }

    /// Runs timers and follows the kernel.
    async fn run(&self) {
        let mut sleep = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
        loop {
            let attachment = self.attachment();
            let outputs = attachment.as_ref().map(|attachment| &*attachment.outputs);
            if let (Some(outputs), Some(links)) = (outputs, &*self.links.borrow()) {
                links.hold_iopub(outputs.is_full());
            }
            let store_due = outputs.and_then(StoredOutputs::due);
            let release_due = outputs.and_then(StoredOutputs::release_at);
            let bridge_due = self.bridge.borrow().poll_timeout();
            if let Some(due) = self.alarm.set([bridge_due, store_due, release_due]) {
                sleep.as_mut().reset(due.into());
            }
            tokio::select! {
                () = self.exit.is_decided() => return,
                () = sleep.as_mut(), if self.alarm.is_set() => {
                    self.alarm.clear();
                    self.handle_timeout();
                }
                () = self.alarm.may_be_sooner() => {}
                () = self.state_reads.requested() => self.refresh_soon(),
                () = panics::HAPPENED.notified() => self.recover(),
            }
        }
    }

    fn handle_timeout(&self) {
        if let Some(attachment) = self.attachment() {
            attachment.outputs.store_soon(|| attachment.target());
            if self.release_outputs(&attachment, ReleaseReason::Due) {
                self.spawn(async move |_| {
                    let scope = HandOffScope::Unseen;
                    attachment
                        .outputs
                        .hand_off(&attachment.target(), scope)
                        .await;
                });
            }
        }
        let is_behind = self.links().is_some_and(|links| links.iopub_is_behind());
        self.route(|bridge, now| {
            bridge.set_iopub_behind(is_behind);
            bridge.handle_timeout(now);
        });
    }

    // ---- panics

    /// Recovers from a panic. The message that led to it is lost, and perhaps an answer.
    pub(super) fn recover(&self) {
        self.panics.update(|count| count + 1);
        tracing::error!(
            "an internal fault at {}: please report it",
            panics::take_location()
        );
        // The bridge may be in an inconsistent state, too.
        let result = catch_unwind(AssertUnwindSafe(|| self.reconnect()));
        if result.is_err() || self.panics.get() >= panics::PANICS_MAX {
            self.exit.decide(ExitReason::Faults);
        }
    }

    /// Ends every request that the kernel has with an error, and connects to the kernel again.
    fn reconnect(&self) {
        if self.is_live() {
            let unsent = self.take_unsent();
            let ending = messages::fault();
            self.route(|bridge, now| bridge.set_kernel(now, Kernel::Awaited, &ending, unsent));
        } else {
            // Carries out the actions that were left when the panic happened.
            self.route(|_, _| {});
        }
        self.state_reads.request();
    }

    // ---- the end

    /// Delivers the accepted messages, within one second. The kernel goes on.
    pub(super) async fn close(&self) {
        let deadline = Instant::now() + Duration::from_secs(1);
        let to_kernel = async {
            self.hand_off_all().await;
            if let Some(links) = self.links() {
                links
                    .finish(deadline.max(Instant::now() + WRITE_TIME_MIN))
                    .await;
            }
        };
        let ((), unwritten) = tokio::join!(to_kernel, self.endpoint.close(deadline));
        if let Some(own) = self.record.take() {
            own.withdraw();
        }
        if unwritten > 0 {
            tracing::warn!(
                "messages queued for {unwritten} connections were not written within a second"
            );
        }
        self.report();
        self.finish_records(deadline).await;
    }

    /// Hands all cells over to recorders; a kernel that is being restarted no longer runs any of them.
    async fn hand_off_all(&self) {
        let reason = self.exit.reason();
        let attachment = self.attachment();
        let Some(attachment) = attachment.filter(|_| reason != Some(ExitReason::Restart)) else {
            return;
        };
        let release = match reason {
            Some(ExitReason::Orphaned) => ReleaseReason::Orphaned,
            _ => ReleaseReason::Stopped,
        };
        self.release_outputs(&attachment, release);
        let scope = HandOffScope::All;
        let prompted = attachment
            .outputs
            .hand_off(&attachment.target(), scope)
            .await;
        self.hand_over_prompts(&prompted);
        self.route(|bridge, now| bridge.end_prompts(now));
    }

    /// Writes the waiting entries of the journal, or logs how many are lost, and removes the record of this
    /// proxy.
    pub(super) async fn finish_records(&self, deadline: Instant) {
        let Some(attachment) = self.attachment() else {
            return;
        };
        let deadline = deadline.max(Instant::now() + WRITE_TIME_MIN);
        let _ = tokio::time::timeout_at(deadline.into(), attachment.journal.written()).await;
        if attachment.journal.waiting() > 0 {
            tracing::warn!(
                "{} entries of the journal are lost: it could not be written until the end",
                attachment.journal.waiting()
            );
        }
        let deadline = deadline.max(Instant::now() + WRITE_TIME_MIN);
        let project = attachment.target().project;
        let cleanup = async {
            tokio::join!(
                attachment.presence.withdraw(),
                attachment.outputs.remove_unneeded(&project)
            )
        };
        let _ = tokio::time::timeout_at(deadline.into(), cleanup).await;
    }
}
