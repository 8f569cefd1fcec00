//! The commands of the NULL mechanism and of the traffic phase, and the READY properties.

use bytes::{Buf, Bytes};

use super::frame::{COMMAND, put_header};
use super::{Error, IDENTITY_MAX, Role};

/// A peer's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Ready {
        socket_type: String,
        identity: Bytes,
    },
    Error(String),
    Subscribe(Bytes),
    Cancel(Bytes),
    /// Holds the context that the PONG must carry.
    Ping(Bytes),
    /// A command that needs no answer, or an unknown one, which the specification says to ignore.
    Other,
}

impl Command {
    /// Parses the body of a command frame.
    pub(super) fn parse(mut body: Bytes) -> Result<Self, Error> {
        let name = short_string(&mut body).ok_or(Error::Malformed("nameless"))?;
        match &*name {
            b"READY" => ready(body),
            b"ERROR" => {
                let reason = short_string(&mut body).ok_or(Error::Malformed("ERROR"))?;
                Ok(Self::Error(String::from_utf8_lossy(&reason).into_owned()))
            }
            b"SUBSCRIBE" => Ok(Self::Subscribe(body)),
            b"CANCEL" => Ok(Self::Cancel(body)),
            b"PING" => {
                // Two bytes of time to live, which matter only to peers that close idle connections.
                if body.len() < 2 || body.len() > 2 + PING_CONTEXT_MAX {
                    return Err(Error::Malformed("PING"));
                }
                Ok(Self::Ping(body.slice(2..)))
            }
            _ => Ok(Self::Other),
        }
    }
}

/// The longest context of a PING, in bytes.
const PING_CONTEXT_MAX: usize = 16;

fn short_string(body: &mut Bytes) -> Option<Bytes> {
    let len = usize::from(body.try_get_u8().ok()?);
    (body.len() >= len).then(|| body.split_to(len))
}

fn ready(mut body: Bytes) -> Result<Command, Error> {
    let malformed = || Error::Malformed("READY");
    let mut socket_type = None;
    let mut identity = Bytes::new();
    while !body.is_empty() {
        let name = short_string(&mut body).ok_or_else(malformed)?;
        let len = body.try_get_u32().map_err(|_| malformed())? as usize;
        if body.len() < len {
            return Err(malformed());
        }
        let value = body.split_to(len);
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            socket_type = Some(String::from_utf8_lossy(&value).into_owned());
        } else if name.eq_ignore_ascii_case(b"Identity") {
            if value.len() > IDENTITY_MAX {
                return Err(Error::IdentityTooLong(value.len()));
            }
            // A copy: the identity is stored as long as the peer is connected, and must not hold a read
            // buffer.
            identity = Bytes::copy_from_slice(&value);
        }
    }
    Ok(Command::Ready {
        socket_type: socket_type.ok_or_else(malformed)?,
        identity,
    })
}

/// Returns our READY as a frame.
///
/// # Panics
/// When the identity has more than [`IDENTITY_MAX`] bytes.
pub(super) fn ready_frame(role: Role, identity: &[u8]) -> Bytes {
    assert!(
        identity.len() <= IDENTITY_MAX,
        "an identity has at most 255 bytes"
    );
    let mut body = b"\x05READY".to_vec();
    put_property(&mut body, "Socket-Type", role.name().as_bytes());
    // An empty identity means "generate one", like a missing one.
    if matches!(role, Role::Dealer | Role::Req | Role::Router) {
        put_property(&mut body, "Identity", identity);
    }
    command_frame(&body)
}

fn put_property(body: &mut Vec<u8>, name: &str, value: &[u8]) {
    body.push(u8::try_from(name.len()).expect("our property names are short"));
    body.extend_from_slice(name.as_bytes());
    let len = u32::try_from(value.len()).expect("our property values are short");
    body.extend_from_slice(&len.to_be_bytes());
    body.extend_from_slice(value);
}

/// Returns an ERROR frame with this reason.
pub(super) fn error_frame(reason: &str) -> Bytes {
    let reason = reason.as_bytes();
    let len = u8::try_from(reason.len()).unwrap_or(u8::MAX);
    let mut body = b"\x05ERROR".to_vec();
    body.push(len);
    body.extend(reason.iter().take(usize::from(len)));
    command_frame(&body)
}

