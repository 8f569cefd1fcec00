//! Whatever stands in a header: it is read or refused, and another session changes nothing else.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use nb::wire::{Header, splice_session};

fuzz_target!(|input: (&str, &[u8])| {
    let (session, bytes) = input;
    let Ok(header) = Header::parse(bytes) else {
        let _ = splice_session(&Bytes::copy_from_slice(bytes), session);
        return;
    };
    let spliced = splice_session(&Bytes::copy_from_slice(bytes), session);
    // The bridge relies on it: what was read and names a session can be given another.
    assert!(spliced.is_ok() || header.session.is_empty());
    let Ok(spliced) = spliced else { return };
    let after = Header::parse(&spliced).expect("it could be read before");
    assert_eq!(after.session, session);
    assert_eq!(
        (
            after.msg_id,
            after.msg_type,
            after.username,
            after.subshell_id
        ),
        (
            header.msg_id,
            header.msg_type,
            header.username,
            header.subshell_id
        )
    );
    let back = splice_session(&spliced, &header.session).expect("it has one");
    let back = Header::parse(&back).expect("it could be read before");
    assert_eq!(back.session, header.session);
});
