//! Kernels in a sandbox: no network, the workspace read-only, reached only over their Unix
//! sockets.
//!
//! Bubblewrap gives a kernel namespaces of its own in which only its [`FilesystemView`] is mounted; where
//! that cannot be, Landlock's rules say which files it may use. Filtered system calls come with
//! both. Every [`Guarantee`] is then tried from inside, by the process that becomes the kernel, and
//! what is not kept is a refusal unless the user took that on himself.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::bubblewrap;
#[cfg(target_os = "linux")]
use super::enter;
use super::outcome::{ChosenMechanism, SandboxOutcome, end_leftovers};
use super::view::FilesystemView;
use crate::kernel::process::connection::KernelFiles;
use crate::kernel::process::{Process, own_program};
use crate::project::{Demand, Mechanism, Missing, Reached, Sandbox, remove_tree};

/// Why a kernel does not run in a sandbox.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The mechanism that the user insists on cannot be used.
    #[error("{} cannot be used here: {why}", mechanism.as_str())]
    Unusable {
        /// The mechanism.
        mechanism: Mechanism,
        /// Why.
        why: String,
    },
    /// Promises cannot be kept.
    #[error(
        "the sandbox would not hold ({}): {}",
        chosen.mechanism.as_str(),
        missing.iter().map(|it| format!("{}: {}", it.promise, it.why)).collect::<Vec<_>>().join("; ")
    )]
    Refused {
        /// What was tried.
        chosen: ChosenMechanism,
        /// What cannot be promised.
        missing: Vec<Missing>,
    },
    /// It could not be made.
    #[error("the sandbox could not be made: {why}")]
    Failed {
        /// What was tried, where that is known.
        chosen: Option<ChosenMechanism>,
        /// What went wrong.
        why: String,
    },
    /// A folder cannot be given to it.
    #[error("{} cannot be given to a sandbox: {why}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        why: String,
        /// What mends it.
        mend: String,
    },
    /// The kernel that runs is not in the sandbox that was asked for.
    #[error("the kernel that runs is not in this sandbox: {how}")]
    Runs {
        /// How it runs.
        how: String,
        /// What ends it and starts another.
        mend: String,
    },
    /// This system has none.
    #[error("--sandbox needs Linux")]
    NotLinux,
    /// A sandbox has no network.
    #[error("a kernel in a sandbox is reached over its Unix sockets only")]
    Tcp,
    /// It cannot run in the container that was asked for.
    #[error("the kernel cannot run in this container: {why}")]
    Container {
        /// Why.
        why: String,
        /// What mends it.
        mend: String,
    },
    /// Something of the way there failed.
    #[error("cannot make the sandbox's folders: {0}")]
    Folders(#[from] io::Error),
}

impl SandboxError {
    /// Returns what mends it, for a notebook's `nb open`.
    pub fn hints(&self) -> Vec<String> {
        const BEST: &str = "to run it all the same, with what can be kept: --sandbox=best-effort";
        let instead = |chosen: &ChosenMechanism| {
            let why = chosen.instead.as_ref()?;
            Some(match why.contains("not installed") {
                true => {
                    format!("bubblewrap would keep more: apt-get install bubblewrap ({why})")
                }
                false => format!("bubblewrap would keep more, but: {why}"),
            })
        };
        match self {
            Self::Unusable { .. } => {
                vec!["let nb choose among those that work here: --sandbox".to_owned()]
            }
            Self::Refused { chosen, .. } => {
                let mut hints: Vec<_> = instead(chosen).into_iter().collect();
                hints.push(BEST.to_owned());
                hints
            }
            Self::Failed { chosen, .. } => chosen.as_ref().and_then(instead).into_iter().collect(),
            Self::Folder { mend, .. } | Self::Runs { mend, .. } | Self::Container { mend, .. } => {
                vec![mend.clone()]
            }
            Self::Tcp => vec!["leave --transport tcp out".to_owned()],
            Self::NotLinux | Self::Folders(_) => Vec::new(),
        }
    }
}

/// Chooses the mechanism. Starts `bwrap` once to see whether it works here; takes some milliseconds.
pub fn choose_mechanism(sandbox: &Sandbox) -> Result<ChosenMechanism, SandboxError> {
    let chosen = |mechanism, instead| ChosenMechanism { mechanism, instead };
    if !cfg!(target_os = "linux") {
        return Err(SandboxError::NotLinux);
    }
    let unusable = match sandbox.only {
        Some(Mechanism::Landlock) => None,
        _ => bubblewrap::unusable(),
    };
    match (sandbox.only, unusable) {
        (Some(Mechanism::Landlock), _) => Ok(chosen(Mechanism::Landlock, None)),
        (Some(mechanism @ Mechanism::Bubblewrap), Some(why)) => {
            Err(SandboxError::Unusable { mechanism, why })
        }
        (_, None) => Ok(chosen(Mechanism::Bubblewrap, None)),
        (None, why) => Ok(chosen(Mechanism::Landlock, why)),
    }
}

