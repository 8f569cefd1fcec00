//! Why a notebook's kernel does not run, or not as it should.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::attach::AttachError;
use super::share::ShareError;
use crate::client::ClientError;
use crate::editing::page::PageError;
use crate::kernel::confine::sandbox::SandboxError;
use crate::kernel::environment::trust::Untrusted;
use crate::kernel::process::connection::ConnectionError;
use crate::kernel::process::detach::DetachError;
use crate::kernel::process::launch::LaunchError;
use crate::kernel::spec::selection::SelectionError;
use crate::notebook::NotANotebook;
use crate::project::{ConfigError, ProjectError, StateError};
use crate::task::TaskError;

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
    /// The project's memory is unusable.
    #[error(transparent)]
    State(#[from] StateError),
    /// The settings are wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No kernel to start.
    #[error(transparent)]
    Choose(#[from] SelectionError),
    /// A sandboxed kernel may have changed what would be run.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    /// The connection file is unusable.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The process could not be started.
    #[error(transparent)]
    Detach(#[from] DetachError),
    /// It cannot be started in its sandbox.
    #[error("{reason}")]
    SandboxedStart {
        /// Why.
        reason: SandboxError,
        /// The last lines that were written about it.
        lines: Vec<String>,
    },
    /// The notebook could not be read or made.
    #[error("cannot {what} the notebook {}", path.display())]
    Notebook {
        /// `read` or `create`.
        what: &'static str,
        /// The notebook.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It cannot be read as a notebook.
    #[error(transparent)]
    Page(#[from] PageError),
    /// The file is no notebook.
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
        /// What the system said.
        source: io::Error,
    },
    /// Another process holds the session's lock.
    #[error("another nb is starting or ending this notebook's kernel, still after {after:?}")]
    Busy {
        /// How long was waited.
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
        /// How it ended, where that is known.
        how: Option<String>,
        /// How much memory it was allowed, where that was bounded.
        limit: Option<u64>,
        /// Its log.
        log: PathBuf,
        /// The last lines that it wrote.
        lines: Vec<String>,
    },
    /// The kernel runs but has not answered.
    #[error("the kernel (pid {pid}) is still starting after {after:?}")]
    Slow {
        /// Its process.
        pid: u32,
        /// How long was waited.
        after: Duration,
        /// Its log.
        log: PathBuf,
    },
    /// The kernel runs but cannot be reached from here.
    #[error("the kernel (pid {pid}) cannot be reached from this process")]
    Unreachable {
        /// Its process.
        pid: u32,
        /// Why.
        source: ClientError,
    },
    /// Nothing that is started here outlives the call.
    #[error("this shell is sandboxed ({cause}): a kernel started here would die with the call")]
    Sandboxed {
        /// What the system said.
        cause: String,
    },
    /// This shell is a sandbox; the kernel is outside.
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
        /// What the system said.
        cause: String,
    },
    /// The record says that the kernel runs on another host or in another container.
    #[error(
        "the kernel of {} was started on {host}{} and cannot be seen from here",
        notebook.display(),
        if *outside { ", outside this container or sandbox," } else { "" }
    )]
    Elsewhere {
        /// The notebook.
        notebook: PathBuf,
        /// The machine that its kernel is on.
        host: String,
        /// Whether that is this machine.
        outside: bool,
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
    /// A fault of this program.
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
