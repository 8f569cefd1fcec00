//! An event of a project, as text.

use std::time::Duration;

use crate::activity::labels;
use crate::api::time::{moment, took};
use crate::project::event::{Event, EventKind};
use crate::text::log::changes;

/// Returns an event's line.
pub fn line(event: &Event) -> String {
    let by = event.by.as_deref().map(|by| format!("{by} "));
    let at = moment(event.at);
    let notebook = event.notebook();
    let by = by.unwrap_or_default();
    format!("{at}  {notebook}: {by}{}", description(&event.kind))
}

fn description(kind: &EventKind) -> String {
    match kind {
        EventKind::Queued(start) => format!("waits for the kernel with {}", labels::label(start)),
        EventKind::Requested(start) => format!("asked the kernel to run {}", labels::label(start)),
        EventKind::BegunOutside(start) => format!("the kernel runs {}", labels::label(start)),
        EventKind::Prompted { prompt, .. } => format!("was asked for input: {prompt}"),
        EventKind::Answered { .. } => "answered".to_owned(),
        EventKind::Done(end) => {
            let took = end.took_ms.map(|ms| took(Duration::from_millis(ms)));
            let took = took.map(|took| format!(", {took}"));
            format!("ended: {}{}", end.status.word(), took.unwrap_or_default())
        }
        EventKind::Peeked { .. } => "looked into the kernel".to_owned(),
        EventKind::Opened => "started the kernel".to_owned(),
        EventKind::Restarted => "restarted the kernel".to_owned(),
        EventKind::Stopped => "shut the kernel down".to_owned(),
        EventKind::Died { reason, .. } => format!("the kernel died: {reason}"),
        EventKind::Interrupted => "interrupted the kernel".to_owned(),
        EventKind::Withdrew { cells, .. } => format!("withdrew {}", super::count(*cells, "cell")),
        EventKind::Moved { from } => format!("moved the notebook from {from}"),
        EventKind::Edited(change) => changes(change),
        EventKind::Saved(change) => format!("saved: {}", changes(change)),
        EventKind::Called(call) => format!("called {}: {}", call.tool, call.result),
        EventKind::Messaged(turn) => format!("worked for a message of the chat {}", turn.chat),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::project::event::fixtures::event;

    #[test]
    fn an_event_says_where_who_and_what() {
        let asked_line =
            json!({"event": "requested", "msg_id": "1", "by": "claude", "code": "x = 1"});
        let asked_line = line(&event(asked_line));
        assert!(
            asked_line.ends_with(r#"  a.ipynb: claude asked the kernel to run "x = 1""#),
            "{asked_line}"
        );
        let done_line = json!({"event": "done", "msg_id": "1", "status": "ok", "took_ms": 1500});
        let done_line = line(&event(done_line));
        assert!(
            done_line.ends_with("  a.ipynb: ended: ok, 1.5 s"),
            "{done_line}"
        );
    }
}
