//! Parses what a job has stored of a cell as outputs.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::client::{KernelException, OutputMessage};
use crate::notebook::{Json, OutputAccumulator};
use crate::project::jobs::JobMessage;

/// Returns the outputs of a cell, parsed.
pub fn read_all(outputs: &OutputAccumulator) -> Vec<OutputMessage> {
    outputs.outputs().iter().filter_map(read).collect()
}

/// Parses an output in the form that notebooks have.
fn read(output: &Json) -> Option<OutputMessage> {
    #[derive(serde::Deserialize)]
    struct Kind {
        output_type: String,
    }
    fn of<T: DeserializeOwned>(text: &str) -> Option<T> {
        serde_json::from_str(text).ok()
    }
    let text = output.text();
    match of::<Kind>(&text)?.output_type.as_str() {
        "stream" => of(&text).map(OutputMessage::Stream),
        "execute_result" => of(&text).map(OutputMessage::Result),
        "error" => of(&text).map(OutputMessage::Error),
        _ => of(&text).map(OutputMessage::Display),
    }
}

/// Parses a stored message of a job as an output; `None` if it is another kind of message.
pub fn output(message: &JobMessage) -> Option<OutputMessage> {
    OutputMessage::read(&message.msg_type, message.content.get().as_bytes())
}

/// Returns the last line of a printed text that is not empty.
pub fn last_line(text: &str) -> Option<&str> {
    let mut lines = text.rsplit(['\n', '\r']);
    lines.find(|line| !line.trim().is_empty())
}

/// An output that is no stream, as a notebook file has it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "output_type", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the fields are those of nbformat")]
pub enum NotebookOutput {
    /// Something that was displayed.
    DisplayData {
        data: Map<String, Value>,
        metadata: Map<String, Value>,
    },
    /// The value of the last expression.
    ExecuteResult {
        data: Map<String, Value>,
        metadata: Map<String, Value>,
        execution_count: Option<u64>,
    },
    /// The error that the code raised.
    Error(KernelException),
}

impl NotebookOutput {
    /// Returns an output in this form; `None` for text on stdout or stderr.
    pub fn of(output: OutputMessage) -> Option<Self> {
        Some(match output {
            OutputMessage::Stream(_) => return None,
            OutputMessage::Display(it) | OutputMessage::Update(it) => Self::DisplayData {
                data: it.data,
                metadata: it.metadata,
            },
            OutputMessage::Result(it) => Self::ExecuteResult {
                data: it.data,
                metadata: it.metadata,
                execution_count: it.execution_count,
            },
            OutputMessage::Error(raised) => Self::Error(raised),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::StreamText;

    #[test]
    fn each_kind_of_output_is_read_again() {
        let mut outputs = OutputAccumulator::default();
        for (msg_type, content) in [
            ("stream", r#"{"name":"stdout","text":"1\r2"}"#),
            (
                "display_data",
                r#"{"data":{"text/plain":"x"},"metadata":{}}"#,
            ),
            (
                "execute_result",
                r#"{"data":{"text/plain":"3"},"metadata":{},"execution_count":4}"#,
            ),
            ("error", r#"{"ename":"E","evalue":"v","traceback":[]}"#),
            ("stream", "[]"),
        ] {
            outputs.take(msg_type, content.as_bytes());
        }
        let stream = StreamText {
            name: "stdout".to_owned(),
            text: "2".to_owned(),
        };
        let read = read_all(&outputs);
        assert_eq!(read[0], OutputMessage::Stream(stream));
        assert!(matches!(&read[1], OutputMessage::Display(it) if it.data["text/plain"] == "x"));
        assert!(matches!(&read[2], OutputMessage::Result(it) if it.execution_count == Some(4)));
        assert!(matches!(&read[3], OutputMessage::Error(it) if it.ename == "E"));
        assert_eq!(read.len(), 4);
        let in_notebook = read.into_iter().filter_map(NotebookOutput::of);
        let in_notebook: Vec<_> = in_notebook.map(|it| serde_json::json!(it)).collect();
        let kinds: Vec<_> = in_notebook
            .iter()
            .map(|it| it["output_type"].as_str())
            .collect();
        let wanted = ["display_data", "execute_result", "error"].map(Some);
        assert_eq!(kinds, wanted);
    }
}
