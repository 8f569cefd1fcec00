//! The session of a notebook: what `state.json` records about its kernel.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::event::split_actor;
use super::host::{HostIdentity, Relation};
use super::sandbox::Sandbox;
use crate::wire::Transport;

/// One notebook and the kernel that runs its cells.
///
/// The process in [`Backend::Local`] and `generation` describe the kernel that was last live; while
/// another one is being started they stay, and change together with `status` once it is ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The notebook's path.
    pub notebook: PathBuf,
    /// The kernel's connection file.
    pub connection_file: PathBuf,
    /// How the session gets its kernel.
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
    /// The settings for each kernel that `nb` starts for this notebook. Kept while the notebook uses
    /// another kernel.
    #[serde(default)]
    pub settings: KernelSettings,
    /// Whether only front ends have started this session's kernels, by themselves, because the notebook names
    /// their kernelspec: no person has chosen to run the programs of the notebook's folder.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unchosen: bool,
    /// Fields of a later version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// How a session gets its kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Backend {
    /// `nb` starts, restarts and ends the kernel.
    Local(LocalKernel),
    /// Another program started it; its process is never signalled.
    Attached(AttachedKernel),
    /// It is the kernel of another notebook of the project.
    SharedWith(SharedKernel),
    /// It runs on a Jupyter server, and a process of `nb` (the bridge) presents it here.
    Remote(RemoteKernel),
    /// A kind that a later version added. It is written back as it was read; `nb` does not use, end
    /// or replace its kernel.
    #[serde(untagged)]
    Unknown(UnknownBackend),
}

/// A kernel that `nb` starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LocalKernel {
    /// The machine on which it was started.
    pub host: HostIdentity,
    /// The process of the last kernel that was ready; `None` before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessStamp>,
    /// The length of the kernel's log when the kernel was ready, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_bytes: Option<u64>,
    /// Fields of a later version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A process: within one boot, a reused pid has another start time.
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
    /// The key of that notebook's session. A stopped session keeps it, and shares that kernel again
    /// when it is opened.
    pub owner: String,
    /// Fields of a later version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A kernel on a Jupyter server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RemoteKernel {
    /// The name by which the user knows the server.
    pub server: String,
    /// The kernel's id there.
    pub kernel_id: String,
    /// The server's own session with this kernel, if `nb` made one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_session: Option<String>,
    /// The id under which the server keeps what the kernel says while no websocket is open.
    pub websocket_session: String,
    /// Whether `nb` started the kernel.
    pub owned: bool,
    /// The machine on which the bridge runs.
    pub host: HostIdentity,
    /// The last bridge that was ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<ProcessStamp>,
    /// Fields of a later version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl RemoteKernel {
    /// Returns a kernel on a server, which has no bridge yet.
    pub fn new(server: &str, kernel_id: &str, server_session: Option<String>, owned: bool) -> Self {
        Self {
            server: server.to_owned(),
            kernel_id: kernel_id.to_owned(),
            server_session,
            websocket_session: uuid::Uuid::new_v4().to_string(),
            owned,
            host: HostIdentity::here(),
            bridge: None,
            other: Map::new(),
        }
    }
}

impl RemoteKernel {
    /// How the text begins that says, among a cell's outputs, that messages were lost with the connection.
    pub const LOSS_NOTE: &'static str = "[nb] the connection to ";

    /// The name of the error that a cell ends with if it is not known how it ended.
    pub const LOSS_ERROR: &'static str = "ConnectionLost";
}

/// The fields of a [`Backend`] whose kind this version does not know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub struct UnknownBackend(Map<String, Value>);

impl TryFrom<Map<String, Value>> for UnknownBackend {
    type Error = &'static str;

    fn try_from(fields: Map<String, Value>) -> Result<Self, Self::Error> {
        // Without this, a damaged backend of a known kind would count as one of a later version.
        match fields.get("kind").and_then(Value::as_str) {
            Some("local" | "attached" | "shared-with" | "remote") => {
                Err("a field is missing or wrong")
            }
            Some(_) => Ok(Self(fields)),
            None => Err("`kind` is missing"),
        }
    }
}

