//! What the bridge wants done.

use std::fmt;

use super::{ClientId, Ending};
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
    /// Write down an execution.
    Journal(Execution),
    /// A cell has ended whose `idle` the kernel has lost; one is published in its place next.
    IdleLost {
        /// The request's id.
        msg_id: String,
    },
    /// Write a line to the log.
    Log(Note),
    /// The front end has ended its kernel: leave. The real kernel lives on.
    Leave {
        /// Restart the real kernel first: the front end's user asked for that.
        restart: bool,
    },
    /// The clients with these sessions have gone and do not come back soon, while cells of theirs run:
    /// somebody else must take what these say.
    HandOver {
        /// Their `header.session`s.
        sessions: Vec<String>,
    },
    /// The first message of any client names this session: a front end that comes back keeps it.
    Heard {
        /// Its `header.session`.
        session: String,
    },
    /// The front end's notebook is known, or nothing names it: find its kernel.
    Bind {
        /// The notebook's path, as the front end names it.
        notebook: Option<String>,
    },
    /// A person's cell waits for a kernel that went by itself: start another.
    Revive {
        /// Whose cell.
        client: ClientId,
    },
    /// The kernel has told which version of ipywidgets it has: worth knowing when it is busy.
    Widgets {
        /// As it was printed.
        version: String,
    },
    /// The kernel has ended under a client that runs notebooks without a person: end as the kernel did.
    Die(Ending),
    /// Write down that this front end's user pressed Stop.
    JournalInterrupt {
        /// Which client brought it.
        client: ClientId,
        /// How many cells of its own were taken back; the kernel was interrupted where there were none.
        withdrawn: usize,
    },
}

/// One step of an execution, for the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    /// Which step.
    pub phase: Phase,
    /// The kernel's life in which it happened.
    pub generation: u64,
    /// The request's id: with the generation, the key of an execution.
    pub msg_id: String,
    /// The client that asked, where it is one of this front end's.
    pub client: Option<ClientId>,
    /// The asker's session.
    pub session: String,
    /// The asker's name for itself.
    pub username: String,
    /// The notebook cell's id, where the front end tells it.
    pub cell: Option<String>,
    /// The source, at `asked` and `seen`.
    pub code: Option<String>,
    /// Whether a person asked: front ends run code of their own with `store_history:false`.
    /// What others run is taken for a person's.
    pub store_history: bool,
}

/// A step of an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A client of ours sent it to the kernel.
    Asked,
    /// The kernel ran what somebody else had asked for.
    Seen,
    /// What somebody else had asked for is over.
    Over {
        /// An error was among its outputs.
        raised: bool,
    },
    /// It ended: the reply's `status`.
    Done(String),
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
    Revives {
        client: ClientId,
    },
    CommKept {
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
    MissedTold {
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
                    "client {client} went during input(): answered with end of file, so that the kernel goes on"
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
                    "the shared kernel lives on"
                };
                write!(f, "client {client} asked for {asked}: answered, {done}")
            }
            Self::Interrupt {
                client,
                withdrawn: 0,
            } => write!(f, "client {client} interrupts the kernel"),
            Self::Interrupt { client, withdrawn } => write!(
                f,
                "client {client} takes back {withdrawn} of its own cells, which waited for another's; that one goes on"
            ),
            Self::CellHeld { client, msg_id } => write!(
                f,
                "cell {msg_id} of client {client} waits until another's cell has ended"
            ),
            Self::StartupAnswered { client } => write!(
                f,
                "start-up code of client {client} was answered in the kernel's stead"
            ),
            Self::StartupUnknown { fingerprint } => write!(
                f,
                "start-up code of a version that is not known was passed on to the kernel; to have it answered here: startup_known = [\"{fingerprint}\"] in .nb/config.toml"
            ),
            Self::Revives { client } => write!(
                f,
                "a cell of client {client} brings a new kernel in the place of the one that died"
            ),
            Self::CommKept { client } => write!(
                f,
                "client {client} may not close a comm that another opened"
            ),
            Self::NoKernel {
                client,
                channel,
                count,
            } => {
                write!(
                    f,
                    "{count} messages of client {client} on {channel} that need no answer were dropped: no kernel was there for them"
                )
            }
            Self::NoStdin { client } => {
                write!(
                    f,
                    "the kernel does not listen on stdin: client {client} goes on without input()"
                )
            }
            Self::MissedTold { messages, cells } => {
                write!(
                    f,
                    "a subscriber that came after one was cut is told that it missed {messages} messages, in {cells} cells"
                )
            }
            Self::KernelSlow { seconds } => {
                write!(
                    f,
                    "no kernel after {seconds} s: waiting requests are answered with an error"
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
