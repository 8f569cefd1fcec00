//! What a job said of a cell, as a notebook would show it in the end.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::client::{KernelException, Output, StreamText};
use crate::notebook::{Json, MimeBundle, OmittedOutput, OutputAccumulator, OutputChange};
use crate::project::jobs::Said;

/// The outputs so far.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    folded: OutputAccumulator,
}

impl Outputs {
    /// Returns no outputs, which will keep about so many bytes of text.
    pub fn bounded(most: usize) -> Self {
        Self {
            folded: OutputAccumulator::bounded(most, ""),
        }
    }

    /// Returns what was too much.
    pub fn left_out(&self) -> OmittedOutput {
        self.folded.left_out()
    }

    /// Takes a message of iopub by its type and its content; what is no output changes nothing.
    /// Returns what it shows under a display id: other cells may show it too.
    pub fn take(&mut self, msg_type: &str, content: &[u8]) -> Option<Shown> {
        match self.folded.take(msg_type, content) {
            OutputChange::Displayed { display_id, shown } => Some(Shown { display_id, shown }),
            OutputChange::Nothing | OutputChange::Changed | OutputChange::Unreadable => None,
        }
    }

    /// Replaces what is shown under the same display id; says whether there was anything.
    pub fn update(&mut self, it: &Shown) -> bool {
        self.folded.update(&it.display_id, &it.shown)
    }

    /// Returns the outputs, read.
    pub fn read(&self) -> Vec<Output> {
        self.folded.outputs().iter().filter_map(read).collect()
    }
}

/// What is shown under a display id.
#[derive(Clone, Debug)]
pub struct Shown {
    display_id: String,
    shown: MimeBundle,
}

/// Reads an output as a notebook has it.
fn read(output: &Json) -> Option<Output> {
    #[derive(serde::Deserialize)]
    struct Kind {
        output_type: String,
    }
    fn of<T: DeserializeOwned>(text: &str) -> Option<T> {
        serde_json::from_str(text).ok()
    }
    let text = output.text();
    match of::<Kind>(&text)?.output_type.as_str() {
        "stream" => of(&text).map(Output::Stream),
        "execute_result" => of(&text).map(Output::Result),
        "error" => of(&text).map(Output::Error),
        _ => of(&text).map(Output::Display),
    }
}

/// Reads what a job keeps of an output; none where it is something else.
pub fn output(said: &Said) -> Option<Output> {
    Output::read(&said.msg_type, said.content.get().as_bytes())
}

/// An output as a notebook file has it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "output_type", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the fields are those of nbformat")]
pub enum NotebookOutput {
    /// Text on stdout or stderr.
    Stream { name: String, text: String },
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
    /// What the code raised.
    Error(KernelException),
}

impl From<Output> for NotebookOutput {
    fn from(output: Output) -> Self {
        match output {
            Output::Stream(StreamText { name, text }) => Self::Stream { name, text },
            Output::Display(it) | Output::Update(it) => Self::DisplayData {
                data: it.data,
                metadata: it.metadata,
            },
            Output::Result(it) => Self::ExecuteResult {
                data: it.data,
                metadata: it.metadata,
                execution_count: it.execution_count,
            },
            Output::Error(raised) => Self::Error(raised),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_output_is_read_again() {
        let mut outputs = Outputs::default();
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
        let read = outputs.read();
        assert_eq!(read[0], Output::Stream(stream));
        assert!(matches!(&read[1], Output::Display(it) if it.data["text/plain"] == "x"));
        assert!(matches!(&read[2], Output::Result(it) if it.execution_count == Some(4)));
        assert!(matches!(&read[3], Output::Error(it) if it.ename == "E"));
        assert_eq!(read.len(), 4);
        let in_notebook = read.into_iter().map(NotebookOutput::from);
        let in_notebook: Vec<_> = in_notebook.map(|it| serde_json::json!(it)).collect();
        let kinds: Vec<_> = in_notebook
            .iter()
            .map(|it| it["output_type"].as_str())
            .collect();
        let wanted = ["stream", "display_data", "execute_result", "error"].map(Some);
        assert_eq!(kinds, wanted);
    }
}
