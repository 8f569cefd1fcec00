//! Kernels in a sandbox: without a network, with a read-only workspace, and reached only over their Unix
//! sockets.
//!
//! Bubblewrap makes separate namespaces for a kernel, in which only its [`FilesystemView`] is mounted; where
//! bubblewrap cannot be used, Landlock's rules limit the files that the kernel may use. System calls are
//! filtered in both cases. The process that becomes the kernel then tries every
//! [`Guarantee`](super::guarantee::Guarantee) from inside. If one does not hold, the kernel is not started,
//! unless the user has asked for best effort.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::bubblewrap;
use super::outcome::{ChosenMechanism, SandboxOutcome, end_leftovers};
use super::view::FilesystemView;
use crate::hint;
use crate::hint::{Hint, Verb, nb};
use crate::kernel::process::connection::KernelFiles;
use crate::kernel::process::{Process, own_program};
use crate::project::{Mechanism, Missing, Sandbox, SandboxCheck, remove_tree};

/// Why a kernel was not started in a sandbox or a container.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The mechanism that the user insists on cannot be used.
    #[error("{} cannot be used here: {why}", mechanism.as_str())]
    Unusable {
        /// The mechanism.
        mechanism: Mechanism,
        /// The reason.
        why: String,
    },
    /// The sandbox would not give all its guarantees.
    #[error(
        "the sandbox would not hold ({}): {}",
        chosen.mechanism.as_str(),
        missing.iter().map(|it| format!("{}: {}", it.promise, it.why)).collect::<Vec<_>>().join("; ")
    )]
    Refused {
        /// The mechanism that was tried.
        chosen: ChosenMechanism,
        /// The guarantees that would not hold.
        missing: Vec<Missing>,
    },
    /// The sandbox could not be made.
    #[error("the sandbox could not be made: {why}")]
    Failed {
        /// The mechanism that was tried, if known.
        chosen: Option<ChosenMechanism>,
        /// The error.
        why: String,
    },
    /// A folder cannot be shown in the sandbox.
    #[error("{} cannot be given to a sandbox: {why}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The reason.
        why: String,
        /// The fix.
        fix: Hint,
    },
    /// The kernel that runs is not in the requested sandbox.
    #[error("the kernel that runs is not in this sandbox: {how}")]
    Runs {
        /// How the kernel runs.
        how: String,
        /// The commands that end it and start another.
        fix: Hint,
    },
    /// The kernel would run outside the sandbox in which the notebook's cells ran until now.
    #[error("the kernel of {} was not started outside a sandbox: {why}", notebook.display())]
    Left {
        /// The notebook.
        notebook: PathBuf,
        /// The reason.
        why: String,
        /// Whether it is a container.
        is_container: bool,
    },
    /// This system has no sandboxes.
    #[error("--sandbox needs Linux")]
    NotLinux,
    /// A sandbox has no network.
    #[error("a kernel in a sandbox is reached over its Unix sockets only")]
    Tcp,
    /// The requested container cannot run the kernel.
    #[error("the kernel cannot run in this container: {why}")]
    Container {
        /// The reason.
        why: String,
        /// The fix.
        fix: Hint,
    },
    /// The folders of the kernel could not be made.
    #[error("cannot make the sandbox's folders: {0}")]
    Folders(#[from] io::Error),
}

impl SandboxError {
    /// Returns the commands and options that help, for a notebook's `nb open`.
    pub fn hints(&self) -> Vec<Hint> {
        const BEST: &str = "to run it all the same, with what can be kept: --sandbox=best-effort";
        let instead = |chosen: &ChosenMechanism| {
            let why = chosen.instead.as_ref()?;
            let text = match why.contains("not installed") {
                true => {
                    format!("bubblewrap would keep more: apt-get install bubblewrap ({why})")
                }
                false => format!("bubblewrap would keep more, but: {why}"),
            };
            Some(Hint::from(text))
        };
        match self {
            Self::Unusable { .. } => {
                vec!["let nb choose among those that work here: --sandbox".into()]
            }
            Self::Refused { chosen, .. } => {
                let mut hints: Vec<_> = instead(chosen).into_iter().collect();
                hints.push(BEST.into());
                hints
            }
            Self::Failed { chosen, .. } => chosen.as_ref().and_then(instead).into_iter().collect(),
            Self::Folder { fix, .. } | Self::Runs { fix, .. } | Self::Container { fix, .. } => {
                vec![fix.clone()]
            }
            Self::Left {
                notebook,
                is_container,
                ..
            } => {
                let open = || nb(Verb::Open).notebook(notebook);
                let confined = match is_container {
                    true => open().option("--container").word("IMAGE"),
                    false => open().option("--sandbox"),
                };
                vec![
                    hint!["to start it in one, too: ", confined],
                    hint!["to start it outside: ", open().option("--no-sandbox")],
                ]
            }
            Self::Tcp => vec!["leave --transport tcp out".into()],
            Self::NotLinux | Self::Folders(_) => Vec::new(),
        }
    }
}

/// Chooses the mechanism. Runs `bwrap` once to check that it works here, which takes some milliseconds.
pub fn choose_mechanism(sandbox: &Sandbox) -> Result<ChosenMechanism, SandboxError> {
    if !cfg!(target_os = "linux") {
        return Err(SandboxError::NotLinux);
    }
    let (mechanism, instead) = match sandbox.only {
        Some(Mechanism::Landlock) => (Mechanism::Landlock, None),
        only => match (only, bubblewrap::unusable()) {
            (_, None) => (Mechanism::Bubblewrap, None),
            (Some(mechanism), Some(why)) => return Err(SandboxError::Unusable { mechanism, why }),
            (None, why) => (Mechanism::Landlock, why),
        },
    };
    Ok(ChosenMechanism { mechanism, instead })
}