/// A sandbox that a kernel is to be started in.
#[derive(Clone, Debug)]
pub struct SandboxedStart {
    /// What was asked for.
    pub sandbox: Sandbox,
    /// By what it is made.
    pub chosen: ChosenMechanism,
    /// What the kernel is to see.
    pub view: FilesystemView,
}

/// What is started in a sandbox.
#[derive(Clone, Debug, Default)]
pub struct SandboxedCommand {
    /// The kernel's command.
    pub argv: Vec<OsString>,
    /// The variables that its environment sets.
    pub set: Vec<(OsString, OsString)>,
    /// Its own variables, which win over those.
    pub own: Vec<(OsString, OsString)>,
    /// The scripts of its environment, which are run inside before it begins.
    pub scripts: Vec<PathBuf>,
}

/// The start of a kernel in a sandbox. Its command line names no variable's value: every user of
/// the machine can read it.
#[derive(Clone, Debug, Default)]
pub struct WrappedCommand {
    /// The command.
    pub argv: Vec<OsString>,
    /// The variables to set for it.
    pub set: Vec<(OsString, OsString)>,
    /// Whether it gets no other variables.
    pub clears: bool,
    /// What it reads from its stdin.
    pub input: Option<String>,
}

/// Returns the start of a kernel in a sandbox; makes its folders, and forgets what an earlier start
/// has left.
pub fn wrap(
    inner: SandboxedCommand,
    confined: &SandboxedStart,
    files: &KernelFiles,
) -> Result<WrappedCommand, SandboxError> {
    let SandboxedStart {
        sandbox,
        chosen,
        view,
    } = confined;
    end_leftovers(&files.outcome_file());
    made_anew(&view.sockets)?;
    let _ = std::fs::remove_file(files.outcome_file());
    let best_effort = sandbox.demand == Demand::BestEffort;
    entering(inner, (chosen, view, best_effort), files)
}

/// Makes a folder in place of what the last kernel could leave there.
fn made_anew(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    remove_tree(folder)?;
    std::fs::DirBuilder::new().mode(0o700).create(folder)
}

/// Returns the command that confines itself, has everything tried and becomes the kernel.
#[cfg(target_os = "linux")]
fn entering(
    inner: SandboxedCommand,
    (chosen, view, best_effort): (&ChosenMechanism, &FilesystemView, bool),
    files: &KernelFiles,
) -> Result<WrappedCommand, SandboxError> {
    let orders = enter::Orders {
        chosen: chosen.clone(),
        best_effort,
        outside: view.sockets.with_extension("out"),
        view: view.clone(),
        argv: inner.argv,
        set: inner.set,
        own: inner.own,
        scripts: inner.scripts,
        pid_file: files.pid_file(),
        outcome_file: files.outcome_file(),
    };
    Ok(WrappedCommand {
        argv: vec![own_program()?, enter::ENTER.into()],
        input: Some(serde_json::to_string(&orders).map_err(io::Error::from)?),
        ..WrappedCommand::default()
    })
}

/// Says that there is no sandbox here.
#[cfg(not(target_os = "linux"))]
fn entering(
    _: SandboxedCommand,
    _: (&ChosenMechanism, &FilesystemView, bool),
    _: &KernelFiles,
) -> Result<WrappedCommand, SandboxError> {
    Err(SandboxError::NotLinux)
}

/// Waits until the kernel begins in its sandbox; returns its process, which may be another than
/// the one that was started.
pub fn entered(started: &Process, files: &KernelFiles) -> Result<(Process, Reached), SandboxError> {
    let file = files.outcome_file();
    loop {
        // Looked at first: whoever has ended has written before.
        let lives = started.is_alive();
        match SandboxOutcome::read(&file) {
            Some(SandboxOutcome::Entered { reached, .. }) => {
                let process = files.process().unwrap_or_else(|| started.clone());
                return Ok((process, reached));
            }
            Some(SandboxOutcome::Refused { chosen, missing }) => {
                return Err(SandboxError::Refused { chosen, missing });
            }
            Some(SandboxOutcome::Failed { chosen, why }) => {
                return Err(SandboxError::Failed {
                    chosen: Some(chosen),
                    why,
                });
            }
            None if lives => std::thread::sleep(POLL),
            None => {
                return Err(SandboxError::Failed {
                    chosen: None,
                    why: "the process that makes it ended".to_owned(),
                });
            }
        }
    }
}

/// How often it is asked whether a sandbox is made; mostly that takes 20 ms.
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
        // As it is, and as serde writes a variable's bytes.
        let bytes = serde_json::to_string("a-secret".as_bytes()).unwrap();
        assert!(
            !line.contains("a-secret") && !line.contains(&bytes),
            "{line}"
        );
        assert!(wrapped.input.unwrap().contains(&bytes));
    }
}
