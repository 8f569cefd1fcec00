//! The contents of a kernel's messages about a cell: outputs, input requests, the reply.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// An iopub message about a cell: an output, or a message that changes outputs.
///
/// Its content stays the kernel's bytes, so that it can be stored unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IopubMessage {
    /// The message's id, if the message came after the idle status of its request.
    pub id: Option<String>,
    /// `stream`, `display_data`, `update_display_data`, `execute_result`, `error`, `clear_output`, a
    /// comm's message, or what a later protocol adds.
    pub msg_type: String,
    /// The content, as the kernel wrote it.
    pub content: Bytes,
    /// The binary buffers of a comm message.
    pub buffers: Vec<Bytes>,
}

impl IopubMessage {
    /// Returns a message of `nb` itself, as an output on stderr.
    pub fn on_stderr(text: &str) -> Self {
        Self {
            id: None,
            msg_type: "stream".to_owned(),
            content: json!({ "name": "stderr", "text": text }).to_string().into(),
            buffers: Vec::new(),
        }
    }
}

/// One output of a cell, parsed.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputMessage {
    /// `stream`: text on stdout or stderr.
    Stream(StreamText),
    /// `display_data`.
    Display(DisplayContent),
    /// `update_display_data`: replaces the output with this display id, in any cell.
    Update(DisplayContent),
    /// `execute_result`: the last expression's value.
    Result(DisplayContent),
    /// `error`: the exception that the code raised.
    Error(KernelException),
}

/// The content of a `stream` message.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the protocol's")]
pub struct StreamText {
    /// `stdout` or `stderr`.
    pub name: String,
    pub text: String,
}

/// One object in several representations.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DisplayContent {
    /// By MIME type; an image is base64 text.
    pub data: Map<String, Value>,
    /// By MIME type, or for the whole object.
    pub metadata: Map<String, Value>,
    /// Not stored in the notebook: `display_id`.
    pub transient: Map<String, Value>,
    /// Only in an `execute_result`.
    pub execution_count: Option<u64>,
}

/// The exception of an `error` output or of a reply.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the protocol's")]
pub struct KernelException {
    pub ename: String,
    pub evalue: String,
    /// Lines, with ANSI colours from most kernels.
    #[serde(deserialize_with = "lines")]
    pub traceback: Vec<String>,
}

impl KernelException {
    /// Returns whether the code ended because somebody interrupted the kernel, as Python and Julia name it.
    pub fn is_interrupt(&self) -> bool {
        matches!(&*self.ename, "KeyboardInterrupt" | "InterruptException")
    }
}

/// An `input_request` of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// The text to show; may be empty.
    pub prompt: String,
    /// Whether the answer must not be shown.
    pub password: bool,
    /// The prompt's header: the parent header of the answer.
    pub header: Bytes,
}

/// The fields of an `execute_reply` that this client uses.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Reply {
    pub(super) status: String,
    pub(super) execution_count: Option<u64>,
    #[serde(flatten)]
    pub(super) raised: KernelException,
}

impl IopubMessage {
    /// Returns the message as an output; `None` if it is not an output, or its content is malformed.
    pub fn output(&self) -> Option<OutputMessage> {
        OutputMessage::read(&self.msg_type, &self.content)
    }
}

impl OutputMessage {
    /// Reads an output by its message type and content; `None` if it is not an output, or its content is
    /// malformed.
    pub fn read(msg_type: &str, content: &[u8]) -> Option<Self> {
        fn of<T: for<'a> Deserialize<'a>>(content: &[u8]) -> Option<T> {
            serde_json::from_slice(content).ok()
        }
        match msg_type {
            "stream" => of(content).map(Self::Stream),
            "display_data" => of(content).map(Self::Display),
            "update_display_data" => of(content).map(Self::Update),
            "execute_result" => of(content).map(Self::Result),
            "error" => of(content).map(Self::Error),
            _ => None,
        }
    }
}

impl DisplayContent {
    /// Returns the id by which a later `update_display_data` may replace this output.
    pub fn display_id(&self) -> Option<&str> {
        self.transient.get("display_id")?.as_str()
    }
}

impl Reply {
    pub(super) fn unreadable() -> Self {
        Self {
            status: "error".to_owned(),
            execution_count: None,
            raised: KernelException {
                ename: "UnreadableReply".to_owned(),
                evalue: "the kernel's reply could not be read".to_owned(),
                traceback: Vec::new(),
            },
        }
    }
}

/// Reads a traceback; kernels without one send `null` or a single text.
fn lines<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Array(lines) => lines
            .into_iter()
            .map(|line| match line {
                Value::String(line) => line,
                other => other.to_string(),
            })
            .collect(),
        Value::String(text) => text.lines().map(str::to_owned).collect(),
        _ => Vec::new(),
    })
}
