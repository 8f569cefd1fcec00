//! The two framings in which a Jupyter server carries a kernel's messages over one websocket.
//!
//! `v1.kernel.websocket.jupyter.org` is a list of byte ranges, so a message keeps its bytes. The older framing, which
//! a server uses when the client offers no subprotocol, is one JSON object per message. Source: "WebSocket kernel
//! wire protocols" in the documentation of Jupyter Server.

use std::collections::HashMap;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::wire::{Channel, DELIMITER, SigningKey, Unverified, Verified};

/// The name under which the framing with byte ranges is negotiated.
pub const SUBPROTOCOL: &str = "v1.kernel.websocket.jupyter.org";

/// How messages are laid out in the frames of a websocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// The subprotocol `v1.kernel.websocket.jupyter.org`.
    V1,
    /// JSON in text frames; messages with buffers in binary frames.
    Json,
}

/// The content of a websocket frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A text frame.
    Text(Bytes),
    /// A binary frame.
    Binary(Bytes),
}

/// A frame that is no message of a kernel.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum FramingError {
    #[error("a {kind} frame, which the {framing:?} framing does not have")]
    WrongKind {
        kind: &'static str,
        framing: Framing,
    },
    #[error("{0} byte ranges, at least 6 are needed")]
    TooFewRanges(u64),
    #[error("a byte range outside the frame")]
    OutOfRange,
    #[error("no JSON message of a kernel: {0}")]
    NotJson(String),
    #[error("an unknown channel")]
    UnknownChannel,
    #[error("a header that is not a JSON object")]
    BadHeader,
}

impl Framing {
    /// Returns the framing for the subprotocol with which the server has answered; `None` for another one.
    pub fn negotiated(subprotocol: Option<&str>) -> Option<Self> {
        match subprotocol {
            Some(SUBPROTOCOL) => Some(Self::V1),
            None | Some("") => Some(Self::Json),
            Some(_) => None,
        }
    }

    /// Returns the websocket message that carries a message of a kernel or its client.
    ///
    /// # Errors
    /// With [`Framing::Json`], if a part of the message is not JSON.
    pub fn write(self, channel: Channel, message: &Verified) -> Result<Message, FramingError> {
        Ok(match self.encode(channel, message)? {
            Payload::Binary(bytes) => Message::Binary(bytes),
            Payload::Text(text) => {
                Message::Text(Utf8Bytes::try_from(text).map_err(|error| not_json(&error))?)
            }
        })
    }

    /// Returns the message of a kernel or its client that a websocket message carries; `None` for a ping, a pong or a
    /// close frame.
    ///
    /// # Errors
    /// If it carries none.
    pub fn read(self, received: Message) -> Result<Option<(Channel, Verified)>, FramingError> {
        let payload = match received {
            Message::Binary(bytes) => Payload::Binary(bytes),
            Message::Text(text) => Payload::Text(text.into()),
            _ => return Ok(None),
        };
        self.decode(&payload).map(Some)
    }

    /// Returns the frame that carries a message to the other end.
    ///
    /// # Errors
    /// With [`Framing::Json`], if a part of the message is not JSON.
    pub fn encode(self, channel: Channel, message: &Verified) -> Result<Payload, FramingError> {
        match self {
            Self::V1 => Ok(Payload::Binary(encode_ranges(channel, message))),
            Self::Json => encode_json(channel, message),
        }
    }

    /// Returns the message that a frame carries, and its channel.
    ///
    /// The websocket was opened with the user's credential, so the message counts as verified.
    ///
    /// # Errors
    /// If the frame is no message.
    pub fn decode(self, payload: &Payload) -> Result<(Channel, Verified), FramingError> {
        let (channel, mut frames) = match (self, payload) {
            (Self::V1, Payload::Binary(bytes)) => decode_ranges(bytes)?,
            (Self::Json, Payload::Text(text)) => decode_json(text, Vec::new())?,
            (Self::Json, Payload::Binary(bytes)) => decode_json_with_buffers(bytes)?,
            (Self::V1, Payload::Text(_)) => {
                let kind = "text";
                return Err(FramingError::WrongKind {
                    kind,
                    framing: self,
                });
            }
        };
        frames.splice(0..0, [Bytes::from_static(DELIMITER), Bytes::new()]);
        let message = Unverified::parse(frames).map_err(|_| FramingError::BadHeader)?;
        // An empty key accepts any signature.
        let verified = SigningKey::new(b"").verify(message);
        let mut message = verified.map_err(|_| FramingError::BadHeader)?;
        match message.read_headers() {
            true => Ok((channel, message)),
            false => Err(FramingError::BadHeader),
        }
    }
}

