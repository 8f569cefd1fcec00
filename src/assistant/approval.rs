//! Which calls the person is asked about, and what a call is shown as. Pure.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::message::ModelCall;
use crate::agent::update::Content;
use crate::agent::update::ToolContent;
use crate::code::risks::{Risk, risks};
use crate::notebook::Operation;

/// The tools that are shown as reading.
const READING_TOOLS: [&str; 7] = [
    "get_notebook_state",
    "get_run_status",
    "history",
    "notebooks",
    "open_notebook",
    "read_cell",
    "variables",
];

/// The other tools that are known: some of their arguments need an approval.
const WRITING_TOOLS: [&str; 7] = [
    "answer_input",
    "apply_edits",
    "create_cell",
    "delete_cell",
    "kernel",
    "run_cell",
    "update_cell",
];

/// How many warnings a call has at most.
const MOST_WARNINGS: usize = 5;

/// What a call does, for the person.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ShownCall {
    /// One line.
    pub(super) title: String,
    /// `read`, `edit`, `delete` or `execute`.
    pub(super) kind: &'static str,
    /// The code or text that it writes or runs.
    pub(super) content: Vec<ToolContent>,
    /// Warnings about its code.
    pub(super) warnings: Vec<String>,
    /// Why the person is asked, where calls are approved; none for a call that needs no approval.
    pub(super) approval_reason: Option<String>,
}

/// Returns what a call is shown as.
pub(super) fn shown(call: &ModelCall) -> ShownCall {
    let arguments = &call.arguments;
    let operations = operations(arguments);
    let texts = texts(arguments, &operations);
    let findings = texts.iter().flat_map(|text| risks(text));
    let findings: Vec<_> = findings.filter(|it| it.risk != Risk::Network).collect();
    let warnings: Vec<_> = findings
        .iter()
        .map(ToString::to_string)
        .take(MOST_WARNINGS)
        .collect();
    let deletes = call.name == "delete_cell"
        || operations
            .iter()
            .any(|it| matches!(it, Operation::Remove { .. }));
    let ends = call.name == "kernel"
        && matches!(
            arguments.get("action").and_then(Value::as_str),
            Some("restart" | "shutdown")
        );
    let is_known = |name: &str| READING_TOOLS.contains(&name) || WRITING_TOOLS.contains(&name);
    let approval_reason = match warnings.first() {
        _ if !is_known(&call.name) => Some("it is not known what it changes".to_owned()),
        _ if deletes => Some("it deletes cells".to_owned()),
        _ if ends => Some("the kernel loses its variables".to_owned()),
        first => first.cloned(),
    };
    ShownCall {
        title: title(call),
        kind: kind(call, deletes),
        content: content(arguments),
        warnings,
        approval_reason,
    }
}

fn kind(call: &ModelCall, deletes: bool) -> &'static str {
    let runs = call.arguments.get("run") == Some(&Value::Bool(true));
    match call.name.as_str() {
        _ if deletes => "delete",
        "run_cell" | "answer_input" | "kernel" => "execute",
        "create_cell" | "update_cell" if runs => "execute",
        "create_cell" | "update_cell" | "apply_edits" => "edit",
        name if READING_TOOLS.contains(&name) => "read",
        _ => "execute",
    }
}

/// Returns the tool with what it concerns: `run_cell 3f2c`.
fn title(call: &ModelCall) -> String {
    let mut title = call.name.replace('_', " ");
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
        title.push(' ');
        title.extend(line.chars().filter(|c| !c.is_control()).take(60));
    }
    title
}

fn operations(arguments: &Map<String, Value>) -> Vec<Operation> {
    let list = arguments
        .get("operations")
        .or_else(|| arguments.get("edits"));
    let list = list.map(Value::to_string);
    let list = list.and_then(|list| Operation::read_list(&list).ok());
    list.unwrap_or_default()
}

fn text<'a>(arguments: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    arguments.get(name).and_then(Value::as_str)
}