/// A sandbox for the start of a kernel.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SandboxedStart {
    /// The user's demands.
    pub sandbox: Sandbox,
    /// The mechanism that confines the kernel.
    pub chosen: ChosenMechanism,
    /// The files that the kernel sees.
    pub view: FilesystemView,
}

/// A kernel's command and environment inside a sandbox.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SandboxedCommand {
    /// The kernel's command.
    pub argv: Vec<OsString>,
    /// The variables that the kernel's environment sets.
    pub set: Vec<(OsString, OsString)>,
    /// The kernel's own variables, which override those of `set`.
    pub own: Vec<(OsString, OsString)>,
    /// The activation scripts of its environment, which run inside before the kernel begins.
    pub scripts: Vec<PathBuf>,
}

/// The orders of the process that makes a sandbox, read from its stdin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Orders {
    pub(super) start: SandboxedStart,
    pub(super) command: SandboxedCommand,
    /// The file that records the kernel's process.
    pub(super) pid_file: PathBuf,
    /// The file for the outcome of the start.
    pub(super) outcome_file: PathBuf,
}

impl Orders {
    /// Returns the folder, with a short path, in which the probes' targets outside are made.
    pub(super) fn outside(&self) -> PathBuf {
        self.start.view.sockets.with_extension("out")
    }
}

/// The first argument of the process that makes a sandbox.
pub(super) const ENTER: &str = "nb:sandbox";

/// The command that starts a kernel in a sandbox. It contains no variable's value, since every user of the
/// machine can read a command line.
#[derive(Clone, Debug)]
pub struct WrappedCommand {
    /// The command.
    pub argv: Vec<OsString>,
    /// Its stdin.
    pub input: String,
}

/// Returns the command that starts a kernel in a sandbox; makes the kernel's folders, and removes the files
/// of an earlier start.
pub fn wrap(
    command: SandboxedCommand,
    start: &SandboxedStart,
    files: &KernelFiles,
) -> Result<WrappedCommand, SandboxError> {
    use std::os::unix::fs::DirBuilderExt;
    let outcome_file = files.outcome_file();
    end_leftovers(&outcome_file);
    let sockets = &start.view.sockets;
    remove_tree(sockets)?;
    std::fs::DirBuilder::new().mode(0o700).create(sockets)?;
    let _ = std::fs::remove_file(&outcome_file);
    let orders = Orders {
        start: start.clone(),
        command,
        pid_file: files.pid_file(),
        outcome_file,
    };
    Ok(WrappedCommand {
        argv: vec![own_program()?, ENTER.into()],
        input: serde_json::to_string(&orders).map_err(io::Error::from)?,
    })
}

/// Waits until the kernel starts in its sandbox; returns the kernel's process, which may differ from the
/// process that was started.
pub fn entered(
    started: &Process,
    files: &KernelFiles,
) -> Result<(Process, SandboxCheck), SandboxError> {
    let file = files.outcome_file();
    loop {
        // Checked first: a process that has ended has written its outcome before.
        let is_alive = started.is_alive();
        match SandboxOutcome::read(&file) {
            Some(SandboxOutcome::Entered { reached, .. }) => {
                let process = files.process().unwrap_or_else(|| started.clone());
                return Ok((process, reached));
            }
            Some(SandboxOutcome::Refused { chosen, missing }) => {
                return Err(SandboxError::Refused { chosen, missing });
            }
            Some(SandboxOutcome::Failed { chosen, why }) => {
                let chosen = Some(chosen);
                return Err(SandboxError::Failed { chosen, why });
            }
            None if is_alive => std::thread::sleep(POLL),
            None => {
                let why = "the process that makes it has ended; the kernel's log may say why";
                return Err(SandboxError::Failed {
                    chosen: None,
                    why: why.to_owned(),
                });
            }
        }
    }
}

/// The pause between two checks for the outcome; most sandboxes take 20 ms.
const POLL: Duration = Duration::from_millis(2);

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::kernel::confine::view;

    #[test]
    fn no_command_line_of_a_start_holds_the_value_of_a_variable() {
        let temp = tempfile::tempdir().unwrap();
        let view = FilesystemView {
            scratch: temp.path().join("scratch"),
            sockets: temp.path().join("sockets"),
            ..view::tests::view()
        };
        let chosen = ChosenMechanism {
            mechanism: Mechanism::Landlock,
            instead: None,
        };
        let confined = SandboxedStart {
            sandbox: Sandbox::default(),
            chosen,
            view,
        };
        let files = KernelFiles::of(&temp.path().join("kernel-1.json"));
        let inner = SandboxedCommand {
            argv: vec!["python".into()],
            own: vec![("TOKEN".into(), "a-secret".into())],
            ..SandboxedCommand::default()
        };
        let wrapped = wrap(inner, &confined, &files).unwrap();
        let line = wrapped.argv.join(std::ffi::OsStr::new(" "));
        let line = line.to_string_lossy();
        // As plain text, and as serde writes a variable's bytes.
        let bytes = serde_json::to_string("a-secret".as_bytes()).unwrap();
        assert!(
            !line.contains("a-secret") && !line.contains(&bytes),
            "{line}"
        );
        assert!(wrapped.input.contains(&bytes));
    }
}
