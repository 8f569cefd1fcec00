//! The topics of one subscriber.

use std::collections::BTreeSet;
use std::ops::Bound;

use bytes::Bytes;

/// The topics of one subscriber: it gets a message if a topic is a prefix of the message's first frame.
#[derive(Debug, Default)]
pub(super) struct Topics {
    topics: BTreeSet<Bytes>,
    bytes: usize,
}

/// The maximum memory for the topics of one subscriber, in bytes.
pub(super) const TOPICS_BYTES_MAX: usize = 1 << 20;

/// The memory that a topic takes besides its bytes, roughly.
const TOPIC_OVERHEAD: usize = 64;

/// The topics of a subscriber exceed [`TOPICS_BYTES_MAX`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooManyTopics;

impl Topics {
    /// Adds a topic; returns whether it is new.
    pub(super) fn add(&mut self, topic: &Bytes) -> Result<bool, TooManyTopics> {
        if self.topics.contains(topic) {
            return Ok(false);
        }
        let bytes = self.bytes + topic.len() + TOPIC_OVERHEAD;
        if bytes > TOPICS_BYTES_MAX {
            return Err(TooManyTopics);
        }
        self.bytes = bytes;
        self.topics.insert(topic.clone());
        Ok(true)
    }

    /// Removes a topic; returns whether it was there.
    pub(super) fn remove(&mut self, topic: &Bytes) -> bool {
        let was_present = self.topics.remove(topic);
        if was_present {
            self.bytes -= topic.len() + TOPIC_OVERHEAD;
        }
        was_present
    }

    /// Returns whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    /// Returns whether one of the topics is a prefix of `frame`.
    ///
    /// The greatest topic that is not greater than `frame` is either such a prefix, or every topic that is a
    /// prefix of `frame` is also a prefix of what the two have in common.
    pub(super) fn matches(&self, frame: &[u8]) -> bool {
        // Most subscribers subscribe to everything.
        if self.topics.first().is_some_and(Bytes::is_empty) {
            return true;
        }
        let mut key = frame;
        loop {
            let range = (Bound::Unbounded, Bound::Included(key));
            let Some(topic) = self.topics.range::<[u8], _>(range).next_back() else {
                return false;
            };
            if key.starts_with(topic) {
                return true;
            }
            let common = key.iter().zip(topic).take_while(|(a, b)| a == b).count();
            key = key.split_at(common).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_frame_matches_if_it_begins_with_a_topic(
            topics in prop::collection::vec("[ab]{0,4}", 0..6),
            removed in prop::collection::vec("[ab]{0,4}", 0..3),
            frame in "[abc]{0,5}",
        ) {
            let mut set = Topics::default();
            for topic in &topics {
                set.add(&Bytes::from(topic.clone())).unwrap();
            }
            for topic in &removed {
                set.remove(&Bytes::from(topic.clone()));
            }
            let expected = topics
                .iter()
                .any(|topic| !removed.contains(topic) && frame.starts_with(topic.as_str()));
            prop_assert_eq!(set.matches(frame.as_bytes()), expected);
        }
    }

    #[test]
    fn the_topics_are_bounded() {
        let mut set = Topics::default();
        let added = (0..u32::MAX)
            .take_while(|n| set.add(&Bytes::copy_from_slice(&n.to_be_bytes())).is_ok())
            .count();
        assert_eq!(added, TOPICS_BYTES_MAX / (TOPIC_OVERHEAD + 4));
    }
}
