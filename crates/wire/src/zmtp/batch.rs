//! Converts outgoing messages into the slices of one vectored write.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Bytes, BytesMut};

use super::frame::{MORE, header_len, put_header};

/// Shorter frames are copied next to their header, which is cheaper than a separate slice.
const COPIED_FRAME: usize = 512;

/// A message of at most this length on the wire is encoded once for many peers.
const COPIED_MESSAGE: usize = 4 * 1024;

/// The capacity of its buffer that an empty batch keeps, in bytes.
const COPIED_KEPT: usize = 192 * 1024;

/// Bytes that wait to be written, in order.
///
/// Headers and short frames share one buffer; the content of longer frames is not copied.
#[derive(Debug, Default)]
pub struct Batch {
    copied: Vec<u8>,
    segments: VecDeque<Segment>,
    /// How many bytes of the first segment are written.
    offset: usize,
    len: usize,
}

#[derive(Debug)]
enum Segment {
    /// A range of `copied`.
    Copied {
        start: usize,
        end: usize,
    },
    Frame(Bytes),
}

impl Batch {
    /// Adds a message.
    pub fn push(&mut self, message: &[Bytes]) {
        let last = message.len().saturating_sub(1);
        for (index, frame) in message.iter().enumerate() {
            let flags = if index < last { MORE } else { 0 };
            let start = self.copied.len();
            put_header(&mut self.copied, flags, frame.len());
            if frame.len() <= COPIED_FRAME {
                self.copied.extend_from_slice(frame);
                self.copied_from(start);
            } else {
                self.copied_from(start);
                self.len += frame.len();
                self.segments.push_back(Segment::Frame(frame.clone()));
            }
        }
    }

    /// Adds bytes that are complete frames already, as from [`Connection`](super::Connection).
    pub fn push_raw(&mut self, frames: &Bytes) {
        if frames.len() > COPIED_MESSAGE {
            self.len += frames.len();
            return self.segments.push_back(Segment::Frame(frames.clone()));
        }
        let start = self.copied.len();
        self.copied.extend_from_slice(frames);
        self.copied_from(start);
    }

    fn copied_from(&mut self, start: usize) {
        let end_of_copied = self.copied.len();
        self.len += end_of_copied - start;
        match self.segments.back_mut() {
            Some(Segment::Copied { end, .. }) => *end = end_of_copied,
            _ => self.segments.push_back(Segment::Copied {
                start,
                end: end_of_copied,
            }),
        }
    }

    /// Returns how many bytes are not written yet.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether everything is written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns how many slices the unwritten bytes have.
    pub fn slices(&self) -> usize {
        self.segments.len()
    }

    /// Returns the next bytes to write, in at most `max` slices.
    pub fn io_slices(&self, max: usize) -> Vec<IoSlice<'_>> {
        self.rest().take(max).collect()
    }

    /// Puts the next bytes to write into these slices; returns how many slices it has filled.
    pub fn put_slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        for (slice, rest) in slices.iter_mut().zip(self.rest()) {
            *slice = rest;
            count += 1;
        }
        count
    }

    fn rest(&self) -> impl Iterator<Item = IoSlice<'_>> {
        let mut skip = self.offset;
        self.segments.iter().map(move |segment| {
            let bytes = match segment {
                Segment::Copied { start, end } => self.copied.get(*start..*end),
                Segment::Frame(frame) => Some(&**frame),
            };
            let rest = bytes.and_then(|bytes| bytes.get(std::mem::take(&mut skip)..));
            IoSlice::new(rest.expect("a segment lies within its buffer"))
        })
    }

    /// Records that `written` more bytes were written.
    ///
    /// # Panics
    /// If that is more than [`Batch::len`].
    pub fn advance(&mut self, written: usize) {
        self.len = self
            .len
            .checked_sub(written)
            .expect("no more was written than there was");
        self.offset += written;
        while let Some(first) = self.segments.front() {
            let len = match first {
                Segment::Copied { start, end } => end - start,
                Segment::Frame(frame) => frame.len(),
            };
            if self.offset < len {
                return;
            }
            self.offset -= len;
            self.segments.pop_front();
        }
        self.clear();
    }

    /// Drops all bytes.
    pub fn clear(&mut self) {
        self.segments.clear();
        self.offset = 0;
        self.len = 0;
        // The memory for one burst must not be held for ever.
        self.copied.clear();
        self.copied.shrink_to(COPIED_KEPT);
    }
}

/// Returns how many bytes a message takes on the wire.
pub fn message_len(message: &[Bytes]) -> usize {
    message
        .iter()
        .map(|frame| header_len(frame.len()) + frame.len())
        .sum()
}

/// Encodes short messages once for many peers, in memory that is reused when all peers have them.
#[derive(Debug)]
pub struct Encoder {
    buffer: BytesMut,
}

/// How much memory is allocated at a time, in bytes.
const ENCODED_AT_ONCE: usize = 16 * 1024;

impl Default for Encoder {
    fn default() -> Self {
        Self {
            buffer: BytesMut::with_capacity(ENCODED_AT_ONCE),
        }
    }
}

