//! The actions that the bridge asks its caller for.

use bytes::Bytes;

use super::{ClientId, EditorMessage, Ending, ExecutionProgress};
use crate::wire::{Channel, Verified};

/// One action. The caller carries out actions in the order given.
#[derive(Debug)]
pub enum Action {
    /// Send to one client.
    ToClient {
        /// The client that gets the message.
        client: ClientId,
        /// The channel of the client's connection.
        channel: Channel,
        /// The message.
        message: Verified,
    },
    /// Send to every iopub subscriber.
    Publish(Verified),
    /// Connect a client's own socket to the kernel, under its identity.
    OpenLink {
        /// The client.
        client: ClientId,
        /// Shell, control or stdin.
        channel: Channel,
    },
    /// Close all sockets of a client to the kernel, after what is queued in them.
    CloseLinks(ClientId),
    /// Send on a client's socket to the kernel.
    ToKernel {
        /// The client whose socket it is.
        client: ClientId,
        /// The channel of that socket.
        channel: Channel,
        /// The message.
        message: Verified,
    },
    /// Give a message of an editor to its `nb live`.
    Editor {
        /// The comm's id.
        comm: String,
        /// The message.
        message: EditorMessage,
    },
    /// Send SIGINT to the kernel.
    SignalKernel,
    /// Stop reading a client's connections: what it has sent waits for the kernel.
    Pause(ClientId),
    /// Read a client's connections again.
    Resume(ClientId),
    /// Add a step of an execution to the journal.
    Journal(ExecutionProgress),
    /// Store what the kernel says that an execution changed.
    Facts {
        /// The bridge's number for the kernel's generation.
        generation: u64,
        /// The request's id.
        msg_id: String,
        /// The content of the kernel's message.
        content: Bytes,
    },
    /// Log that the kernel has dropped the `idle` of a cell; the action after this one publishes a
    /// replacement.
    IdleLost {
        /// The request's id.
        msg_id: String,
    },
    /// Write a line to the log.
    Log(Note),
    /// Leave: the front end has ended its kernel. The shared kernel goes on.
    Leave {
        /// Restart the real kernel first: the front end's user asked for that.
        restart: bool,
    },
    /// Start a recorder for the outputs of these clients: they have disconnected while their cells run, and
    /// have not come back in time.
    HandOver {
        /// Their `header.session`s.
        sessions: Vec<String>,
    },
    /// Store the session of the first client message: a front end that reconnects uses the same one.
    SessionSeen {
        /// Its `header.session`.
        session: String,
    },
    /// Find the kernel of the front end's notebook. The traffic has named the notebook, or has not done so in
    /// time.
    ResolveNotebook {
        /// The notebook's path, as the front end names it; `None` where nothing has named it.
        notebook: Option<String>,
    },
    /// Start another kernel: a person's cell waits, and the last kernel exited unexpectedly.
    Revive {
        /// The client that sent the cell.
        client: ClientId,
    },
    /// Store the version of ipywidgets that the kernel has printed: the bridge answers with it while the
    /// kernel is busy.
    WidgetsVersion {
        /// The version, as the kernel printed it.
        version: String,
    },
    /// Exit as the kernel did: it has ended under a front end that runs cells without a person.
    ExitWithKernel(Ending),
    /// Add to the journal that this front end's user pressed Stop.
    JournalInterrupt {
        /// The ids of the requests of its own cells that were withdrawn; the kernel was interrupted where there were
        /// none.
        withdrawn: Vec<String>,
    },
}

/// A line for the log. Never a user's code or output.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum Note {
    #[error("client {0} joined")]
    ClientJoined(ClientId),
    #[error("client {0} is gone")]
    ClientGone(ClientId),
    #[error("{msg_type} {msg_id} of client {client} was answered with an error: {error}")]
    RequestFailed {
        client: ClientId,
        msg_type: String,
        msg_id: String,
        error: &'static str,
    },
    #[error(
        "{count} messages for client {client} on {channel} could not be delivered: it did not come back"
    )]
    Undeliverable {
        client: ClientId,
        channel: Channel,
        count: usize,
    },
    #[error(
        "a message from the {sender} on {channel} has a header that cannot be read; passed on as it is"
    )]
    UnreadableHeader {
        sender: &'static str,
        channel: Channel,
    },
    #[error("client {0} disconnected during input(): the prompt was answered with end of file")]
    PromptAnswered(ClientId),
    #[error("client {client} asked for {request}: answered, the shared kernel {outcome}")]
    Shutdown {
        client: ClientId,
        request: &'static str,
        outcome: &'static str,
    },
    #[error("client {0} interrupts a cell that has just ended: nothing is interrupted")]
    LateInterrupt(ClientId),
    #[error("client {0} interrupts the kernel")]
    Interrupt(ClientId),
    #[error(
        "an interrupt of client {0} was meant for a proxy before this one: answered, not carried out"
    )]
    EarlierInterrupt(ClientId),
    #[error(
        "client {client} interrupts: {count} of its cells that waited for another client's were withdrawn; that one goes on"
    )]
    Withdrawal { client: ClientId, count: usize },
    #[error("cell {msg_id} of client {client} waits until another client's cell has ended")]
    CellHeld { client: ClientId, msg_id: String },
    #[error("client {0} leaves its console: answered, the shared kernel goes on")]
    ConsoleLeft(ClientId),
    #[error("start-up code of client {0} was answered by the proxy")]
    StartupAnswered(ClientId),
    #[error(
        "start-up code of an unknown version was passed on to the kernel; to have the proxy answer it: startup_known = [\"{fingerprint}\"] in .nb/config.toml"
    )]
    StartupUnknown { fingerprint: String },
    #[error("a cell of client {0} starts a new kernel in place of the one that died")]
    KernelStartedAnew(ClientId),
    #[error("a comm_close of client {0} was dropped: another client opened the comm")]
    CommCloseDropped(ClientId),
    #[error(
        "a {msg_type} of the kernel for the comm of an editor was dropped: only nb answers there"
    )]
    EditorCommDropped { msg_type: String },
    #[error(
        "{count} messages of client {client} on {channel} that need no answer were dropped: there is no kernel"
    )]
    NoKernel {
        client: ClientId,
        channel: Channel,
        count: usize,
    },
    #[error("the kernel does not listen on stdin: cells of client {0} run without input()")]
    NoStdin(ClientId),
    #[error(
        "a new subscriber, after one was cut, gets a notice that {messages} messages in {cells} cells were missed"
    )]
    MissedReported { messages: u64, cells: usize },
    #[error("no kernel after {seconds} s: requests that wait get an error")]
    KernelSlow { seconds: u64 },
    #[error("client {0} has too many requests without an answer; the oldest are no longer tracked")]
    TooManyOutstanding(ClientId),
}
