//! Detects messages that were received before.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};

use super::{SigningKey, Verified};

/// Remembers the last messages, so that none is handled twice.
///
/// ipykernel and jupyter_client do the same with as many signatures (`digest_history_size`), but not every
/// kernel does, and no kernel does without a key. To anyone who lacks the key, signatures are random, so
/// eight bytes of each are enough. Without a key, any peer can write anything into the signature's frame;
/// then the message's own parts are hashed, with a secret of this process. Two different messages differ in
/// their `msg_id` and date. When the memory is full, the oldest message is forgotten.
#[derive(Debug)]
pub struct Replays {
    signed: bool,
    secret: RandomState,
    known: HashSet<u64>,
    order: VecDeque<u64>,
}

/// How many messages are remembered.
const REMEMBERED: usize = 1 << 16;

impl Replays {
    /// Makes an empty memory; `key` is the key with which the messages are verified.
    pub fn of(key: &SigningKey) -> Self {
        Self {
            signed: key.signs(),
            secret: RandomState::new(),
            known: HashSet::new(),
            order: VecDeque::new(),
        }
    }

    /// Returns whether the message is received for the first time, and remembers it.
    pub fn is_new(&mut self, message: &Verified) -> bool {
        let fingerprint = if self.signed {
            let mut half = [0; 8];
            let hex = message.signature().get(..16).unwrap_or_default();
            if hex::decode_to_slice(hex, &mut half).is_err() {
                return false;
            }
            u64::from_be_bytes(half)
        } else {
            let parts: Vec<_> = message.signed_parts().collect();
            self.secret.hash_one(parts)
        };
        if !self.known.insert(fingerprint) {
            return false;
        }
        self.order.push_back(fingerprint);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
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
        for key in [SigningKey::new(b"k"), SigningKey::new(b"")] {
            let mut replays = Replays::of(&key);
            assert!(replays.is_new(&message(&key, 1)));
            assert!(replays.is_new(&message(&key, 2)));
            assert!(!replays.is_new(&message(&key, 1)));
        }
    }

    #[test]
    fn without_a_key_the_signature_frame_is_ignored() {
        let unsigned = SigningKey::new(b"");
        let mut replays = Replays::of(&unsigned);
        let with_signature_of = |key: &[u8], id| {
            let frames = message(&unsigned, id).into_frames(&SigningKey::new(key));
            let message = Unverified::parse(frames).expect("whole");
            unsigned.verify(message).expect("unsigned")
        };
        assert!(replays.is_new(&with_signature_of(b"one", 1)));
        assert!(!replays.is_new(&with_signature_of(b"another", 1)));
        assert!(replays.is_new(&with_signature_of(b"one", 2)));
    }

    #[test]
    fn the_oldest_message_is_forgotten() {
        let key = SigningKey::new(b"k");
        let mut replays = Replays::of(&key);
        for id in 0..=REMEMBERED {
            assert!(replays.is_new(&message(&key, id)));
        }
        assert_eq!(
            (replays.known.len(), replays.order.len()),
            (REMEMBERED, REMEMBERED)
        );
        assert!(replays.is_new(&message(&key, 0)));
    }
}
