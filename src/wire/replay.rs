//! Signatures that were seen before.

use std::collections::{HashSet, VecDeque};

use super::Verified;

/// Remembers the signatures of the last messages, so that none is acted on twice.
///
/// ipykernel and jupyter_client do the same with as many (`digest_history_size`), but not every
/// kernel does. Signatures are uniform to whoever lacks the key, so eight bytes of each are enough.
/// When it is full the oldest goes. Unsigned messages are always new.
#[derive(Debug, Default)]
pub struct Replays {
    seen: HashSet<u64>,
    order: VecDeque<u64>,
}

/// How many signatures are remembered.
const REMEMBERED: usize = 1 << 16;

impl Replays {
    /// Returns whether the message is seen for the first time, and remembers it.
    pub fn is_new(&mut self, message: &Verified) -> bool {
        let Some(mark) = message
            .signature()
            .get(..16)
            .and_then(|hex| std::str::from_utf8(hex).ok())
        else {
            return true;
        };
        let Ok(mark) = u64::from_str_radix(mark, 16) else {
            return true;
        };
        if !self.seen.insert(mark) {
            return false;
        }
        self.order.push_back(mark);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{NewHeader, SigningKey, Unverified};

    fn message(key: &SigningKey, id: usize) -> Verified {
        let id = id.to_string();
        let header = NewHeader {
            msg_id: &id,
            session: "s",
            username: "u",
            date: "d",
            msg_type: "t",
        };
        let frames = Verified::new(&header, "{}".into(), &serde_json::json!({})).into_frames(key);
        key.verify(Unverified::parse(frames).expect("whole"))
            .expect("signed")
    }

    #[test]
    fn a_message_is_new_once() {
        let (key, mut replays) = (SigningKey::new(b"k"), Replays::default());
        assert!(replays.is_new(&message(&key, 1)));
        assert!(replays.is_new(&message(&key, 2)));
        assert!(!replays.is_new(&message(&key, 1)));
    }

    #[test]
    fn an_unsigned_message_is_always_new() {
        let (key, mut replays) = (SigningKey::new(b""), Replays::default());
        assert!(replays.is_new(&message(&key, 1)));
        assert!(replays.is_new(&message(&key, 1)));
    }

    #[test]
    fn it_forgets_the_oldest_and_stays_small() {
        let (key, mut replays) = (SigningKey::new(b"k"), Replays::default());
        for id in 0..=REMEMBERED {
            assert!(replays.is_new(&message(&key, id)));
        }
        assert_eq!(
            (replays.seen.len(), replays.order.len()),
            (REMEMBERED, REMEMBERED)
        );
        assert!(replays.is_new(&message(&key, 0)));
    }
}
