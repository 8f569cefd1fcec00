//! Connections of peers, as the socket layer reads and answers them.

use bytes::Bytes;
use nb::zmtp::{Connection, ConnectionEvent, Error, Role};

/// Our part, and one that may talk with it.
pub const PAIRS: [(Role, Role); 5] = [
    (Role::Router, Role::Dealer),
    (Role::Xpub, Role::Sub),
    (Role::Sub, Role::Xpub),
    (Role::Dealer, Role::Router),
    (Role::Router, Role::Req),
];

/// The first 64 bytes of a peer of version 3.1.
pub const GREETING: [u8; 64] = {
    let mut bytes = [0; 64];
    bytes[0] = 0xff;
    bytes[9] = 0x7f;
    bytes[10] = 3;
    bytes[11] = 1;
    (bytes[12], bytes[13], bytes[14], bytes[15]) = (b'N', b'U', b'L', b'L');
    bytes
};

/// What a connection made of some bytes.
pub struct Heard {
    pub events: Vec<ConnectionEvent>,
    pub error: Option<Error>,
    /// What it says to the peer.
    pub said: Vec<u8>,
}

/// Gives a connection some bytes, so many at once, as a socket does.
pub fn heard(connection: &mut Connection, mut bytes: &[u8], step: usize) -> Heard {
    let mut heard = Heard {
        events: Vec::new(),
        error: None,
        said: Vec::new(),
    };
    while heard.error.is_none() && !bytes.is_empty() {
        let piece = bytes.get(..step.max(1)).unwrap_or(bytes);
        bytes = &bytes[connection.handle_bytes(piece)..];
        loop {
            match connection.poll_event() {
                Ok(Some(event)) => heard.events.push(event),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(connection.poll_event(), Err(error.clone()));
                    heard.error = Some(error);
                    break;
                }
            }
        }
        heard
            .said
            .extend(connection.poll_transmit().unwrap_or_default());
    }
    heard
}

/// What a peer sends before traffic.
pub fn opening(role: Role) -> Vec<u8> {
    let mut peer = Connection::new(role, Bytes::new(), nb::zmtp::FrameLimits::default());
    let mut bytes = peer.poll_transmit().unwrap_or_default().to_vec();
    heard(&mut peer, &GREETING, 64)
        .said
        .iter()
        .for_each(|byte| bytes.push(*byte));
    bytes
}
