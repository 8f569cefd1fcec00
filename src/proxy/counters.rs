//! Counters of messages and connections: plain numbers, since the loop has one thread.

use std::cell::{Cell, RefCell};

use tokio::sync::Notify;

use super::faults::Faults;
use crate::project::counters::Counters as Totals;
use crate::wire::{Channel, MessageFault, Rejected};

/// The directions in which messages pass.
#[derive(Clone, Copy, Debug)]
pub(super) enum Direction {
    FromClients,
    ToKernel,
    FromKernel,
    ToClients,
}

/// The counters, from the first message on.
#[derive(Default)]
pub(super) struct Counters {
    totals: RefCell<Totals>,
    /// How many connections ended by their client's fault; only in the log.
    broken: Cell<u64>,
    faults: Faults,
    /// Whether something was counted since the last snapshot.
    is_changed: Cell<bool>,
    changed: Notify,
}

impl Counters {
    /// Counts a message.
    pub(super) fn count_message(&self, direction: Direction, channel: Channel, bytes: usize) {
        self.update(|totals| {
            let channels = match direction {
                Direction::FromClients => &mut totals.from_clients,
                Direction::ToKernel => &mut totals.to_kernel,
                Direction::FromKernel => &mut totals.from_kernel,
                Direction::ToClients => &mut totals.to_clients,
            };
            let passed = match channel {
                Channel::Shell => &mut channels.shell,
                Channel::Control => &mut channels.control,
                Channel::Stdin => &mut channels.stdin,
                Channel::Iopub => &mut channels.iopub,
                Channel::Heartbeat => &mut channels.hb,
            };
            passed.messages += 1;
            passed.bytes += bytes as u64;
        });
    }

    /// Counts a connection that ended before its handshake was complete; returns how many there were.
    pub(super) fn count_refused(&self) -> u64 {
        self.update(|totals| totals.refused.connections += 1);
        self.totals.borrow().refused.connections
    }

    /// Counts a connection that ended by its client's fault; returns how many there were.
    pub(super) fn count_broken(&self) -> u64 {
        self.broken.update(|count| count + 1);
        self.mark_changed();
        self.broken.get()
    }

    /// Counts a message that was dropped because its sender made it wrongly.
    pub(super) fn count_rejected(
        &self,
        sender: &'static str,
        channel: Channel,
        rejected: &Rejected,
    ) {
        self.faults.count(sender, channel, rejected);
        self.update(|totals| match rejected.fault {
            MessageFault::Malformed => totals.refused.malformed += 1,
            MessageFault::BadSignature => totals.refused.bad_signature += 1,
            MessageFault::Replayed => totals.refused.replayed += 1,
        });
    }

    /// Counts messages that were accepted and could not be delivered.
    pub(super) fn count_lost(&self, count: usize) {
        self.update(|totals| totals.lost += count as u64);
    }

    /// Counts a connection that was cut because its client does not read.
    pub(super) fn count_cut(&self) {
        self.update(|totals| totals.cut += 1);
    }

    /// Counts a kernel that has replaced another.
    pub(super) fn count_restart(&self) {
        self.update(|totals| totals.restarts += 1);
    }

    fn update(&self, change: impl FnOnce(&mut Totals)) {
        change(&mut self.totals.borrow_mut());
        self.mark_changed();
    }

    /// Records that a counter has changed.
    pub(super) fn mark_changed(&self) {
        if !self.is_changed.replace(true) {
            self.changed.notify_one();
        }
    }

    /// Waits until something has changed since the last [`Counters::snapshot`]; each change is reported only
    /// once.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns the numbers; [`Counters::changed`] waits for the next change.
    pub(super) fn snapshot(&self) -> Totals {
        self.is_changed.set(false);
        Totals {
            at: jiff::Timestamp::now(),
            ..self.totals.borrow().clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;
    use crate::project::counters::{Channels, MessageCount};

    #[test]
    fn each_direction_and_channel_has_its_own_count() {
        let counters = Counters::default();
        counters.count_message(Direction::ToKernel, Channel::Shell, 10);
        counters.count_message(Direction::FromKernel, Channel::Iopub, 5);
        counters.count_message(Direction::FromKernel, Channel::Iopub, 7);
        counters.count_lost(3);
        let totals = counters.snapshot();
        let passed = |messages, bytes| MessageCount { messages, bytes };
        assert_eq!(totals.to_kernel.shell, passed(1, 10));
        assert_eq!(totals.from_kernel.iopub, passed(2, 12));
        assert_eq!(totals.from_kernel.total(), passed(2, 12));
        assert_eq!(totals.from_clients, Channels::default());
        assert_eq!(totals.lost, 3);
    }

    #[test]
    fn no_task_is_woken_while_nothing_is_counted() {
        let counters = Counters::default();
        let is_woken = || {
            let mut changed = std::pin::pin!(counters.changed());
            let mut cx = Context::from_waker(Waker::noop());
            changed.as_mut().poll(&mut cx).is_ready()
        };
        assert!(!is_woken());
        counters.count_message(Direction::ToClients, Channel::Shell, 1);
        counters.count_message(Direction::ToClients, Channel::Shell, 1);
        assert!(is_woken());
        counters.count_message(Direction::ToClients, Channel::Shell, 1);
        assert!(!is_woken(), "once, until the next snapshot");
        counters.snapshot();
        assert!(!is_woken());
        counters.mark_changed();
        assert!(is_woken());
        counters.snapshot();
        let forged = Rejected {
            fault: MessageFault::BadSignature,
            reason: "it is forged".to_owned(),
        };
        counters.count_rejected("client", Channel::Shell, &forged);
        assert!(is_woken(), "what is dropped is counted, too");
        assert_eq!(counters.snapshot().refused.bad_signature, 1);
    }
}
