//! Whatever a stranger says first, in whatever pieces: no panic, and what we say is ZMTP.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use nb::zmtp::{Connection, Error, FrameLimits, Role};
use nb_fuzz::peers::{PAIRS, receive};

fuzz_target!(|input: (u8, u16, &[u8])| {
    let (which, step, bytes) = input;
    let (role, peer_role) = PAIRS[usize::from(which) % PAIRS.len()];
    let limits = FrameLimits::default();
    let mut whole = Connection::new(role, Bytes::new(), limits);
    let mut split = Connection::new(role, Bytes::new(), limits);
    let (one, other) = (
        receive(&mut whole, bytes, bytes.len()),
        receive(&mut split, bytes, usize::from(step)),
    );
    if !matches!(one.error, Some(Error::NotZmtp(_))) {
        assert_eq!((&one.events, &one.error), (&other.events, &other.error));
    }
    // The other side understands us, whatever it sent itself.
    let identity = Bytes::from_static(b"me");
    let identity = if peer_role == Role::Dealer {
        identity
    } else {
        Bytes::new()
    };
    let mut peer = Connection::new(peer_role, identity, limits);
    let back = receive(&mut peer, &one.sent, usize::from(step)).error;
    assert!(
        matches!(back, None | Some(Error::Refused(_) | Error::TooEarly(_))),
        "{back:?}"
    );
});
