//! A frame's header: one byte of flags, then the length in one or eight bytes.

use bytes::BufMut;

use super::Error;

pub(super) const MORE: u8 = 0b001;
pub(super) const LONG: u8 = 0b010;
pub(super) const COMMAND: u8 = 0b100;

/// The longest header, in bytes.
pub(super) const HEADER_MAX: usize = 9;

/// A frame's header as it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) more: bool,
    pub(super) command: bool,
    /// The announced length of the body, not yet checked.
    pub(super) body: u64,
    /// The length of the header itself.
    pub(super) len: usize,
}

impl Header {
    /// Parses a header; returns `None` until it is complete.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<Self>, Error> {
        let Some(&flags) = bytes.first() else {
            return Ok(None);
        };
        if flags & !(MORE | LONG | COMMAND) != 0 || flags & (MORE | COMMAND) == MORE | COMMAND {
            return Err(Error::ReservedFlags(flags));
        }
        let (body, len) = if flags & LONG != 0 {
            let Some(length) = bytes.get(1..).and_then(<[u8]>::first_chunk) else {
                return Ok(None);
            };
            (u64::from_be_bytes(*length), HEADER_MAX)
        } else {
            let Some(&length) = bytes.get(1) else {
                return Ok(None);
            };
            (u64::from(length), 2)
        };
        Ok(Some(Self {
            more: flags & MORE != 0,
            command: flags & COMMAND != 0,
            body,
            len,
        }))
    }
}

/// Returns the length of the header for a body of this length.
pub(super) fn header_len(body: usize) -> usize {
    if body <= usize::from(u8::MAX) {
        2
    } else {
        HEADER_MAX
    }
}

/// Writes the header of a body of this length.
pub(super) fn put_header(buffer: &mut impl BufMut, flags: u8, body: usize) {
    match u8::try_from(body) {
        Ok(short) => buffer.put_slice(&[flags, short]),
        Err(_) => {
            buffer.put_u8(flags | LONG);
            buffer.put_u64(body as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_header_is_read_back() {
        for body in [0, 1, 255, 256, 70_000] {
            for flags in [0, MORE, COMMAND] {
                let mut bytes = Vec::new();
                put_header(&mut bytes, flags, body);
                assert_eq!(bytes.len(), header_len(body));
                for end in 0..bytes.len() {
                    assert_eq!(Header::parse(&bytes[..end]), Ok(None));
                }
                let header = Header::parse(&bytes).unwrap().unwrap();
                assert_eq!(header.body, body as u64);
                assert_eq!(header.more, flags == MORE);
                assert_eq!(header.command, flags == COMMAND);
                assert_eq!(header.len, bytes.len());
            }
        }
    }

    #[test]
    fn reserved_flags_are_refused() {
        for flags in [0b1000, 0x80, 0xff, MORE | COMMAND] {
            assert_eq!(Header::parse(&[flags]), Err(Error::ReservedFlags(flags)));
        }
    }
}
