//! Counters of messages and connections: plain numbers, since the loop has one thread.

use std::cell::{Cell, RefCell};

use tokio::sync::Notify;

use super::faults::Faults;
use crate::project::counters::Counters as Counted;
use crate::wire::{Channel, MessageFault, Rejected};

/// The directions in which messages pass.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    FromClients,
    ToKernel,
    FromKernel,
    ToClients,
}

/// The counters, from the first message on.
#[derive(Default)]
pub(super) struct Counters {
    counted: RefCell<Counted>,
    /// How many connections ended by their client's fault; only in the log.
    broken: Cell<u64>,
    faults: Faults,
    /// Whether something was counted since the last snapshot.
    fresh: Cell<bool>,
    changed: Notify,
}

impl Counters {
    /// Counts a message.
    pub(super) fn passed(&self, way: Way, channel: Channel, bytes: usize) {
        self.count(|counted| {
            let channels = match way {
                Way::FromClients => &mut counted.from_clients,
                Way::ToKernel => &mut counted.to_kernel,
                Way::FromKernel => &mut counted.from_kernel,
                Way::ToClients => &mut counted.to_clients,
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
    pub(super) fn refused(&self) -> u64 {
        self.count(|counted| counted.refused.connections += 1);
        self.counted.borrow().refused.connections
    }

    /// Counts a connection that ended by its client's fault; returns how many there were.
    pub(super) fn broke(&self) -> u64 {
        self.broken.update(|count| count + 1);
        self.touch();
        self.broken.get()
    }

    /// Counts a message that was dropped because its sender made it wrongly.
    pub(super) fn rejected(&self, from: &'static str, channel: Channel, why: &Rejected) {
        self.faults.count(from, channel, why);
        self.count(|counted| match why.fault {
            MessageFault::Malformed => counted.refused.malformed += 1,
            MessageFault::BadSignature => counted.refused.bad_signature += 1,
            MessageFault::Replayed => counted.refused.replayed += 1,
        });
    }

    /// Counts messages that were accepted and could not be delivered.
    pub(super) fn lost(&self, count: usize) {
        self.count(|counted| counted.lost += count as u64);
    }

    /// Counts a connection that was cut because its client does not read.
    pub(super) fn cut(&self) {
        self.count(|counted| counted.cut += 1);
    }

    /// Counts a kernel that has replaced another.
    pub(super) fn restarted(&self) {
        self.count(|counted| counted.restarts += 1);
    }

    fn count(&self, change: impl FnOnce(&mut Counted)) {
        change(&mut self.counted.borrow_mut());
        self.touch();
    }

    /// Records that a counter has changed.
    pub(super) fn touch(&self) {
        if !self.fresh.replace(true) {
            self.changed.notify_one();
        }
    }

    /// Waits until something has changed since the last [`Counters::snapshot`]; each change is reported only
    /// once.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns the numbers; [`Counters::changed`] waits for the next change.
    pub(super) fn snapshot(&self) -> Counted {
        self.fresh.set(false);
        Counted {
            at: jiff::Timestamp::now(),
            ..self.counted.borrow().clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;
    use crate::project::counters::{Channels, Passed};

    #[test]
    fn each_way_and_channel_has_its_own_count() {
        let counters = Counters::default();
        counters.passed(Way::ToKernel, Channel::Shell, 10);
        counters.passed(Way::FromKernel, Channel::Iopub, 5);
        counters.passed(Way::FromKernel, Channel::Iopub, 7);
        counters.lost(3);
        let counted = counters.snapshot();
        let passed = |messages, bytes| Passed { messages, bytes };
        assert_eq!(counted.to_kernel.shell, passed(1, 10));
        assert_eq!(counted.from_kernel.iopub, passed(2, 12));
        assert_eq!(counted.from_kernel.total(), passed(2, 12));
        assert_eq!(counted.from_clients, Channels::default());
        assert_eq!(counted.lost, 3);
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
        counters.passed(Way::ToClients, Channel::Shell, 1);
        counters.passed(Way::ToClients, Channel::Shell, 1);
        assert!(is_woken());
        counters.passed(Way::ToClients, Channel::Shell, 1);
        assert!(!is_woken(), "once, until the next snapshot");
        counters.snapshot();
        assert!(!is_woken());
        counters.touch();
        assert!(is_woken());
        counters.snapshot();
        let forged = Rejected {
            fault: MessageFault::BadSignature,
            why: "it is forged".to_owned(),
        };
        counters.rejected("client", Channel::Shell, &forged);
        assert!(is_woken(), "what is dropped is counted, too");
        assert_eq!(counters.snapshot().refused.bad_signature, 1);
    }
}
