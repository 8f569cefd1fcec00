//! The summary of a kernel's sandbox in answers.

use std::path::PathBuf;

use serde::Serialize;

use crate::project::{Missing, Sandbox, Strictness};

/// A kernel's sandbox: what was asked for, and what was reached.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SandboxSummary {
    /// By what the kernel is confined; none before the first start.
    pub mechanism: Option<&'static str>,
    /// Whether a kernel may run although a guarantee cannot be kept.
    pub demand: Strictness,
    /// The guarantees that hold.
    pub kept: Option<Vec<String>>,
    /// Those that do not, with the reason.
    pub missing: Option<Vec<Missing>>,
    /// Folders that the kernel may read, beside the workspace and its own programs.
    pub allow_read: Vec<PathBuf>,
    /// Folders that it may write.
    pub allow_write: Vec<PathBuf>,
    /// Whether it may use the network.
    pub allow_net: bool,
    /// How many processors it may use.
    pub cpus: Option<usize>,
    /// How many seconds a cell may run.
    pub max_time_s: Option<f64>,
    /// The folder that holds its home and its temporary files.
    pub scratch: PathBuf,
    /// Whether that folder stays when the kernel is shut down.
    pub keep_scratch: bool,
}

impl SandboxSummary {
    /// Summarises a sandbox.
    pub fn of(sandbox: &Sandbox) -> Self {
        let reached = sandbox.reached.as_ref();
        Self {
            mechanism: reached.map(|reached| reached.mechanism.as_str()),
            demand: sandbox.demand,
            kept: reached.map(|reached| reached.kept.clone()),
            missing: reached.map(|reached| reached.missing.clone()),
            allow_read: sandbox.allow_read.clone(),
            allow_write: sandbox.allow_write.clone(),
            allow_net: sandbox.allow_net,
            cpus: sandbox.cpus,
            max_time_s: sandbox.max_time_s,
            scratch: sandbox.scratch.clone(),
            keep_scratch: sandbox.keep_scratch,
        }
    }
}