/// Returns the four JSON parts of a message, in the order of the wire protocol.
fn parts(message: &Verified) -> [&Bytes; 4] {
    [
        message.header_bytes(),
        message.parent_bytes(),
        message.metadata(),
        message.content(),
    ]
}

/// Returns the number of ranges' ends, the ends, then the channel and the parts, all numbers as 64-bit little endian.
fn encode_ranges(channel: Channel, message: &Verified) -> Bytes {
    let parts = parts(message);
    let buffers = message.buffers();
    // The first number is where the channel begins, each other one where a part ends.
    let count = 2 + parts.len() + buffers.len();
    let mut end = 8 * (1 + count);
    let mut frame = BytesMut::with_capacity(end + message.size() + 8);
    frame.put_u64_le(count as u64);
    frame.put_u64_le(end as u64);
    let name = channel.name();
    let lengths = std::iter::once(name.len())
        .chain(parts.iter().map(|part| part.len()))
        .chain(buffers.iter().map(Bytes::len));
    for length in lengths {
        end += length;
        frame.put_u64_le(end as u64);
    }
    frame.put_slice(name.as_bytes());
    for part in parts.into_iter().chain(buffers) {
        frame.put_slice(part);
    }
    frame.freeze()
}

fn decode_ranges(frame: &Bytes) -> Result<(Channel, Vec<Bytes>), FramingError> {
    let number = |at: usize| -> Result<u64, FramingError> {
        let bytes = at.checked_mul(8).and_then(|at| frame.get(at..at + 8));
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes
            .map(u64::from_le_bytes)
            .ok_or(FramingError::OutOfRange)
    };
    let count = number(0)?;
    if count < 6 {
        return Err(FramingError::TooFewRanges(count));
    }
    let count = usize::try_from(count).map_err(|_| FramingError::OutOfRange)?;
    // Each range takes eight bytes of the frame, so a larger count is a lie.
    if count > frame.len() / 8 {
        return Err(FramingError::OutOfRange);
    }
    let mut ranges = Vec::with_capacity(count);
    for at in 1..count {
        let (start, end) = (number(at)?, number(at + 1)?);
        let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
        let range = range.filter(|(start, end)| start <= end && *end <= frame.len());
        let (start, end) = range.ok_or(FramingError::OutOfRange)?;
        ranges.push(frame.slice(start..end));
    }
    let channel = channel_named(&ranges.remove(0))?;
    Ok((channel, ranges))
}

fn channel_named(name: &[u8]) -> Result<Channel, FramingError> {
    let channels = [
        Channel::Shell,
        Channel::Control,
        Channel::Stdin,
        Channel::Iopub,
    ];
    let mut channels = channels.into_iter();
    let channel = channels.find(|channel| channel.name().as_bytes() == name);
    channel.ok_or(FramingError::UnknownChannel)
}

/// A message as the older framing writes it. The parts keep their text.
#[derive(Serialize)]
struct JsonMessage<'a> {
    channel: &'a str,
    /// Some clients read the id and the type here, not in the header.
    msg_id: &'a str,
    msg_type: &'a str,
    header: &'a RawValue,
    parent_header: &'a RawValue,
    metadata: &'a RawValue,
    content: &'a RawValue,
    buffers: [(); 0],
}

