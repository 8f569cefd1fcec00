//! Messages of the proxy's own, in the kernel's voice.

use bytes::Bytes;
use serde_json::{Value, json};

use super::timer::Now;
use super::{Ending, request::Request};
use crate::wire::{NewHeader, Verified};

/// Makes messages that a client takes for the kernel's.
#[derive(Debug)]
pub(super) struct Voice {
    /// Unique to this proxy; message ids are this and a number.
    id: String,
    /// The one `header.session` that clients see.
    session: Option<String>,
    count: u64,
}

impl Voice {
    pub(super) fn new(id: String) -> Self {
        Self {
            id,
            session: None,
            count: 0,
        }
    }

    /// Returns the session that clients see; the first to speak settles it.
    pub(super) fn session(&mut self, speaker: Option<&str>) -> &str {
        let id = &self.id;
        self.session
            .get_or_insert_with(|| speaker.unwrap_or(id).to_owned())
    }

    /// Returns whether it is known which session clients see.
    pub(super) fn is_settled(&self) -> bool {
        self.session.is_some()
    }

    /// Makes one message.
    pub(super) fn say(
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
    pub(super) fn ask(&mut self, now: Now, msg_type: &str, content: &Value) -> Verified {
        let session = self.id.clone();
        self.make(
            now,
            (&session, "nb-proxy"),
            msg_type,
            Bytes::from_static(b"{}"),
            content,
        )
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

    /// Makes one iopub message; its topic is what ipykernel uses.
    pub(super) fn publish(
        &mut self,
        now: Now,
        msg_type: &str,
        parent_header: Bytes,
        content: &Value,
    ) -> Verified {
        let topic = Bytes::from(format!("kernel.{}.{msg_type}", self.id));
        self.say(now, msg_type, parent_header, content)
            .with_identities(vec![topic])
    }

    pub(super) fn status(&mut self, now: Now, parent_header: Bytes, state: &str) -> Verified {
        self.publish(
            now,
            "status",
            parent_header,
            &json!({ "execution_state": state }),
        )
    }
}

/// Returns the content of an error, for iopub.
pub(super) fn error(ending: &Ending) -> Value {
    json!({ "ename": ending.name, "evalue": ending.text, "traceback": traceback(ending) })
}

/// Returns the content of an error reply of the request's own type.
pub(super) fn error_reply(request: &Request, ending: &Ending) -> Value {
    let mut content = json!({ "status": "error", "ename": ending.name, "evalue": ending.text, "traceback": traceback(ending) });
    if request.msg_type == "execute_request"
        && let Some(fields) = content.as_object_mut()
    {
        fields.insert("execution_count".into(), Value::Null);
        fields.insert("user_expressions".into(), json!({}));
        fields.insert("payload".into(), json!([]));
    }
    content
}

/// Front ends show a traceback's lines and nothing else, in red where they understand the escapes.
fn traceback(ending: &Ending) -> Vec<String> {
    vec![format!(
        "\u{1b}[0;31m{}\u{1b}[0m: {}",
        ending.name, ending.text
    )]
}
