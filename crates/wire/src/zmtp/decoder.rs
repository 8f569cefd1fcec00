//! The incremental decoder of one connection: takes bytes, returns frames.

use bytes::buf::Limit;
use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::frame::Header;
use super::{Error, Message};

/// A frame with a longer body is received into a separate buffer.
pub const LARGE_FRAME: usize = 64 * 1024;

/// The longest command, in bytes.
const COMMAND_MAX: usize = LARGE_FRAME;

/// The free space of the read buffer at first, and the limit to which it grows while reads fill it, in bytes.
const ROOM_MIN: usize = 8 * 1024;
const ROOM_MAX: usize = 64 * 1024;

/// With less free space a read is not worth its system call.
const ROOM_USEFUL: usize = 4 * 1024;

/// The limits for a peer's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLimits {
    /// The longest message: the bytes of all its frames.
    pub message_bytes: usize,
    /// The maximum number of frames in a message. Even empty frames cost memory.
    pub message_frames: usize,
    /// A message that is too long, but no longer than this, is read and dropped, and the connection stays; a
    /// longer one is an error.
    pub drained_bytes: u64,
}

impl Default for FrameLimits {
    /// Returns 1 GiB and 65,536 frames; nothing is drained.
    fn default() -> Self {
        Self {
            message_bytes: 1 << 30,
            message_frames: 1 << 16,
            drained_bytes: 0,
        }
    }
}

/// A message or command of a peer after the greeting.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    Message(Message),
    Command(Bytes),
    /// A message that was too long and was dropped.
    Drained {
        /// The frames before the one that was too long.
        partial: Message,
        /// The length of all its frames.
        bytes: u64,
    },
}

/// The incremental decoder: the read buffer, and the incomplete frame and message.
#[derive(Debug)]
pub(super) struct Decoder {
    limits: FrameLimits,
    /// The received bytes that are not decoded yet. The greeting is read from this buffer, too.
    pub(super) read: BytesMut,
    room: usize,
    /// Whether bytes were read since the last message.
    has_read: bool,
    large: Option<Large>,
    drained: Option<Drained>,
    frames: Message,
    frames_bytes: usize,
    /// The number of frames in the last message: the next one usually has as many.
    frames_hint: usize,
}

/// A frame that is too long for the read buffer.
#[derive(Debug)]
struct Large {
    body: BytesMut,
    len: usize,
    more: bool,
}

/// A message that is being dropped.
#[derive(Debug)]
struct Drained {
    partial: Message,
    bytes: u64,
    /// How many bytes of the current frame have not arrived yet.
    missing: u64,
    more: bool,
}

impl Large {
    fn missing(&self) -> usize {
        self.len - self.body.len()
    }
}

impl Decoder {
    pub(super) fn new(limits: FrameLimits) -> Self {
        Self {
            limits,
            read: BytesMut::new(),
            room: ROOM_MIN,
            has_read: false,
            large: None,
            drained: None,
            frames: Vec::new(),
            frames_bytes: 0,
            frames_hint: 0,
        }
    }

    /// Sets the longest message, in bytes; applies to frames that begin later.
    pub(super) fn set_message_limit(&mut self, bytes: usize) {
        self.limits.message_bytes = bytes;
    }

    /// Returns the buffer for the next bytes. It always has room for at least one.
    ///
    /// Memory grows with the received bytes: the read buffer doubles when a read has filled it, the buffer of
    /// a large frame doubles whenever it is full, up to the frame's length.
    pub(super) fn space(&mut self) -> Limit<&mut BytesMut> {
        if let Some(large) = &mut self.large
            && large.missing() > 0
        {
            let missing = large.missing();
            if large.body.len() == large.body.capacity() {
                large.body.reserve(missing.min(large.body.len()));
            }
            return (&mut large.body).limit(missing);
        }
        self.has_read = true;
        let free = self.read.capacity() - self.read.len();
        if free < ROOM_USEFUL {
            self.read.reserve(self.room);
        }
        (&mut self.read).limit(usize::MAX)
    }

    /// Returns how many bytes of an incomplete message are held.
    pub(super) fn held_bytes(&self) -> usize {
        let large = self.large.as_ref().map_or(0, |large| large.body.capacity());
        let frames = self.frames.capacity() * size_of::<Bytes>();
        self.frames_bytes + frames + large + self.read.len()
    }