fn encode_json(channel: Channel, message: &Verified) -> Result<Payload, FramingError> {
    let raw = |part: &'_ Bytes| serde_json::from_slice::<Box<RawValue>>(part);
    let [header, parent_header, metadata, content] = parts(message).map(raw);
    let parsed_header = message.header().map_err(|_| FramingError::BadHeader)?;
    let json = || -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&JsonMessage {
            channel: channel.name(),
            msg_id: &parsed_header.msg_id,
            msg_type: &parsed_header.msg_type,
            header: &header?,
            parent_header: &parent_header?,
            metadata: &metadata?,
            content: &content?,
            buffers: [],
        })
    };
    let text = json().map_err(|error| not_json(&error))?;
    let buffers = message.buffers();
    if buffers.is_empty() {
        return Ok(Payload::Text(text.into()));
    }
    // The number of pieces, where each begins, then the JSON text and the buffers; numbers as 32-bit big endian.
    let count = 1 + buffers.len();
    let mut at = 4 * (1 + count);
    let mut frame = BytesMut::with_capacity(at + text.len() + message.size());
    let too_long = || FramingError::OutOfRange;
    frame.put_u32(u32::try_from(count).map_err(|_| too_long())?);
    let lengths = std::iter::once(text.len()).chain(buffers.iter().map(Bytes::len));
    for length in lengths {
        frame.put_u32(u32::try_from(at).map_err(|_| too_long())?);
        at += length;
    }
    frame.put_slice(&text);
    buffers.iter().for_each(|buffer| frame.put_slice(buffer));
    Ok(Payload::Binary(frame.freeze()))
}

fn decode_json_with_buffers(frame: &Bytes) -> Result<(Channel, Vec<Bytes>), FramingError> {
    let number = |at: usize| -> Result<usize, FramingError> {
        let bytes = at.checked_mul(4).and_then(|at| frame.get(at..at + 4));
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        let number = bytes
            .map(u32::from_be_bytes)
            .ok_or(FramingError::OutOfRange)?;
        usize::try_from(number).map_err(|_| FramingError::OutOfRange)
    };
    let count = number(0)?;
    if count == 0 || count > frame.len() / 4 {
        return Err(FramingError::OutOfRange);
    }
    let mut pieces = Vec::with_capacity(count);
    for at in 1..=count {
        let start = number(at)?;
        let end = match at == count {
            true => frame.len(),
            false => number(at + 1)?,
        };
        if start > end || end > frame.len() {
            return Err(FramingError::OutOfRange);
        }
        pieces.push(frame.slice(start..end));
    }
    let text = pieces.remove(0);
    decode_json(&text, pieces)
}

fn decode_json(text: &Bytes, buffers: Vec<Bytes>) -> Result<(Channel, Vec<Bytes>), FramingError> {
    let fields: HashMap<&str, &RawValue> =
        serde_json::from_slice(text).map_err(|error| not_json(&error))?;
    let part = |name: &str| match fields.get(name).map(|value| value.get()) {
        // Some servers send null for an empty parent header.
        None | Some("null") => Bytes::from_static(b"{}"),
        Some(value) => text.slice_ref(value.as_bytes()),
    };
    let channel = fields.get("channel").map_or("", |value| value.get());
    let channel = channel_named(channel.trim_matches('"').as_bytes())?;
    let mut frames = ["header", "parent_header", "metadata", "content"]
        .map(part)
        .to_vec();
    frames.extend(buffers);
    Ok((channel, frames))
}

/// How many characters of a reason are kept.
const REASON_CHARS: usize = 200;

