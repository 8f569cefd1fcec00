//! The content of an `execute_request`.

use serde::Serialize;
use serde_json::{Map, Value};

/// An `execute_request`.
#[derive(Clone, Debug, Serialize)]
pub struct Execute {
    /// The code.
    pub code: String,
    /// Publish no outputs and no history.
    pub silent: bool,
    /// Increase the execution count and add the code to the kernel's history.
    pub store_history: bool,
    /// Expressions to evaluate after the code has run; the reply holds their values, see
    /// [`super::RequestOutcome::reply`].
    pub user_expressions: Map<String, Value>,
    /// Whether the code may ask for input, which the client answers ([`super::Prompt`]).
    pub allow_stdin: bool,
    /// Whether an exception makes the kernel abort the requests queued behind this one, those of **every**
    /// client.
    pub stop_on_error: bool,
}

impl Execute {
    /// Returns a request to run code as a cell, without input. If the code raises, no other request is
    /// aborted.
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
