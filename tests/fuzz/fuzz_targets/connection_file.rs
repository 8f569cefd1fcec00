//! Whatever stands in a connection file: it is taken or refused, in words without the key.

#![no_main]

use std::error::Error;

use libfuzzer_sys::fuzz_target;
use nb::wire::{Channel, ConnectionInfo};

const KEY: &str = "a0436f6c-1916-498b-8eb9";

fuzz_target!(|input: (bool, &str)| {
    let (whole, text) = input;
    let file = if whole {
        text.to_owned()
    } else {
        // Most of one, so that the fuzzer reaches what comes after the first field.
        format!(
            r#"{{"key":"{KEY}","ip":"127.0.0.1","transport":"tcp","shell_port":1,"iopub_port":2,"stdin_port":3,"control_port":4,"hb_port":5{text}}}"#
        )
    };
    let info = match ConnectionInfo::parse(file.as_bytes()) {
        Ok(info) => info,
        Err(error) => {
            let mut message = format!("{error} {error:?}");
            if let Some(source) = error.source() {
                message.push_str(&format!("{source}"));
            }
            assert!(
                text.contains("a0436f6c") || !message.contains("a0436f6c"),
                "{message}"
            );
            return;
        }
    };
    assert!(text.contains("a0436f6c") || !format!("{info:?}").contains("a0436f6c"));
    let again = ConnectionInfo::parse(info.to_json().as_bytes()).expect("what we write we read");
    for channel in [
        Channel::Shell,
        Channel::Control,
        Channel::Stdin,
        Channel::Iopub,
        Channel::Heartbeat,
    ] {
        assert_eq!(info.endpoint(channel), again.endpoint(channel));
    }
    assert_eq!(info.to_json().as_str(), again.to_json().as_str());
});
