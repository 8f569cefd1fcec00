//! Messages of peers that are dropped: counted, and logged a few times.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::wire::{Channel, MessageFault, Rejected};

/// Returns whether the fault with this number of its kind is logged: the first ten are, then every thousandth.
/// A process that can reach a port must not be able to fill the disk.
pub(super) fn is_logged(count: u64) -> bool {
    count <= 10 || count.is_multiple_of(1000)
}

/// How many messages of each kind of fault came from clients and from the kernel, by channel.
#[derive(Debug, Default)]
pub(super) struct Faults(RefCell<BTreeMap<(&'static str, Channel, MessageFault), u64>>);

impl Faults {
    /// Counts a message that was dropped, and logs it where [`is_logged`] says so.
    pub(super) fn count(&self, sender: &'static str, channel: Channel, rejected: &Rejected) {
        let mut counts = self.0.borrow_mut();
        let count = counts.entry((sender, channel, rejected.fault)).or_default();
        *count += 1;
        if is_logged(*count) {
            tracing::warn!(%channel, count, "a message from the {sender} was dropped: {rejected}");
        }
    }
}
