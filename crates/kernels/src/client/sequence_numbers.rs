//! Counts a kernel's messages that never arrived, by their sequence numbers.
//!
//! ipykernel's session numbers its messages, on all channels together (`<session>_<pid>_<number>` is
//! `jupyter_client`'s message id). A client gets all of iopub and its own replies. A reply to another client
//! leaves a gap of one number, since the statuses before and after it are on iopub. A long gap means that the
//! kernel's PUB socket, whose queue holds 1,000 messages, has dropped some.

use std::collections::BTreeMap;

use crate::wire::Header;

/// The shortest gap that counts: a shorter one may be replies to other clients, a message that could not be
/// written, or two threads of the kernel that number at the same time.
const HOLE: u64 = 20;

/// The sequence numbers of a kernel's messages that have arrived.
#[derive(Clone, Debug, Default)]
pub struct SequenceNumbers {
    /// The part of the message ids before the number.
    prefix: Option<String>,
    /// Runs of numbers without a gap, by their first number.
    runs: BTreeMap<u64, Run>,
    /// The last number before each loss of the connection to the kernel.
    last_before: Vec<u64>,
}

/// Numbers without a gap.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The number after the last.
    end: u64,
    begins_with_idle: bool,
}

impl SequenceNumbers {
    /// Takes the header of a message of the kernel. `is_idle`: it is the status `idle`, before which the kernel numbers
    /// its reply.
    pub(super) fn take(&mut self, header: &Header<'_>, is_idle: bool) {
        let Some((prefix, number)) = header.numbered() else {
            return;
        };
        match &self.prefix {
            Some(known) if known != prefix => return,
            Some(_) => {}
            None => self.prefix = Some(prefix.to_owned()),
        }
        let before = self.runs.range(..=number).next_back();
        let before = before.map(|(first, run)| (*first, *run));
        if before.is_some_and(|(_, run)| number < run.end) {
            return;
        }
        let (first, begins_with_idle) = match before {
            Some((first, run)) if run.end == number => (first, run.begins_with_idle),
            _ => (number, is_idle),
        };
        let after = self.runs.remove(&(number + 1));
        let run = Run {
            end: after.map_or(number + 1, |run| run.end),
            begins_with_idle,
        };
        self.runs.insert(first, run);
    }

    /// Returns how many messages between the first and the last never arrived.
    pub(super) fn missing(&self) -> u64 {
        let ends = self.runs.values();
        let holes = ends.zip(self.runs.keys().skip(1));
        let holes = holes.map(|(run, next)| next - run.end);
        holes.filter(|hole| *hole >= HOLE).sum()
    }

    /// Records that the connection to the kernel was lost.
    pub(super) fn connection_lost(&mut self) {
        let last = self.runs.values().next_back();
        self.last_before.extend(last.map(|run| run.end - 1));
    }

    /// Returns how many messages before this `idle` were lost with connections: between the last message before and the
    /// first one after each loss. A reply just before an `idle` may be late, or another client's: it comes over another
    /// socket. `None` if the kernel does not number its messages.
    pub(super) fn lost_with_connections(&self, idle: &Header<'_>) -> Option<u64> {
        let (_, until) = idle.numbered()?;
        let before = self.runs.range(..=until);
        let holes = before.clone().zip(before.skip(1));
        let lost = holes.map(|((_, run), (next, next_run))| {
            // A later hole is none of the connection's: after it messages arrive in order.
            let is_lost = self.last_before.contains(&(run.end - 1));
            let missing = (next - run.end).saturating_sub(next_run.begins_with_idle.into());
            if is_lost { missing } else { 0 }
        });
        Some(lost.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(session: &str, msg_id: String) -> Header<'static> {
        Header {
            msg_id: msg_id.into(),
            session: session.to_owned().into(),
            ..Header::default()
        }
    }

    fn missing(numbers: impl IntoIterator<Item = u64>) -> u64 {
        let mut received = SequenceNumbers::default();
        for number in numbers {
            received.take(&header("k", format!("k_7_{number}")), false);
        }
        received.missing()
    }

    #[test]
    fn a_long_hole_is_what_was_dropped() {
        assert_eq!(missing([]), 0);
        assert_eq!(missing(5..500), 0);
        assert_eq!(missing((5..500).chain(1500..1600)), 1000);
        // Threads send out of order, and a message that arrives twice counts once.
        assert_eq!(missing((5..500).rev().chain(5..500).chain(900..901)), 400);
        let evens = (0..500).map(|at| at * 2);
        assert_eq!(missing(evens.chain([1, 3])), 0, "others are replied");
        let thirds = (0..9).map(|at| at * (HOLE + 1));
        assert_eq!(missing(thirds), 8 * HOLE);
    }

    #[test]
    fn what_was_lost_with_a_connection_is_counted_exactly() {
        const IDLES: [u64; 2] = [16, 22];
        let mut received = SequenceNumbers::default();
        received.connection_lost();
        assert_eq!(
            received.lost_with_connections(&header("k", "k".to_owned())),
            None
        );
        let mut take = |numbers: &[u64], is_lost: bool| {
            for number in numbers {
                received.take(
                    &header("k", format!("k_7_{number}")),
                    IDLES.contains(number),
                );
            }
            if is_lost {
                received.connection_lost();
            }
            received.lost_with_connections(&header("k", "k_7_16".to_owned()))
        };
        assert_eq!(
            take(&[5, 6, 8], true),
            Some(0),
            "7 is not a loss of a connection"
        );
        assert_eq!(take(&[9], true), Some(0));
        assert_eq!(take(&[10], true), Some(0));
        assert_eq!(take(&[12, 13], true), Some(1));
        assert_eq!(take(&[11, 16], false), Some(1), "14; 15 is the reply");
        assert_eq!(
            take(&[20], false),
            Some(1),
            "what comes later may only be late"
        );
        received.connection_lost();
        received.take(&header("k", "k_7_22".to_owned()), true);
        assert_eq!(
            received.lost_with_connections(&header("k", "k_7_22".to_owned())),
            Some(1),
            "21 is a reply, perhaps to another client"
        );
        received.connection_lost();
        for number in [23, 25] {
            received.take(&header("k", format!("k_7_{number}")), false);
        }
        assert_eq!(
            received.lost_with_connections(&header("k", "k_7_25".to_owned())),
            Some(1),
            "24 was numbered after the new connection's first message"
        );
    }

    #[test]
    fn what_others_number_says_nothing() {
        let mut received = SequenceNumbers::default();
        for id in [
            "k_7_1", "k_7_2", "j_7_900", "k_8_900", "k_900", "k_7_x", "k", "_", "k__900",
        ] {
            let session = id.split('_').next().unwrap_or_default();
            received.take(&header(session, id.to_owned()), false);
        }
        received.take(&header("other", "k_7_900".to_owned()), false);
        received.take(&header("k", format!("k_7_{}", u64::MAX)), false);
        assert_eq!(received.missing(), 0);
        received.take(&header("k", "k_7_900".to_owned()), false);
        assert_eq!(received.missing(), 897);
    }
}