impl Encoder {
    /// Returns the wire format of a short message, for [`Batch::push_raw`].
    ///
    /// For many peers this is cheaper than encoding it for each. Returns `None` for a message over 4 KiB,
    /// whose content is better not copied.
    pub fn encode(&mut self, message: &[Bytes]) -> Option<Bytes> {
        let len = message_len(message);
        if len > COPIED_MESSAGE {
            return None;
        }
        // While some peer has not received all of it yet, the old memory stays with those messages, and as much is
        // allocated again.
        self.buffer.reserve(len);
        let last = message.len().saturating_sub(1);
        for (index, frame) in message.iter().enumerate() {
            let flags = if index < last { MORE } else { 0 };
            put_header(&mut self.buffer, flags, frame.len());
            self.buffer.extend_from_slice(frame);
        }
        Some(self.buffer.split().freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zmtp::frame::HEADER_MAX;

    fn flat(batch: &Batch) -> Vec<u8> {
        batch
            .io_slices(usize::MAX)
            .iter()
            .flat_map(|slice| slice.to_vec())
            .collect()
    }

    #[test]
    fn any_progress_leaves_the_right_rest() {
        let long = Bytes::from(vec![1; 1000]);
        let short = Bytes::from_static(b"short");
        let mut batch = Batch::default();
        let message = [short.clone(), long.clone(), short.clone(), long, short];
        let fill = |batch: &mut Batch| {
            batch.push(&message);
            batch.push_raw(&Bytes::from_static(b"raw"));
            batch.push(&message);
        };
        fill(&mut batch);
        assert_eq!(batch.len(), 2 * message_len(&message) + 3);
        // Headers and short frames share a slice: 5 shared slices, 4 long frames.
        assert_eq!(batch.slices(), 9);
        let whole = flat(&batch);
        assert_eq!(whole.len(), batch.len());
        for step in [1, 2, 7, 500, 1009, 3000] {
            let mut written = Vec::new();
            while !batch.is_empty() {
                let rest = flat(&batch);
                let n = step.min(rest.len());
                written.extend_from_slice(&rest[..n]);
                batch.advance(n);
            }
            assert_eq!(written, whole);
            assert_eq!(batch.slices(), 0);
            fill(&mut batch);
        }
    }

    #[test]
    fn an_encoded_message_is_the_same_on_the_wire() {
        let message = [
            Bytes::from(vec![1; 1000]),
            Bytes::new(),
            Bytes::from_static(b"x"),
        ];
        let (mut one, mut other) = (Batch::default(), Batch::default());
        let mut encoder = Encoder::default();
        // More than is allocated at a time, while all messages are still referenced.
        let all: Vec<_> = (0..40).map(|_| encoder.encode(&message)).collect();
        for encoded in all {
            one.push(&message);
            other.push_raw(&encoded.expect("it is short"));
        }
        assert_eq!(flat(&one), flat(&other));
        let has_form = |len: usize| {
            let message = [Bytes::from(vec![0; len - HEADER_MAX])];
            Encoder::default().encode(&message).is_some()
        };
        assert!(has_form(4096) && !has_form(4097));
    }

    #[test]
    fn encoded_messages_share_memory_that_is_used_again() {
        let message = [Bytes::from(vec![1; 1000])];
        let mut encoder = Encoder::default();
        let mut encode = || encoder.encode(&message).expect("it is short");
        // 16 of them fit into what is allocated at a time.
        let held: Vec<_> = (0..32).map(|_| encode()).collect();
        let follows = |[one, next]: &[Bytes; 2]| one.as_ptr_range().end == next.as_ptr();
        assert!(held[..16].array_windows().all(follows));
        assert!(held[16..].array_windows().all(follows));
        let place = held[16].as_ptr();
        drop(held);
        assert_eq!(encode().as_ptr(), place);
    }

    #[test]
    fn short_raw_bytes_are_copied_and_long_ones_are_not() {
        let (short, long) = (Bytes::from(vec![1; 4096]), Bytes::from(vec![2; 4097]));
        let mut batch = Batch::default();
        batch.push_raw(&short);
        batch.push_raw(&long);
        assert_eq!(batch.len(), 4096 + 4097);
        let slices = batch.io_slices(10);
        assert_ne!(slices[0].as_ptr(), short.as_ptr());
        assert_eq!(slices[1].as_ptr(), long.as_ptr());
    }

    #[test]
    fn a_batch_keeps_some_of_its_memory_after_a_burst() {
        const KEPT: usize = 192 * 1024;
        let short = [Bytes::from(vec![1; 500])];
        let mut batch = Batch::default();
        for _ in 0..1000 {
            batch.push(&short);
        }
        assert!(batch.copied.capacity() > 2 * KEPT);
        batch.advance(batch.len());
        assert!((KEPT..2 * KEPT).contains(&batch.copied.capacity()));
        batch.push(&short);
        batch.clear();
        assert!(batch.is_empty() && flat(&batch).is_empty());
        assert!(batch.copied.is_empty(), "it would grow for ever");
    }

    #[test]
    fn long_content_is_not_copied() {
        let long = Bytes::from(vec![1; 1000]);
        let mut batch = Batch::default();
        batch.push(std::slice::from_ref(&long));
        let slices = batch.io_slices(10);
        assert_eq!(slices[1].as_ptr(), long.as_ptr());
        assert_eq!(batch.io_slices(1).len(), 1);
        let mut slices_of_three = [IoSlice::new(b""); 3];
        assert_eq!(batch.put_slices(&mut slices_of_three[..1]), 1);
        assert_eq!(batch.put_slices(&mut slices_of_three), 2);
        assert_eq!(slices_of_three[1].as_ptr(), long.as_ptr());
    }
}
