//! What a subscriber that was cut has missed, and what it is told when it is back.
//!
//! A subscriber says neither whose it is nor that it has been here before. So whoever subscribes
//! soon after one was cut is told: of each cell that began or ended meanwhile, on the cell's own
//! stderr, and of each request that ended that it did. What is of another's requests a client does not heed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;

use super::bridge::Bridge;
use super::request::{Answer, Request};
use super::timer::Now;
use super::turns::Running;
use super::{Action, Note, connect};
use crate::wire::{Header, Verified};

/// What was published, as far as somebody may have missed it.
#[derive(Debug, Default)]
pub(super) struct Missed {
    /// How many messages all subscribers were sent.
    published: u64,
    /// The last requests whose end was told, oldest first.
    ends: VecDeque<End>,
    cuts: Vec<Cut>,
    /// When somebody subscribed who was not welcomed yet.
    unwelcomed: Option<Now>,
}

#[derive(Debug)]
struct End {
    /// Which message told it.
    number: u64,
    /// The request's header.
    request: Bytes,
}

/// A subscriber that was cut, and has not come back yet.
#[derive(Debug)]
struct Cut {
    /// The first message that it did not get.
    since: u64,
    at: Instant,
    /// When somebody was told of it first.
    told: Option<Instant>,
}

/// So many ends are remembered.
const ENDS: usize = 1024;

/// So many that were cut.
const CUTS: usize = 256;

/// How long one may stay away: a window of a machine that sleeps is back later, with a kernel
/// of which it knows nothing anyway.
const AWAY: Duration = Duration::from_secs(3600);

/// Several of one process are cut together and come back together: how long after the first.
const TOGETHER: Duration = Duration::from_secs(60);

impl Missed {
    /// Counts a message that leaves.
    pub(super) fn publishes(&mut self) {
        self.published += 1;
    }

    #[cfg(test)]
    pub(super) fn published(&self) -> u64 {
        self.published
    }

    /// Notes that the message after so many tells the end of a request.
    fn ends(&mut self, after: usize, request: &Bytes) {
        if self.ends.len() == ENDS {
            self.ends.pop_front();
        }
        self.ends.push_back(End {
            number: self.published + after as u64 + 1,
            // Its own: it must not keep the buffer that it came in.
            request: Bytes::copy_from_slice(request),
        });
    }

    /// Returns the first message that whoever subscribes now has missed, if any.
    fn since(&mut self, now: Instant) -> Option<u64> {
        let ago = |at: Instant| now.saturating_duration_since(at);
        self.cuts
            .retain(|cut| ago(cut.at) < AWAY && cut.told.is_none_or(|told| ago(told) < TOGETHER));
        for cut in &mut self.cuts {
            cut.told.get_or_insert(now);
        }
        self.cuts.iter().map(|cut| cut.since).min()
    }
}

impl Bridge {
    /// Takes the news that a subscriber was cut because it does not read.
    ///
    /// `since` is the first message that it did not get, of all that were published: the first of
    /// all is 1.
    pub fn subscriber_cut(&mut self, now: Now, since: u64) {
        if self.missed.cuts.len() == CUTS {
            self.missed.cuts.remove(0);
        }
        self.missed.cuts.push(Cut {
            since,
            at: now.instant,
            told: None,
        });
    }

    /// Takes a new subscription; returns what its subscriber alone is to read first.
    ///
    /// Whoever subscribes to some topics only is told of nothing that was missed.
    #[must_use]
    pub fn subscribed(&mut self, now: Now, topic: &[u8]) -> Vec<Verified> {
        // Clients know one session, which the kernel settles: until it has spoken the welcome waits.
        let welcome = self.voice.is_settled().then(|| self.welcome(now, topic));
        if welcome.is_none() {
            self.missed.unwelcomed = Some(now);
        }
        let missed = if topic.is_empty() {
            self.what_was_missed(now)
        } else {
            Vec::new()
        };
        welcome.into_iter().chain(missed).collect()
    }

