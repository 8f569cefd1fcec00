//! Whatever frames a peer sends: a message or none, and what is passed on is what came.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use nb::wire::{DELIMITER, SigningKey, Unverified};

fuzz_target!(|input: (u8, Vec<Vec<u8>>)| {
    let (at, frames) = input;
    let mut frames: Vec<Bytes> = frames.into_iter().map(Bytes::from).collect();
    let at = usize::from(at);
    if at <= frames.len() {
        frames.insert(at, Bytes::from_static(DELIMITER));
    }
    let (unsigned, key) = (SigningKey::new(b""), SigningKey::new(b"key"));
    let Ok(message) = Unverified::parse(frames.clone()) else {
        return;
    };
    assert!(
        key.verify(message).is_err(),
        "nobody guesses a signature of 256 bits"
    );
    let again = Unverified::parse(frames.clone()).expect("it was one");
    let mut message = unsigned.verify(again).expect("without a key all is taken");
    let _ = (format!("{message:?}"), message.read_headers());
    let header = message.header().is_ok();
    let _ = (
        message.parent().is_ok(),
        message.metadata(),
        message.content(),
    );
    let parts = message.identities().len() + message.buffers().len() + 6;
    assert_eq!(parts, frames.len());
    assert_eq!(message.size(), frames.iter().map(Bytes::len).sum::<usize>());

    let signature = message.identities().len() + 1;
    let mut other = message.clone();
    if header && other.set_session("another").is_ok() {
        let header = other.header().expect("it could be read before");
        assert_eq!(header.session, "another");
    }
    let sent = message.into_frames(&key);
    for (index, (before, after)) in frames.iter().zip(&sent).enumerate() {
        assert!(index == signature || before == after, "frame {index}");
    }
    let back = Unverified::parse(sent).expect("it is still one");
    let back = key.verify(back).expect("it was signed");
    assert_eq!(back.into_frames(&unsigned).len(), frames.len());
    key.verify(Unverified::parse(other.into_frames(&key)).expect("whole"))
        .expect("signed with its new session");
});