/// The settings for each kernel that `nb` starts for a notebook.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelSettings {
    /// The resources of the machine that it may use.
    #[serde(skip_serializing_if = "ResourceLimits::is_none")]
    pub limits: ResourceLimits,
    /// The sandbox or container in which it runs.
    #[serde(skip_serializing_if = "Confinement::is_none")]
    pub confinement: Confinement,
    /// Whether the user has said that it runs in no sandbox and no container.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unconfined: bool,
    /// After how many seconds without use it is ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<u64>,
    /// Fields of a later version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// The sandbox or container of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confinement {
    /// No confinement: it runs like any other process of the user.
    #[default]
    None,
    /// In a sandbox.
    Sandbox(Box<Sandbox>),
    /// In a container.
    Container(Container),
}

impl Confinement {
    /// Says whether the kernel is not confined.
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Container {
    /// The program that runs it: podman or docker.
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

/// The limits of the resources that a kernel may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResourceLimits {
    /// The limit of its memory, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

impl ResourceLimits {
    /// Says whether there is no limit.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl Session {
    /// Returns the language of the session's kernel.
    pub fn language(&self) -> String {
        let info = self.kernel_info.as_ref();
        let reported = info.and_then(|info| info["language_info"]["name"].as_str());
        match (reported, &self.kernelspec) {
            (Some(name), _) => name.to_owned(),
            (None, Some(spec)) if !spec.language.is_empty() => spec.language.clone(),
            // Nothing is known about an attached kernel: if it is not Python, its answer will show it.
            (None, _) => "python".to_owned(),
        }
    }

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
            unchosen: false,
            other: Map::new(),
        }
    }

    /// Returns the kernel that `nb` starts for this session, if it starts one.
    pub fn as_local(&self) -> Option<&LocalKernel> {
        match &self.backend {
            Backend::Local(kernel) => Some(kernel),
            _ => None,
        }
    }

    /// Returns the kernel on a server, if this session has one.
    pub fn as_remote(&self) -> Option<&RemoteKernel> {
        match &self.backend {
            Backend::Remote(kernel) => Some(kernel),
            _ => None,
        }
    }

    /// Returns the kernel on a server, to be changed.
    pub fn as_remote_mut(&mut self) -> Option<&mut RemoteKernel> {
        match &mut self.backend {
            Backend::Remote(kernel) => Some(kernel),
            _ => None,
        }
    }

