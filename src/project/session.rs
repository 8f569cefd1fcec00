//! What is remembered about one notebook's kernel.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::place::Place;
use super::sandbox::Sandbox;

/// One notebook and its kernel.
///
/// `pid`, `start_time` and `generation` speak of the kernel that was last live; while another one
/// is being started they stay, and change together with `status` once it is ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The notebook's path.
    pub notebook: PathBuf,
    /// The file that says how to reach the kernel.
    pub connection_file: PathBuf,
    /// The kernel's process.
    #[serde(default)]
    pub pid: Option<u32>,
    /// When that process started, as the platform counts; a reused pid has another.
    #[serde(default)]
    pub start_time: Option<u64>,
    /// The kernel that really runs: never a spec of `nb-proxy`.
    #[serde(default)]
    pub kernelspec: Option<RealSpec>,
    /// How the kernel is reached.
    #[serde(default)]
    pub transport: Transport,
    /// Where the kernel runs.
    #[serde(default, rename = "where")]
    pub place: Place,
    /// Counts the kernels that this session has had; the first is 1.
    #[serde(default = "first_generation")]
    pub generation: u64,
    /// When the kernel was ready.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// Whether `nb` started the kernel; another's is never ended or restarted.
    #[serde(default = "yes")]
    pub owned: bool,
    /// The session's state.
    #[serde(default)]
    pub status: Status,
    /// How the last kernel ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
    /// The content of the kernel's `kernel_info_reply`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_info: Option<Value>,
    /// The key of the session whose kernel this notebook shares, while it is not stopped: what is
    /// said of a kernel here is then not used, see [`super::State::session`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_of: Option<String>,
    /// What each of its kernels may use of the machine.
    #[serde(default, skip_serializing_if = "Limits::is_none")]
    pub limits: Limits,
    /// The sandbox that its kernel runs in, now and after every restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
    /// The container that its kernel runs in, now and after every restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Container>,
    /// After how many seconds a kernel of its is ended that nobody uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<u64>,
    /// How long the kernel's log was when it was ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_at: Option<u64>,
    /// Fields of another version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A container that a kernel is to run in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// What runs it: podman or docker.
    pub program: PathBuf,
    /// Its image.
    pub image: String,
    /// The Python inside, where it is not `python3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<String>,
    /// More options of the program's `run`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// What a kernel may use of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// How much memory, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

impl Limits {
    /// Says whether there is no limit.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl Session {
    /// Says whether its kernel runs in a sandbox or a container: other files than ours are there.
    pub fn is_apart(&self) -> bool {
        self.sandbox.is_some() || self.container.is_some()
    }

    /// Returns the session that only a notebook, a connection file and a pid tell of.
    ///
    /// Whether that kernel is ours is unknown, so it is never signalled.
    pub fn bare(notebook: PathBuf, connection_file: PathBuf, pid: Option<u32>) -> Self {
        Self {
            notebook,
            connection_file,
            pid,
            start_time: None,
            kernelspec: None,
            transport: Transport::default(),
            place: Place::here(),
            generation: first_generation(),
            started_at: None,
            owned: false,
            status: Status::Live,
            ended: None,
            kernel_info: None,
            kernel_of: None,
            limits: Limits::default(),
            sandbox: None,
            container: None,
            idle_timeout: None,
            log_at: None,
            other: Map::new(),
        }
    }

    /// Returns how this kernel is interrupted.
    pub fn interrupt_mode(&self) -> InterruptMode {
        match &self.kernelspec {
            Some(spec) if self.owned => spec.interrupt_mode,
            // A process that is not known to be ours is never signalled.
            _ => InterruptMode::Message,
        }
    }
}

/// A session's state. Written before the deed, so that a watcher knows why a kernel goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Status {
    /// Its kernel is being started.
    Starting,
    /// Its kernel answered.
    #[default]
    Live,
    /// Its kernel is being replaced on the same sockets.
    Restarting,
    /// Ended by its user; nothing but `nb open` brings it back.
    Stopped,
    /// Its kernel went by itself.
    Died,
    /// A word of another version.
    Other(String),
}

impl Status {
    /// Returns the word in `state.json`.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Starting => "starting",
            Self::Live => "live",
            Self::Restarting => "restarting",
            Self::Stopped => "stopped",
            Self::Died => "died",
            Self::Other(word) => word,
        }
    }
}

impl From<String> for Status {
    fn from(word: String) -> Self {
        match word.as_str() {
            "starting" => Self::Starting,
            "live" => Self::Live,
            "restarting" => Self::Restarting,
            "stopped" => Self::Stopped,
            "died" => Self::Died,
            _ => Self::Other(word),
        }
    }
}

impl From<Status> for String {
    fn from(status: Status) -> Self {
        status.as_str().to_owned()
    }
}

/// How and when a kernel ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// When it was noticed.
    pub at: Timestamp,
    /// Why, in words for a reader.
    pub reason: String,
    /// Which of the session's kernels it was.
    pub generation: u64,
    /// The cell that was running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
    /// The job that was running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Who ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// How its process ended, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// The most memory that it ever had, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// What it wrote last, where it went by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// Fields of another version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// By itself, with this status.
    Status(i32),
    /// By this signal.
    Signal(i32),
    /// The system ended it, since there was not enough memory.
    OutOfMemory,
    /// It was killed, and the system ended something for want of memory meanwhile.
    PerhapsOutOfMemory,
}

/// The kernelspec of the kernel that really runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RealSpec {
    /// The name of its folder.
    pub name: String,
    /// The name that people see.
    #[serde(default)]
    pub display_name: String,
    /// The command, with `{connection_file}` where the file goes.
    pub argv: Vec<String>,
    /// The language of its cells.
    #[serde(default)]
    pub language: String,
    /// How it is interrupted.
    #[serde(default)]
    pub interrupt_mode: InterruptMode,
    /// Variables that it wants in its environment.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub env: Map<String, Value>,
    /// The folder that the spec was read from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_dir: Option<PathBuf>,
    /// Fields of another version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// How a kernel is interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InterruptMode {
    /// By SIGINT to its process group.
    #[default]
    Signal,
    /// By an `interrupt_request` on control.
    Message,
}

/// How a kernel is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Over Unix sockets.
    #[default]
    Ipc,
    /// Over TCP on the loopback interface.
    Tcp,
}

impl Transport {
    /// Returns the word in connection files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ipc => "ipc",
            Self::Tcp => "tcp",
        }
    }
}

fn first_generation() -> u64 {
    1
}

fn yes() -> bool {
    true
}
