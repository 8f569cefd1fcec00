//! Which kernel is meant, and what `state.json` says of it now.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use bytes::Bytes;
use zeroize::Zeroizing;

use super::args::Launch;
use super::front_end::{DetectedFrontEnd, notebook_of};
use super::messages;
use crate::kernel::environment::python;
use crate::kernel::process::Process;
use crate::kernel::shell::quote;
use crate::kernel::variables::Variables;
use crate::lifecycle::liveness::{Liveness, recorded_liveness};
use crate::lifecycle::target::{
    may_be_started, only_or_last_opened, other_live_notebook, recorded,
};
use crate::project::jobs::Job;
use crate::project::{Ended, InterruptMode, Project, Session, State, StateError, Status};
use crate::route::{Ending, FrontEnd, Interrupt};
use crate::wire::ConnectionInfo;

/// The notebook whose kernel a proxy serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Its project.
    pub(super) project: Project,
    /// Its key in `state.json`.
    pub(super) key: String,
}

/// What a launch says of its kernel.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// The kernel that a `state.json` tells of.
    State(PathBuf),
    /// This notebook's.
    Notebook(PathBuf),
    /// The front end's traffic will name the notebook.
    Later,
    /// Nothing names one.
    Nothing,
}

/// What is known of the target's kernel.
pub(super) enum Found {
    /// It runs, as far as can be told without speaking to it.
    Live(Box<LiveKernel>),
    /// `nb` is starting or restarting it.
    Awaited,
    /// It exited unexpectedly, in this way if that is known; another may be started for it.
    Died(Option<Ended>),
    /// There is none, and only its user may have one started.
    None(Ending),
}

/// A kernel to connect to.
#[derive(Clone)]
pub(super) struct LiveKernel {
    /// Whose session it is: the notebook's own, or another's that shares it.
    pub(super) owner: String,
    pub(super) connection_file: PathBuf,
    pub(super) connection: ConnectionInfo,
    /// None where only a pid is known: it may be anybody's.
    pub(super) process: Option<Process>,
    pub(super) generation: u64,
    pub(super) interrupt: Interrupt,
    /// The content of its `kernel_info_reply`.
    pub(super) info: Option<Bytes>,
    /// How the kernel before it ended.
    pub(super) before: Option<Ended>,
    /// The version of ipywidgets that it most likely has.
    pub(super) widgets: Option<String>,
    /// The job that goes on with cells whose front end ended its proxy before they ended.
    pub(super) handed_over: Option<Job>,
}

/// What a look at the files of a target has found.
pub(super) struct Look {
    pub(super) found: Found,
    /// The session is written down.
    pub(super) is_recorded: bool,
    /// See [`Target::may_start`].
    pub(super) may_start: bool,
    /// The record of a kernel whose process has ended although no one has written that down, with its key.
    pub(super) unnoticed: Option<(String, Session)>,
}

impl LiveKernel {
    /// Returns whether it is the same process on the same sockets.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.owner == other.owner
            && self.connection_file == other.connection_file
            && self.process == other.process
            && self.generation == other.generation
            && self.connection.ports == other.connection.ports
            && self.connection.ip == other.connection.ip
    }
}

impl Named {
    /// Reads the arguments and the environment; `folder` is the working directory.
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
        let served = session.and_then(|name| notebook_of(&name, folder, Path::exists));
        match served {
            Some(notebook) => Self::Notebook(notebook),
            None if front_end.kind == FrontEnd::VsCode => Self::Later,
            None => Self::Nothing,
        }
    }
}

impl Target {
    /// Finds the session that `state.json` at this path tells of.
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

    /// Finds a notebook's session, which it need not have yet. `makes` says whether the notebook's
    /// project may be made, as for a kernel that is about to be started.
    pub(super) fn of_notebook(notebook: &Path, makes: bool) -> anyhow::Result<Self> {
        let project = if makes {
            Project::for_notebook(notebook)?
        } else {
            let Some(project) = Project::find(notebook) else {
                bail!(
                    "{} has no shared kernel{}\nStart one with: nb open {}",
                    notebook.display(),
                    passed_over(notebook),
                    quote(notebook)
                );
            };
            project
        };
        project.check_version()?;
        let key = project.key(notebook);
        Ok(Self { project, key })
    }

    /// Finds the session that is meant where nothing names a notebook: the only live one of the
    /// project at or above the folder, else the one that was opened last.
    ///
    /// # Errors
    /// In words for the person who chose the kernel, with what mends it.
    pub(super) fn of_folder(folder: &Path) -> anyhow::Result<Self> {
        let Some(project) = Project::find(folder) else {
            bail!(
                "no shared kernel: there is no .nb folder at or above {}{}\nStart one with: nb open NOTEBOOK",
                folder.display(),
                passed_over(folder)
            );
        };
        Self::choose(project)
    }

