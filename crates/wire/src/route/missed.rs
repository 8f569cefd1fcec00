//! Which published messages a subscriber has missed that was cut because it did not read.
//!
//! A subscription names neither its client nor an earlier subscription. So any client that subscribes soon
//! after one was cut gets messages that say what was missed. Clients ignore messages about other clients'
//! requests.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::synthetic;
use crate::wire::{Header, MissingMessages};

/// The number of published messages, the last `idle`s among them, and the subscribers that were cut.
#[derive(Debug, Default)]
pub(super) struct MissedMessages {
    published: u64,
    /// Oldest first, at most [`IDLES_MAX`].
    idles: VecDeque<PublishedIdle>,
    /// At most [`CUTS_MAX`].
    cuts: Vec<Cut>,
    /// Whether a client has subscribed that has not got its `iopub_welcome` yet.
    is_welcome_pending: bool,
}

/// The published `idle` of a request.
#[derive(Debug)]
struct PublishedIdle {
    /// Its number among all published messages.
    number: u64,
    /// The request's header.
    request: Bytes,
}

/// A subscriber that was cut, and has not come back yet.
#[derive(Debug)]
struct Cut {
    /// The number of the first message that it did not get.
    first_missed: u64,
    at: Instant,
    /// When a new subscriber first got the notice of missed messages.
    first_reported: Option<Instant>,
}

/// How many `idle`s are remembered.
const IDLES_MAX: usize = 1024;

/// How many cut subscribers are remembered.
const CUTS_MAX: usize = 256;

/// How long a subscriber may stay away. A window on a machine that slept for longer knows nothing of the
/// kernel's recent cells anyway.
const ABSENCE_MAX: Duration = Duration::from_secs(3600);

/// How long after the first one other subscribers get the same notice: all subscribers of one process are cut
/// together.
const REPORT_TIME: Duration = Duration::from_secs(60);

impl MissedMessages {
    /// Counts a published message.
    pub(super) fn count_published(&mut self) {
        self.published += 1;
    }

    #[cfg(test)]
    pub(super) fn published(&self) -> u64 {
        self.published
    }

    /// Records the `idle` of a request; `before` messages in the queue are published before it.
    pub(super) fn record_idle(&mut self, before: usize, request: &Bytes) {
        if self.idles.len() == IDLES_MAX {
            self.idles.pop_front();
        }
        let welcome = u64::from(self.is_welcome_pending);
        self.idles.push_back(PublishedIdle {
            number: self.published + welcome + before as u64 + 1,
            // A copy: a slice would keep the whole receive buffer in memory.
            request: Bytes::copy_from_slice(request),
        });
    }

    /// Records that a subscriber was cut; `first_missed` is the number of the first message that it did not get.
    pub(super) fn add_cut(&mut self, at: Instant, first_missed: u64) {
        if self.cuts.len() == CUTS_MAX {
            self.cuts.remove(0);
        }
        self.cuts.push(Cut {
            first_missed,
            at,
            first_reported: None,
        });
    }

    /// Returns how many messages a client that subscribes now has missed, and the headers of the requests
    /// that ended among them; `None` where no subscriber was cut.
    pub(super) fn missed_since_cut(&mut self, now: Instant) -> Option<(u64, Vec<Bytes>)> {
        let ago = |at: Instant| now.saturating_duration_since(at);
        let may_return = |cut: &Cut| {
            let is_late = cut
                .first_reported
                .is_some_and(|first| ago(first) >= REPORT_TIME);
            ago(cut.at) < ABSENCE_MAX && !is_late
        };
        self.cuts.retain(may_return);
        for cut in &mut self.cuts {
            cut.first_reported.get_or_insert(now);
        }
        let first_missed = self.cuts.iter().map(|cut| cut.first_missed).min()?;
        let messages = (self.published + 1).saturating_sub(first_missed);
        let ended = self.idles.iter().filter(|idle| idle.number >= first_missed);
        Some((messages, ended.map(|idle| idle.request.clone()).collect()))
    }

    /// Records that a client has subscribed that gets its `iopub_welcome` later.
    pub(super) fn set_pending_welcome(&mut self) {
        self.is_welcome_pending = true;
    }

    /// Returns whether a client waits for an `iopub_welcome`, and resets that.
    pub(super) fn take_pending_welcome(&mut self) -> bool {
        std::mem::take(&mut self.is_welcome_pending)
    }
}

/// Returns whether a request is an execute_request.
pub(super) fn is_cell(request: &[u8]) -> bool {
    Header::parse(request).is_ok_and(|header| header.msg_type == "execute_request")
}

/// Returns the content of the stream message that says how many messages are missing.
pub(super) fn notice(messages: u64) -> serde_json::Value {
    let missing = MissingMessages(Some(messages));
    synthetic::notice(&format!(
        "{missing} here: this window did not read for so long that its output buffer was full. The kernel has \
         gone on; to see the whole output of a cell, run it again."
    ))
}
