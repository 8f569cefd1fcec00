//! The messages that a kernel published recently, for subscribers that join just after this process has started.
//!
//! After a bridge was killed its successor gets the kernel's messages from the server at once, while the clients are
//! only about to connect again.

use std::time::{Duration, Instant};

use crate::wire::Verified;

/// How long after the start messages are stored.
const RECENT_TIME: Duration = Duration::from_secs(10);

/// The maximum of stored bytes; above that nothing is stored.
const BYTES_MAX: usize = 32 << 20;

/// The messages since the start of this process, while that is recent.
#[derive(Debug)]
pub(super) struct RecentMessages {
    started_at: Instant,
    messages: Vec<Verified>,
    bytes: usize,
}

impl RecentMessages {
    pub(super) fn new(started_at: Instant) -> Self {
        Self {
            started_at,
            messages: Vec::new(),
            bytes: 0,
        }
    }

    /// Takes a message that is published now.
    pub(super) fn take(&mut self, now: Instant, message: &Verified) {
        if now.duration_since(self.started_at) > RECENT_TIME || self.bytes > BYTES_MAX {
            self.messages = Vec::new();
            return;
        }
        self.bytes += message.size();
        self.messages.push(message.clone());
    }

    /// Returns the messages for a subscriber that joins now.
    pub(super) fn for_subscriber(&self, now: Instant) -> Vec<Verified> {
        match now.duration_since(self.started_at) <= RECENT_TIME {
            true => self.messages.clone(),
            false => Vec::new(),
        }
    }
}
