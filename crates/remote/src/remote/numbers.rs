//! Which of a kernel's messages never arrived, by their sequence numbers.
//!
//! `jupyter_client`'s message ids are `<session>_<pid>_<number>`; a kernel numbers its messages on all channels
//! together. Of another client's request, only the statuses are on iopub: its reply is a number that is expected to be
//! missing between `busy` and `idle`.

use std::collections::{BTreeSet, HashMap};

use crate::wire::Header;

/// The highest number of missing messages that are stored one by one.
const STORED_MAX: u64 = 100_000;

/// How many of the last numbers may arrive out of order.
const REORDERED_MAX: u64 = 20;

/// The sequence numbers of one kernel's messages, since a moment when none was missing.
#[derive(Debug, Default)]
pub(super) struct MessageNumbers {
    /// The part of the message ids before the number.
    prefix: Option<String>,
    /// The highest number so far.
    last: Option<u64>,
    missing: BTreeSet<u64>,
    /// The number of missing messages that are not stored one by one.
    not_stored: u64,
    /// The number of the `busy` of each request of other clients that is being handled.
    busy: HashMap<String, u64>,
}

impl MessageNumbers {
    /// Returns whether the kernel numbers its messages, as far as is known.
    pub(super) fn is_numbered(&self) -> bool {
        self.last.is_some()
    }

    /// Takes a message of the kernel.
    pub(super) fn take(&mut self, header: &Header<'_>) {
        let Some((prefix, number)) = header.numbered() else {
            return;
        };
        match &self.prefix {
            // A server's own messages have numbers of their own.
            Some(current) if current != prefix => return,
            Some(_) => {}
            None => self.prefix = Some(prefix.to_owned()),
        }
        match self.last {
            Some(last) if number <= last => {
                self.missing.remove(&number);
            }
            Some(last) => {
                let gap = last + 1..number;
                let stored = gap.end.min(gap.start + STORED_MAX);
                self.not_stored += gap.end - stored;
                self.missing.extend(gap.start..stored);
                self.last = Some(number);
            }
            None => self.last = Some(number),
        }
    }

    /// Takes the status of a request of another client, which alone gets the reply.
    pub(super) fn take_other_status(&mut self, header: &Header<'_>, request: &str, state: &str) {
        let Some((_, number)) = header.numbered() else {
            return;
        };
        match state {
            "busy" => drop(self.busy.insert(request.to_owned(), number)),
            "idle" => {
                let reply = self.busy.remove(request).and_then(|busy| {
                    let mut between = self.missing.range(busy..number);
                    between.next().copied()
                });
                reply.map(|reply| self.missing.remove(&reply));
            }
            _ => {}
        }
    }

    /// Returns how many messages before this one are missing, and counts anew from it on. Later ones may be late: the
    /// channels of a kernel overtake each other.
    pub(super) fn take_missing_before(&mut self, number: u64) -> u64 {
        let later = self.missing.split_off(&number);
        let missing = std::mem::replace(&mut self.missing, later);
        missing.len() as u64 + std::mem::take(&mut self.not_stored)
    }

    /// Returns how many messages are missing, and counts anew from now on.
    pub(super) fn take_missing(&mut self) -> u64 {
        self.busy.clear();
        let stored = std::mem::take(&mut self.missing).len() as u64;
        stored + std::mem::take(&mut self.not_stored)
    }

    /// Forgets the numbers that have been missing for long. Threads of a kernel number at the same time, so the last few messages may
    /// arrive out of order.
    pub(super) fn forget_old(&mut self) {
        let recent = self.last.unwrap_or_default().saturating_sub(REORDERED_MAX);
        self.missing = self.missing.split_off(&recent);
        self.not_stored = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(number: u64) -> Header<'static> {
        Header {
            msg_id: format!("k_7_{number}").into(),
            session: "k".into(),
            ..Header::default()
        }
    }

    #[test]
    fn missing_messages_are_counted_and_late_ones_are_not() {
        let mut numbers = MessageNumbers::default();
        assert!(!numbers.is_numbered());
        for number in [5, 6, 9, 8, 12, 12] {
            numbers.take(&header(number));
        }
        assert_eq!(numbers.take_missing(), 3, "7, 10 and 11");
        assert_eq!(numbers.take_missing(), 0);
        numbers.take(&header(1_000_000));
        assert_eq!(numbers.take_missing(), 999_987);
        for number in [1_000_002, 1_000_040, 1_000_042] {
            numbers.take(&header(number));
        }
        numbers.forget_old();
        assert_eq!(
            numbers.take_missing(),
            19,
            "1,000,022 to 1,000,039, and 1,000,041"
        );
    }

    #[test]
    fn messages_after_a_number_are_not_missing_before_it() {
        let mut numbers = MessageNumbers::default();
        // 9 is a reply that has overtaken 8.
        for number in [3, 9, 5, 6, 7] {
            numbers.take(&header(number));
        }
        assert_eq!(numbers.take_missing_before(7), 1, "4");
        assert_eq!(numbers.take_missing_before(7), 0);
        numbers.take(&header(8));
        assert_eq!(numbers.take_missing(), 0);
    }

    #[test]
    fn a_reply_to_another_client_is_expected_to_be_missing() {
        let mut numbers = MessageNumbers::default();
        let mut status = |number: u64, request: &str, state: &str| {
            numbers.take(&header(number));
            numbers.take_other_status(&header(number), request, state);
        };
        status(1, "a", "busy");
        status(2, "b", "busy");
        // 3 is the reply to b, which another thread of the kernel sent.
        status(4, "b", "idle");
        // 5 is the reply to a.
        status(6, "a", "idle");
        status(8, "c", "idle");
        assert_eq!(numbers.take_missing(), 1, "7, since nothing is known of c");
    }

    #[test]
    fn numbers_of_other_senders_are_ignored() {
        let mut numbers = MessageNumbers::default();
        numbers.take(&header(5));
        for id in ["j_7_9", "k_8_9", "k_9", "k"] {
            let session = id.split('_').next().unwrap_or_default().to_owned();
            numbers.take(&Header {
                msg_id: id.to_owned().into(),
                session: session.into(),
                ..Header::default()
            });
        }
        numbers.take(&header(6));
        assert_eq!(numbers.take_missing(), 0);
    }
}
