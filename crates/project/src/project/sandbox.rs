//! The stored description of a kernel's sandbox: what the user asked for, and which guarantees the
//! last start of the kernel achieved.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The sandbox that a kernel is to run in, now and after every restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sandbox {
    /// Whether a kernel may run although a guarantee cannot be given.
    pub demand: Strictness,
    /// The only mechanism that may be used, where the user insists on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<Mechanism>,
    /// Folders that it may read, in addition to the workspace and its own programs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_read: Vec<PathBuf>,
    /// Folders that it may write.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_write: Vec<PathBuf>,
    /// Whether it may use the network.
    pub allow_net: bool,
    /// How many processors it may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<usize>,
    /// How many seconds a cell may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_time_s: Option<f64>,
    /// The folder of its HOME and TMPDIR.
    pub scratch: PathBuf,
    /// Whether that folder stays when the kernel is shut down.
    pub keep_scratch: bool,
    /// The result of the last start; `None` before the first start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reached: Option<SandboxCheck>,
    /// Fields of another version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Sandbox {
    /// Says whether two sandboxes have the same rules, whatever their last starts achieved.
    pub fn has_same_rules(&self, other: &Self) -> bool {
        let requested = |sandbox: &Self| Self {
            reached: None,
            scratch: PathBuf::new(),
            keep_scratch: false,
            max_time_s: None,
            other: Map::new(),
            ..sandbox.clone()
        };
        requested(self) == requested(other)
    }
}

/// The reaction to a guarantee that cannot be kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Strictness {
    /// The kernel is not started.
    #[default]
    Strict,
    /// The kernel is started, and what is missing is reported.
    BestEffort,
}

/// The mechanism that confines a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mechanism {
    /// Separate namespaces, made by `bwrap`, and filtered system calls.
    Bubblewrap,
    /// Landlock's rules and filtered system calls.
    Landlock,
}

impl Mechanism {
    /// Returns the word in `state.json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bubblewrap => "bubblewrap",
            Self::Landlock => "landlock",
        }
    }
}

/// The result of a start, as tested inside the sandbox before the kernel's first instruction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SandboxCheck {
    /// The mechanism that confines the kernel.
    pub mechanism: Mechanism,
    /// The guarantees that hold.
    pub kept: Vec<String>,
    /// The guarantees that do not hold, with the reasons.
    #[serde(default)]
    pub missing: Vec<Missing>,
}

/// A guarantee that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Missing {
    /// The guarantee.
    pub promise: String,
    /// The reason, as the test found it.
    pub why: String,
}