/// Returns the PONG frame for a PING with this context.
pub(super) fn pong_frame(context: &[u8]) -> Bytes {
    command_frame(&[b"\x04PONG", context].concat())
}

/// Returns a subscription, or its end, in the form of the peer's protocol version.
pub(super) fn subscription_frame(minor: u8, on: bool, topic: &[u8]) -> Bytes {
    if minor >= 1 {
        let name: &[u8] = if on { b"\x09SUBSCRIBE" } else { b"\x06CANCEL" };
        command_frame(&[name, topic].concat())
    } else {
        frame(0, &[&[u8::from(on)], topic].concat())
    }
}

fn command_frame(body: &[u8]) -> Bytes {
    frame(COMMAND, body)
}

fn frame(flags: u8, body: &[u8]) -> Bytes {
    let mut bytes = Vec::with_capacity(super::frame::HEADER_MAX + body.len());
    put_header(&mut bytes, flags, body.len());
    bytes.extend_from_slice(body);
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(frame: &Bytes) -> Bytes {
        frame.slice(2..)
    }

    #[test]
    fn ready_is_read_back() {
        assert_eq!(
            Command::parse(body(&ready_frame(Role::Dealer, b"me"))),
            Ok(Command::Ready {
                socket_type: "DEALER".to_owned(),
                identity: Bytes::from_static(b"me"),
            })
        );
    }

    #[test]
    fn property_names_have_no_case_and_unknown_ones_are_ignored() {
        let mut bytes = b"\x05READY".to_vec();
        put_property(&mut bytes, "X-More", b"?");
        put_property(&mut bytes, "socket-TYPE", b"REQ");
        let Ok(Command::Ready {
            socket_type,
            identity,
        }) = Command::parse(bytes.into())
        else {
            panic!("a READY");
        };
        assert_eq!((&*socket_type, &*identity), ("REQ", &b""[..]));
    }

    #[test]
    fn a_cut_ready_is_malformed() {
        let whole = body(&ready_frame(Role::Dealer, b"me"));
        for end in 7..whole.len() {
            let cut = Command::parse(whole.slice(..end));
            // A READY that is cut after the socket type is still valid.
            assert!(
                cut == Err(Error::Malformed("READY"))
                    || matches!(cut, Ok(Command::Ready { identity, .. }) if identity.is_empty()),
                "{end}"
            );
        }
    }

    #[test]
    fn an_identity_of_more_than_255_bytes_is_refused() {
        let parse = |len| {
            let mut bytes = b"\x05READY".to_vec();
            put_property(&mut bytes, "Socket-Type", b"DEALER");
            put_property(&mut bytes, "Identity", &vec![b'i'; len]);
            Command::parse(bytes.into())
        };
        let Ok(Command::Ready { identity, .. }) = parse(255) else {
            panic!("a READY");
        };
        assert_eq!(identity, vec![b'i'; 255]);
        assert_eq!(parse(256), Err(Error::IdentityTooLong(256)));
    }

    #[test]
    fn ping_keeps_its_context() {
        let ping = Bytes::from_static(b"\x04PING\x00\x0actx");
        assert_eq!(
            Command::parse(ping),
            Ok(Command::Ping(Bytes::from_static(b"ctx")))
        );
        assert_eq!(&pong_frame(b"ctx")[..], b"\x04\x08\x04PONGctx");
        let with_context = |len| [&b"\x04PING\x00\x00"[..], &vec![b'c'; len]].concat();
        assert_eq!(
            Command::parse(with_context(16).into()),
            Ok(Command::Ping(Bytes::from(vec![b'c'; 16])))
        );
        for malformed in [b"\x04PING\x00".to_vec(), with_context(17)] {
            let result = Command::parse(malformed.into());
            assert_eq!(result, Err(Error::Malformed("PING")));
        }
    }

    #[test]
    fn a_long_reason_is_cut() {
        assert_eq!(
            Command::parse(error_frame(&"x".repeat(300)).slice(9..)),
            Ok(Command::Error("x".repeat(255)))
        );
    }
}
