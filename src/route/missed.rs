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
    /// Oldest first, at most [`ENDS`].
    ends: VecDeque<End>,
    /// At most [`CUTS`].
    cuts: Vec<Cut>,
    /// Whether a client has subscribed that has not got its `iopub_welcome` yet.
    is_unwelcomed: bool,
}

/// The published `idle` of a request.
#[derive(Debug)]
struct End {
    /// Its number among all published messages.
    number: u64,
    /// The request's header.
    request: Bytes,
}

/// A subscriber that was cut, and has not come back yet.
#[derive(Debug)]
struct Cut {
    /// The number of the first message that it did not get.
    since: u64,
    at: Instant,
    /// When a new subscriber first got the notice of missed messages.
    reported: Option<Instant>,
}

/// How many `idle`s are remembered.
const ENDS: usize = 1024;

/// How many cut subscribers are remembered.
const CUTS: usize = 256;

/// How long a subscriber may stay away. A window on a machine that slept for longer knows nothing of the
/// kernel's recent cells anyway.
const AWAY: Duration = Duration::from_secs(3600);

/// How long after the first one other subscribers get the same notice: all subscribers of one process are cut
/// together.
const TOGETHER: Duration = Duration::from_secs(60);

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
    pub(super) fn note_end(&mut self, before: usize, request: &Bytes) {
        if self.ends.len() == ENDS {
            self.ends.pop_front();
        }
        let welcome = u64::from(self.is_unwelcomed);
        self.ends.push_back(End {
            number: self.published + welcome + before as u64 + 1,
            // A copy: a slice would keep the whole receive buffer in memory.
            request: Bytes::copy_from_slice(request),
        });
    }

    /// Records that a subscriber was cut; `since` is the number of the first message that it did not get.
    pub(super) fn add_cut(&mut self, at: Instant, since: u64) {
        if self.cuts.len() == CUTS {
            self.cuts.remove(0);
        }
        self.cuts.push(Cut {
            since,
            at,
            reported: None,
        });
    }

    /// Returns how many messages a client that subscribes now has missed, and the headers of the requests
    /// that ended among them; `None` where no subscriber was cut.
    pub(super) fn since_cut(&mut self, now: Instant) -> Option<(u64, Vec<Bytes>)> {
        let ago = |at: Instant| now.saturating_duration_since(at);
        let may_return = |cut: &Cut| {
            let is_late = cut.reported.is_some_and(|first| ago(first) >= TOGETHER);
            ago(cut.at) < AWAY && !is_late
        };
        self.cuts.retain(may_return);
        for cut in &mut self.cuts {
            cut.reported.get_or_insert(now);
        }
        let since = self.cuts.iter().map(|cut| cut.since).min()?;
        let messages = (self.published + 1).saturating_sub(since);
        let ends = self.ends.iter().filter(|end| end.number >= since);
        Some((messages, ends.map(|end| end.request.clone()).collect()))
    }

    /// Records that a client has subscribed that gets its `iopub_welcome` later.
    pub(super) fn set_unwelcomed(&mut self) {
        self.is_unwelcomed = true;
    }

    /// Returns whether a client waits for an `iopub_welcome`, and resets that.
    pub(super) fn take_unwelcomed(&mut self) -> bool {
        std::mem::take(&mut self.is_unwelcomed)
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