    /// Makes the message that a subscription has reached its publisher, as JEP 65 has it.
    fn welcome(&mut self, now: Now, topic: &[u8]) -> Verified {
        let content = json!({ "subscription": String::from_utf8_lossy(topic) });
        let nobody = Bytes::from_static(b"{}");
        let welcome = self.voice.say(now, "iopub_welcome", nobody, &content);
        // The subscription is the topic: whoever wants no other gets it.
        welcome.with_identities(match topic {
            [] => Vec::new(),
            topic => vec![Bytes::copy_from_slice(topic)],
        })
    }

    /// Returns the welcome of those that subscribed before the clients' session was known.
    pub(super) fn late_welcome(&mut self) -> Option<Verified> {
        if !self.voice.is_settled() {
            return None;
        }
        let now = self.missed.unwelcomed.take()?;
        Some(self.welcome(now, b""))
    }

    fn what_was_missed(&mut self, now: Now) -> Vec<Verified> {
        let Some(since) = self.missed.since(now.instant) else {
            return Vec::new();
        };
        let messages = (self.missed.published + 1).saturating_sub(since);
        let ends = self.missed.ends.iter().filter(|end| end.number >= since);
        let over: Vec<Bytes> = ends.map(|end| end.request.clone()).collect();
        let is_under_way = |request: &Request| {
            request.busy && !request.idle && request.answer == Answer::FromKernel
        };
        let keys = self.requests.keys(is_under_way).into_iter();
        let running: Vec<Bytes> = keys
            .filter_map(|key| Some(self.requests.get_mut(&key)?.header.clone()))
            .collect();
        let notice = notice(messages);
        let mut told = Vec::new();
        let mut cells = 0;
        for (request, is_over) in with(&over, true).chain(with(&running, false)) {
            if is_cell(request) {
                cells += 1;
                told.push(self.voice.publish(now, "stream", request.clone(), &notice));
            }
            if is_over {
                told.push(self.voice.status(now, request.clone(), "idle"));
            }
        }
        if cells == 0 {
            let nobody = Bytes::from_static(b"{}");
            told.push(self.voice.publish(now, "stream", nobody, &notice));
        }
        if self.running != Running::Nothing {
            // The last word is what a front end shows of the kernel.
            let busy = self.voice.status(now, self.running_header.clone(), "busy");
            told.push(busy);
        }
        self.log(Note::MissedTold { messages, cells });
        told
    }

    /// Tells everybody that a request has ended.
    pub(super) fn publish_idle(&mut self, now: Now, request: Bytes) {
        self.note_end(&request);
        let idle = self.voice.status(now, request, "idle");
        self.actions.push_back(Action::Publish(idle));
    }

    /// Notes that what is published next tells the end of a request.
    pub(super) fn note_end(&mut self, request: &Bytes) {
        let is_published = |action: &&Action| matches!(action, Action::Publish(_));
        let before = self.actions.iter().filter(is_published).count();
        let welcomes = usize::from(self.missed.unwelcomed.is_some());
        self.missed.ends(before + welcomes, request);
    }
}

fn with(requests: &[Bytes], is_over: bool) -> impl Iterator<Item = (&Bytes, bool)> {
    requests.iter().map(move |request| (request, is_over))
}

fn is_cell(request: &[u8]) -> bool {
    Header::parse(request).is_ok_and(|header| header.msg_type == "execute_request")
}

fn notice(messages: u64) -> serde_json::Value {
    let (messages, verb) = match messages {
        1 => ("1 message".to_owned(), "is"),
        _ => (format!("{messages} messages"), "are"),
    };
    let text = format!(
        "{messages} of the kernel {verb} missing here: this window did not read for so long that the room \
         which is kept for it was full. The kernel has gone on; to see the whole output of a cell, run it again."
    );
    connect::notice_stream(&text)
}
