//! The content of an `execute_request`.

use serde::Serialize;
use serde::ser::SerializeMap;
use serde_json::{Map, Value};

/// An `execute_request`.
#[derive(Clone, Debug)]
pub struct Execute {
    /// The code.
    pub code: String,
    /// No outputs for anybody, no history.
    pub silent: bool,
    /// Count it and keep it in the kernel's history.
    pub store_history: bool,
    /// Whether the code may ask for input, which the client answers ([`super::Prompt`]).
    pub allow_stdin: bool,
    /// When it raises, the kernel aborts what is queued behind it, **every** client's.
    pub stop_on_error: bool,
    /// Evaluated once the code has run; the values stand in the reply, see [`super::RequestOutcome::reply`].
    pub user_expressions: Map<String, Value>,
}

impl Execute {
    /// Returns a request to run code as a cell, without input, which aborts no other request when it
    /// raises.
    pub fn new(code: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            silent: false,
            store_history: true,
            allow_stdin: false,
            stop_on_error: false,
            user_expressions: Map::new(),
        }
    }
}

impl Serialize for Execute {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut content = serializer.serialize_map(None)?;
        content.serialize_entry("code", &self.code)?;
        content.serialize_entry("silent", &self.silent)?;
        content.serialize_entry("store_history", &self.store_history)?;
        content.serialize_entry("user_expressions", &self.user_expressions)?;
        content.serialize_entry("allow_stdin", &self.allow_stdin)?;
        content.serialize_entry("stop_on_error", &self.stop_on_error)?;
        content.end()
    }
}
