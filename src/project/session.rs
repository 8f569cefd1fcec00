//! The session of a notebook: what `state.json` records about its kernel.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::event::split_actor;
use super::host::{HostIdentity, Relation};
use super::sandbox::Sandbox;

/// One notebook and the kernel that runs its cells.
///
/// The process in [`Backend::Local`] and `generation` describe the kernel that was last live; while
/// another one is being started they stay, and change together with `status` once it is ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The notebook's path.
    pub notebook: PathBuf,
    /// The file that says how to reach the kernel.
    pub connection_file: PathBuf,
    /// Who runs the kernel.
    pub backend: Backend,
    /// The session's state.
    pub status: Status,
    /// Counts the kernels that this session has had; the first is 1.
    #[serde(default = "first_generation")]
    pub generation: u64,
    /// The kernelspec of the kernel itself: never a spec of `nb-proxy`.
    #[serde(default)]
    pub kernelspec: Option<RealSpec>,
    /// How the kernel is reached.
    #[serde(default)]
    pub transport: Transport,
    /// When the kernel was ready.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// How the last kernel ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
    /// The content of the kernel's `kernel_info_reply`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_info: Option<Value>,
    /// The version of ipywidgets that a kernel of this session has reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipywidgets: Option<String>,
    /// What `nb` gives each kernel that it starts for this notebook. Kept while the notebook uses
    /// another kernel.
    #[serde(default)]
    pub settings: KernelSettings,
    /// Fields of a later version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Who runs a session's kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Backend {
    /// `nb` starts, restarts and ends it.
    Local(LocalKernel),
    /// Another program started it; its process is never signalled.
    Attached(AttachedKernel),
    /// It is the kernel of another notebook of the project.
    SharedWith(SharedKernel),
    /// A kind that a later version added. Written back as it was read; its kernel is neither used
    /// nor ended nor replaced.
    #[serde(untagged)]
    Unknown(UnknownBackend),
}

/// A kernel that `nb` starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LocalKernel {
    /// The machine on which it was started.
    pub host: HostIdentity,
    /// The process that was last ready; none before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessStamp>,
    /// The length of the kernel's log when the kernel was ready, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_bytes: Option<u64>,
    /// Fields of a later version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A process of one boot: a reused pid has another start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStamp {
    /// The process id.
    pub pid: u32,
    /// When the process started, as the platform counts.
    pub start_time: u64,
}

/// A kernel that another program started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttachedKernel {
    /// The machine from which it was attached.
    pub host: HostIdentity,
    /// The pid that the other program recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Fields of a later version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// The kernel of another notebook of the project.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SharedKernel {
    /// The key of that notebook's session. A stopped session keeps it: opened again, it shares again.
    pub owner: String,
    /// Fields of a later version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// The fields of a [`Backend`] whose kind this version does not know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub struct UnknownBackend(Map<String, Value>);

impl TryFrom<Map<String, Value>> for UnknownBackend {
    type Error = &'static str;

    fn try_from(fields: Map<String, Value>) -> Result<Self, Self::Error> {
        // Otherwise a damaged backend of a known kind would pass as one of a later version.
        match fields.get("kind").and_then(Value::as_str) {
            Some("local" | "attached" | "shared-with") => Err("a field is missing or wrong"),
            Some(_) => Ok(Self(fields)),
            None => Err("`kind` is missing"),
        }
    }
}

/// What `nb` gives each kernel that it starts for a notebook.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelSettings {
    /// What it may use of the machine.
    #[serde(skip_serializing_if = "Limits::is_none")]
    pub limits: Limits,
    /// In what it runs.
    #[serde(skip_serializing_if = "Confinement::is_none")]
    pub confinement: Confinement,
    /// The number of seconds without use after which it is ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<u64>,
    /// Fields of a later version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// In what a kernel runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confinement {
    /// As any other process of the user.
    #[default]
    None,
    /// In a sandbox.
    Sandbox(Box<Sandbox>),
    /// In a container.
    Container(Container),
}

impl Confinement {
    /// Says whether there is none.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }

    /// Returns the sandbox.
    pub fn sandbox(&self) -> Option<&Sandbox> {
        match self {
            Self::Sandbox(sandbox) => Some(sandbox),
            _ => None,
        }
    }

    /// Returns the container.
    pub fn container(&self) -> Option<&Container> {
        match self {
            Self::Container(container) => Some(container),
            _ => None,
        }
    }
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
    /// Returns the session of a notebook for which `nb` is about to start the first kernel.
    pub fn local(notebook: PathBuf) -> Self {
        Self::of(notebook, Backend::local(None), Status::Starting)
    }

    /// Returns the session of a kernel that another program started here.
    pub fn attached(notebook: PathBuf, connection_file: PathBuf, pid: Option<u32>) -> Self {
        Self {
            connection_file,
            ..Self::of(notebook, Backend::attached(pid), Status::Live)
        }
    }

    fn of(notebook: PathBuf, backend: Backend, status: Status) -> Self {
        Self {
            notebook,
            connection_file: PathBuf::new(),
            backend,
            status,
            generation: first_generation(),
            kernelspec: None,
            transport: Transport::default(),
            started_at: None,
            ended: None,
            kernel_info: None,
            ipywidgets: None,
            settings: KernelSettings::default(),
            other: Map::new(),
        }
    }

