//! The records that the processes of a detached start pass to each other and write to disk.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::identity::Process;
use crate::kernel::confine::container::ContainerName;
use crate::project::Exit;

/// A detached start: the program, its environment, and the files that record it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StartPlan {
    /// The program.
    pub executable: Executable,
    /// Variables to set, beside those of this process.
    pub set: Vec<(OsString, OsString)>,
    /// Variables to remove.
    pub remove: Vec<OsString>,
    /// The program's stdin. Every user of the machine can read a command line; nobody else can
    /// read this.
    pub input: Option<String>,
    /// The working directory.
    pub folder: PathBuf,
    /// The file that stdout and stderr are appended to; made with mode 0600.
    pub log: PathBuf,
    /// The file in which the process is recorded as JSON ([`PidRecord`]) before the program begins.
    pub pid_file: PathBuf,
    /// A file without which the program must not begin: whoever removes it first has called the
    /// start off.
    pub needs: Option<PathBuf>,
    /// The most address space that the program may have, in bytes.
    pub address_space: Option<u64>,
    /// The supervisor's orders; without them the program has no supervisor.
    pub supervision: Option<Supervision>,
    /// The supervisor, once it runs.
    pub supervisor: Option<Process>,
}

/// The program that a detached process becomes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Executable {
    /// A program, by its name and its arguments.
    Program(Vec<OsString>),
    /// This very program, by its arguments. It has the environment of the process that asked.
    ThisProgram(Vec<OsString>),
}

/// The content of a pid file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PidRecord {
    /// The process.
    #[serde(flatten)]
    pub process: Process,
    /// The namespace that its pid belongs to; empty where that is not known.
    #[serde(default)]
    pub pid_namespace: String,
    /// The process's supervisor.
    #[serde(default)]
    pub supervisor: Option<Process>,
}

/// A supervisor's orders, beside waiting for its kernel's end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Supervision {
    /// The file that the end is written to, as [`ProcessEnd`].
    pub end_file: PathBuf,
    /// The arguments with which this very program is run once the end is written.
    pub after: Vec<OsString>,
    /// The arguments with which this very program prints an [`IdleReport`] as JSON.
    pub idle_check: Vec<OsString>,
    /// The arguments with which this very program ends the kernel because nobody uses it.
    pub end_unused: Vec<OsString>,
    /// The time until the first idle check; without it the first SIGUSR1 asks for one.
    pub first_idle_check: Option<Duration>,
    /// Whether every descendant of the kernel ends with it, in whatever session. A process that
    /// Landlock confines could otherwise go on with nobody to know of it.
    pub ends_all: bool,
    /// The container in which the kernel runs; the program then only runs the container.
    pub container: Option<ContainerName>,
}

/// How a process ended, as the system told its supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessEnd {
    /// The process.
    #[serde(flatten)]
    pub process: Process,
    /// The time of the end.
    pub at: Timestamp,
    /// The status or the signal.
    pub exit: Exit,
    /// The most memory that the process ever had.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
}

/// How long a kernel has been unused, and for how long it may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleReport {
    /// The time after which an unused kernel is to be ended.
    pub limit: Option<Duration>,
    /// For how long nobody has used the kernel, by the clock on the wall; none while it is in use.
    pub unused: Option<Duration>,
}