fn not_json(error: &dyn std::fmt::Display) -> FramingError {
    // The text may quote the server.
    let text = error.to_string().replace(char::is_control, " ");
    FramingError::NotJson(text.chars().take(REASON_CHARS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(buffers: &[&'static [u8]]) -> Verified {
        let frames = [
            &b"<IDS|MSG>"[..],
            b"",
            br#"{"msg_id":"a","msg_type":"t","session":"s","odd":1.0}"#,
            b"{}",
            b"{ }",
            br#"{"text":"\u00e9"}"#,
        ];
        let frames = frames.into_iter().chain(buffers.iter().copied());
        let frames = frames.map(Bytes::from_static).collect();
        let key = SigningKey::new(b"");
        key.verify(Unverified::parse(frames).unwrap()).unwrap()
    }

    /// Returns the parts and buffers of a message.
    fn parts_and_buffers(message: &Verified) -> Vec<Bytes> {
        let parts = parts(message).into_iter().chain(message.buffers());
        parts.cloned().collect()
    }

    #[test]
    fn a_message_keeps_its_bytes_in_both_framings() {
        for framing in [Framing::V1, Framing::Json] {
            for buffers in [&[][..], &[&b"\x00\xff"[..], b"", b"3"]] {
                for channel in [Channel::Shell, Channel::Stdin, Channel::Iopub] {
                    let sent = message(buffers);
                    let frame = framing.encode(channel, &sent).unwrap();
                    let (decoded_channel, received) = framing.decode(&frame).unwrap();
                    assert_eq!(decoded_channel, channel);
                    assert_eq!(
                        parts_and_buffers(&received),
                        parts_and_buffers(&sent),
                        "{framing:?}"
                    );
                }
            }
        }
    }

    /// The bytes are those of `serialize_msg_to_ws_v1` of jupyter_server 2.17.
    #[test]
    fn byte_ranges_are_laid_out_as_jupyter_server_does() {
        let sent = message(&[b"BUF"]);
        let Ok(Payload::Binary(frame)) = Framing::V1.encode(Channel::Shell, &sent) else {
            panic!("no binary frame");
        };
        let numbers = [7_u64, 64, 69, 122, 124, 127, 144, 147];
        let numbers: Vec<u8> = numbers.iter().flat_map(|it| it.to_le_bytes()).collect();
        assert_eq!(frame[..64], numbers);
        let rest = r#"shell{"msg_id":"a","msg_type":"t","session":"s","odd":1.0}{}{ }{"text":"\u00e9"}BUF"#;
        assert_eq!(frame[64..], *rest.as_bytes());
    }

    /// The text is that of jupyter_server 2.17 for a client without a subprotocol.
    #[test]
    fn the_json_of_a_server_is_read() {
        let text = r#"{"header": {"msg_id": "k_1", "session": "k"}, "msg_id": "k_1", "msg_type": "status", "parent_header": null, "metadata": {}, "content": {"execution_state": "busy"}, "buffers": [], "channel": "iopub"}"#;
        let frame = Payload::Text(Bytes::from_static(text.as_bytes()));
        let (channel, message) = Framing::Json.decode(&frame).unwrap();
        assert_eq!(channel, Channel::Iopub);
        assert_eq!(message.execution_state().as_deref(), Some("busy"));
        assert_eq!(message.parent_bytes(), &b"{}"[..]);
    }

    #[test]
    fn frames_that_are_no_message_are_refused() {
        let binary = |numbers: &[u64], rest: &str| {
            let bytes = numbers.iter().flat_map(|it| it.to_le_bytes());
            Payload::Binary(bytes.chain(rest.bytes()).collect())
        };
        for (frame, error) in [
            (binary(&[], ""), FramingError::OutOfRange),
            (binary(&[3], ""), FramingError::TooFewRanges(3)),
            (binary(&[u64::MAX], ""), FramingError::OutOfRange),
            (binary(&[6, 0, 0], ""), FramingError::OutOfRange),
            (
                binary(&[6, 56, 61, 60, 60, 60, 60], "shell"),
                FramingError::OutOfRange,
            ),
            (
                binary(&[6, 56, 56, 56, 56, 56, 99], ""),
                FramingError::OutOfRange,
            ),
            (
                binary(&[6, 56, 60, 60, 60, 60, 60], "none"),
                FramingError::UnknownChannel,
            ),
            (
                binary(&[6, 56, 61, 61, 61, 61, 61], "shell"),
                FramingError::BadHeader,
            ),
        ] {
            assert_eq!(Framing::V1.decode(&frame).err(), Some(error), "{frame:?}");
        }
        let text = |text: &'static str| Payload::Text(Bytes::from_static(text.as_bytes()));
        assert!(Framing::V1.decode(&text("{}")).is_err());
        for bad in ["", "[]", "{}", "{\"channel\":\"shell\",\"header\":[]}"] {
            assert!(Framing::Json.decode(&text(bad)).is_err(), "{bad}");
        }
        for bad in [
            &b""[..],
            b"\0\0\0\0",
            b"\0\0\0\x09",
            b"\0\0\0\x01\0\0\0\xff",
        ] {
            let frame = Payload::Binary(Bytes::from_static(bad));
            assert!(Framing::Json.decode(&frame).is_err(), "{bad:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes: Vec<u8>, counts in 0_u64..12) {
            let mut numbered = counts.to_le_bytes().to_vec();
            numbered.extend(&bytes);
            for bytes in [bytes, numbered] {
                let bytes = Bytes::from(bytes);
                for framing in [Framing::V1, Framing::Json] {
                    let _ = framing.decode(&Payload::Binary(bytes.clone()));
                    let _ = framing.decode(&Payload::Text(bytes.clone()));
                }
            }
        }
    }
}