    /// Says whether `nb` starts, restarts and ends the kernels of this session.
    pub fn is_owned(&self) -> bool {
        match &self.backend {
            Backend::Local(_) | Backend::SharedWith(_) => true,
            Backend::Remote(kernel) => kernel.owned,
            Backend::Attached(_) | Backend::Unknown(_) => false,
        }
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

    /// Follows the session whose kernel this one shares to its new key.
    pub(super) fn follow_owner(&mut self, from: &str, to: &str) {
        if let Backend::SharedWith(shared) = &mut self.backend
            && shared.owner == from
        {
            to.clone_into(&mut shared.owner);
        }
    }

    /// Returns the process of the last kernel that was ready, if `nb` started it here; the bridge of a kernel on a
    /// server.
    pub fn process(&self) -> Option<ProcessStamp> {
        match &self.backend {
            Backend::Local(kernel) => kernel.process,
            Backend::Remote(kernel) => kernel.bridge,
            _ => None,
        }
    }

    /// Records the process of a kernel or a bridge that `nb` started on this machine and that is ready.
    pub fn set_process(&mut self, pid: u32, start_time: u64, log_bytes: Option<u64>) {
        let process = Some(ProcessStamp { pid, start_time });
        match &mut self.backend {
            Backend::Local(kernel) => {
                kernel.host = HostIdentity::here();
                kernel.process = process;
                kernel.log_bytes = log_bytes;
            }
            Backend::Remote(kernel) => {
                kernel.host = HostIdentity::here();
                kernel.bridge = process;
            }
            _ => {}
        }
    }

    /// Returns the pid that is recorded for the kernel. Without a start time the pid may have been
    /// reused.
    pub fn pid(&self) -> Option<u32> {
        match &self.backend {
            Backend::Local(kernel) => kernel.process.map(|process| process.pid),
            Backend::Attached(kernel) => kernel.pid,
            Backend::Remote(kernel) => kernel.bridge.map(|process| process.pid),
            Backend::SharedWith(_) | Backend::Unknown(_) => None,
        }
    }

    /// Returns the machine on which the kernel was started or attached.
    pub fn host(&self) -> Option<&HostIdentity> {
        match &self.backend {
            Backend::Local(LocalKernel { host, .. })
            | Backend::Attached(AttachedKernel { host, .. })
            | Backend::Remote(RemoteKernel { host, .. }) => Some(host),
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

    /// Returns the sandbox or container of the kernel; none for a kernel that `nb` did not start.
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

    /// Returns a record that this session's kernel ends now.
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

    /// Returns the generation of the kernel that gets what is requested now: while a kernel is being started, that of
    /// this one.
    pub fn generation_to_use(&self) -> u64 {
        let is_next = match (&self.status, self.as_remote()) {
            // It counts as the next one where another process was the kernel before.
            (Status::Starting | Status::Restarting, None) => self.process().is_some(),
            // The record has the next generation as soon as the server has restarted the kernel.
            (Status::Restarting, Some(_)) => {
                let ended = self.ended.as_ref();
                ended.is_some_and(|ended| ended.generation == self.generation)
            }
            _ => false,
        };
        self.generation + u64::from(is_next)
    }

    /// Returns how the kernel is interrupted.
    pub fn interrupt_mode(&self) -> InterruptMode {
        match &self.kernelspec {
            Some(spec) if self.is_owned() => spec.interrupt_mode,
            // `nb` signals only processes that it is known to have started.
            _ => InterruptMode::Message,
        }
    }
}

impl Backend {
    /// Returns the backend of kernels that `nb` starts here; `process` is the last one.
    pub fn local(process: Option<ProcessStamp>) -> Self {
        Self::Local(LocalKernel {
            host: HostIdentity::here(),
            process,
            log_bytes: None,
            other: Map::new(),
        })
    }

    /// Returns the backend of a kernel that another program started here.
    pub fn attached(pid: Option<u32>) -> Self {
        Self::Attached(AttachedKernel {
            host: HostIdentity::here(),
            pid,
            other: Map::new(),
        })
    }

    /// Returns the backend that uses the kernel of another session.
    pub fn shared_with(owner: &str) -> Self {
        Self::SharedWith(SharedKernel {
            owner: owner.to_owned(),
            other: Map::new(),
        })
    }
}

/// The state of a session. It is written before `nb` ends the kernel, so that a watcher knows why
/// it ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Its kernel is being started.
    Starting,
    /// Its kernel has answered.
    #[default]
    Live,
    /// Its kernel is being replaced on the same sockets.
    Restarting,
    /// The user shut it down; only `nb open` starts it again.
    Stopped,
    /// Its kernel exited unexpectedly.
    Died,
    /// A state of a later version.
    #[serde(untagged)]
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

/// How and when a kernel ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ended {
    /// When it was noticed.
    pub at: Timestamp,
    /// The reason, for a reader.
    pub reason: String,
    /// The kernel's generation.
    pub generation: u64,
    /// The cell that was running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
    /// The job that was running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The actor who ended it.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "super::event::optional_name"
    )]
    pub by: Option<String>,
    /// The exit of its process, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// The peak of its memory, in bytes, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The last lines that it wrote, if it exited unexpectedly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// Fields of a later version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// It exited with this status.
    Status(i32),
    /// This signal ended it.
    Signal(i32),
    /// The system ended it, since there was not enough memory.
    OutOfMemory,
    /// It was killed while the system ended some process for lack of memory.
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
    /// The command, with `{connection_file}` in place of the connection file's path.
    pub argv: Vec<String>,
    /// The language of its cells.
    #[serde(default)]
    pub language: String,
    /// How it is interrupted.
    #[serde(default)]
    pub interrupt_mode: InterruptMode,
    /// Variables for its environment.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub env: Map<String, Value>,
    /// The folder that the spec was read from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_dir: Option<PathBuf>,
    /// Fields of a later version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl RealSpec {
    /// Returns the spec of a kernel of which only the name is known.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            display_name: String::new(),
            argv: Vec::new(),
            language: String::new(),
            interrupt_mode: InterruptMode::Message,
            env: Map::new(),
            resource_dir: None,
            other: Map::new(),
        }
    }
}

/// How a kernel is interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InterruptMode {
    /// With SIGINT to its process group.
    #[default]
    Signal,
    /// With an `interrupt_request` on control.
    Message,
}

fn first_generation() -> u64 {
    1
}
