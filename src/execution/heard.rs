//! The kinds of outputs of a running cell, which decide what of its reply becomes an output too.

use serde::Deserialize;

use crate::client::{ExecutionEvent, IopubMessage, KernelException};
use crate::notebook::pager_pages;

/// The kinds of outputs that were received.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heard {
    error: bool,
    stderr: bool,
}

impl Heard {
    /// Takes an event of the cell.
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
            "error" => self.error = true,
            "stream" if !self.stderr => {
                let stream = serde_json::from_slice::<Stream>(content);
                self.stderr = stream.is_ok_and(|it| it.name == "stderr");
            }
            _ => {}
        }
    }

    /// Returns the parts of the reply that were not sent as outputs, as messages: pages, which
    /// IPython's `?` sends, and the error of a kernel that does not send it as an output.
    pub(super) fn untold(
        self,
        reply: &[u8],
        raised: Option<&KernelException>,
    ) -> Vec<IopubMessage> {
        let told = |msg_type: &str, content: Vec<u8>| IopubMessage {
            msg_type: msg_type.to_owned(),
            content: content.into(),
            buffers: Vec::new(),
        };
        let pages = pager_pages(reply).into_iter();
        let pages = pages.map(|page| told("display_data", page.text().into_owned().into_bytes()));
        // IPython reports an unknown magic on stderr, and its reply has no traceback.
        let is_told =
            |raised: &KernelException| self.error || (raised.traceback.is_empty() && self.stderr);
        let raised = raised.filter(|raised| !is_told(raised));
        let error = raised.map(|it| told("error", serde_json::to_vec(it).unwrap_or_default()));
        pages.chain(error).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_reply_alone_tells_is_told_once() {
        let said = |msg_type: &str, content: &'static str| {
            ExecutionEvent::Iopub(IopubMessage {
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
        let mut heard = Heard::default();
        heard.take(&said("stream", r#"{"name":"stdout","text":"x"}"#));
        let untold = heard.untold(reply, Some(&raised));
        let kinds: Vec<_> = untold.iter().map(|told| &told.msg_type[..]).collect();
        assert_eq!(kinds, ["display_data", "error"]);
        let mut usage = heard;
        usage.take(&said(
            "stream",
            r#"{"name":"stderr","text":"UsageError: no such magic"}"#,
        ));
        assert_eq!(usage.untold(b"{}", Some(&raised)), []);
        heard.take(&ExecutionEvent::Iopub(untold[1].clone()));
        // The error has now been sent as an output.
        assert_eq!(heard.untold(b"{}", Some(&raised)), []);
    }
}