    /// Returns the kernel that `nb` starts for this session, where it does.
    pub fn as_local(&self) -> Option<&LocalKernel> {
        match &self.backend {
            Backend::Local(kernel) => Some(kernel),
            _ => None,
        }
    }

    /// Says whether `nb` starts, restarts and ends the kernels of this session.
    pub fn is_owned(&self) -> bool {
        matches!(self.backend, Backend::Local(_) | Backend::SharedWith(_))
    }

    /// Says whether another program started the kernel.
    pub fn is_attached(&self) -> bool {
        matches!(self.backend, Backend::Attached(_))
    }

    /// Returns the key of the session whose kernel this one shares.
    pub fn shared_with(&self) -> Option<&str> {
        match &self.backend {
            Backend::SharedWith(shared) => Some(&shared.owner),
            _ => None,
        }
    }

    /// Returns the process that was last ready, where `nb` started it.
    pub fn process(&self) -> Option<ProcessStamp> {
        self.as_local()?.process
    }

    /// Records the process of a kernel that `nb` has started here and that is ready.
    pub fn set_process(&mut self, pid: u32, start_time: u64, log_bytes: Option<u64>) {
        if let Backend::Local(kernel) = &mut self.backend {
            kernel.host = HostIdentity::here();
            kernel.process = Some(ProcessStamp { pid, start_time });
            kernel.log_bytes = log_bytes;
        }
    }

    /// Returns the pid that is recorded for the kernel. Without a start time it may be anybody's.
    pub fn pid(&self) -> Option<u32> {
        match &self.backend {
            Backend::Local(kernel) => kernel.process.map(|process| process.pid),
            Backend::Attached(kernel) => kernel.pid,
            Backend::SharedWith(_) | Backend::Unknown(_) => None,
        }
    }

    /// Returns the machine on which the kernel was started or attached.
    pub fn host(&self) -> Option<&HostIdentity> {
        match &self.backend {
            Backend::Local(LocalKernel { host, .. })
            | Backend::Attached(AttachedKernel { host, .. }) => Some(host),
            Backend::SharedWith(_) | Backend::Unknown(_) => None,
        }
    }

    /// Returns how the kernel's machine relates to this one.
    pub fn relation(&self) -> Relation {
        match (&self.backend, self.host()) {
            (_, Some(host)) => host.relation(),
            (Backend::Unknown(_), None) => Relation::OtherHost,
            (_, None) => Relation::Here,
        }
    }

    /// Returns in what the kernel runs: a kernel that `nb` did not start is not confined by it.
    pub fn confinement(&self) -> &Confinement {
        match self.backend {
            Backend::Local(_) => &self.settings.confinement,
            _ => &Confinement::None,
        }
    }

    /// Returns the sandbox in which the kernel runs.
    pub fn sandbox(&self) -> Option<&Sandbox> {
        self.confinement().sandbox()
    }

    /// Returns the sandbox in which the kernel runs, to be changed.
    pub fn sandbox_mut(&mut self) -> Option<&mut Sandbox> {
        match (&self.backend, &mut self.settings.confinement) {
            (Backend::Local(_), Confinement::Sandbox(sandbox)) => Some(sandbox),
            _ => None,
        }
    }

    /// Returns the record of an end of this session's kernel, now.
    pub fn ends_now(&self, reason: &str, by: Option<&str>) -> Ended {
        Ended {
            at: Timestamp::now(),
            reason: reason.to_owned(),
            generation: self.generation,
            cell: None,
            job: None,
            by: by.map(|by| split_actor(by).0.to_owned()),
            exit: None,
            memory_bytes: None,
            lines: Vec::new(),
            other: Map::new(),
        }
    }

    /// Returns how this kernel is interrupted.
    pub fn interrupt_mode(&self) -> InterruptMode {
        match &self.kernelspec {
            Some(spec) if self.is_owned() => spec.interrupt_mode,
            // A process that is not known to be ours is never signalled.
            _ => InterruptMode::Message,
        }
    }
}

impl Backend {
    /// Returns a kernel that `nb` starts here, after the one of this process.
    pub fn local(process: Option<ProcessStamp>) -> Self {
        Self::Local(LocalKernel {
            host: HostIdentity::here(),
            process,
            log_bytes: None,
            other: Map::new(),
        })
    }

    /// Returns a kernel that another program started here.
    pub fn attached(pid: Option<u32>) -> Self {
        Self::Attached(AttachedKernel {
            host: HostIdentity::here(),
            pid,
            other: Map::new(),
        })
    }

    /// Returns the kernel of the session with this key.
    pub fn shared_with(owner: &str) -> Self {
        Self::SharedWith(SharedKernel {
            owner: owner.to_owned(),
            other: Map::new(),
        })
    }
}

/// The state of a session. Written before the kernel is ended, so that a watcher knows why it ends.
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
    /// Its kernel exited unexpectedly.
    Died,
    /// A word of a later version.
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
    /// What it wrote last, where it exited unexpectedly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// Fields of a later version.
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
    /// Fields of a later version.
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
