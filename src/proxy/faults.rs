//! Faults of peers: counted, told in the log a few times, never acted on.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::wire::Channel;

/// What a peer did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// The frames are no Jupyter message.
    Malformed,
    /// The signature does not fit.
    BadSignature,
    /// The signature was seen before.
    Replayed,
}

/// Whether the log tells of a fault that is the so manieth of its kind: of the first ten, then of
/// every thousandth. Whoever can reach a port must not be able to fill the disk.
pub(super) fn is_told(count: u64) -> bool {
    count <= 10 || count.is_multiple_of(1000)
}

/// How often each peer did what.
#[derive(Debug, Default)]
pub(super) struct Faults(RefCell<BTreeMap<(&'static str, Channel, Fault), u64>>);

impl Faults {
    /// Counts a fault, and logs it where [`is_told`] says so.
    pub(super) fn count(&self, from: &'static str, channel: Channel, fault: Fault, why: &str) {
        let mut counts = self.0.borrow_mut();
        let count = counts.entry((from, channel, fault)).or_default();
        *count += 1;
        if is_told(*count) {
            tracing::warn!(%channel, count, "a message from the {from} was dropped: {why}");
        }
    }

    /// Returns how many of one kind there were.
    pub(super) fn of(&self, fault: Fault) -> u64 {
        let counts = self.0.borrow();
        let of_kind = counts.iter().filter(|((_, _, kind), _)| *kind == fault);
        of_kind.map(|(_, count)| count).sum()
    }
}
