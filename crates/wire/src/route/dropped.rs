//! How many messages the kernel's own iopub queue has dropped, calculated from the numbers of those that
//! arrived. A kernel numbers its messages on all channels together.
//!
//! A PUB socket with a full queue (1,000 messages in ipykernel) silently drops new messages.

use std::collections::BTreeSet;

use crate::wire::{Header, MissingMessages};

/// The shortest gap that is reported in a cell whose end arrives. A shorter one may be a message that could not
/// be written, or two threads of the kernel that number at the same time.
const LONG_GAP: u64 = 20;

/// The count of messages that never arrived on iopub, for a kernel that numbers its messages.
#[derive(Debug, Default)]
pub(super) struct DroppedMessages {
    /// The part of a message id before the number.
    prefix: String,
    last: u64,
    /// Numbers after `last` of messages that arrived on stdin.
    on_stdin: BTreeSet<u64>,
    count: u64,
    /// Whether the connection was lost after the last message.
    is_lost: bool,
    /// How many messages were lost with the connection, and are in no notice yet.
    lost: u64,
    /// How many messages the queue has dropped, in long gaps, since the running cell began.
    in_cell: u64,
}

impl DroppedMessages {
    /// Takes the header of a message on iopub. `is_idle`: the reply that precedes an `idle` is numbered, too,
    /// and arrives on another socket.
    pub(super) fn count_on_iopub(&mut self, header: &Header<'_>, is_idle: bool) {
        let Some((prefix, number)) = header.numbered() else {
            return;
        };
        let was_lost = std::mem::take(&mut self.is_lost);
        if self.prefix != prefix {
            // The messages come from another kernel.
            prefix.clone_into(&mut self.prefix);
            self.on_stdin.clear();
        } else if let Some(missing) = number.checked_sub(self.last + 1) {
            let later = self.on_stdin.split_off(&number);
            let on_stdin = std::mem::replace(&mut self.on_stdin, later).len();
            let on_other_sockets = u64::from(is_idle) + u64::try_from(on_stdin).unwrap_or(u64::MAX);
            let missing = missing.saturating_sub(on_other_sockets);
            self.count += missing;
            if was_lost {
                self.lost += missing;
            } else if missing >= LONG_GAP {
                self.in_cell += missing;
            }
        } else {
            // Out of order: two threads of the kernel send.
            self.count = self.count.saturating_sub(1);
            return;
        }
        self.last = number;
    }

    /// Takes the header of a message on stdin. Its number is a gap on iopub, where nothing is missing.
    pub(super) fn count_on_stdin(&mut self, header: &Header<'_>) {
        match header.numbered() {
            Some((prefix, number)) if prefix == self.prefix => {
                if number > self.last {
                    self.on_stdin.insert(number);
                } else {
                    self.count = self.count.saturating_sub(1);
                    self.lost = self.lost.saturating_sub(1);
                }
            }
            _ => {}
        }
    }

    /// Records that the connection to the kernel was lost.
    pub(super) fn connection_lost(&mut self) {
        self.is_lost = true;
    }

    /// Returns how many messages were lost with the connection, and are in no notice yet.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Records that a notice has reported the messages that were lost with the connection.
    pub(super) fn mark_loss_reported(&mut self) {
        self.lost = 0;
    }

    /// Records that a cell begins.
    pub(super) fn cell_begins(&mut self) {
        self.in_cell = 0;
    }

    /// Returns how many messages the queue has dropped within the cell that ends now.
    pub(super) fn cell_ends(&mut self) -> u64 {
        std::mem::take(&mut self.in_cell)
    }

    /// Returns how many messages were dropped so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

/// Returns the notice for the outputs of a cell whose end arrived.
pub(super) fn gap_notice(dropped: u64) -> String {
    let missing = MissingMessages(Some(dropped));
    format!(
        "{missing} above: its own queue was full, and it dropped them. Fewer, larger prints lose nothing."
    )
}

/// Returns the notice for the outputs of a cell whose end was dropped.
pub(super) fn notice(dropped: u64) -> String {
    let missing = MissingMessages(Some(dropped));
    format!(
        "{missing} here: its own queue was full, and it dropped them. The end of this cell was among them. \
         To see its whole output, run it again."
    )
}

/// Returns the notice about messages that were lost with the connection to the kernel.
pub(super) fn loss_notice(lost: u64) -> String {
    let missing = MissingMessages(Some(lost));
    format!("the connection to the kernel was lost: {missing} here")
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
            dropped.count_on_iopub(&header, is_idle);
        }
        dropped.count()
    }

    #[test]
    fn a_gap_in_the_numbers_counts_as_dropped_except_for_the_reply_before_an_idle() {
        assert_eq!(count([(5, false), (6, false), (8, true)]), 0);
        assert_eq!(count([(5, false), (9, false), (10, true)]), 3);
        assert_eq!(count([(5, false), (9, true)]), 2);
        assert_eq!(count([(5, false), (7, false), (6, false), (8, false)]), 0);
        assert_eq!(count([]), 0);
    }

    #[test]
    fn messages_lost_with_the_connection_are_counted_separately() {
        let mut dropped = DroppedMessages::default();
        let mut add = |number: u64, is_lost: bool| {
            if is_lost {
                dropped.connection_lost();
            }
            let header = Header {
                msg_id: format!("k_7_{number}").into(),
                session: "k".into(),
                ..Header::default()
            };
            dropped.count_on_iopub(&header, false);
            let lost = dropped.lost();
            dropped.mark_loss_reported();
            lost
        };
        assert_eq!(
            (add(5, true), add(7, false)),
            (0, 0),
            "no loss of the connection"
        );
        assert_eq!((add(8, true), add(10, true), add(12, false)), (0, 1, 0));
    }

    #[test]
    fn an_input_request_is_no_gap_whether_it_arrives_early_or_late() {
        for stdin_first in [true, false] {
            let mut dropped = DroppedMessages::default();
            let header = |number: u64| Header {
                msg_id: format!("k_7_{number}").into(),
                session: "k".into(),
                ..Header::default()
            };
            dropped.count_on_iopub(&header(5), false);
            dropped.connection_lost();
            if stdin_first {
                dropped.count_on_stdin(&header(6));
            }
            dropped.count_on_iopub(&header(8), false);
            if !stdin_first {
                dropped.count_on_stdin(&header(6));
            }
            assert_eq!((dropped.lost(), dropped.count()), (1, 1), "7");
            dropped.count_on_iopub(&header(10), false);
            assert_eq!(dropped.count(), 2, "the question is subtracted once");
        }
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
            dropped.count_on_iopub(&header, false);
        }
        assert_eq!(dropped.count(), 3);
    }
}