/// Returns the texts that a call writes or runs.
fn texts<'a>(arguments: &'a Map<String, Value>, operations: &'a [Operation]) -> Vec<&'a str> {
    let own = ["code", "source", "new_string"].into_iter();
    let own = own.filter_map(|name| text(arguments, name));
    let written = operations.iter().filter_map(|operation| match operation {
        Operation::Insert { source, .. } | Operation::Append { source, .. } => {
            Some(source.as_str())
        }
        Operation::Edit { source, .. } => source.as_deref(),
        Operation::Replace { new, .. } => Some(new.as_str()),
        _ => None,
    });
    own.chain(written).collect()
}

fn content(arguments: &Map<String, Value>) -> Vec<ToolContent> {
    let shown = |text: &str| ToolContent::Content(Content::Text(text.to_owned()));
    let old = text(arguments, "old_string").zip(text(arguments, "new_string"));
    let diff = old.map(|(old, new)| ToolContent::Diff {
        path: PathBuf::from(text(arguments, "notebook").unwrap_or_default()),
        old: old.to_owned(),
        new: new.to_owned(),
    });
    let texts_of_call = ["code", "source", "text"].into_iter();
    let texts_of_call = texts_of_call
        .filter_map(|name| text(arguments, name))
        .map(shown);
    let list = arguments.get("operations").map(|list| {
        let list = serde_json::to_string_pretty(list).unwrap_or_default();
        shown(&list)
    });
    diff.into_iter().chain(texts_of_call).chain(list).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(name: &str, arguments: &Value) -> ShownCall {
        shown(&ModelCall {
            id: "1".to_owned(),
            name: name.to_owned(),
            arguments: arguments.as_object().cloned().unwrap_or_default(),
            fault: None,
        })
    }

    #[test]
    fn deletes_and_commands_need_an_approval() {
        let approval_reason = |name, arguments| call(name, &arguments).approval_reason;
        assert_eq!(approval_reason("run_cell", json!({"code": "x = 1"})), None);
        assert_eq!(approval_reason("read_cell", json!({"cell": "a"})), None);
        assert_eq!(
            approval_reason("kernel", json!({"action": "interrupt"})),
            None
        );
        for (name, arguments) in [
            ("delete_cell", json!({"cell": "a"})),
            // A tool that was added since.
            ("rename_notebook", json!({"to": "b.ipynb"})),
            ("kernel", json!({"action": "restart"})),
            ("run_cell", json!({"code": "!rm -r x"})),
            (
                "create_cell",
                json!({"source": "import os\nos.system('ls')"}),
            ),
            (
                "update_cell",
                json!({"cell": "a", "old_string": "a", "new_string": "!ls"}),
            ),
            (
                "apply_edits",
                json!({"operations": [{"op": "remove", "cells": ["a"]}]}),
            ),
            (
                "apply_edits",
                json!({"operations": [{"op": "append", "cell": "a", "source": "!ls"}]}),
            ),
        ] {
            let approval_reason = approval_reason(name, arguments.clone());
            assert!(approval_reason.is_some(), "{name} {arguments}");
        }
    }

    #[test]
    fn a_call_is_one_line_and_shows_what_it_writes() {
        let shown = call(
            "update_cell",
            &json!({"cell": "3f2c\n\u{1b}[2J", "notebook": "a.ipynb", "old_string": "1", "new_string": "2"}),
        );
        assert_eq!(
            (shown.title.as_str(), shown.kind),
            ("update cell 3f2c", "edit")
        );
        assert!(matches!(&shown.content[..], [ToolContent::Diff { old, .. }] if old == "1"));
        assert_eq!(
            call("read_cell", &json!({"cell": ["a", 2]})).title,
            "read cell a, 2"
        );
        assert_eq!(
            call("create_cell", &json!({"source": "1", "run": true})).kind,
            "execute"
        );
    }
}
