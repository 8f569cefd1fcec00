//! What is told between the processes of a detached start, and what they write down.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::identity::Process;
use crate::kernel::confine::container::Named;
use crate::project::Exit;

/// What is to be started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// What the process becomes.
    pub what: What,
    /// Variables to set, beside those of this process.
    pub set: Vec<(OsString, OsString)>,
    /// Variables to remove.
    pub remove: Vec<OsString>,
    /// Whether the program gets none of this process's variables.
    pub clears: bool,
    /// What the program reads from its stdin. A command line can be read by every user of the
    /// machine; this by nobody else.
    pub input: Option<String>,
    /// The working directory.
    pub folder: PathBuf,
    /// Where stdout and stderr are appended; made with mode 0600.
    pub log: PathBuf,
    /// Where the process is recorded as JSON ([`Recorded`]) before the program begins.
    pub pid_file: PathBuf,
    /// A file without which the program must not begin: whoever removes it first has called the
    /// start off.
    pub needs: Option<PathBuf>,
    /// How many bytes of address space the program may have.
    pub address_space: Option<u64>,
    /// What the program's keeper does; without it there is none.
    pub keep: Option<Keep>,
    /// The keeper, once there is one.
    pub keeper: Option<Process>,
}

/// What a detached process becomes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum What {
    /// A program, by its name and its arguments.
    Program(Vec<OsString>),
    /// This very program, by its arguments. Its environment is the one of whoever asked.
    Own(Vec<OsString>),
}

/// The content of a pid file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recorded {
    /// The process.
    #[serde(flatten)]
    pub process: Process,
    /// The namespace that its pid belongs to; empty where that is not known.
    #[serde(default)]
    pub pid_namespace: String,
    /// The process that waits for its end.
    #[serde(default)]
    pub keeper: Option<Process>,
}

/// What a keeper does beside waiting.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Keep {
    /// Where the end is written, as [`End`].
    pub end_file: PathBuf,
    /// The arguments of this very program once the end is written.
    pub after: Vec<OsString>,
    /// Those that tell how long nobody has used it: they print a [`Look`] as JSON.
    pub look: Vec<OsString>,
    /// Those that end it because nobody uses it.
    pub end_unused: Vec<OsString>,
    /// When to look first; without it not before a SIGUSR1 comes.
    pub first_look: Option<Duration>,
    /// Whether all that the program started ends with it, in whatever session: Landlock's rules go
    /// on, but nobody would know of such a process any more.
    pub ends_all: bool,
    /// The container in which the kernel runs, and for which the program stands.
    pub container: Option<Named>,
}

/// How a process ended, as its keeper was told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// The process.
    #[serde(flatten)]
    pub process: Process,
    /// When.
    pub at: Timestamp,
    /// How.
    pub exit: Exit,
    /// The most memory that it ever had.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
}

/// What a look at a kernel tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    /// After how long it is to be ended.
    pub limit: Option<Duration>,
    /// For how long nobody has used it, by the clock on the wall; none while it is in use.
    pub unused: Option<Duration>,
}