    /// Returns the next message or command; `None` until more bytes arrive.
    pub(super) fn next(&mut self) -> Result<Option<Incoming>, Error> {
        let is_full = !self.read.is_empty() && self.read.len() == self.read.capacity();
        if std::mem::take(&mut self.has_read) && is_full {
            self.room = (self.room * 2).min(ROOM_MAX);
        }
        loop {
            if let Some(large) = &self.large {
                if large.missing() > 0 {
                    return Ok(None);
                }
                let Large { body, more, .. } = self.large.take().expect("it is there");
                if let Some(message) = self.add_frame(body.freeze(), more) {
                    return Ok(Some(Incoming::Message(message)));
                }
                continue;
            }
            if let Some(drained) = &mut self.drained {
                let available = drained.missing.min(self.read.len() as u64);
                self.read
                    .advance(usize::try_from(available).expect("no more than a length"));
                drained.missing -= available;
                if drained.missing > 0 {
                    return Ok(None);
                }
                if !drained.more {
                    let Drained { partial, bytes, .. } = self.drained.take().expect("it is there");
                    return Ok(Some(Incoming::Drained { partial, bytes }));
                }
            }
            let Some(header) = Header::parse(&self.read)? else {
                return Ok(None);
            };
            let body = match self.check(&header) {
                Err(error @ Error::MessageTooLong { .. }) => {
                    self.drain(&header).ok_or(error)?;
                    continue;
                }
                checked => checked?,
            };
            if body > LARGE_FRAME {
                self.read.advance(header.len);
                let available = self.read.len().min(body);
                let mut large = BytesMut::with_capacity((available * 2).max(LARGE_FRAME).min(body));
                large.extend_from_slice(&self.read.split_to(available));
                self.large = Some(Large {
                    body: large,
                    len: body,
                    more: header.more,
                });
                continue;
            }
            let whole = header.len + body;
            if self.read.len() < whole {
                // At most `LARGE_FRAME` and a header; further messages share the buffer.
                self.read.reserve((whole - self.read.len()).max(self.room));
                return Ok(None);
            }
            self.read.advance(header.len);
            let content = self.read.split_to(body).freeze();
            if header.command {
                return Ok(Some(Incoming::Command(content)));
            }
            if let Some(message) = self.add_frame(content, header.more) {
                return Ok(Some(Incoming::Message(message)));
            }
        }
    }

    /// Checks the announced length of a frame, before memory is allocated for it.
    fn check(&self, header: &Header) -> Result<usize, Error> {
        if header.command {
            return usize::try_from(header.body)
                .ok()
                .filter(|&body| body <= COMMAND_MAX)
                .ok_or(Error::CommandTooLong(header.body));
        }
        if self.drained.is_none() && self.frames.len() >= self.limits.message_frames {
            return Err(Error::TooManyFrames {
                limit: self.limits.message_frames,
            });
        }
        usize::try_from(header.body)
            .ok()
            .filter(|&body| body <= self.limits.message_bytes.saturating_sub(self.frames_bytes))
            .filter(|_| self.drained.is_none())
            .ok_or(Error::MessageTooLong {
                announced: header.body,
                limit: self.limits.message_bytes,
            })
    }

    /// Starts or continues to drop a message; returns `None` if it is too long even for that.
    fn drain(&mut self, header: &Header) -> Option<()> {
        let before = match &self.drained {
            Some(drained) => drained.bytes,
            None => self.frames_bytes as u64,
        };
        let bytes = before.checked_add(header.body)?;
        if bytes > self.limits.drained_bytes {
            return None;
        }
        self.read.advance(header.len);
        let partial = match self.drained.take() {
            Some(drained) => drained.partial,
            None => std::mem::take(&mut self.frames),
        };
        self.frames_bytes = 0;
        self.drained = Some(Drained {
            partial,
            bytes,
            missing: header.body,
            more: header.more,
        });
        Some(())
    }

