//! The calls of agents' tools.

use serde::{Deserialize, Serialize};

use crate::notebook::Revision;

/// A call of a tool about a notebook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolCall {
    /// The client's name, as it gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The client's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_version: Option<String>,
    /// The client's session at the server.
    pub client_session: String,
    /// The tool's name.
    pub tool: String,
    /// The SHA-256 digest of the arguments as JSON, in hexadecimal digits.
    pub arguments: String,
    /// The notebook's revision before, if the call changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Revision>,
    /// The notebook's revision after, if the call changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Revision>,
    /// `ok`, the status of a run, or the kind of the problem.
    pub result: String,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// The risky actions of its code, for a reviewer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl ToolCall {
    /// Removes the code that the warnings show: `line 2 starts a program: os.system`.
    pub(super) fn remove_code(&mut self) {
        for warning in &mut self.warnings {
            if let Some((category, _)) = warning.split_once(": ") {
                *warning = category.to_owned();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_without_code_names_the_action() {
        let mut call: ToolCall = serde_json::from_value(serde_json::json!({
            "client_session": "1a2b3c4d", "tool": "run_cell", "arguments": "", "result": "ok", "took_ms": 1,
            "warnings": ["line 2 runs a shell command: !echo a: b"],
        }))
        .unwrap();
        call.remove_code();
        assert_eq!(call.warnings, ["line 2 runs a shell command"]);
    }
}
