//! Synthetic messages: those that the proxy makes itself, and that clients take for the kernel's.

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Ending;
use super::request::Request;
use crate::wire::{NewHeader, Verified};

/// The maker of synthetic messages.
#[derive(Debug)]
pub(super) struct SyntheticMessages {
    /// Unique to this proxy; a message id is this text and a number.
    id: String,
    /// The one `header.session` that clients see.
    session: Option<String>,
    count: u64,
    /// The time of the last input.
    date: Timestamp,
}

impl SyntheticMessages {
    /// Makes a maker whose message ids begin with `id`.
    pub(super) fn new(id: String, date: Timestamp) -> Self {
        Self {
            id,
            session: None,
            count: 0,
            date,
        }
    }

    /// Takes the time of an input.
    pub(super) fn set_date(&mut self, date: Timestamp) {
        self.date = date;
    }

    /// Returns the session that clients see: that of the first kernel that has sent a message, or the proxy's
    /// own.
    pub(super) fn session(&mut self, kernel_session: Option<&str>) -> &str {
        let id = &self.id;
        self.session
            .get_or_insert_with(|| kernel_session.unwrap_or(id).to_owned())
    }

    /// Returns whether the session that clients see has been chosen.
    pub(super) fn is_session_known(&self) -> bool {
        self.session.is_some()
    }

    /// Makes a message that looks like the kernel's.
    pub(super) fn kernel_message(
        &mut self,
        msg_type: &str,
        parent_header: Bytes,
        content: &Value,
    ) -> Verified {
        let session = self.session(None).to_owned();
        self.make((&session, "kernel"), msg_type, parent_header, content)
    }

    /// Makes a request of the proxy's own. Its session is the proxy's, not the one that clients see.
    pub(super) fn request(&mut self, msg_type: &str, content: &Value) -> Verified {
        let session = self.id.clone();
        let no_parent = Bytes::from_static(b"{}");
        self.make((&session, "nb-proxy"), msg_type, no_parent, content)
    }

    /// Makes an iopub message with the same topic as ipykernel's.
    pub(super) fn iopub(
        &mut self,
        msg_type: &str,
        parent_header: Bytes,
        content: &Value,
    ) -> Verified {
        let topic = Bytes::from(format!("kernel.{}.{msg_type}", self.id));
        self.kernel_message(msg_type, parent_header, content)
            .with_identities(vec![topic])
    }

    /// Makes a `status` message.
    pub(super) fn status(&mut self, parent_header: Bytes, state: &str) -> Verified {
        let content = json!({ "execution_state": state });
        self.iopub("status", parent_header, &content)
    }

    /// Makes the `iopub_welcome` of JEP 65, which says that a subscription has reached the publisher.
    pub(super) fn welcome(&mut self, topic: &[u8]) -> Verified {
        let content = json!({ "subscription": String::from_utf8_lossy(topic) });
        let no_parent = Bytes::from_static(b"{}");
        let welcome = self.kernel_message("iopub_welcome", no_parent, &content);
        // The message's topic is the subscription, so that no other subscriber gets it.
        welcome.with_identities(match topic {
            [] => Vec::new(),
            topic => vec![Bytes::copy_from_slice(topic)],
        })
    }

    fn make(
        &mut self,
        (session, username): (&str, &str),
        msg_type: &str,
        parent_header: Bytes,
        content: &Value,
    ) -> Verified {
        self.count += 1;
        let msg_id = format!("{}_{}", self.id, self.count);
        let date = self.date.to_string();
        let header = NewHeader {
            msg_id: &msg_id,
            session,
            username,
            date: &date,
            msg_type,
        };
        Verified::new(&header, parent_header, content)
    }
}

/// Returns the content of a stream message that shows a notice of the proxy among a cell's outputs.
pub(super) fn notice(text: &str) -> Value {
    json!({ "name": "stderr", "text": format!("[nb] {text}\n") })
}

/// Returns the content of an `error` message.
pub(super) fn error(ending: &Ending) -> Value {
    json!({ "ename": ending.name, "evalue": ending.text, "traceback": traceback(ending) })
}

/// Returns the content of an error reply of the request's own type.
pub(super) fn error_reply(request: &Request, ending: &Ending) -> Value {
    let mut content = error(ending);
    if let Some(fields) = content.as_object_mut() {
        fields.insert("status".into(), "error".into());
        if request.msg_type == "execute_request" {
            fields.insert("execution_count".into(), Value::Null);
            fields.insert("user_expressions".into(), json!({}));
            fields.insert("payload".into(), json!([]));
        }
    }
    content
}

/// Returns the traceback of an error. Front ends show only its lines, in red if they understand the escape
/// sequences.
fn traceback(ending: &Ending) -> Vec<String> {
    vec![format!(
        "\u{1b}[0;31m{}\u{1b}[0m: {}",
        ending.name, ending.text
    )]
}
