//! Which kernel a launch means: its notebook, and the notebook's session in `state.json`.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use bytes::Bytes;
use zeroize::Zeroizing;

use super::args::Launch;
use super::front_end::{DetectedFrontEnd, notebook_of};
use crate::hint::shell::quote;
use crate::kernel::process::Process;
use crate::kernel::variables::Variables;
use crate::lifecycle::target::{only_or_last_opened, other_live_notebook, recorded, unused_folder};
use crate::project::jobs::Job;
use crate::project::{Ended, Project, StateError};
use crate::route::{FrontEnd, Interrupt};
use crate::wire::ConnectionInfo;

/// The notebook whose kernel a proxy serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The notebook's project.
    pub(super) project: Project,
    /// The notebook's key in `state.json`.
    pub(super) key: String,
}

/// How a launch names its kernel.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LaunchTarget {
    /// The kernel that this `state.json` names.
    State(PathBuf),
    /// The kernel of this notebook.
    Notebook(PathBuf),
    /// The launch names no notebook; the front end's traffic will.
    FromTraffic,
    /// Neither the launch nor the traffic names a notebook.
    Unnamed,
}

/// A kernel to connect to.
#[derive(Clone)]
pub(super) struct LiveKernel {
    /// The key of the session that owns the kernel: the notebook's own, or that of the notebook with which it
    /// shares.
    pub(super) owner: String,
    pub(super) connection_file: PathBuf,
    pub(super) connection: ConnectionInfo,
    /// `None` where only a pid is known, which another process may have now.
    pub(super) process: Option<Process>,
    pub(super) generation: u64,
    pub(super) interrupt: Interrupt,
    /// The content of the kernel's `kernel_info_reply`.
    pub(super) info: Option<Bytes>,
    /// Whether the bridge of a kernel on a server has to be started.
    pub(super) is_disconnected: bool,
    /// How the previous kernel ended.
    pub(super) previous_end: Option<Ended>,
    /// The version of ipywidgets that the kernel most likely has.
    pub(super) widgets: Option<String>,
    /// The job for cells that still ran when their front end ended its proxy.
    pub(super) handed_over: Option<Job>,
}

impl LiveKernel {
    /// Returns whether both are the same process with the same sockets.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        // The owner's name may have changed: `nb mv`.
        // So may the project's folder have been.
        self.connection_file.file_name() == other.connection_file.file_name()
            && self.process == other.process
            && self.generation == other.generation
            && self.connection.ports == other.connection.ports
            && self.connection.ip == other.connection.ip
    }
}

impl LaunchTarget {
    /// Reads the target from the arguments and the environment; `folder` is the working directory.
    pub(super) fn read(
        launch: &Launch,
        front_end: &DetectedFrontEnd,
        variables: &dyn Variables,
        folder: &Path,
    ) -> Self {
        let state = launch.state.clone().or_else(|| variables.path("NB_STATE"));
        if let Some(path) = state {
            return Self::State(path);
        }
        let notebook = launch
            .notebook
            .clone()
            .or_else(|| variables.path("NB_NOTEBOOK"));
        if let Some(notebook) = notebook {
            return Self::Notebook(notebook);
        }
        let session = variables.get("JPY_SESSION_NAME");
        let notebook = session.and_then(|name| notebook_of(&name, folder, Path::exists));
        match notebook {
            Some(notebook) => Self::Notebook(notebook),
            None if front_end.kind == FrontEnd::VsCode => Self::FromTraffic,
            None => Self::Unnamed,
        }
    }
}

impl Target {
    /// Finds the session that this `state.json` names.
    pub(super) fn of_state(path: &Path) -> anyhow::Result<Self> {
        let project = Project::of_state_file(path)
            .with_context(|| format!("cannot read the state file {}", path.display()))?;
        if !path.exists() {
            bail!(
                "there is no state file {}\nStart a kernel with: nb open NOTEBOOK",
                path.display()
            );
        }
        Self::choose(project)
    }

    /// Finds a notebook's session, which need not exist yet. `may_create` says whether the notebook's project may
    /// be created, because a kernel is about to be started.
    pub(super) fn of_notebook(notebook: &Path, may_create: bool) -> anyhow::Result<Self> {
        let project = if may_create {
            Project::for_notebook(notebook)?
        } else {
            let Some(project) = Project::find(notebook) else {
                bail!(
                    "{} has no shared kernel{}\nStart one with: nb open {}",
                    notebook.display(),
                    unused_folder_notice(notebook),
                    quote(notebook)
                );
            };
            project
        };
        project.check_version()?;
        let key = project.key(notebook);
        Ok(Self { project, key })
    }

    /// Finds a session where nothing names a notebook: the only live one of the project at or above the
    /// folder, else the one that was opened last.
    ///
    /// # Errors
    /// Says what is missing and which command makes it, for the person who chose the kernel.
    pub(super) fn of_folder(folder: &Path) -> anyhow::Result<Self> {
        let Some(project) = Project::find(folder) else {
            bail!(
                "no shared kernel: there is no .nb folder at or above {}{}\nStart one with: nb open NOTEBOOK",
                folder.display(),
                unused_folder_notice(folder)
            );
        };
        Self::choose(project)
    }

