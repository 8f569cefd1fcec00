//! Formats an error with its causes in one line.

use std::error::Error;

/// Returns an error's message, followed by those of its causes that it does not contain.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        let message = source.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = source.source();
    }
    text
}
