//! The comm on which an editor's extension in a front end speaks with `nb live`.
//!
//! The bridge takes these messages itself: the kernel neither gets nor sends any. They get no `status`: an `idle` would
//! show a kernel as idle that runs a cell. The editor chooses a comm id that begins with [`EDITOR_COMM`], so that its
//! messages are recognised also after the proxy was started anew.

use serde::Deserialize;
use serde_json::Value;

/// The target of the comm; the ids of such comms begin with it, too.
pub const EDITOR_COMM: &str = "nb.live";

/// A message of an editor.
#[derive(Debug, PartialEq)]
pub enum EditorMessage {
    /// It has opened a comm.
    Opened,
    /// It says something in the live protocol.
    Data(Value),
    /// It has closed the comm.
    Closed,
}

/// The content of a `comm_open`, `comm_msg` or `comm_close`.
#[derive(Deserialize)]
struct CommContent {
    comm_id: String,
    #[serde(default)]
    data: Value,
}

/// Reads a comm message of a client; `None` if it is for the kernel. Returns the comm's id, too.
pub(super) fn read(msg_type: &str, content: &[u8]) -> Option<(String, EditorMessage)> {
    if !is_editor_comm(content) {
        return None;
    }
    let content: CommContent = serde_json::from_slice(content).ok()?;
    let message = match msg_type {
        "comm_open" => EditorMessage::Opened,
        "comm_msg" => EditorMessage::Data(content.data),
        "comm_close" => EditorMessage::Closed,
        _ => return None,
    };
    Some((content.comm_id, message))
}

/// Says whether the content of a comm message names an editor's comm or its target.
pub(super) fn is_editor_comm(content: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Names {
        comm_id: String,
        #[serde(default)]
        target_name: Option<String>,
    }
    let is_ours = |name: &str| name.starts_with(EDITOR_COMM);
    match serde_json::from_slice::<Names>(content) {
        Ok(names) => is_ours(&names.comm_id) || names.target_name.is_some_and(|it| is_ours(&it)),
        // A front end takes the last of two fields with one name; the reader above takes neither.
        Err(_) => serde_json::from_slice::<Value>(content).is_ok_and(|content| {
            ["comm_id", "target_name"]
                .iter()
                .any(|field| content[field].as_str().is_some_and(is_ours))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_spelling_hides_the_name_of_an_editors_comm() {
        for content in [
            r#"{"comm_id": "nb.live-1", "data": {}}"#,
            r#"{"comm_id": "nb\u002elive-1", "data": {}}"#,
            r#"{"comm_id": "1", "comm_id": "nb.live-1", "data": {}}"#,
            r#"{"comm_id": "1", "target_name": "nb.live", "data": {}}"#,
            r#"{"target_name": "nb.live", "data": {}}"#,
            r#"{"comm_id": 1, "target_name": "nb.live", "data": {}}"#,
            r#"{"comm_id": "nb.live-1", "target_name": 1}"#,
        ] {
            assert!(is_editor_comm(content.as_bytes()), "{content}");
        }
        for content in [
            r#"{"comm_id": "1", "target_name": "jupyter.widget", "data": {"comm_id": "nb.live"}}"#,
            r#"{"comm_id": "nb.live-1", "comm_id": "1"}"#,
            "[]",
            "{",
        ] {
            assert!(!is_editor_comm(content.as_bytes()), "{content}");
        }
    }
}
