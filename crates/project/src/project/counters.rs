//! The counters of a proxy since its start, as its record in `proxies/` stores them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The counters of a proxy: the messages that have passed it, and those that wait in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Counters {
    /// When this was counted.
    pub at: Timestamp,
    /// Verified messages of clients.
    pub from_clients: Channels,
    /// The messages to the kernel, with the proxy's own requests.
    pub to_kernel: Channels,
    /// Verified messages of the kernel.
    pub from_kernel: Channels,
    /// The messages to clients; a message on iopub counts once, however many clients subscribe.
    pub to_clients: Channels,
    /// The refused messages and connections.
    pub refused: Refused,
    /// Messages that were let in and could not be delivered.
    pub lost: u64,
    /// Connections that were cut because their client does not read.
    pub cut: u64,
    /// How often the kernel was followed to another life of it.
    pub restarts: u64,
    /// Requests that have no answer yet.
    pub outstanding: u64,
    /// The messages that wait for the kernel or in the execution queue.
    pub held: MessageCount,
    /// The bytes that are queued in memory.
    pub queued_bytes: QueuedBytes,
    /// The bytes on disk that wait for clients that do not read.
    pub spilled_bytes: u64,
    /// Connections to iopub.
    pub subscribers: u64,
    /// Fields of another version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A number of messages, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct MessageCount {
    /// The number of messages.
    pub messages: u64,
    /// The bytes of all their frames.
    pub bytes: u64,
}

/// The number of messages on each channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[allow(missing_docs, reason = "each is named for its channel")]
pub struct Channels {
    pub shell: MessageCount,
    pub control: MessageCount,
    pub stdin: MessageCount,
    pub iopub: MessageCount,
    pub hb: MessageCount,
}

impl Channels {
    /// Returns what passed on all of them.
    pub fn total(&self) -> MessageCount {
        let all = [self.shell, self.control, self.stdin, self.iopub, self.hb];
        MessageCount {
            messages: all.iter().map(|it| it.messages).sum(),
            bytes: all.iter().map(|it| it.bytes).sum(),
        }
    }
}

/// The refused messages and connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Refused {
    /// Connections that never became a client's.
    pub connections: u64,
    /// Frames that are no Jupyter message.
    pub malformed: u64,
    /// Messages with a wrong signature.
    pub bad_signature: u64,
    /// Messages that were sent before.
    pub replayed: u64,
}

impl Refused {
    /// Returns how many messages were refused.
    pub fn messages(&self) -> u64 {
        self.malformed + self.bad_signature + self.replayed
    }
}

/// The bytes that are queued in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct QueuedBytes {
    /// The bytes for the kernel.
    pub to_kernel: u64,
    /// The bytes for all clients.
    pub to_clients: u64,
}
