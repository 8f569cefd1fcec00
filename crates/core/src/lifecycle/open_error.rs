//! The errors of starting, attaching and sharing a notebook's kernel.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::all_kernels::ServerNotebook;
use super::liveness::{refusal, sandboxed};
use crate::client::ClientError;
use crate::editing::notebook_file::NotebookFileError;
use crate::hint;
use crate::hint::{Hint, Verb, nb};
use crate::kernel::confine::sandbox::SandboxError;
use crate::kernel::environment::trust::Untrusted;
use crate::kernel::process::Process;
use crate::kernel::process::connection::ConnectionError;
use crate::kernel::process::detach::DetachError;
use crate::kernel::process::launch::LaunchError;
use crate::kernel::spec::selection::SelectionError;
use crate::kernel::variables::NoHome;
use crate::notebook::NotANotebook;
use crate::project::{ConfigError, ProjectError, Session, StateError, Status};
use crate::task::TaskError;
use crate::wire::ConnectionFileError;

impl From<TaskError> for OpenError {
    fn from(error: TaskError) -> Self {
        match error {
            TaskError::Folder { dir, source } => Self::Lock { dir, source },
            TaskError::Detach(error) => Self::Detach(error),
            TaskError::Internal(message) => Self::Internal(message),
        }
    }
}

