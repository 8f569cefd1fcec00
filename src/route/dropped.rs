//! How many messages the kernel's own iopub queue has dropped, calculated from the numbers of those that
//! arrived.
//!
//! A PUB socket with a full queue (1,000 messages in ipykernel) silently drops new messages.

use crate::wire::Header;

/// The count of messages that never arrived on iopub, for a kernel that numbers its messages.
#[derive(Debug, Default)]
pub(super) struct DroppedMessages {
    /// The part of a message id before the number.
    prefix: String,
    last: u64,
    count: u64,
}

impl DroppedMessages {
    /// Takes the header of a message on iopub. `is_idle`: the reply that precedes an `idle` is numbered, too,
    /// and arrives on another socket.
    pub(super) fn see(&mut self, header: &Header<'_>, is_idle: bool) {
        let Some((prefix, number)) = header.numbered() else {
            return;
        };
        if self.prefix != prefix {
            // The messages come from another kernel.
            prefix.clone_into(&mut self.prefix);
        } else if let Some(missing) = number.checked_sub(self.last + 1) {
            self.count += missing.saturating_sub(u64::from(is_idle));
        } else {
            // Out of order: two threads of the kernel send.
            self.count = self.count.saturating_sub(1);
            return;
        }
        self.last = number;
    }

    /// Returns how many messages were dropped so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

/// Returns the notice for the outputs of a cell.
pub(super) fn notice(dropped: u64) -> String {
    format!(
        "{dropped} messages of the kernel are missing here: its own queue was full, and it dropped them. \
         The end of this cell was among them. To see its whole output, run it again."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(numbers: impl IntoIterator<Item = (u64, bool)>) -> u64 {
        let mut dropped = DroppedMessages::default();
        for (number, is_idle) in numbers {
            let header = Header {
                msg_id: format!("k_7_{number}").into(),
                session: "k".into(),
                ..Header::default()
            };
            dropped.see(&header, is_idle);
        }
        dropped.count()
    }

    #[test]
    fn a_hole_is_what_was_dropped_but_for_the_reply_before_an_idle() {
        assert_eq!(count([(5, false), (6, false), (8, true)]), 0);
        assert_eq!(count([(5, false), (9, false), (10, true)]), 3);
        assert_eq!(count([(5, false), (9, true)]), 2);
        assert_eq!(count([(5, false), (7, false), (6, false), (8, false)]), 0);
        assert_eq!(count([]), 0);
    }

    #[test]
    fn another_kernel_counts_from_its_own_first_number() {
        let mut dropped = DroppedMessages::default();
        for id in [
            "k_7_1", "k_7_2", "j_8_900", "j_8_901", "anything", "j_8_905",
        ] {
            let session = id.split('_').next().unwrap_or_default();
            let header = Header {
                msg_id: id.into(),
                session: session.into(),
                ..Header::default()
            };
            dropped.see(&header, false);
        }
        assert_eq!(dropped.count(), 3);
    }
}