    /// Finds the session of the notebook that the launching program names in its arguments, as `jupyter execute
    /// a.ipynb` and `papermill a.ipynb b.ipynb` do, if the notebook has one; else that of [`Self::of_folder`].
    /// Then a notice says whose kernel it is, where another one may be meant.
    pub(super) fn of_program(
        mut arguments: impl Iterator<Item = OsString>,
        folder: &Path,
    ) -> anyhow::Result<(Self, Option<String>)> {
        let notebook = arguments.find_map(|argument| {
            let is_notebook = Path::new(&argument).extension() == Some(OsStr::new("ipynb"));
            let notebook = folder.join(Path::new(&argument).file_name()?);
            (is_notebook && notebook.exists()).then_some(notebook)
        });
        if let Some(notebook) = &notebook
            && let Some(project) = Project::find(notebook)
            && let key = project.key(notebook)
            && recorded(&project.state()?, &project, &key).is_some()
        {
            return Ok((Self { project, key }, None));
        }
        let target = Self::of_folder(folder)?;
        let is_other = notebook.is_some_and(|it| target.project.key(&it) != target.current_key());
        let notice = (is_other || target.shareable_notebook().is_some()).then(|| {
            format!(
                "This ran on the kernel of {}: its program names no notebook that has a kernel. NB_NOTEBOOK=NOTEBOOK chooses another.",
                target.current_key()
            )
        });
        Ok((target, notice))
    }

    fn choose(project: Project) -> anyhow::Result<Self> {
        match only_or_last_opened(&project.state()?) {
            // Other programs write absolute paths there.
            Some(key) => {
                let key = project.key(&project.notebook(&key));
                Ok(Self { project, key })
            }
            None => {
                let foreign = project.foreign().map(|dir| {
                    let dir = dir.display();
                    format!(": {dir} was not made by your nb on this machine and is left as it is")
                });
                bail!(
                    "no kernel was ever opened in {}{}\nStart one with: nb open NOTEBOOK",
                    project.root().display(),
                    foreign.unwrap_or_default()
                )
            }
        }
    }

    /// Returns the key of the session that owns the kernel: its own, or the one with which it shares.
    pub(super) fn owner(&self) -> String {
        let state = self.current_key_and_state();
        state.map_or_else(|_| self.current_key(), |(key, state)| state.owner_key(&key))
    }

    /// Returns the notebook's path.
    pub(super) fn notebook(&self) -> PathBuf {
        self.project.notebook(&self.current_key())
    }

    /// Returns the notebook's present key: it may have been moved.
    pub(super) fn current_key(&self) -> String {
        self.project.current_key(&self.key)
    }

    /// Returns another notebook of the project whose kernel is live and could be shared.
    pub(super) fn shareable_notebook(&self) -> Option<PathBuf> {
        other_live_notebook(
            &self.project.state().ok()?,
            &self.project,
            &self.current_key(),
        )
    }

    /// Records the version of ipywidgets that a kernel has printed.
    pub(super) fn remember_widgets(
        &self,
        owner: &str,
        generation: u64,
        version: &str,
    ) -> Result<(), StateError> {
        self.project.update(|state| {
            if let Some(session) = state.sessions.get_mut(owner)
                && session.generation == generation
            {
                session.ipywidgets = Some(version.to_owned());
            }
        })
    }

    /// Returns the command that starts the kernel again.
    pub(super) fn open_command(&self) -> String {
        format!("nb open {}", quote(&self.notebook()))
    }
}

/// Returns a sentence about a `.nb` folder that is not used, or an empty string.
fn unused_folder_notice(path: &Path) -> String {
    Project::ignored_folder(path)
        .map_or_else(String::new, |dir| format!("\n{}", unused_folder(&dir)))
}

/// Reads and validates a connection file.
pub(super) fn read_connection(path: &Path) -> anyhow::Result<ConnectionInfo> {
    let context = || format!("cannot use the connection file {}", path.display());
    let bytes = Zeroizing::new(std::fs::read(path).with_context(context)?);
    ConnectionInfo::parse(&bytes).with_context(context)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn read(launch: &Launch, variables: &[(&'static str, &'static str)]) -> LaunchTarget {
        let variables: HashMap<&str, &str> = variables.iter().copied().collect();
        let front_end = DetectedFrontEnd::read(&variables);
        LaunchTarget::read(launch, &front_end, &variables, Path::new("/nowhere"))
    }

    #[test]
    fn explicit_targets_come_first() {
        let explicit = Launch {
            state: Some("/s.json".into()),
            notebook: Some("n.ipynb".into()),
            ..Launch::default()
        };
        let variables = [("NB_NOTEBOOK", "m.ipynb"), ("VSCODE_PID", "1")];
        assert_eq!(
            read(&explicit, &variables),
            LaunchTarget::State("/s.json".into())
        );
        let none = Launch::default();
        assert_eq!(
            read(&none, &variables),
            LaunchTarget::Notebook("m.ipynb".into()),
            "also under VS Code"
        );
        assert_eq!(
            read(&none, &[("VSCODE_PID", "1")]),
            LaunchTarget::FromTraffic
        );
        assert_eq!(read(&none, &[]), LaunchTarget::Unnamed);
        let console = [("JPY_SESSION_NAME", "console 1"), ("JPY_PARENT_PID", "1")];
        assert_eq!(read(&none, &console), LaunchTarget::Unnamed);
    }
}