/// Why a notebook's kernel does not run.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The project's folder is unusable.
    #[error(transparent)]
    Project(#[from] ProjectError),
    /// The project's state is not usable.
    #[error(transparent)]
    State(#[from] StateError),
    /// The settings are not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no kernel to start.
    #[error(transparent)]
    Choose(#[from] SelectionError),
    /// A sandboxed kernel may have changed files that would be run.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    /// The connection file is unusable.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The process could not be started.
    #[error(transparent)]
    Detach(#[from] DetachError),
    /// The kernel cannot be started in its sandbox.
    #[error("{reason}")]
    SandboxedStart {
        /// The reason.
        reason: SandboxError,
        /// The last lines of the kernel's log.
        lines: Vec<String>,
    },
    /// The notebook could not be read or made.
    #[error("cannot {action} the notebook {}", path.display())]
    Notebook {
        /// `read` or `create`.
        action: &'static str,
        /// The notebook.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file cannot be read as a notebook.
    #[error(transparent)]
    NotebookFile(#[from] NotebookFileError),
    /// The file is not a notebook.
    #[error("cannot open {}", path.display())]
    NotANotebook {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: NotANotebook,
    },
    /// A file in the project's folder could not be made.
    #[error("cannot write in {}", dir.display())]
    Lock {
        /// The folder.
        dir: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another process holds the session's lock.
    #[error("another nb is starting or ending this notebook's kernel, still after {after:?}")]
    Busy {
        /// How long the caller has waited.
        after: Duration,
    },
    /// The kernel ended before it was ready.
    #[error(
        "the kernel ended while it was starting{}: {}",
        how.as_ref().map(|how| format!(" ({how})")).unwrap_or_default(),
        argv.join(" ")
    )]
    Died {
        /// Its command.
        argv: Vec<String>,
        /// How it ended, if known.
        how: Option<String>,
        /// Its memory limit, if it had one.
        limit: Option<u64>,
        /// Its log.
        log: PathBuf,
        /// The last lines that it wrote.
        lines: Vec<String>,
    },
    /// The kernel runs but has not answered.
    #[error("the kernel (pid {pid}) is still starting after {after:?}{}", last_line_note(.last_line))]
    Slow {
        /// Its process.
        pid: u32,
        /// How long the caller has waited.
        after: Duration,
        /// Its log.
        log: PathBuf,
        /// What the process that connects to its server has logged last, if it is on a server.
        last_line: Option<String>,
    },
    /// The kernel runs, but this process cannot connect to it.
    #[error("the kernel (pid {pid}) cannot be reached from this process")]
    Unreachable {
        /// Its process.
        pid: u32,
        /// Why.
        source: ClientError,
    },
    /// The kernel's process was stopped by a signal.
    #[error("the kernel of {} does nothing: process {pid} is stopped (kill -CONT {pid} lets it go on)", notebook.display())]
    ProcessStopped {
        /// The notebook.
        notebook: PathBuf,
        /// The process.
        pid: u32,
    },
    /// Processes that are started here would end with the call.
    #[error("this shell is sandboxed ({cause}): a kernel started here would die with the call")]
    Sandboxed {
        /// The system's error.
        cause: String,
    },
    /// This shell is a sandbox, and the kernel runs outside.
    #[error(
        "cannot reach the kernel from this shell: it is sandboxed ({cause}). Its recorded state is \"{state}\" ({}not checked from here). Allow nb outside the sandbox.",
        pid.map_or(String::new(), |pid| format!("pid {pid}, "))
    )]
    Unchecked {
        /// The notebook.
        notebook: PathBuf,
        /// The session's recorded state.
        state: String,
        /// The kernel's recorded process.
        pid: Option<u32>,
        /// The system's error.
        cause: String,
    },
    /// The record says that the kernel runs on another host or in another container.
    #[error(
        "the kernel of {} was started on {host}{} and cannot be seen from here",
        notebook.display(),
        if *outside { ", outside this container or sandbox," } else { "" }
    )]
    OtherHost {
        /// The notebook.
        notebook: PathBuf,
        /// The name of the kernel's machine.
        host: String,
        /// Whether that machine is this one, outside of this container or sandbox.
        outside: bool,
    },
    /// The session is of a kind that a later version of `nb` added.
    #[error("the kernel of {} is of a kind that this nb does not know: a later version recorded it", notebook.display())]
    LaterKind {
        /// The notebook.
        notebook: PathBuf,
    },
    /// The kernel was started by another program.
    #[error("the kernel of {} was not started by nb and is not ended or restarted by it", notebook.display())]
    NotOwned {
        /// The notebook.
        notebook: PathBuf,
    },
    /// The session has no kernel.
    #[error("{} has no running kernel", notebook.display())]
    NoKernel {
        /// The notebook.
        notebook: PathBuf,
    },
    /// The kernel of another notebook cannot be shared.
    #[error(transparent)]
    Share(#[from] ShareError),
    /// A kernel that another program started cannot be used.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A server does not do what is asked of it.
    #[error(transparent)]
    Server(Box<dyn Error + Send + Sync>),
    /// This program has no client of servers, and finds no `nb` that has one.
    #[error("its kernel is on the server {server}, to which nb connects, and {reason}")]
    NoServers {
        /// The name of the server.
        server: String,
        /// Why `nb` does not.
        reason: String,
    },
    /// The server does not run this kernel.
    #[error("server {server} runs no kernel {id}")]
    NoServerKernel {
        /// The name of the server.
        server: String,
        /// The kernel's id.
        id: String,
    },
    /// The user has as many kernels on the server as allowed.
    #[error("{} kernels of yours are open on {server}, which allows {most}", open.len())]
    ServerLimit {
        /// The name of the server.
        server: String,
        /// The limit.
        most: u32,
        /// The notebooks that have them.
        open: Vec<ServerNotebook>,
    },
    /// A kernel on a server is to have what only a kernel of this machine has.
    #[error("{option} is for kernels of this machine, and {} {} {server}", notebook.display(), if *ran_there { "ran on" } else { "is to run on" })]
    OnlyHere {
        /// The notebook.
        notebook: PathBuf,
        /// The option.
        option: &'static str,
        /// The name of the server.
        server: String,
        /// Whether the notebook's kernels had it until now, and nobody asked for it now.
        is_as_before: bool,
        /// Whether nobody named the server: the notebook's last kernel ran there.
        ran_there: bool,
    },
    /// The notebook has a kernel elsewhere than where one is asked for.
    #[error("the kernel of {} runs {place}", notebook.display())]
    RunsElsewhere {
        /// The notebook.
        notebook: PathBuf,
        /// Where: `on this machine`, `on NAME`.
        place: String,
    },
    /// A fresh kernel beside one on a server is asked for.
    #[error("the kernel of {} runs on {server}, where nb starts no second one for it", notebook.display())]
    FreshOnServer {
        /// The notebook.
        notebook: PathBuf,
        /// The name of the server.
        server: String,
    },
    /// The folder of a notebook could not be copied.
    #[error("cannot make a private copy of {}", folder.display())]
    Copy {
        /// The folder.
        folder: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// An internal error of this program.
    #[error("nb failed: {0}")]
    Internal(String),
}

impl From<SandboxError> for OpenError {
    fn from(reason: SandboxError) -> Self {
        let lines = Vec::new();
        Self::SandboxedStart { reason, lines }
    }
}

impl From<LaunchError> for OpenError {
    fn from(error: LaunchError) -> Self {
        match error {
            LaunchError::Detach(error) => error.into(),
            LaunchError::Untrusted(error) => error.into(),
            LaunchError::Sandbox(error) => error.into(),
        }
    }
}

impl OpenError {
    /// Returns the error of a program that has no client of servers.
    pub(super) fn no_servers(server: &str) -> Self {
        Self::NoServers {
            server: server.to_owned(),
            reason: "this is another program".to_owned(),
        }
    }

    /// Returns the error for a kernel whose process is stopped; `None` if it is not.
    pub fn process_stopped(session: &Session, process: &Process) -> Option<Self> {
        process.is_stopped().then(|| Self::ProcessStopped {
            notebook: session.notebook.clone(),
            pid: process.pid,
        })
    }

    /// Returns the error for a kernel that is out of reach.
    pub fn out_of_reach(session: &Session) -> Self {
        let notebook = session.notebook.clone();
        match (sandboxed(session.transport), session.host()) {
            (Some(cause), _) => Self::Unchecked {
                notebook,
                state: match &session.status {
                    Status::Live => "alive".to_owned(),
                    other => other.as_str().to_owned(),
                },
                pid: session.pid(),
                cause: refusal(&cause),
            },
            (None, Some(host)) => Self::OtherHost {
                notebook,
                host: host.name.clone(),
                outside: host.is_on_this_machine(),
            },
            (None, None) => Self::LaterKind { notebook },
        }
    }
}

/// Why a notebook cannot be attached to a running kernel.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// There is no home folder.
    #[error(transparent)]
    NoHome(#[from] NoHome),
    /// There is no such file.
    #[error("there is no connection file {}", name.display())]
    NoFile {
        /// The name or path that was given.
        name: PathBuf,
        /// The folder in which a bare name was searched.
        runtime_dir: PathBuf,
    },
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] ConnectionError),
    /// Its kernel has ended.
    #[error("no kernel listens where {} says", file.display())]
    NotListening {
        /// The connection file.
        file: PathBuf,
        /// The system's error.
        source: ClientError,
    },
    /// The shell forbids sockets.
    #[error("cannot reach the kernel from this shell: it is sandboxed ({cause})")]
    Sandboxed {
        /// The system's error.
        cause: String,
    },
    /// A program listens there, but does not reply.
    #[error("no kernel_info_reply from {} within {after:?}", file.display())]
    NoReply {
        /// The connection file.
        file: PathBuf,
        /// How long the caller has waited.
        after: Duration,
    },
    /// It is the connection file of a front end's proxy, which ends with the front end.
    #[error("{} is a front end's own way to a shared kernel, not a kernel's", file.display())]
    Proxy {
        /// The connection file.
        file: PathBuf,
    },
    /// It is the kernel of another notebook of the project.
    #[error("{} is the kernel of {}", file.display(), owner.display())]
    OfNotebook {
        /// The connection file.
        file: PathBuf,
        /// The notebook of the kernel.
        owner: PathBuf,
        /// The notebook that is opened.
        notebook: PathBuf,
    },
    /// The kernel to which a notebook was attached has ended.
    #[error("the kernel of {} was started by another program and answers no more", notebook.display())]
    Gone {
        /// The notebook.
        notebook: PathBuf,
    },
}

