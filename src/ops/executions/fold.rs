//! The outputs of code that ran outside a notebook, as a notebook would show them in the end.

use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};

use crate::client::{Event, Output, Raised, Told};
use crate::notebook::{Fold, Folded, Json, pages};

/// The outputs so far.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    folded: Folded,
    unreadable: u64,
}

impl Outputs {
    /// Takes what happened; what is no output changes nothing.
    pub fn take(&mut self, event: &Event) {
        if let Event::Told(Told {
            msg_type, content, ..
        }) = event
        {
            self.take_message(msg_type, content);
        }
    }

    /// Takes a message of iopub by its type and its content.
    pub fn take_message(&mut self, msg_type: &str, content: &[u8]) {
        let fold = self.folded.take(msg_type, content);
        self.unreadable += u64::from(fold == Fold::Unreadable);
    }

    /// Returns what the reply alone tells of, as messages: pages, as IPython's `?` sends them, and
    /// what was raised, by kernels that do not send it as an output.
    pub fn untold(&self, reply: &[u8], raised: Option<&Raised>) -> Vec<Told> {
        let told = |msg_type: &str, content: Vec<u8>| Told {
            msg_type: msg_type.to_owned(),
            content: content.into(),
            buffers: Vec::new(),
        };
        let pages = pages(reply).into_iter();
        let pages = pages.map(|page| told("display_data", page.text().into_owned().into_bytes()));
        // IPython tells on stderr of a magic that it does not know, and its reply has no traceback.
        let is_told = |raised: &Raised| {
            let on_stderr = raised.traceback.is_empty() && self.folded.has_stderr();
            on_stderr || self.folded.has_error()
        };
        let raised = raised.filter(|raised| !is_told(raised));
        let error = raised.map(|it| told("error", serde_json::to_vec(it).unwrap_or_default()));
        pages.chain(error).collect()
    }

    /// Returns how many outputs had a content that cannot be read.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Returns the outputs, read.
    pub fn read(&self) -> Vec<Output> {
        self.folded.outputs().iter().filter_map(read).collect()
    }
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

/// Returns outputs as a notebook file has them.
pub fn to_json(outputs: &[Output]) -> Vec<serde_json::Value> {
    let outputs = outputs
        .iter()
        .map(|output| serialize(output, serde_json::value::Serializer));
    outputs.filter_map(Result::ok).collect()
}

/// Writes an output as a notebook file has it.
pub(super) fn serialize<S: Serializer>(output: &Output, serializer: S) -> Result<S::Ok, S::Error> {
    use serde_json::json;
    match output {
        Output::Stream(it) => {
            json!({ "output_type": "stream", "name": it.name, "text": it.text })
        }
        Output::Display(it) | Output::Update(it) => {
            json!({ "output_type": "display_data", "data": it.data, "metadata": it.metadata })
        }
        Output::Result(it) => json!({
            "output_type": "execute_result", "data": it.data, "metadata": it.metadata,
            "execution_count": it.execution_count,
        }),
        Output::Error(it) => json!({
            "output_type": "error", "ename": it.ename, "evalue": it.evalue,
            "traceback": it.traceback,
        }),
    }
    .serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::StreamText;

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
            ("stream", "[]"),
        ] {
            outputs.take(&Event::Told(Told {
                msg_type: msg_type.to_owned(),
                content: content.into(),
                buffers: Vec::new(),
            }));
        }
        let raised = Raised {
            ename: "E".to_owned(),
            ..Raised::default()
        };
        let reply = br#"{"payload":[{"source":"page","data":{"text/plain":"help"}}]}"#;
        let untold = outputs.untold(reply, Some(&raised));
        assert_eq!(untold.len(), 2);
        let usage = br#"{"name":"stderr","text":"UsageError: no such magic"}"#;
        let mut told = outputs.clone();
        told.take_message("stream", usage);
        assert_eq!(told.untold(b"{}", Some(&raised)), []);
        outputs.take(&Event::Told(untold[1].clone()));
        // It is an output now.
        assert_eq!(outputs.untold(b"{}", Some(&raised)), []);
        let stream = StreamText {
            name: "stdout".to_owned(),
            text: "2".to_owned(),
        };
        let read = outputs.read();
        assert_eq!(read[0], Output::Stream(stream));
        assert!(matches!(&read[1], Output::Display(it) if it.data["text/plain"] == "x"));
        assert!(matches!(&read[2], Output::Result(it) if it.execution_count == Some(4)));
        assert!(matches!(&read[3], Output::Error(it) if it.ename == "E"));
        assert_eq!((read.len(), outputs.unreadable()), (4, 1));
    }
}
