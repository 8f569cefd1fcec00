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
    /// Variables to set, besides those of this process.
    pub set: Vec<(OsString, OsString)>,
    /// Variables to remove.
    pub remove: Vec<OsString>,
    /// The program's stdin. Every user of the machine can read a command line, but only the program can read
    /// this.
    pub input: Option<String>,
    /// The working directory.
    pub folder: PathBuf,
    /// The file to which stdout and stderr are appended; made with mode 0600.
    pub log: PathBuf,
    /// The file in which the process is recorded as JSON ([`PidRecord`]) before the program starts.
    pub pid_file: PathBuf,
    /// A file without which the program must not start: a process that removes it in time calls the start
    /// off.
    pub needs: Option<PathBuf>,
    /// The limit for the program's address space, in bytes.
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
    /// This very program, by its arguments. It has the environment of the process that requested the start.
    ThisProgram(Vec<OsString>),
}

/// The content of a pid file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PidRecord {
    /// The process.
    #[serde(flatten)]
    pub process: Process,
    /// The namespace to which its pid belongs; empty if that is not known.
    #[serde(default)]
    pub pid_namespace: String,
    /// The process's supervisor.
    #[serde(default)]
    pub supervisor: Option<Process>,
}

/// A supervisor's orders, besides waiting for its kernel's end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Supervision {
    /// The file for the end, as [`ProcessEnd`].
    pub end_file: PathBuf,
    /// The arguments with which this very program is run after the end was written.
    pub after: Vec<OsString>,
    /// The arguments with which this very program prints an [`IdleReport`] as JSON.
    pub idle_check: Vec<OsString>,
    /// The arguments with which this very program ends the kernel because it is unused.
    pub end_unused: Vec<OsString>,
    /// The time until the first idle check; with `None` the first SIGUSR1 triggers it.
    pub first_idle_check: Option<Duration>,
    /// Whether all descendants of the kernel are ended with it, in whatever session they are. Otherwise a
    /// process that Landlock confines could go on unnoticed.
    pub ends_all: bool,
    /// The container in which the kernel runs; the program then only runs the container.
    pub container: Option<ContainerName>,
    /// The process with which the kernel ends, if that is killed before it has ended the kernel itself.
    pub owner: Option<Process>,
}

/// How a process ended, as the system reported to its supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessEnd {
    /// The process.
    #[serde(flatten)]
    pub process: Process,
    /// The time of the end.
    pub at: Timestamp,
    /// The exit status or the signal.
    pub exit: Exit,
    /// The maximum resident memory that the process has had, in bytes.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
}

/// How long a kernel has been unused, and how long it may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleReport {
    /// The time after which an unused kernel is ended.
    pub limit: Option<Duration>,
    /// How long the kernel has been unused, by wall-clock time; `None` while it is in use.
    pub unused: Option<Duration>,
}