impl AttachError {
    /// Returns hints on how to fix it.
    pub fn hints(&self) -> Vec<Hint> {
        let open = |notebook| nb(Verb::Open).notebook(notebook);
        match self {
            Self::NoFile { runtime_dir, .. } => vec![
                format!(
                    "the files of kernels that other programs started are in {}",
                    runtime_dir.display()
                )
                .into(),
            ],
            Self::File(ConnectionError::Content {
                source: ConnectionFileError::Curve(_),
                ..
            }) => vec!["start that kernel without CurveZMQ, or over Unix sockets".into()],
            Self::File(_) => vec!["name the file of a kernel that runs".into()],
            Self::NotListening { .. } => vec![hint![
                "its kernel has ended; name the file of one that runs, or let nb start one: ",
                nb(Verb::Open).this()
            ]],
            Self::NoReply { .. } => vec![
                "a kernel that runs a cell may answer only after it: wait longer with --timeout SECONDS"
                    .into(),
                "one with another key never answers; its file is then out of date".into(),
            ],
            Self::Proxy { .. } => {
                let share = nb(Verb::Open).this().option("--kernel-of").word("OTHER");
                vec![hint![
                    nb(Verb::Status),
                    " lists the shared kernels; share one with: ",
                    share
                ]]
            }
            Self::OfNotebook {
                owner, notebook, ..
            } => vec![
                open(notebook)
                    .option("--kernel-of")
                    .word(&**owner)
                    .into(),
            ],
            Self::Gone { notebook } => vec![
                hint![
                    "to start one of its own: ",
                    open(notebook).option("--own")
                ],
                hint![
                    "to attach to another: ",
                    open(notebook).option("--attach").word("CONNECTION_FILE")
                ],
            ],
            Self::Sandboxed { .. } => vec!["allow nb outside the sandbox".into()],
            Self::NoHome(_) => Vec::new(),
        }
    }
}

