//! The five sockets of a kernel.

use std::fmt;

/// One of the five sockets that a connection file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Channel {
    /// Requests that the kernel handles one after another.
    Shell,
    /// Requests that must not wait behind a running cell: interrupt, shutdown, debugging.
    Control,
    /// The kernel's prompts to one client: `input_request`.
    Stdin,
    /// Messages that the kernel publishes to all clients: outputs and status.
    Iopub,
    /// Bytes that the kernel returns unchanged, as a sign of life.
    Heartbeat,
}

impl Channel {
    /// All five, in the order of the connection file's ports.
    pub const ALL: [Self; 5] = [
        Self::Shell,
        Self::Iopub,
        Self::Stdin,
        Self::Control,
        Self::Heartbeat,
    ];

    /// Returns the name that Jupyter's documentation uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shell => "shell",
            Self::Control => "control",
            Self::Stdin => "stdin",
            Self::Iopub => "iopub",
            Self::Heartbeat => "heartbeat",
        }
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
