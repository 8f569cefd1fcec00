//! Finds the ends of messages in bytes that were encoded earlier.

use super::frame::{HEADER_MAX, Header};

/// Counts the messages that end in a stream of frames, which may arrive in any pieces.
#[derive(Debug, Default)]
pub struct MessageEnds {
    /// The bytes of the current frame that have not arrived yet.
    missing: u64,
    /// Whether the current frame is the last of its message.
    ends: bool,
    /// The part of a header that has arrived.
    header: [u8; HEADER_MAX],
    header_len: usize,
}

impl MessageEnds {
    /// Returns how many messages end in these bytes. They must be the output of a [`Batch`](super::Batch),
    /// with or without commands.
    pub fn count(&mut self, bytes: &[u8]) -> u64 {
        let mut rest = bytes;
        let mut count = 0;
        loop {
            let skipped = usize::try_from(self.missing).map_or(rest.len(), |it| it.min(rest.len()));
            rest = rest.split_at(skipped).1;
            self.missing -= skipped as u64;
            if self.missing > 0 {
                return count;
            }
            count += u64::from(std::mem::take(&mut self.ends));
            loop {
                let Some((&byte, after)) = rest.split_first() else {
                    return count;
                };
                rest = after;
                if let Some(slot) = self.header.get_mut(self.header_len) {
                    *slot = byte;
                    self.header_len += 1;
                }
                let header = self.header.get(..self.header_len).unwrap_or_default();
                if let Ok(Some(header)) = Header::parse(header) {
                    self.header_len = 0;
                    self.missing = header.body;
                    self.ends = !header.more && !header.command;
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::zmtp::Batch;

    #[test]
    fn each_message_is_counted_once_however_it_is_split() {
        let frame = |len| Bytes::from(vec![3; len]);
        let messages = [
            vec![frame(0)],
            vec![frame(1), frame(0), frame(300), frame(0)],
            vec![frame(70_000)],
            vec![frame(5), frame(256)],
        ];
        let mut batch = Batch::default();
        messages.iter().for_each(|message| batch.push(message));
        let slices = batch.io_slices(usize::MAX);
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
        for step in [1, 2, 3, 7, 1000, bytes.len()] {
            let mut ends = MessageEnds::default();
            let counts: u64 = bytes.chunks(step).map(|piece| ends.count(piece)).sum();
            assert_eq!(counts, 4, "{step}");
        }
    }

    #[test]
    fn a_message_is_counted_with_its_last_byte() {
        let mut ends = MessageEnds::default();
        // A frame that another one follows, a command, and the last frame.
        for (piece, count) in [
            (&b"\x01\x02a"[..], 0),
            (b"b", 0),
            (b"\x04\x02\x01X", 0),
            (b"\x00\x03c", 0),
            (b"d", 0),
            (b"e", 1),
        ] {
            assert_eq!(ends.count(piece), count, "{piece:?}");
        }
    }
}
