//! What a call is shown as, and how the person is asked about it. Pure.
//!
//! The server of the tools says what a call would do: it reads the arguments as the call itself does, so no other name
//! of an argument and no cell that is there already passes by. The warnings about code inform; no question depends on
//! them.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use super::message::ModelCall;
use crate::agent::permission::{PermissionChoice, PermissionQuestion};
use crate::agent::update::{Content, ToolContent};
use crate::agent::{PermissionKind, PermissionOption};
use crate::code::risks::{Risk, risks};
use crate::notebook::visible_line;

/// How many warnings a call has at most.
const MOST_WARNINGS: usize = 5;

/// How much of a text is shown, in bytes. A question about a longer one says so.
const LONGEST_SHOWN: usize = 48 << 10;

/// What a call would do, as the server of the tools says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct CallPreview {
    /// Whether it changes nothing and runs nothing.
    pub(super) reads: bool,
    kind: String,
    title: String,
    parts: Vec<PreviewPart>,
}

/// A text that a call writes or runs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct PreviewPart {
    label: String,
    old: Option<String>,
    text: String,
    is_code: bool,
}

/// A call for the person.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ShownCall {
    /// One line.
    pub(super) title: String,
    /// `read`, `edit`, `delete` or `execute`.
    pub(super) kind: String,
    /// What it writes and runs.
    pub(super) content: Vec<ToolContent>,
    /// Warnings about its code.
    pub(super) warnings: Vec<String>,
}

impl ShownCall {
    /// Returns what a call is shown as. Without a preview, its name and the cells that it names are shown.
    pub(super) fn of(call: &ModelCall, preview: Option<&CallPreview>) -> Self {
        let Some(preview) = preview.filter(|preview| !preview.reads) else {
            return Self {
                title: title(call),
                kind: match preview {
                    Some(_) => "read".to_owned(),
                    None => "execute".to_owned(),
                },
                ..Self::default()
            };
        };
        let code = preview.parts.iter().filter(|part| part.is_code);
        let findings = code.flat_map(|part| risks(&part.text));
        let findings = findings.filter(|it| it.risk != Risk::Network);
        Self {
            title: visible_line(&preview.title).into_owned(),
            kind: preview.kind.clone(),
            content: preview
                .parts
                .iter()
                .flat_map(PreviewPart::content)
                .collect(),
            warnings: findings
                .map(|it| it.to_string())
                .take(MOST_WARNINGS)
                .collect(),
        }
    }
}

impl PreviewPart {
    fn content(&self) -> [ToolContent; 2] {
        let text = |text: &str| ToolContent::Content(Content::Text(text.to_owned()));
        let shown = match &self.old {
            Some(old) => ToolContent::Diff {
                path: PathBuf::new(),
                old: beginning(old),
                new: beginning(&self.text),
            },
            None => text(&beginning(&self.text)),
        };
        [text(&self.label), shown]
    }

    fn is_too_long(&self) -> bool {
        let old = self.old.as_ref().map_or(0, String::len);
        self.text.len().max(old) > LONGEST_SHOWN
    }
}

/// Returns a text, or its beginning with a remark.
fn beginning(text: &str) -> String {
    match text.len() > LONGEST_SHOWN {
        true => {
            let end = text.floor_char_boundary(LONGEST_SHOWN);
            format!("{}\n[the rest is not shown]", &text[..end])
        }
        false => text.to_owned(),
    }
}

/// What the person has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Approval {
    /// This call.
    Once,
    /// This call, and all others until the end of the turn.
    Turn,
    /// Not this call.
    Refused,
}

/// Returns the question about a call.
pub(super) fn question(
    shown: &ShownCall,
    preview: &CallPreview,
    is_changed: bool,
) -> PermissionQuestion {
    let option = |id: &str, name: &str, kind| PermissionOption {
        id: id.to_owned(),
        name: name.to_owned(),
        kind,
    };
    let mut title = shown.title.clone();
    if is_changed {
        title = format!("it is no longer what you have allowed: {title}");
    }
    if preview.parts.iter().any(PreviewPart::is_too_long) {
        title.insert_str(0, "not all of its text is shown: ");
    }
    PermissionQuestion {
        agent: "assistant".to_owned(),
        title,
        kind: String::new(),
        places: Vec::new(),
        options: vec![
            option("allow", "Allow", PermissionKind::AllowOnce),
            option("reject", "Do not allow", PermissionKind::RejectOnce),
            option("turn", "Allow everything", PermissionKind::AllowTurn),
        ],
        standing: None,
    }
}

