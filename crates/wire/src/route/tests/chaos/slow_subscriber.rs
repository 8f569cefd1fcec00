//! A subscriber that reads seldom, is cut for that, and subscribes again.

use std::collections::HashSet;

use super::super::*;
use super::world::parent_number;

/// The number of messages that may wait for it.
const UNREAD_MAX: usize = 12;

/// How long after the cut a new subscriber still gets the notice.
const ABSENCE_MAX: Duration = Duration::from_secs(3600);

#[derive(Default)]
pub(super) struct SlowSubscriber {
    published: u64,
    unread: Vec<Verified>,
    /// When it was cut.
    cut_at: Option<Instant>,
    /// The requests of which it has got the `idle`.
    ended: HashSet<usize>,
    returned_too_late: bool,
}

impl SlowSubscriber {
    /// Takes a published message.
    pub(super) fn receive(&mut self, bridge: &mut Bridge, now: Now, message: &Verified) {
        self.published += 1;
        if self.cut_at.is_some() {
            return;
        }
        self.unread.push(message.clone());
        if self.unread.len() > UNREAD_MAX {
            bridge.subscriber_cut(now, self.published - self.unread.len() as u64 + 1);
            self.unread.clear();
            self.cut_at = Some(now.instant);
        }
    }

    pub(super) fn read_all(&mut self) {
        for message in std::mem::take(&mut self.unread) {
            self.read(&message);
        }
    }

    fn read(&mut self, message: &Verified) {
        let content: Value = serde_json::from_slice(message.content()).expect("JSON");
        if content["execution_state"] == "idle" {
            self.ended.extend(parent_number(message));
        }
    }

    /// Subscribes again, if it was cut; returns the messages that the bridge sends it first.
    pub(super) fn resubscribe(&mut self, bridge: &mut Bridge, now: Now) -> Vec<Verified> {
        let Some(cut_at) = self.cut_at.take() else {
            return Vec::new();
        };
        let mut messages = bridge.subscribed(now, b"");
        let is_welcome = |message: &Verified| {
            let header = message.header().expect("readable");
            header.msg_type == "iopub_welcome"
        };
        if messages.first().is_some_and(is_welcome) {
            messages.remove(0);
        }
        let too_late = now.instant - cut_at >= ABSENCE_MAX;
        assert_eq!(
            messages.is_empty(),
            too_late,
            "the notice of missed messages"
        );
        self.returned_too_late |= too_late;
        messages.iter().for_each(|message| self.read(message));
        messages
    }

    pub(super) fn knows_end(&self, number: usize) -> bool {
        self.returned_too_late || self.ended.contains(&number)
    }
}
