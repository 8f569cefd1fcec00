//! The lines between an editor and `nb live`: the messages of the protocol, each with the name of its document.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::actions::Action;
use crate::live::protocol::{EditorEvent, OpenedDocument};

/// What an editor sends.
#[derive(Debug)]
pub(super) enum Incoming {
    Editor(EditorLine),
    Open {
        doc: String,
        notebook: PathBuf,
        opened: OpenedDocument,
    },
    Document {
        doc: String,
        event: EditorEvent,
    },
    Action {
        doc: String,
        action: Action,
    },
    /// A message of a kind that this version does not know.
    Unknown,
}

/// A message that is not an event of an open document.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum EditorLine {
    /// The first message.
    Initialize {
        editor: String,
        #[serde(default)]
        can: Vec<Ability>,
    },
    /// The editor has received all lines up to the number `n`.
    Received { n: u64 },
    /// The editor has closed a document.
    Closed { doc: String },
}

/// What an editor can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum Ability {
    /// It changes its documents as it is asked to.
    Change,
    /// It takes texts and the order of cells alone: it reads the rest of the file by itself, and its saves are commands of
    /// `nb`.
    OnlyTexts,
    /// It shows what others do.
    Activity,
    /// It shows what running cells have output so far.
    Output,
    /// It shows which cells are out of date.
    Stale,
    /// Its connection may lose lines of `nb`, and it says which ones it has received.
    Acknowledge,
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
struct Head {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    doc: Value,
    notebook: Option<PathBuf>,
}

/// The kinds of [`EditorEvent`].
const EVENTS: [&str; 8] = [
    "open", "text", "cells", "saving", "saved", "applied", "refused", "choose",
];

/// The kinds of [`Action`].
const ACTIONS: [&str; 3] = ["interrupt", "undo", "compare"];

/// Reads a line.
///
/// # Errors
/// It is not a message, or lacks a field.
pub(super) fn read(line: &str) -> Result<Incoming, serde_json::Error> {
    let value: Value = serde_json::from_str(line)?;
    let head = Head::deserialize(&value)?;
    if matches!(&*head.kind, "initialize" | "received" | "closed") {
        return Ok(Incoming::Editor(EditorLine::deserialize(value)?));
    }
    if ACTIONS.contains(&&*head.kind) {
        let (doc, action) = (String::deserialize(head.doc)?, Action::deserialize(value)?);
        return Ok(Incoming::Action { doc, action });
    }
    if !EVENTS.contains(&&*head.kind) {
        return Ok(Incoming::Unknown);
    }
    let doc = String::deserialize(head.doc)?;
    Ok(match (EditorEvent::deserialize(value)?, head.notebook) {
        (EditorEvent::Open(opened), Some(notebook)) => Incoming::Open {
            doc,
            notebook,
            opened,
        },
        (event, _) => Incoming::Document { doc, event },
    })
}

/// What `nb` sends about no document, or about one that is not open.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Answer<'a> {
    /// The answer to `initialize`.
    Initialized {
        protocol: u32,
        version: &'static str,
    },
    /// Why a message was not taken in.
    Problem {
        #[serde(skip_serializing_if = "Option::is_none")]
        doc: Option<&'a str>,
        /// The kind of that message, if a person asked for it: `interrupt`, `undo` or `compare`.
        #[serde(skip_serializing_if = "Option::is_none")]
        of: Option<&'static str>,
        message: &'a str,
    },
    /// The answer to `compare`.
    Compared {
        doc: &'a str,
        cell: &'a str,
        /// The cell's text before the edit.
        was: &'a str,
    },
}

/// What `nb` asks for or tells, with the document.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DocumentMessage<'a, T> {
    pub(super) doc: &'a str,
    #[serde(flatten)]
    pub(super) message: &'a T,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use schemars::JsonSchema;
    use schemars::generate::SchemaSettings;

    use super::*;
    use crate::editors::outgoing::Alive;
    use crate::live::protocol::{ActivityMessage, EditorRequest};

    /// A line of the editor.
    #[derive(JsonSchema)]
    #[schemars(untagged)]
    #[expect(dead_code, reason = "its schema alone is of use")]
    enum FromEditor {
        Editor(EditorLine),
        Document(DocumentEvent),
        Action(DocumentAction),
    }

    /// A message about a document; `open` has the absolute path of the notebook, too.
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "its schema alone is of use")]
    struct DocumentEvent {
        /// The name of the document, which the editor chooses.
        doc: String,
        notebook: Option<PathBuf>,
        #[schemars(flatten)]
        event: EditorEvent,
    }

    /// What a person asks for.
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "its schema alone is of use")]
    struct DocumentAction {
        doc: String,
        #[schemars(flatten)]
        action: Action,
    }

    /// A line of nb.
    #[derive(JsonSchema)]
    #[schemars(untagged)]
    #[expect(dead_code, reason = "its schema alone is of use")]
    enum FromNb {
        Answer(Answer<'static>),
        Request(DocumentMessage<'static, EditorRequest>),
        Activity(DocumentMessage<'static, ActivityMessage>),
        Alive(Alive),
    }

    fn schema<T: JsonSchema>(settings: SchemaSettings) -> String {
        let schema = settings.into_generator().into_root_schema_for::<T>();
        let text = serde_json::to_string_pretty(&schema).unwrap();
        format!("{text}\n")
    }

    #[test]
    fn each_message_has_the_fields_that_its_schema_says() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json");
        let page = std::fs::read_to_string(folder.join("README.md")).unwrap();
        let settings = SchemaSettings::draft2020_12;
        let schemas = [
            (
                "live-editor.json",
                schema::<FromEditor>(settings().for_deserialize()),
            ),
            ("live-nb.json", schema::<FromNb>(settings().for_serialize())),
        ];
        for (file, now) in schemas {
            let path = folder.join(file);
            if std::env::var_os("NB_WRITE_DOCS").is_some() {
                std::fs::write(&path, now).unwrap();
            } else {
                let stored = std::fs::read_to_string(&path).unwrap_or_default();
                assert!(
                    stored == now,
                    "NB_WRITE_DOCS=1 cargo test -p nb-live writes docs/json/{file}"
                );
            }
            assert!(page.contains(&format!("({file})")), "no link to {file}");
        }
    }

    #[test]
    fn kinds_and_fields_of_later_versions_are_passed_over() {
        let read = |line: &str| format!("{:?}", read(line));
        assert_eq!(read(r#"{"type":"later","doc":7}"#), "Ok(Unknown)");
        let text = r#"{"type":"text","doc":"d","cell":"c","source":"x","later":1}"#;
        assert!(read(text).contains("Text { cell: \"c\", source: \"x\" }"));
        let initialize = r#"{"type":"initialize","editor":"e","can":["change","later"]}"#;
        assert!(read(initialize).contains("[Change, Unknown]"));
    }

    #[test]
    fn a_line_that_is_no_message_is_refused() {
        for line in [
            "",
            "[]",
            "7",
            "{}",
            r#"{"type":"text"}"#,
            r#"{"type":"text","doc":"d"}"#,
            r#"{"type":"open","doc":"d","notebook":"/n","cells":7,"dirty":false}"#,
            r#"{"type":"open","doc":"d","notebook":"/n","cells":[{"cell":"1","cell_type":"none","source":""}],"dirty":false}"#,
        ] {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
