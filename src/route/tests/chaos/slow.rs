//! A subscriber that reads seldom, is cut for that, and subscribes again.

use std::collections::HashSet;

use super::super::*;
use super::place::parents_number;

/// How many messages may wait for it.
const BUDGET: usize = 12;

/// How long after the cut a new subscriber still gets the notice.
const AWAY: Duration = Duration::from_secs(3600);

#[derive(Default)]
pub(super) struct Slow {
    sent: u64,
    unread: Vec<Verified>,
    /// When it was cut.
    cut: Option<Instant>,
    /// The requests of which it has got the `idle`.
    ended: HashSet<usize>,
    stayed_away: bool,
}

impl Slow {
    /// Takes a published message.
    pub(super) fn gets(&mut self, bridge: &mut Bridge, now: Now, message: &Verified) {
        self.sent += 1;
        if self.cut.is_some() {
            return;
        }
        self.unread.push(message.clone());
        if self.unread.len() > BUDGET {
            bridge.subscriber_cut(now, self.sent - self.unread.len() as u64 + 1);
            self.unread.clear();
            self.cut = Some(now.instant);
        }
    }

    pub(super) fn reads(&mut self) {
        for message in std::mem::take(&mut self.unread) {
            self.reads_one(&message);
        }
    }

    fn reads_one(&mut self, message: &Verified) {
        let content: Value = serde_json::from_slice(message.content()).expect("JSON");
        if content["execution_state"] == "idle" {
            self.ended.extend(parents_number(message));
        }
    }

    /// Subscribes again, if it was cut; returns the messages that the bridge sends it first.
    pub(super) fn returns(&mut self, bridge: &mut Bridge, now: Now) -> Vec<Verified> {
        let Some(cut) = self.cut.take() else {
            return Vec::new();
        };
        let mut told = bridge.subscribed(now, b"");
        let is_welcome = |message: &Verified| {
            let header = message.header().expect("readable");
            header.msg_type == "iopub_welcome"
        };
        if told.first().is_some_and(is_welcome) {
            told.remove(0);
        }
        let too_late = now.instant - cut >= AWAY;
        assert_eq!(told.is_empty(), too_late, "what was missed is told");
        self.stayed_away |= too_late;
        told.iter().for_each(|message| self.reads_one(message));
        told
    }

    pub(super) fn knows_end(&self, number: usize) -> bool {
        self.stayed_away || self.ended.contains(&number)
    }
}
