//! The state of a connection to a server, as the process that holds it records it for other processes.

use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::beneath;

/// The states of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ConnectionState {
    /// The process that holds it does not run.
    Disconnected,
    /// It is being made for the first time.
    Connecting,
    /// It is established.
    Connected,
    /// It was lost and is being made again.
    Reconnecting,
    /// It was lost, and only the user can remove the cause. It is tried again from time to time.
    Failed,
}

impl ConnectionState {
    /// Returns the state in a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disconnected => "disconnected",
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Reconnecting => "reconnecting",
            Self::Failed => "failed",
        }
    }
}

/// The last report of the process that holds a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConnectionReport {
    /// The state.
    pub state: ConnectionState,
    /// Since when.
    pub since: Timestamp,
    /// How long the server took to answer a ping, in milliseconds.
    #[serde(default)]
    pub latency_ms: Option<u64>,
    /// Why it is not connected.
    #[serde(default)]
    pub problem: Option<String>,
    /// Why the kernel has ended, if it has.
    #[serde(default)]
    pub kernel_ended: Option<String>,
}

impl ConnectionReport {
    /// Returns the report's file, beside the connection file of the kernel.
    pub fn file(connection_file: &Path) -> PathBuf {
        connection_file.with_extension("remote")
    }

    /// Reads the report about the kernel with this connection file.
    pub fn read(connection_file: &Path) -> Option<Self> {
        beneath::read_json(&Self::file(connection_file), beneath::SMALL)
    }

    /// Writes the report.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&self, connection_file: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self).map_err(io::Error::from)?;
        beneath::replace(&Self::file(connection_file), &text)
    }
}
