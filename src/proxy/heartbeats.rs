//! The heartbeats of all peers, which share one socket to the kernel.
//!
//! A peer of the heartbeat port proves nothing. So it gets no socket of its own to the kernel, and nothing that it
//! sends reaches the kernel: the kernel gets pings of the proxy, one at a time. Its answer answers the pings of all
//! peers that came before that ping.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::socket::{Message, PeerId};

/// The pings that the kernel has not answered yet, at most one of each peer.
#[derive(Debug, Default)]
pub(super) struct Heartbeats {
    /// When the kernel was pinged, if it has not answered yet.
    sent_at: Option<Instant>,
    /// The pings that came before that, and those that came after it.
    asked: Vec<(PeerId, Message)>,
    waiting: Vec<(PeerId, Message)>,
}

/// A socket on which the kernel has not answered for so long is replaced: its connection may be lost without a sign.
const ANSWER_MAX: Duration = Duration::from_secs(10);

impl Heartbeats {
    /// Takes a peer's ping; one that comes while another of this peer waits counts as missed.
    pub(super) fn add(&mut self, peer: &PeerId, frames: Message) {
        let mut pings = self.asked.iter().chain(&self.waiting);
        if pings.all(|(other, _)| other != peer) {
            self.waiting.push((peer.clone(), frames));
        }
    }

    /// Forgets a peer that has left.
    pub(super) fn remove(&mut self, peer: &PeerId) {
        for pings in [&mut self.asked, &mut self.waiting] {
            pings.retain(|(other, _)| other != peer);
        }
    }

    /// Returns the ping to send to the kernel, if one is due. A REP socket needs its empty frame.
    pub(super) fn poll_ping(&mut self, now: Instant) -> Option<Message> {
        if self.sent_at.is_some() || self.waiting.is_empty() {
            return None;
        }
        self.sent_at = Some(now);
        self.asked = std::mem::take(&mut self.waiting);
        Some(vec![Bytes::new(), Bytes::from_static(b"ping")])
    }

    /// Takes the kernel's answer; returns the pings that it answers.
    pub(super) fn answer(&mut self) -> Vec<(PeerId, Message)> {
        self.sent_at = None;
        std::mem::take(&mut self.asked)
    }

    /// Returns whether the kernel has not answered for so long that its socket is to be replaced.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        self.sent_at
            .is_some_and(|sent_at| now >= sent_at + ANSWER_MAX)
    }

    /// Takes the loss of the socket: the kernel is to be pinged again.
    pub(super) fn lose(&mut self) {
        self.sent_at = None;
        self.asked.append(&mut self.waiting);
        self.waiting = std::mem::take(&mut self.asked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ping(name: &'static str, text: &'static str) -> (PeerId, Message) {
        let peer = PeerId::announced(Bytes::from_static(name.as_bytes()));
        (
            peer,
            vec![Bytes::new(), Bytes::from_static(text.as_bytes())],
        )
    }

    fn add(beats: &mut Heartbeats, name: &'static str, text: &'static str) {
        let (peer, frames) = ping(name, text);
        beats.add(&peer, frames);
    }

    #[test]
    fn one_ping_at_a_time_answers_all_peers_that_asked_before_it() {
        let now = Instant::now();
        let mut beats = Heartbeats::default();
        assert_eq!(beats.poll_ping(now), None);
        add(&mut beats, "a", "1");
        assert!(beats.poll_ping(now).is_some());
        add(&mut beats, "b", "2");
        add(&mut beats, "c", "3");
        assert_eq!(beats.poll_ping(now), None);
        assert_eq!(beats.answer(), [ping("a", "1")]);
        assert!(beats.poll_ping(now).is_some());
        assert_eq!(beats.answer(), [ping("b", "2"), ping("c", "3")]);
        assert_eq!(beats.poll_ping(now), None);
        assert_eq!(beats.answer(), []);
    }

    #[test]
    fn one_ping_of_each_peer_waits_until_it_is_answered_or_the_peer_has_left() {
        let now = Instant::now();
        let mut beats = Heartbeats::default();
        add(&mut beats, "a", "1");
        beats.poll_ping(now);
        add(&mut beats, "b", "1");
        for _ in 0..1000 {
            add(&mut beats, "a", "2");
            add(&mut beats, "b", "2");
        }
        beats.remove(&ping("a", "").0);
        assert_eq!(beats.answer(), []);
        beats.poll_ping(now);
        assert_eq!(beats.answer(), [ping("b", "1")]);
        add(&mut beats, "b", "3");
        assert!(beats.poll_ping(now).is_some());
    }

    #[test]
    fn a_kernel_that_does_not_answer_is_asked_again_on_another_socket() {
        let now = Instant::now();
        let mut beats = Heartbeats::default();
        add(&mut beats, "a", "1");
        beats.poll_ping(now);
        add(&mut beats, "b", "2");
        assert!(!beats.is_overdue(now) && beats.is_overdue(now + ANSWER_MAX));
        beats.lose();
        assert!(beats.poll_ping(now).is_some());
        assert_eq!(beats.answer(), [ping("a", "1"), ping("b", "2")]);
        assert!(!beats.is_overdue(now + ANSWER_MAX));
    }
}
