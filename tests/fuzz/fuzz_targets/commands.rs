//! Commands, well framed and of any content, before and after READY.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use nb::zmtp::{Connection, Error, FrameLimits};
use nb_fuzz::peers::{GREETING, PAIRS, opening, receive};

const NAMES: [&[u8]; 8] = [
    b"READY",
    b"ERROR",
    b"PING",
    b"PONG",
    b"SUBSCRIBE",
    b"CANCEL",
    b"",
    b"HELLO",
];

fuzz_target!(|input: (u8, bool, u16, Vec<(u8, Vec<u8>)>)| {
    let (which, early, step, commands) = input;
    let (role, peer_role) = PAIRS[usize::from(which) % PAIRS.len()];
    let mut stream = if early {
        GREETING.to_vec()
    } else {
        opening(peer_role)
    };
    for (name, body) in &commands {
        let name = NAMES[usize::from(*name) % NAMES.len()];
        let len = 1 + name.len() + body.len();
        match u8::try_from(len) {
            Ok(len) => stream.extend([4, len]),
            Err(_) => {
                stream.push(6);
                stream.extend((len as u64).to_be_bytes());
            }
        }
        stream.push(name.len() as u8);
        stream.extend_from_slice(name);
        stream.extend_from_slice(body);
    }
    let limits = FrameLimits::default();
    let mut whole = Connection::new(role, Bytes::new(), limits);
    let mut split = Connection::new(role, Bytes::new(), limits);
    let one = receive(&mut whole, &stream, stream.len());
    let other = receive(&mut split, &stream, usize::from(step));
    assert_eq!((&one.events, &one.error), (&other.events, &other.error));
    let mut peer = Connection::new(peer_role, Bytes::new(), limits);
    let back = receive(&mut peer, &one.sent, 1000).error;
    assert!(matches!(back, None | Some(Error::Refused(_))), "{back:?}");
});
