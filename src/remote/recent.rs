//! What a kernel published a moment ago, for subscribers that join just after this process began.
//!
//! After a bridge was killed its successor gets the kernel's messages from the server at once, while the clients are
//! only about to connect again.

use std::time::{Duration, Instant};

use crate::wire::Verified;

/// How long after the begin messages are kept.
const FIRST: Duration = Duration::from_secs(10);

/// How many bytes are kept at most; above that nothing is.
const MOST: usize = 32 << 20;

/// The messages since the begin, while it is recent.
#[derive(Debug)]
pub(super) struct RecentMessages {
    begun: Instant,
    messages: Vec<Verified>,
    bytes: usize,
}

impl RecentMessages {
    pub(super) fn new(begun: Instant) -> Self {
        Self {
            begun,
            messages: Vec::new(),
            bytes: 0,
        }
    }

    /// Takes a message that is published now.
    pub(super) fn take(&mut self, now: Instant, message: &Verified) {
        if now.duration_since(self.begun) > FIRST || self.bytes > MOST {
            self.messages = Vec::new();
            return;
        }
        self.bytes += message.size();
        self.messages.push(message.clone());
    }

    /// Returns the messages for a subscriber that joins now.
    pub(super) fn for_subscriber(&self, now: Instant) -> Vec<Verified> {
        match now.duration_since(self.begun) <= FIRST {
            true => self.messages.clone(),
            false => Vec::new(),
        }
    }
}
