//! Which kernel is meant, and what `state.json` says of it now.

use std::env::VarError;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::args::Launch;
use crate::kernel::process::Process;
use crate::project::{Ended, InterruptMode, Project, Relation, Session, Status};
use crate::route::{Ending, Interrupt};
use crate::wire::ConnectionInfo;

/// The session that a proxy serves.
pub(super) struct Target {
    /// Its project.
    pub(super) project: Project,
    /// Its key in `state.json`.
    pub(super) key: String,
}

/// What is known of the target's kernel.
pub(super) enum Found {
    /// It runs, as far as can be told without speaking to it.
    Live(Box<LiveKernel>),
    /// `nb` is starting or restarting it.
    Awaited,
    /// It ended, or never was.
    None(Ending),
}

/// A kernel to connect to.
#[derive(Clone)]
pub(super) struct LiveKernel {
    pub(super) connection_file: PathBuf,
    pub(super) connection: ConnectionInfo,
    /// None where only a pid is known: it may be anybody's.
    pub(super) process: Option<Process>,
    pub(super) generation: u64,
    pub(super) interrupt: Interrupt,
}

impl LiveKernel {
    /// Returns whether it is the same process on the same sockets.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.connection_file == other.connection_file
            && self.process == other.process
            && self.generation == other.generation
            && self.connection.ports == other.connection.ports
            && self.connection.ip == other.connection.ip
    }
}

impl Target {
    /// Finds the session that a launch means: the one asked for, else the only live one of the
    /// project at or above the working directory, else the one that was opened last.
    ///
    /// # Errors
    /// In words for the person who chose the kernel, with what mends it.
    pub(super) fn find(launch: &Launch) -> anyhow::Result<Self> {
        if let Some(path) = setting(launch.state.as_deref(), "NB_STATE")? {
            let project = Project::of_state_file(&path)
                .with_context(|| format!("cannot read the state file {}", path.display()))?;
            if !path.exists() {
                bail!(
                    "there is no state file {}\nStart a kernel with: nb open NOTEBOOK",
                    path.display()
                );
            }
            return Self::choose(project);
        }
        if let Some(notebook) = setting(launch.notebook.as_deref(), "NB_NOTEBOOK")? {
            let Some(project) = Project::find(&notebook) else {
                bail!(
                    "no project has a kernel for {0}\nStart one with: nb open {0}",
                    notebook.display()
                );
            };
            let key = project.key(&notebook);
            return Ok(Self { project, key });
        }
        let folder = std::env::current_dir().context("cannot tell the working directory")?;
        let Some(project) = Project::find(&folder) else {
            bail!(
                "no shared kernel: there is no .nb folder at or above {}\nStart one with: nb open NOTEBOOK",
                folder.display()
            );
        };
        Self::choose(project)
    }

    fn choose(project: Project) -> anyhow::Result<Self> {
        let state = project.state()?;
        let all = state.all();
        let mut live = all.iter().filter(|(_, session)| may_live(session));
        let key = match (live.next(), live.next()) {
            (Some((key, _)), None) => key.clone(),
            _ => {
                let last = state.last_opened();
                let same = |session: &Session| {
                    last.as_ref()
                        .is_some_and(|last| last.notebook == session.notebook)
                };
                match all.iter().find(|(_, session)| same(session)).or(all.last()) {
                    Some((key, _)) => key.clone(),
                    None => bail!(
                        "no kernel was ever opened in {}\nStart one with: nb open NOTEBOOK",
                        project.root().display()
                    ),
                }
            }
        };
        Ok(Self { project, key })
    }

    /// Reads what is known of the kernel now.
    ///
    /// # Errors
    /// When `state.json` or the kernel's connection file cannot be used.
    pub(super) fn look(&self) -> anyhow::Result<Found> {
        let state = self.project.state()?;
        let Some((_, session)) = state.all().into_iter().find(|(key, _)| *key == self.key) else {
            return Ok(Found::None(self.ending("KernelStopped", "has no kernel")));
        };
        match session.status {
            Status::Starting | Status::Restarting => return Ok(Found::Awaited),
            Status::Stopped => {
                return Ok(Found::None(self.ending("KernelStopped", "was shut down")));
            }
            Status::Died => return Ok(Found::None(self.died(session.ended.as_ref()))),
            Status::Live | Status::Other(_) => {}
        }
        if session.place.relation() == Relation::Elsewhere {
            let what = format!(
                "runs on {}, which cannot be reached from here",
                session.place.host
            );
            return Ok(Found::None(self.ending("KernelElsewhere", &what)));
        }
        if !may_live(&session) {
            return Ok(Found::None(self.died(session.ended.as_ref())));
        }
        let path = &session.connection_file;
        let connection =
            read_connection(path).with_context(|| format!("the kernel of {}", self.key))?;
        let interrupt = match session.interrupt_mode() {
            InterruptMode::Signal => Interrupt::Signal,
            _ => Interrupt::Message,
        };
        Ok(Found::Live(Box::new(LiveKernel {
            connection_file: path.clone(),
            connection,
            process: Process::recorded(&session),
            generation: session.generation,
            interrupt,
        })))
    }

    /// Returns whether a kernel may be started here for it: its notebook is known, and no other
    /// place says that it has the kernel.
    pub(super) fn may_start(&self) -> bool {
        self.project.state().is_ok_and(|state| {
            state.sessions.get(&self.key).is_some_and(|session| {
                session.owned && session.place.relation() != Relation::Elsewhere
            })
        })
    }

    /// Returns the command that brings the kernel back.
    pub(super) fn mend(&self) -> String {
        format!("nb open {}", self.project.notebook(&self.key).display())
    }

    /// Returns the words for a kernel that went by itself.
    pub(super) fn died(&self, ended: Option<&Ended>) -> Ending {
        let why = ended
            .map(|ended| format!(" ({})", ended.reason))
            .unwrap_or_default();
        self.ending("KernelDied", &format!("died{why}: its variables are gone"))
    }

    /// Returns the words for a kernel that was replaced.
    pub(super) fn restarted(&self) -> Ending {
        let text = format!(
            "The shared kernel of {} was restarted: its variables are gone. Run the cell again.",
            self.key
        );
        Ending {
            name: "KernelRestarted",
            text,
        }
    }

    fn ending(&self, name: &'static str, what: &str) -> Ending {
        Ending {
            name,
            text: format!(
                "The shared kernel of {} {what}. Start it with: {}",
                self.key,
                self.mend()
            ),
        }
    }
}

/// Reads and validates a connection file.
pub(super) fn read_connection(path: &Path) -> anyhow::Result<ConnectionInfo> {
    let context = || format!("cannot use the connection file {}", path.display());
    let bytes = std::fs::read(path).with_context(context)?;
    ConnectionInfo::parse(&bytes).with_context(context)
}

/// Returns whether a session's kernel may be there: only its sockets can prove it.
fn may_live(session: &Session) -> bool {
    if matches!(session.status, Status::Stopped | Status::Died) {
        return false;
    }
    match (Process::recorded(session), session.pid) {
        (Some(process), _) => process.is_alive(),
        (None, Some(pid)) => Process::of(pid).is_some(),
        (None, None) => true,
    }
}

/// Returns an explicit path, from the arguments or the environment.
fn setting(argument: Option<&Path>, name: &str) -> anyhow::Result<Option<PathBuf>> {
    if let Some(path) = argument {
        return Ok(Some(path.to_owned()));
    }
    match std::env::var(name) {
        Ok(path) if !path.is_empty() => Ok(Some(path.into())),
        Err(VarError::NotUnicode(path)) => Ok(Some(path.into())),
        _ => Ok(None),
    }
}
