//! The parts of an execute reply that become outputs, because the kernel did not send them as messages.
//!
//! Which parts these are depends on the outputs that the cell has sent.

use serde::Deserialize;

use super::category;
use crate::client::{ExecutionEvent, IopubMessage, KernelException};
use crate::notebook::{first_line, pager_pages};

/// The kinds of outputs that a cell has sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReceivedOutputs {
    pub(super) error: bool,
    /// One of the errors says that the code was interrupted.
    pub(super) interrupt: bool,
    stderr: bool,
}

impl ReceivedOutputs {
    /// Notes the kind of output of one of the cell's events.
    pub(super) fn take(&mut self, event: &ExecutionEvent) {
        #[derive(Deserialize)]
        struct Stream {
            #[serde(default)]
            name: String,
        }
        let ExecutionEvent::Iopub(IopubMessage {
            msg_type, content, ..
        }) = event
        else {
            return;
        };
        match msg_type.as_str() {
            "error" => {
                self.error = true;
                self.interrupt |= category::name_and_text(content).is_interrupt();
            }
            "stream" if !self.stderr => {
                let stream = serde_json::from_slice::<Stream>(content);
                self.stderr = stream.is_ok_and(|it| it.name == "stderr");
            }
            _ => {}
        }
    }

    /// Returns the parts of the reply that were not sent as outputs, as messages: pages, which
    /// IPython's `?` sends, and the error of a kernel that does not send it as an output.
    pub(super) fn missing_outputs(
        self,
        reply: &[u8],
        raised: Option<&KernelException>,
    ) -> Vec<IopubMessage> {
        let message = |msg_type: &str, content: Vec<u8>| IopubMessage {
            id: None,
            msg_type: msg_type.to_owned(),
            content: content.into(),
            buffers: Vec::new(),
        };
        let pages = pager_pages(reply).into_iter();
        let pages =
            pages.map(|page| message("display_data", page.text().into_owned().into_bytes()));
        // IPython reports an unknown magic on stderr, and its reply has no traceback.
        let is_sent =
            |raised: &KernelException| self.error || (raised.traceback.is_empty() && self.stderr);
        let raised = raised.filter(|raised| !is_sent(raised));
        let error = raised.map(|it| message("error", serde_json::to_vec(it).unwrap_or_default()));
        pages.chain(error).collect()
    }
}

/// How many characters of an offered source are in the note about it.
const SOURCE_CHARS: usize = 60;

/// Returns a note about the source that a reply offers for a cell, as `%load` does: front ends put it there, and `nb` writes
/// only the cells that it is asked to write.
pub(super) fn offered_source(reply: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Reply {
        payload: Vec<Payload>,
    }
    #[derive(Deserialize)]
    struct Payload {
        source: String,
        #[serde(default)]
        text: String,
    }
    let reply: Reply = serde_json::from_slice(reply).ok()?;
    let offers = |it: &&Payload| it.source == "set_next_input";
    let text = &reply.payload.iter().find(offers)?.text;
    Some(format!(
        "the code offers a source for a cell ({} lines, {:?}): nb puts it into none; nb edit or nb insert does",
        text.lines().count(),
        first_line(text, SOURCE_CHARS)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_is_offered_for_a_cell_is_noted() {
        let reply = br##"{"payload":[{"source":"page","data":{}},{"source":"set_next_input","text":"# %load x.py\nx = 1","replace":true}]}"##;
        let note = offered_source(reply).expect("a note");
        assert!(note.contains("(2 lines, \"# %load x.py"), "{note}");
        for none in [
            &br#"{"payload":[{"source":"page"}]}"#[..],
            b"{}",
            b"no JSON",
        ] {
            assert_eq!(offered_source(none), None);
        }
    }

    #[test]
    fn an_output_that_only_the_reply_has_is_added_once() {
        let event = |msg_type: &str, content: &'static str| {
            ExecutionEvent::Iopub(IopubMessage {
                id: None,
                msg_type: msg_type.to_owned(),
                content: content.into(),
                buffers: Vec::new(),
            })
        };
        let raised = KernelException {
            ename: "E".to_owned(),
            ..KernelException::default()
        };
        let reply = br#"{"payload":[{"source":"page","data":{"text/plain":"help"}}]}"#;
        let mut received = ReceivedOutputs::default();
        received.take(&event("stream", r#"{"name":"stdout","text":"x"}"#));
        let missing_outputs = received.missing_outputs(reply, Some(&raised));
        let msg_types: Vec<_> = missing_outputs.iter().map(|it| &it.msg_type[..]).collect();
        assert_eq!(msg_types, ["display_data", "error"]);
        let mut usage = received;
        usage.take(&event(
            "stream",
            r#"{"name":"stderr","text":"UsageError: no such magic"}"#,
        ));
        assert_eq!(usage.missing_outputs(b"{}", Some(&raised)), []);
        received.take(&ExecutionEvent::Iopub(missing_outputs[1].clone()));
        // The error has now been sent as an output.
        assert_eq!(received.missing_outputs(b"{}", Some(&raised)), []);
    }
}
