//! What the bridge wants done.

use std::fmt;

use super::{ClientId, Ending, Execution};
use crate::wire::{Channel, Verified};

/// One thing to do, in the order given.
#[derive(Debug)]
pub enum Action {
    /// Send to one client.
    ToClient {
        /// Who asked.
        client: ClientId,
        /// On which of its connections.
        channel: Channel,
        /// What.
        message: Verified,
    },
    /// Send to every iopub subscriber.
    Publish(Verified),
    /// Connect a client's own socket to the kernel, under its identity.
    OpenLink {
        /// Whose.
        client: ClientId,
        /// Shell, control or stdin.
        channel: Channel,
    },
    /// Close all sockets of a client to the kernel, after what is queued in them.
    CloseLinks(ClientId),
    /// Send on a client's socket to the kernel.
    ToKernel {
        /// Whose socket.
        client: ClientId,
        /// Which of them.
        channel: Channel,
        /// What.
        message: Verified,
    },
    /// Send SIGINT to the kernel.
    SignalKernel,
    /// Stop reading a client's connections: what it has sent waits for the kernel.
    Pause(ClientId),
    /// Read on.
    Resume(ClientId),
    /// Add a step of an execution to the journal.
    Journal(Execution),
    /// A cell has ended whose `idle` the kernel has dropped; one is published in its place next.
    IdleLost {
        /// The request's id.
        msg_id: String,
    },
    /// Write a line to the log.
    Log(Note),
    /// The front end has ended its kernel: leave. The shared kernel goes on.
    Leave {
        /// Restart the real kernel first: the front end's user asked for that.
        restart: bool,
    },
    /// The clients with these sessions have gone and do not come back soon, while cells of theirs run:
    /// a recorder must take the outputs.
    HandOver {
        /// Their `header.session`s.
        sessions: Vec<String>,
    },
    /// The first message of any client has this session: a front end that comes back keeps it.
    SessionSeen {
        /// Its `header.session`.
        session: String,
    },
    /// The front end's notebook is known, or nothing names it: find its kernel.
    ResolveNotebook {
        /// The notebook's path, as the front end names it.
        notebook: Option<String>,
    },
    /// A person's cell waits for a kernel that exited unexpectedly: start another.
    Revive {
        /// Whose cell.
        client: ClientId,
    },
    /// The kernel has printed which version of ipywidgets it has: the answer while it is busy.
    WidgetsVersion {
        /// As it was printed.
        version: String,
    },
    /// The kernel has ended under a front end without a person: exit as the kernel did.
    ExitWithKernel(Ending),
    /// Add to the journal that this front end's user pressed Stop.
    JournalInterrupt {
        /// Which client brought it.
        client: ClientId,
        /// How many of its own cells were withdrawn; the kernel was interrupted where there were none.
        withdrawn: usize,
    },
}

/// A line for the log. Never a user's code or output.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum Note {
    ClientJoined {
        client: ClientId,
    },
    ClientGone {
        client: ClientId,
    },
    RequestFailed {
        client: ClientId,
        msg_type: String,
        msg_id: String,
        why: String,
    },
    Undeliverable {
        client: ClientId,
        channel: Channel,
        count: usize,
    },
    UnreadableHeader {
        from: &'static str,
        channel: Channel,
    },
    PromptAnswered {
        client: ClientId,
    },
    Shutdown {
        client: ClientId,
        asked_restart: bool,
        restart: bool,
    },
    Interrupt {
        client: ClientId,
        withdrawn: usize,
    },
    CellHeld {
        client: ClientId,
        msg_id: String,
    },
    StartupAnswered {
        client: ClientId,
    },
    StartupUnknown {
        fingerprint: String,
    },
    KernelStartedAnew {
        client: ClientId,
    },
    CommCloseDropped {
        client: ClientId,
    },
    NoKernel {
        client: ClientId,
        channel: Channel,
        count: usize,
    },
    NoStdin {
        client: ClientId,
    },
    MissedReported {
        messages: u64,
        cells: usize,
    },
    KernelSlow {
        seconds: u64,
    },
    TooManyOutstanding {
        client: ClientId,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientJoined { client } => write!(f, "client {client} joined"),
            Self::ClientGone { client } => write!(f, "client {client} is gone"),
            Self::RequestFailed {
                client,
                msg_type,
                msg_id,
                why,
            } => {
                write!(
                    f,
                    "{msg_type} {msg_id} of client {client} was answered with an error: {why}"
                )
            }
            Self::Undeliverable {
                client,
                channel,
                count,
            } => {
                write!(
                    f,
                    "{count} messages for client {client} on {channel} could not be delivered: it did not come back"
                )
            }
            Self::UnreadableHeader { from, channel } => {
                write!(
                    f,
                    "a message from the {from} on {channel} has a header that cannot be read; passed on as it is"
                )
            }
            Self::PromptAnswered { client } => {
                write!(
                    f,
                    "client {client} disconnected during input(): the prompt was answered with end of file"
                )
            }
            Self::Shutdown {
                client,
                asked_restart,
                restart,
            } => {
                let asked = if *asked_restart {
                    "a restart"
                } else {
                    "a shutdown"
                };
                let done = if *restart {
                    "the shared kernel is restarted"
                } else {
                    "the shared kernel goes on"
                };
                write!(f, "client {client} asked for {asked}: answered, {done}")
            }
            Self::Interrupt {
                client,
                withdrawn: 0,
            } => write!(f, "client {client} interrupts the kernel"),
            Self::Interrupt { client, withdrawn } => write!(
                f,
                "client {client} interrupts: {withdrawn} of its cells that waited for another client's were withdrawn; that one goes on"
            ),
            Self::CellHeld { client, msg_id } => write!(
                f,
                "cell {msg_id} of client {client} waits until another client's cell has ended"
            ),
            Self::StartupAnswered { client } => write!(
                f,
                "start-up code of client {client} was answered by the proxy"
            ),
            Self::StartupUnknown { fingerprint } => write!(
                f,
                "start-up code of an unknown version was passed on to the kernel; to have the proxy answer it: startup_known = [\"{fingerprint}\"] in .nb/config.toml"
            ),
            Self::KernelStartedAnew { client } => write!(
                f,
                "a cell of client {client} starts a new kernel in place of the one that died"
            ),
            Self::CommCloseDropped { client } => write!(
                f,
                "a comm_close of client {client} was dropped: another client opened the comm"
            ),
            Self::NoKernel {
                client,
                channel,
                count,
            } => {
                write!(
                    f,
                    "{count} messages of client {client} on {channel} that need no answer were dropped: there is no kernel"
                )
            }
            Self::NoStdin { client } => {
                write!(
                    f,
                    "the kernel does not listen on stdin: cells of client {client} run without input()"
                )
            }
            Self::MissedReported { messages, cells } => {
                write!(
                    f,
                    "a new subscriber, after one was cut, gets a notice that {messages} messages in {cells} cells were missed"
                )
            }
            Self::KernelSlow { seconds } => {
                write!(
                    f,
                    "no kernel after {seconds} s: requests that wait get an error"
                )
            }
            Self::TooManyOutstanding { client } => {
                write!(
                    f,
                    "client {client} has too many requests without an answer; the oldest are no longer tracked"
                )
            }
        }
    }
}
