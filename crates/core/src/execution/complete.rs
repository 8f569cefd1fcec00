//! Completes code, and finds its documentation, as the kernel does: `complete_request` and `inspect_request`.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::inspect::{InspectError, Inspector};
use crate::project::{Project, Session};

/// How long the kernel may take. IPython's first completion loads jedi, which takes seconds on a busy machine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How many completions there are at most, and how many characters each has.
const MOST_MATCHES: usize = 500;
const MOST_MATCH: usize = 1000;

/// How many characters the documentation has at most.
const MOST_TEXT: usize = 20_000;

/// What code may go on with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Completions {
    /// What may stand in place of the characters from `from` to `to`.
    pub matches: Vec<CompletionMatch>,
    /// Where they begin, in Unicode characters from 0.
    pub from: usize,
    /// Where they end.
    pub to: usize,
}

/// One completion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CompletionMatch {
    /// The text.
    pub text: String,
    /// What it is, as the kernel says: "function", "module".
    pub kind: Option<String>,
}

/// Asks a session's kernel, as the actor `by`.
async fn ask(
    (project, key, session): (&Project, &str, &Session),
    by: &str,
    msg_type: &str,
    content: Value,
) -> Result<Value, InspectError> {
    let mut inspector = Inspector::join(project, key, session, by).await?;
    let reply = inspector.request(msg_type, &content, ANSWER_TIMEOUT).await;
    inspector.leave().await;
    reply
}

/// Returns what may follow at a place in code, in Unicode characters from 0, as a session's kernel says. The session's key
/// in the project is `key`.
///
/// # Errors
/// The kernel cannot be reached, is busy, or does not answer in time.
pub async fn completions(
    kernel: (&Project, &str, &Session),
    by: &str,
    code: &str,
    at: usize,
) -> Result<Completions, InspectError> {
    let content = json!({ "code": code, "cursor_pos": at });
    let reply = ask(kernel, by, "complete_request", content).await?;
    Ok(read(&reply, code, at))
}

/// Returns the documentation of what stands at a place in code, as plain text; none if the kernel has none.
///
/// # Errors
/// The kernel cannot be reached, is busy, or does not answer in time.
pub async fn documentation(
    kernel: (&Project, &str, &Session),
    by: &str,
    code: &str,
    at: usize,
) -> Result<Option<String>, InspectError> {
    let content = json!({ "code": code, "cursor_pos": at, "detail_level": 0 });
    let reply = ask(kernel, by, "inspect_request", content).await?;
    let text = reply["data"]["text/plain"].as_str();
    Ok(text.map(|text| text.chars().take(MOST_TEXT).collect()))
}

/// Reads the kernel's reply. A place that is not in the code is taken for the cursor's.
fn read(reply: &Value, code: &str, at: usize) -> Completions {
    let length = code.chars().count();
    let place = |name: &str| {
        let place = reply[name].as_u64().and_then(|it| usize::try_from(it).ok());
        place.filter(|it| *it <= length).unwrap_or(at)
    };
    let (from, to) = (place("cursor_start"), place("cursor_end"));
    let types = &reply["metadata"]["_jupyter_types_experimental"];
    let types = types.as_array().map_or(&[][..], Vec::as_slice);
    let texts = reply["matches"].as_array().into_iter().flatten();
    let texts = texts.filter_map(Value::as_str);
    let texts = texts.filter(|text| text.chars().nth(MOST_MATCH).is_none());
    let matches = texts.take(MOST_MATCHES).map(|text| CompletionMatch {
        text: text.to_owned(),
        kind: types
            .iter()
            .find(|it| it["text"] == text)
            .and_then(|it| it["type"].as_str())
            .filter(|kind| kind.len() < MOST_MATCH && *kind != "<unknown>")
            .map(str::to_owned),
    });
    Completions {
        matches: matches.collect(),
        from: from.min(to),
        to,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_read_and_bounded() {
        let reply = json!({
            "matches": ["print", 7, "x".repeat(2000), "property"], "cursor_start": 1, "cursor_end": 3,
            "metadata": { "_jupyter_types_experimental": [{ "text": "print", "type": "function" }] },
        });
        let found = read(&reply, " pr", 3);
        let texts: Vec<_> = found.matches.iter().map(|it| &*it.text).collect();
        assert_eq!(texts, ["print", "property"]);
        assert_eq!(found.matches[0].kind.as_deref(), Some("function"));
        assert_eq!(found.matches[1].kind, None);
        assert_eq!((found.from, found.to), (1, 3));
        let beyond = json!({ "matches": ["a"], "cursor_start": 9, "cursor_end": -1 });
        let found = read(&beyond, "ä.", 2);
        assert_eq!((found.from, found.to), (2, 2));
        let turned = json!({ "cursor_start": 2, "cursor_end": 1 });
        assert_eq!(read(&turned, "abc", 3).from, 1);
        assert_eq!(read(&json!(null), "abc", 3).matches, []);
    }
}
