//! What passes, counted: plain numbers of the one thread.

use std::cell::Cell;

use tokio::sync::Notify;

use super::faults::Faults;
use crate::project::counters::{Channels, Passed, Refused};
use crate::wire::{Channel, MessageFault, Rejected};

/// Which way something passes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    FromClients,
    ToKernel,
    FromKernel,
    ToClients,
}

/// What is counted from the first message on.
#[derive(Default)]
pub(super) struct Counters {
    passed: [[Cell<Passed>; 5]; 4],
    refused: Cell<u64>,
    /// Connections that ended by their client's fault, for the log alone.
    broken: Cell<u64>,
    lost: Cell<u64>,
    cut: Cell<u64>,
    restarts: Cell<u64>,
    faults: Faults,
    /// Something was counted since the last snapshot.
    fresh: Cell<bool>,
    changed: Notify,
}

impl Counters {
    /// Counts a message.
    pub(super) fn passed(&self, way: Way, channel: Channel, bytes: usize) {
        if let Some(count) = self.count(way, channel) {
            let Passed {
                messages,
                bytes: sum,
            } = count.get();
            count.set(Passed {
                messages: messages + 1,
                bytes: sum + bytes as u64,
            });
        }
        self.touch();
    }

    /// Counts a connection that never became a client's; returns how many there were.
    pub(super) fn refused(&self) -> u64 {
        self.add(&self.refused, 1);
        self.refused.get()
    }

    /// Counts a connection that ended by its client's fault; returns how many there were.
    pub(super) fn broke(&self) -> u64 {
        self.add(&self.broken, 1);
        self.broken.get()
    }

    /// Counts a message that was dropped for a fault of its sender's.
    pub(super) fn rejected(&self, from: &'static str, channel: Channel, why: &Rejected) {
        self.faults.count(from, channel, why);
        self.touch();
    }

    /// Counts messages that were let in and could not be delivered.
    pub(super) fn lost(&self, count: usize) {
        self.add(&self.lost, count as u64);
    }

    /// Counts a connection that was cut since its client does not read.
    pub(super) fn cut(&self) {
        self.add(&self.cut, 1);
    }

    /// Counts a kernel that has taken the place of another.
    pub(super) fn restarted(&self) {
        self.add(&self.restarts, 1);
    }

    /// Notes that something has changed.
    pub(super) fn touch(&self) {
        if !self.fresh.replace(true) {
            self.changed.notify_one();
        }
    }

    /// Waits until something has changed. That happens once until the next [`Counters::snapshot`].
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns the numbers; what changes from now on is news.
    pub(super) fn snapshot(&self) -> crate::project::counters::Counters {
        self.fresh.set(false);
        crate::project::counters::Counters {
            at: jiff::Timestamp::now(),
            from_clients: self.channels(Way::FromClients),
            to_kernel: self.channels(Way::ToKernel),
            from_kernel: self.channels(Way::FromKernel),
            to_clients: self.channels(Way::ToClients),
            refused: Refused {
                connections: self.refused.get(),
                malformed: self.faults.of(MessageFault::Malformed),
                bad_signature: self.faults.of(MessageFault::BadSignature),
                replayed: self.faults.of(MessageFault::Replayed),
            },
            lost: self.lost.get(),
            cut: self.cut.get(),
            restarts: self.restarts.get(),
            ..Default::default()
        }
    }

    fn add(&self, count: &Cell<u64>, more: u64) {
        count.set(count.get() + more);
        self.touch();
    }

    fn count(&self, way: Way, channel: Channel) -> Option<&Cell<Passed>> {
        self.passed.get(way as usize)?.get(place(channel))
    }

    fn channels(&self, way: Way) -> Channels {
        let of = |channel| self.count(way, channel).map(Cell::get).unwrap_or_default();
        Channels {
            shell: of(Channel::Shell),
            control: of(Channel::Control),
            stdin: of(Channel::Stdin),
            iopub: of(Channel::Iopub),
            hb: of(Channel::Heartbeat),
        }
    }
}

fn place(channel: Channel) -> usize {
    match channel {
        Channel::Shell => 0,
        Channel::Control => 1,
        Channel::Stdin => 2,
        Channel::Iopub => 3,
        Channel::Heartbeat => 4,
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

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
    fn nobody_is_woken_while_nothing_is_counted() {
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