    /// Adds a frame to the incomplete message; returns the message after its last frame.
    fn add_frame(&mut self, body: Bytes, more: bool) -> Option<Message> {
        if self.frames.capacity() == 0 {
            self.frames = Message::with_capacity(self.frames_hint.max(1));
        }
        self.frames_bytes += body.len();
        self.frames.push(body);
        if more {
            return None;
        }
        self.frames_bytes = 0;
        // Limited, so that after one message of very many frames not each later one reserves as much.
        self.frames_hint = self.frames.len().min(16);
        Some(std::mem::take(&mut self.frames))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zmtp::frame::{MORE, put_header};

    fn feed(decoder: &mut Decoder, mut bytes: &[u8]) -> usize {
        let mut space = decoder.space();
        let n = space.chunk_mut().len().min(bytes.len());
        space.put_slice(&bytes[..n]);
        bytes.advance(n);
        n
    }

    #[test]
    fn memory_grows_with_the_received_bytes_not_with_the_announced_length() {
        let mut decoder = Decoder::new(FrameLimits::default());
        let mut bytes = Vec::new();
        put_header(&mut bytes, 0, 1 << 30);
        feed(&mut decoder, &bytes);
        assert_eq!(decoder.next(), Ok(None));
        let mut received = 0;
        while received < 1 << 22 {
            received += feed(&mut decoder, &[7; 100_000]);
            assert_eq!(decoder.next(), Ok(None));
            let held = decoder.large.as_ref().expect("it is large").body.capacity();
            assert!(
                held <= (2 * received).max(LARGE_FRAME),
                "{held} for {received}"
            );
        }
    }

    #[test]
    fn the_read_buffer_grows_up_to_64_kib_while_reads_fill_it() {
        let mut decoder = Decoder::new(FrameLimits::default());
        let mut header: &[u8] = b"\x00";
        for kib in [8, 16, 32, 64, 64, 64] {
            let room = decoder.space().chunk_mut().len();
            assert!(
                (kib * 1024..2 * kib * 1024).contains(&room),
                "{room} bytes in place of {kib} KiB"
            );
            // The rest of a frame of at most one byte, empty frames, and the first byte of the next header.
            let mut bytes = header.to_vec();
            let is_odd = !(room - header.len()).is_multiple_of(2);
            bytes.extend([u8::from(is_odd)].iter().chain(&[7][..usize::from(is_odd)]));
            bytes.resize(room, 0);
            assert_eq!(feed(&mut decoder, &bytes), room);
            while decoder.next().expect("frames").is_some() {}
            assert_eq!(decoder.read.len(), 1);
            header = b"";
        }
    }

    #[test]
    fn the_rest_of_the_read_buffer_is_used_while_a_read_is_worth_its_call() {
        for (received, room) in [(4000, 4192), (4096, 4096), (4098, 8192), (5192, 8192)] {
            let mut decoder = Decoder::new(FrameLimits::default());
            assert_eq!(decoder.space().chunk_mut().len(), 8192);
            feed(&mut decoder, &[0].repeat(received));
            while decoder.next().expect("empty frames").is_some() {}
            assert_eq!(decoder.space().chunk_mut().len(), room, "{received}");
        }
    }

    #[test]
    fn there_is_space_behind_a_large_frame_that_is_complete() {
        let mut decoder = Decoder::new(FrameLimits::default());
        let mut bytes = Vec::new();
        put_header(&mut bytes, 0, LARGE_FRAME + 1);
        feed(&mut decoder, &bytes);
        assert_eq!(decoder.next(), Ok(None));
        let body = [7; LARGE_FRAME + 1];
        let mut received = 0;
        while received < body.len() {
            received += feed(&mut decoder, &body[received..]);
        }
        assert!(decoder.space().has_remaining_mut());
    }

    #[test]
    fn only_frames_over_64_kib_are_received_into_a_buffer_of_their_own() {
        for (body, is_large) in [(65_536, false), (65_537, true)] {
            let mut decoder = Decoder::new(FrameLimits::default());
            let mut bytes = Vec::new();
            put_header(&mut bytes, 0, body);
            feed(&mut decoder, &bytes);
            assert_eq!(decoder.next(), Ok(None));
            assert_eq!(decoder.large.is_some(), is_large, "{body}");
        }
    }

    #[test]
    fn a_frame_beyond_the_limit_is_refused_at_its_header() {
        let mut decoder = Decoder::new(FrameLimits::default());
        let mut bytes = Vec::new();
        put_header(&mut bytes, 0, 1 << 46);
        feed(&mut decoder, &bytes);
        assert!(matches!(
            decoder.next(),
            Err(Error::MessageTooLong { announced, .. }) if announced == 1 << 46
        ));
        assert!(decoder.large.is_none());
    }

    #[test]
    fn the_limit_counts_the_whole_message() {
        let mut decoder = Decoder::new(FrameLimits {
            message_bytes: 10,
            ..FrameLimits::default()
        });
        feed(&mut decoder, b"\x01\x06abcdef\x00\x05ghijk");
        assert!(matches!(
            decoder.next(),
            Err(Error::MessageTooLong { announced: 5, .. })
        ));
    }

    #[test]
    fn frames_are_counted() {
        let mut decoder = Decoder::new(FrameLimits {
            message_frames: 3,
            ..FrameLimits::default()
        });
        feed(&mut decoder, &[MORE, 0, MORE, 0, MORE, 0, 0, 0]);
        assert_eq!(decoder.next(), Err(Error::TooManyFrames { limit: 3 }));
    }

    #[test]
    fn a_large_frame_has_its_own_buffer() {
        let mut stream = Vec::new();
        put_header(&mut stream, MORE, LARGE_FRAME + 5);
        stream.extend(vec![9; LARGE_FRAME + 5]);
        stream.extend_from_slice(b"\x00\x02ok\x00\x01!");
        let mut decoder = Decoder::new(FrameLimits::default());
        let mut messages = Vec::new();
        let mut rest = &stream[..];
        while !rest.is_empty() {
            let n = feed(&mut decoder, rest);
            rest = &rest[n..];
            while let Some(incoming) = decoder.next().unwrap() {
                messages.push(incoming);
            }
        }
        assert_eq!(
            messages,
            [
                Incoming::Message(vec![
                    Bytes::from(vec![9; LARGE_FRAME + 5]),
                    Bytes::from_static(b"ok")
                ]),
                Incoming::Message(vec![Bytes::from_static(b"!")]),
            ]
        );
    }

    #[test]
    fn a_message_that_is_too_long_can_be_dropped() {
        let limits = FrameLimits {
            message_bytes: 10,
            drained_bytes: 300_000,
            ..FrameLimits::default()
        };
        let mut stream = b"\x01\x04head\x01\x08tooolong\x04\x02\x01X".to_vec();
        put_header(&mut stream, MORE, 200_000);
        stream.extend(vec![0; 200_000]);
        stream.extend_from_slice(b"\x01\x00\x00\x01e\x00\x02ok");
        let expected = [
            Incoming::Command(Bytes::from_static(b"\x01X")),
            Incoming::Drained {
                partial: vec![Bytes::from_static(b"head")],
                bytes: 4 + 8 + 200_000 + 1,
            },
            Incoming::Message(vec![Bytes::from_static(b"ok")]),
        ];
        for step in [1, 3, 1000, usize::MAX] {
            let mut decoder = Decoder::new(limits);
            let mut received = Vec::new();
            let mut rest = &stream[..];
            while !rest.is_empty() {
                let n = feed(&mut decoder, &rest[..step.min(rest.len())]);
                rest = &rest[n..];
                while let Some(incoming) = decoder.next().unwrap() {
                    received.push(incoming);
                }
                assert!(decoder.read.capacity() <= ROOM_MAX);
            }
            assert_eq!(received, expected, "step {step}");
        }
        for (announced, is_dropped) in [(300_000, true), (300_001, false), (1 << 46, false)] {
            let mut decoder = Decoder::new(limits);
            let mut header = Vec::new();
            put_header(&mut header, 0, announced);
            feed(&mut decoder, &header);
            assert_eq!(decoder.next() == Ok(None), is_dropped, "{announced}");
        }
    }

    #[test]
    fn a_command_may_stand_between_the_frames_of_a_message() {
        // libzmq sends its PING when its timer fires, even in the middle of a message.
        let mut decoder = Decoder::new(FrameLimits::default());
        feed(&mut decoder, b"\x01\x01a\x04\x02\x01X\x00\x01b");
        assert_eq!(
            decoder.next(),
            Ok(Some(Incoming::Command(Bytes::from_static(b"\x01X"))))
        );
        assert_eq!(
            decoder.next(),
            Ok(Some(Incoming::Message(vec![
                Bytes::from_static(b"a"),
                Bytes::from_static(b"b")
            ])))
        );
    }
}