/// Reads the answer to a question. What is no answer allows nothing.
pub(super) fn approval(question: &PermissionQuestion, answer: Option<&str>) -> Approval {
    match answer.map(|answer| question.choice(answer)) {
        Some(PermissionChoice::Option(option)) => match option.kind {
            PermissionKind::AllowOnce => Approval::Once,
            PermissionKind::AllowTurn => Approval::Turn,
            PermissionKind::AllowAlways
            | PermissionKind::RejectOnce
            | PermissionKind::RejectAlways => Approval::Refused,
        },
        Some(PermissionChoice::Nothing | PermissionChoice::Unclear) | None => Approval::Refused,
    }
}

/// Returns the tool with what it concerns: `read cell 3f2c`.
fn title(call: &ModelCall) -> String {
    let name = call.name.replace('_', " ");
    let mut title = visible_line(&name).into_owned();
    for name in ["action", "cell", "name", "op", "kernel"] {
        let short = match call.arguments.get(name) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(items)) => {
                let items = items
                    .iter()
                    .map(|it| it.as_str().map_or(it.to_string(), str::to_owned));
                items.collect::<Vec<_>>().join(", ")
            }
            Some(number @ Value::Number(_)) => number.to_string(),
            _ => continue,
        };
        let line = short.lines().next().unwrap_or_default();
        let line: String = line.chars().take(60).collect();
        title.push(' ');
        title.push_str(&visible_line(&line));
    }
    title
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(name: &str, arguments: &Value) -> ModelCall {
        ModelCall {
            id: "1".to_owned(),
            name: name.to_owned(),
            arguments: arguments.as_object().cloned().unwrap_or_default(),
            ..ModelCall::default()
        }
    }

    fn preview(parts: &Value) -> CallPreview {
        let preview =
            json!({"reads": false, "kind": "execute", "title": "run\n2 cells", "parts": parts});
        serde_json::from_value(preview).unwrap()
    }

    #[test]
    fn a_call_shows_all_that_it_writes_and_runs() {
        let preview = preview(&json!([
            {"label": "run cell 0 · aaaa", "old": null, "text": "!ls", "is_code": true},
            {"label": "change cell 1 · bbbb: text", "old": "1", "text": "2", "is_code": true},
            {"label": "the answer", "old": null, "text": "!no code", "is_code": false},
        ]));
        let shown = ShownCall::of(&call("run_cell", &json!({})), Some(&preview));
        assert_eq!((&*shown.title, &*shown.kind), ("run␊2 cells", "execute"));
        let text = |text: &str| ToolContent::Content(Content::Text(text.to_owned()));
        let diff = ToolContent::Diff {
            path: PathBuf::new(),
            old: "1".to_owned(),
            new: "2".to_owned(),
        };
        assert_eq!(
            shown.content,
            [
                text("run cell 0 · aaaa"),
                text("!ls"),
                text("change cell 1 · bbbb: text"),
                diff,
                text("the answer"),
                text("!no code"),
            ]
        );
        assert_eq!(shown.warnings, ["line 1 runs a shell command: !ls"]);
    }

    #[test]
    fn a_question_says_what_is_not_shown_and_an_answer_holds_for_a_call_or_for_the_turn() {
        let long = "#".repeat(LONGEST_SHOWN + 1);
        let preview =
            preview(&json!([{"label": "run", "old": null, "text": long, "is_code": true}]));
        let shown = ShownCall::of(&call("run_cell", &json!({})), Some(&preview));
        assert!(
            matches!(&shown.content[1], ToolContent::Content(Content::Text(text)) if text.ends_with("[the rest is not shown]"))
        );
        let question = question(&shown, &preview, false);
        assert_eq!(question.title, "not all of its text is shown: run␊2 cells");
        for (answer, expected) in [
            (Some("a"), Approval::Once),
            (Some("b"), Approval::Refused),
            (Some("c"), Approval::Turn),
            (Some(""), Approval::Refused),
            (Some("yes"), Approval::Refused),
            (None, Approval::Refused),
        ] {
            assert_eq!(approval(&question, answer), expected, "{answer:?}");
        }
    }

    #[test]
    fn a_call_that_reads_is_one_line() {
        let reads = CallPreview {
            reads: true,
            ..CallPreview::default()
        };
        let shown = |arguments| ShownCall::of(&call("read_cell", &arguments), Some(&reads));
        let one = shown(json!({"cell": "3f2c\n\u{1b}[2J", "notebook": "a.ipynb"}));
        assert_eq!((&*one.title, &*one.kind), ("read cell 3f2c", "read"));
        assert_eq!(shown(json!({"cell": ["a", 2]})).title, "read cell a, 2");
    }
}
