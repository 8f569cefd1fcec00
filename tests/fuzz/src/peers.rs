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

/// The events, the error and the bytes of a connection that received some bytes.
pub struct Received {
    pub events: Vec<ConnectionEvent>,
    pub error: Option<Error>,
    /// The bytes that it sends to the peer.
    pub sent: Vec<u8>,
}

/// Gives a connection some bytes, so many at once, as a socket does.
pub fn receive(connection: &mut Connection, mut bytes: &[u8], step: usize) -> Received {
    let mut received = Received {
        events: Vec::new(),
        error: None,
        sent: Vec::new(),
    };
    while received.error.is_none() && !bytes.is_empty() {
        let piece = bytes.get(..step.max(1)).unwrap_or(bytes);
        bytes = &bytes[connection.handle_bytes(piece)..];
        loop {
            match connection.poll_event() {
                Ok(Some(event)) => received.events.push(event),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(connection.poll_event(), Err(error.clone()));
                    received.error = Some(error);
                    break;
                }
            }
        }
        received
            .sent
            .extend(connection.poll_transmit().unwrap_or_default());
    }
    received
}

/// What a peer sends before traffic.
pub fn opening(role: Role) -> Vec<u8> {
    let mut peer = Connection::new(role, Bytes::new(), nb::zmtp::FrameLimits::default());
    let mut bytes = peer.poll_transmit().unwrap_or_default().to_vec();
    receive(&mut peer, &GREETING, 64)
        .sent
        .iter()
        .for_each(|byte| bytes.push(*byte));
    bytes
}