    fn choose(project: Project) -> anyhow::Result<Self> {
        match only_or_last_opened(&project.state()?) {
            // Other programs write whole paths there.
            Some(key) => {
                let key = project.key(&project.notebook(&key));
                Ok(Self { project, key })
            }
            None => bail!(
                "no kernel was ever opened in {}\nStart one with: nb open NOTEBOOK",
                project.root().display()
            ),
        }
    }

    /// Reads all that is known of the session and its kernel now.
    ///
    /// # Errors
    /// When `state.json` or the kernel's connection file cannot be used.
    pub(super) fn look_closely(&self) -> anyhow::Result<Look> {
        let state = self.project.state()?;
        let session = recorded(&state, &self.project, &self.key);
        Ok(Look {
            found: self.look_in(&state)?,
            is_recorded: session.is_some(),
            may_start: session.as_ref().is_none_or(may_be_started),
            unnoticed: session.and_then(|session| self.unnoticed(&state, session)),
        })
    }

    /// Reads what is known of the kernel now.
    ///
    /// # Errors
    /// When `state.json` or the kernel's connection file cannot be used.
    pub(super) fn look(&self) -> anyhow::Result<Found> {
        self.look_in(&self.project.state()?)
    }

    fn look_in(&self, state: &State) -> anyhow::Result<Found> {
        let Some(session) = recorded(state, &self.project, &self.key) else {
            return Ok(Found::None(messages::no_kernel(self)));
        };
        match session.status {
            Status::Starting | Status::Restarting => return Ok(Found::Awaited),
            Status::Stopped => return Ok(Found::None(messages::stopped(self))),
            Status::Died => return Ok(self.died(&session)),
            Status::Live | Status::Other(_) => {}
        }
        let process = match recorded_liveness(&session) {
            Liveness::Own(process) => Some(process),
            Liveness::Foreign => None,
            Liveness::Dead => return Ok(self.died(&session)),
            Liveness::OutOfReach => return Ok(Found::None(messages::out_of_reach(self, &session))),
        };
        let path = &session.connection_file;
        let connection =
            read_connection(path).with_context(|| format!("the kernel of {}", self.key))?;
        let interrupt = match session.interrupt_mode() {
            InterruptMode::Signal => Interrupt::Signal,
            _ => Interrupt::Message,
        };
        Ok(Found::Live(Box::new(LiveKernel {
            owner: state.owner_key(&self.key),
            connection_file: path.clone(),
            connection,
            process,
            generation: session.generation,
            interrupt,
            info: info(&session),
            widgets: widgets(state, &session),
            handed_over: self.handed_over(),
            before: session.ended,
        })))
    }

    fn died(&self, session: &Session) -> Found {
        let ended = session.ended.clone();
        if session.is_owned() {
            Found::Died(ended)
        } else {
            Found::None(messages::died(self, ended.as_ref()))
        }
    }

    /// Returns the record of a kernel whose process has ended although no one has written that down.
    fn unnoticed(&self, state: &State, session: Session) -> Option<(String, Session)> {
        let is_dead = || recorded_liveness(&session) == Liveness::Dead;
        (session.status == Status::Live && is_dead()).then(|| (state.owner_key(&self.key), session))
    }

    /// Returns the key of the session whose kernel it is: its own, or that with which it shares.
    pub(super) fn owner(&self) -> String {
        let state = self.project.state();
        state.map_or_else(|_| self.key.clone(), |state| state.owner_key(&self.key))
    }

    /// Returns the job that goes on with cells of the notebook whose front end ended its proxy before
    /// they ended.
    fn handed_over(&self) -> Option<Job> {
        let folders = self.project.open_jobs();
        let mut jobs = folders.iter().filter_map(|folder| folder.read().ok());
        jobs.find(|job| {
            let front_end = job.front_end.as_ref();
            job.notebook == self.key && front_end.is_some_and(|it| it.may_return)
        })
    }

    /// Returns the notebook's path.
    pub(super) fn notebook(&self) -> PathBuf {
        self.project.notebook(&self.key)
    }

    /// Returns whether the session is written down at all.
    pub(super) fn is_recorded(&self) -> bool {
        let state = self.project.state();
        state.is_ok_and(|state| recorded(&state, &self.project, &self.key).is_some())
    }

    /// Returns whether a kernel may be started here for it: none that another program started,
    /// and no other place says that it has the kernel.
    pub(super) fn may_start(&self) -> bool {
        self.project.state().is_ok_and(|state| {
            let session = recorded(&state, &self.project, &self.key);
            session.as_ref().is_none_or(may_be_started)
        })
    }

    /// Returns whether a start or restart was begun and nobody is about to finish it.
    pub(super) fn is_abandoned(&self) -> bool {
        let owner = self.owner();
        let free = || matches!(self.project.try_lock_session(&owner), Ok(Some(_)));
        // Looked at again when the lock was free: whoever had it may just have finished.
        free() && matches!(self.look(), Ok(Found::Awaited))
    }

    /// Returns another notebook of the project whose kernel lives: it could be shared.
    pub(super) fn neighbour(&self) -> Option<PathBuf> {
        other_live_notebook(&self.project.state().ok()?, &self.project, &self.key)
    }

