//! Messages for tests.

use bytes::Bytes;
use serde_json::Value;

use super::{NewHeader, Verified};

/// Returns a message without metadata.
pub fn message(
    msg_type: &str,
    msg_id: &str,
    session: &str,
    parent: Bytes,
    content: &Value,
) -> Verified {
    let header = NewHeader {
        msg_id,
        session,
        username: "u",
        date: "2026-01-01T00:00:00Z",
        msg_type,
    };
    Verified::new(&header, parent, content)
}
