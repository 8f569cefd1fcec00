//! Synthetic messages: those that the proxy makes itself, and that a client takes for the kernel's.

use bytes::Bytes;
use serde_json::{Value, json};

use super::request::Request;
use super::{Ending, timer::Now};
use crate::wire::{NewHeader, Verified};

/// The maker of synthetic messages.
#[derive(Debug)]
pub(super) struct SyntheticMessages {
    /// Unique to this proxy; message ids are this and a number.
    id: String,
    /// The one `header.session` that clients see.
    session: Option<String>,
    count: u64,
}

impl SyntheticMessages {
    /// Makes a maker whose message ids begin with `id`.
    pub(super) fn new(id: String) -> Self {
        Self {
            id,
            session: None,
            count: 0,
        }
    }

    /// Returns the session that clients see: that of the kernel whose message comes first, or the proxy's own.
    pub(super) fn session(&mut self, kernels: Option<&str>) -> &str {
        let id = &self.id;
        self.session
            .get_or_insert_with(|| kernels.unwrap_or(id).to_owned())
    }

    /// Returns whether it is known which session clients see.
    pub(super) fn is_session_known(&self) -> bool {
        self.session.is_some()
    }

    /// Makes a message of the kernel.
    pub(super) fn kernel_message(
        &mut self,
        now: Now,
        msg_type: &str,
        parent_header: Bytes,
        content: &Value,
    ) -> Verified {
        let session = self.session(None).to_owned();
        self.make(now, (&session, "kernel"), msg_type, parent_header, content)
    }

    /// Makes a request of the proxy's own. Its session is the proxy's, not the one that clients see.
    pub(super) fn request(&mut self, now: Now, msg_type: &str, content: &Value) -> Verified {
        let session = self.id.clone();
        let nobody = Bytes::from_static(b"{}");
        self.make(now, (&session, "nb-proxy"), msg_type, nobody, content)
    }

    /// Makes an iopub message; its topic is what ipykernel uses.
    pub(super) fn iopub(
        &mut self,
        now: Now,
        msg_type: &str,
        parent_header: Bytes,
        content: &Value,
    ) -> Verified {
        let topic = Bytes::from(format!("kernel.{}.{msg_type}", self.id));
        self.kernel_message(now, msg_type, parent_header, content)
            .with_identities(vec![topic])
    }

    /// Makes a `status` message.
    pub(super) fn status(&mut self, now: Now, parent_header: Bytes, state: &str) -> Verified {
        let content = json!({ "execution_state": state });
        self.iopub(now, "status", parent_header, &content)
    }

    /// Makes the `iopub_welcome` of JEP 65: the subscription has reached its publisher.
    pub(super) fn welcome(&mut self, now: Now, topic: &[u8]) -> Verified {
        let content = json!({ "subscription": String::from_utf8_lossy(topic) });
        let nobody = Bytes::from_static(b"{}");
        let welcome = self.kernel_message(now, "iopub_welcome", nobody, &content);
        // The subscription is the topic, so that no other subscriber gets it.
        welcome.with_identities(match topic {
            [] => Vec::new(),
            topic => vec![Bytes::copy_from_slice(topic)],
        })
    }

    fn make(
        &mut self,
        now: Now,
        (session, username): (&str, &str),
        msg_type: &str,
        parent_header: Bytes,
        content: &Value,
    ) -> Verified {
        self.count += 1;
        let msg_id = format!("{}_{}", self.id, self.count);
        let date = now.date.to_string();
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

/// Returns the content of a stream message that shows a line of the proxy's among a cell's outputs.
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

/// Returns the traceback of an error: front ends show its lines and nothing else, in red where they
/// understand the escapes.
fn traceback(ending: &Ending) -> Vec<String> {
    vec![format!(
        "\u{1b}[0;31m{}\u{1b}[0m: {}",
        ending.name, ending.text
    )]
}
