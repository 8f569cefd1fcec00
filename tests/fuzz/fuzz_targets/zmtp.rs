//! Whatever bytes a peer sends, and however they are split: no panic, the same events.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use nb::zmtp::{Connection, ConnectionEvent, Error, FrameLimits, Role};

/// Small ones, so that the fuzzer reaches them.
const LIMITS: FrameLimits = FrameLimits {
    message_bytes: 70_000,
    message_frames: 5,
    drained_bytes: 200_000,
};

fn events(role: Role, mut bytes: &[u8], step: usize) -> (Vec<ConnectionEvent>, Option<Error>) {
    let mut connection = Connection::new(role, Bytes::new(), LIMITS);
    let mut events = Vec::new();
    while !bytes.is_empty() {
        let piece = bytes.get(..step).unwrap_or(bytes);
        bytes = &bytes[connection.handle_bytes(piece)..];
        loop {
            match connection.poll_event() {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(connection.poll_event(), Err(error.clone()));
                    return (events, Some(error));
                }
            }
        }
        connection.poll_transmit();
    }
    (events, None)
}

/// What a peer sends before traffic, so that the fuzzer need not find it.
fn opening(socket_type: &str) -> Vec<u8> {
    let mut bytes = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 1];
    bytes.extend_from_slice(b"NULL");
    bytes.resize(64, 0);
    bytes.extend([4, 22 + socket_type.len() as u8]);
    bytes.extend_from_slice(b"\x05READY\x0bSocket-Type\x00\x00\x00");
    bytes.push(socket_type.len() as u8);
    bytes.extend_from_slice(socket_type.as_bytes());
    bytes
}

fuzz_target!(|input: (u8, u16, &[u8])| {
    let (kind, step, bytes) = input;
    let (role, peer) = match kind % 3 {
        0 => (Role::Router, "DEALER"),
        1 => (Role::Xpub, "SUB"),
        _ => (Role::Sub, "PUB"),
    };
    let mut stream = if kind & 0x80 == 0 {
        opening(peer)
    } else {
        Vec::new()
    };
    stream.extend_from_slice(bytes);
    let whole = events(role, &stream, stream.len());
    let split = events(role, &stream, usize::from(step).max(1));
    // A wrong first byte is reported with those that came along.
    if !matches!(whole.1, Some(Error::NotZmtp(_))) {
        assert_eq!(whole, split);
    }
});
