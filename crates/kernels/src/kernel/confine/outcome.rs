//! The outcome of a start in a sandbox, in a file that the process which makes the sandbox writes.

use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::kernel::process::{Process, Signal};
use crate::project::{Mechanism, Missing, SandboxCheck};

/// The mechanism that was chosen to confine a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChosenMechanism {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// Why bubblewrap, the first choice, cannot be used.
    pub instead: Option<String>,
}

/// The outcome of a start, written by the process that makes the sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum SandboxOutcome {
    /// The kernel starts.
    Entered {
        reached: SandboxCheck,
        /// The first process of its namespace; when it is killed, all processes inside are.
        init: Option<Process>,
    },
    /// A guarantee does not hold.
    Refused {
        chosen: ChosenMechanism,
        missing: Vec<Missing>,
    },
    /// The sandbox could not be made.
    Failed {
        chosen: ChosenMechanism,
        why: String,
    },
}

impl SandboxOutcome {
    /// Writes the outcome as one line; the newline shows a reader that it is complete.
    pub(super) fn write(&self, file: &mut std::fs::File) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        file.write_all(&line)
    }

    pub(super) fn read(file: &Path) -> Option<Self> {
        let text = std::fs::read(file).ok()?;
        serde_json::from_slice(text.strip_suffix(b"\n")?).ok()
    }
}

/// Ends all processes that still run in the sandbox of a kernel that has ended.
pub fn end_leftovers(outcome_file: &Path) {
    if let Some(SandboxOutcome::Entered {
        init: Some(init), ..
    }) = SandboxOutcome::read(outcome_file)
    {
        let _ = init.signal(Signal::KILL);
    }
}