/// Why a notebook cannot share another's kernel.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// It is the same notebook.
    #[error("{} cannot share a kernel with itself", notebook.display())]
    Itself {
        /// The notebook.
        notebook: PathBuf,
    },
    /// The other notebook shares this one's kernel.
    #[error("{} already shares the kernel of {}", other.display(), notebook.display())]
    Circle {
        /// The notebook that is opened.
        notebook: PathBuf,
        /// The notebook whose kernel was asked for.
        other: PathBuf,
    },
    /// The other notebook is not known and does not exist.
    #[error("{} has no kernel and does not exist", other.display())]
    Unknown {
        /// The notebook whose kernel was asked for.
        other: PathBuf,
    },
    /// They are in different projects.
    #[error("{} is not in the project of {}", notebook.display(), other.display())]
    OtherProject {
        /// The notebook that is opened.
        notebook: PathBuf,
        /// The notebook whose kernel was asked for.
        other: PathBuf,
        /// That kernel's connection file.
        connection_file: Option<PathBuf>,
    },
    /// The notebook's own kernel runs, and its variables would be left behind.
    #[error("{} has a kernel of its own, which runs", notebook.display())]
    HasOwn {
        /// The notebook that is opened.
        notebook: PathBuf,
    },
}

impl ShareError {
    /// Returns the command that fixes it.
    pub fn hint(&self) -> Hint {
        let open = |notebook| nb(Verb::Open).notebook(notebook);
        match self {
            Self::Itself { notebook } | Self::Circle { notebook, .. } => open(notebook).into(),
            Self::Unknown { other } => open(other).into(),
            Self::OtherProject {
                notebook,
                connection_file: Some(file),
                ..
            } => open(notebook).option("--attach").word(&**file).into(),
            Self::OtherProject { other, .. } => hint!["start it first: ", open(other)],
            Self::HasOwn { notebook } => {
                hint!["end it first: ", nb(Verb::Shutdown).notebook(notebook)]
            }
        }
    }
}

fn last_line_note(last_line: &Option<String>) -> String {
    let last_line = last_line
        .as_ref()
        .map(|last_line| format!("; on its connection: {last_line}"));
    last_line.unwrap_or_default()
}