    /// Returns what the session's kernel last answered to `kernel_info_request`.
    pub(super) fn last_info(&self) -> Option<Bytes> {
        info(&recorded(
            &self.project.state().ok()?,
            &self.project,
            &self.key,
        )?)
    }

    /// Writes down which ipywidgets a kernel has told.
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

    /// Returns the command that brings the kernel back.
    pub(super) fn mend(&self) -> String {
        format!("nb open {}", quote(&self.notebook()))
    }
}

/// Returns a sentence about a `.nb` that does not count, if there is one.
fn passed_over(from: &Path) -> String {
    Project::passed_over(from).map_or_else(String::new, |dir| {
        format!(
            "\n{} was not made by your nb on this machine: it is not used; what it holds: nb adopt {}",
            dir.display(),
            quote(dir.parent().unwrap_or(&dir))
        )
    })
}

/// Returns what to answer while it is not known which notebook is meant: the kernel_info and the
/// ipywidgets of a kernel of that language here.
pub(super) fn usual(folder: &Path, language: &str) -> Option<(Bytes, Option<String>)> {
    let project = Project::find(folder)?;
    let state = project.state().ok()?;
    let session = recorded(&state, &project, &only_or_last_opened(&state)?)?;
    let spoken = session.kernel_info.as_ref()?["language_info"]["name"].as_str()?;
    if !spoken.eq_ignore_ascii_case(language) {
        return None;
    }
    Some((info(&session)?, widgets(&state, &session)))
}

/// Returns the version of ipywidgets that a session's kernel most likely has: the last that it or
/// an earlier kernel of the session reported, another session's of the project, or the one whose files lie
/// in its environment.
fn widgets(state: &State, session: &Session) -> Option<String> {
    let in_environment = || {
        let program = session.kernelspec.as_ref()?.argv.first()?;
        python::package_version(Path::new(program), "ipywidgets")
    };
    let reported = |session: &Session| session.ipywidgets.clone();
    reported(session)
        .or_else(|| state.sessions.values().find_map(reported))
        .or_else(in_environment)
}

fn info(session: &Session) -> Option<Bytes> {
    let content = serde_json::to_vec(session.kernel_info.as_ref()?).ok()?;
    Some(content.into())
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

    use serde_json::json;

    use super::*;

    fn named(launch: &Launch, variables: &[(&'static str, &'static str)]) -> Named {
        let variables: HashMap<&str, &str> = variables.iter().copied().collect();
        let front_end = DetectedFrontEnd::read(&variables);
        Named::read(launch, &front_end, &variables, Path::new("/nowhere"))
    }

    #[test]
    fn what_is_said_explicitly_wins() {
        let both = Launch {
            state: Some("/s.json".into()),
            notebook: Some("n.ipynb".into()),
            ..Launch::default()
        };
        let variables = [("NB_NOTEBOOK", "m.ipynb"), ("VSCODE_PID", "1")];
        assert_eq!(named(&both, &variables), Named::State("/s.json".into()));
        let none = Launch::default();
        assert_eq!(
            named(&none, &variables),
            Named::Notebook("m.ipynb".into()),
            "also under VS Code"
        );
        assert_eq!(named(&none, &[("VSCODE_PID", "1")]), Named::Later);
        assert_eq!(named(&none, &[]), Named::Nothing);
        let console = [("JPY_SESSION_NAME", "console 1"), ("JPY_PARENT_PID", "1")];
        assert_eq!(named(&none, &console), Named::Nothing);
    }

    #[test]
    fn a_record_of_three_fields_is_the_notebooks_whether_its_path_is_whole_or_not() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().canonicalize().unwrap();
        let notebook = folder.join("sub/t.ipynb");
        let project = Project::for_notebook(&folder.join("a.ipynb")).unwrap();
        std::fs::create_dir(folder.join("sub")).unwrap();
        let connection = folder.join("kernel.json");
        let fields = json!({
            "transport": "tcp", "ip": "127.0.0.1", "key": "k", "signature_scheme": "hmac-sha256",
            "shell_port": 1, "iopub_port": 2, "stdin_port": 3, "control_port": 4, "hb_port": 5,
        });
        std::fs::write(&connection, fields.to_string()).unwrap();
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&connection, permissions).unwrap();
        for named in [notebook.to_str().unwrap(), "sub/t.ipynb"] {
            let state = json!({
                "notebook": named,
                "connection_file": connection,
                "kernel_pid": std::process::id(),
            });
            std::fs::write(project.state_file(), state.to_string()).unwrap();
            let by_name = Target::of_notebook(&notebook, false).unwrap();
            assert!(matches!(by_name.look().unwrap(), Found::Live(_)), "{named}");
            let by_folder = Target::of_folder(&folder).unwrap();
            assert_eq!(by_folder, by_name, "{named}");
            assert_eq!(by_name.neighbour(), None, "{named}");
        }
    }
}
