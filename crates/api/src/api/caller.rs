//! The caller of a request: who makes the request, from which folder, and with which settings.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::problem::{Problem, ProblemKind, causes};
use crate::activity::actor::Actor;
use crate::activity::notification::PendingNotices;
use crate::editing::notebook_file::NotebookFile;
use crate::editing::transaction;
use crate::editing::view::{PendingCells, View};
use crate::execution::lost::{self, KilledRecorder};
use crate::graph::Cancel;
use crate::hint::Hint;
use crate::hint::shell::quote;
use crate::kernel::variables::ProcessVariables;
use crate::lifecycle::open::take_up;
use crate::lifecycle::target::{self, Target, TargetError, open_one};
use crate::project::cursor::Cursor;
use crate::project::event::Event;
use crate::project::jobs::JobFolder;
use crate::project::{Config, ConfigError, Project, temporary};

/// How long a request waits for a kernel by default: agents' shells end longer calls without an error
/// message.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(45);

/// The largest number of notebooks of the working directory that a hint suggests.
const MOST_SUGGESTED: usize = 5;

/// The hint to a name that is none.
const GIVES_NAME: &str = "--as, NB_AS or `as` in .nb/config.toml gives the name, such as ada";

/// How many of the journal's last bytes are searched for the notebook that a caller used last.
const LAST_USED_BYTES: u64 = 2 << 20;

/// The maker of one request, its working directory and its settings.
///
/// An adapter makes one `Caller` for each request: the answer also reports what others did since the last
/// one. Clones are the same caller.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Who acts.
    pub actor: Actor,
    /// The actor's id, as the journal records it.
    by: String,
    /// Whether a person reads the answer and can be asked something.
    pub is_person: bool,
    /// The working directory. Relative paths in requests are resolved against the process's own.
    pub working_dir: PathBuf,
    /// The notebook that the request is about: the one it names, else the one in the settings; none if
    /// neither names one.
    pub notebook: Option<PathBuf>,
    /// The project of the named notebook, else the one at or above the working directory.
    pub project: Option<Project>,
    /// How many seconds to wait where a request sets no limit; 0 waits for ever.
    pub timeout: Option<f64>,
    /// The request as a command, without a notebook. Hints repeat it.
    pub command: String,
    /// Receives a line for each thing that a request waits for.
    pub progress: fn(&str),
    pub(super) notices: PendingNotices,
    /// The cells that are in the answer.
    pub(super) shown: PendingCells,
    /// See [`CallerSettings::gets_json`].
    pub(super) gets_json: bool,
    /// See [`CallerSettings::has_own_thread`].
    has_own_thread: bool,
    /// Ends the analysis of a notebook, once its request is dropped.
    pub(super) cancel: Cancel,
    pub(super) state: Arc<RequestState>,
}

/// What a request has found out so far, shared by all clones of its caller.
#[derive(Debug, Default)]
pub(super) struct RequestState {
    pub(super) target_notebook: OnceLock<TargetNotebook>,
    pub(super) lost: OnceLock<Vec<KilledRecorder>>,
    /// The jobs whose outputs are in the answer, each up to a cursor.
    followed: Mutex<Vec<(JobFolder, Cursor)>>,
}

impl RequestState {
    fn followed(&self) -> MutexGuard<'_, Vec<(JobFolder, Cursor)>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The notebook that a request acts on.
#[derive(Clone, Debug)]
pub struct TargetNotebook {
    /// The notebook's project.
    pub project: Project,
    /// The notebook's own key in the project, also where it shares another notebook's kernel.
    pub key: String,
}

/// What an adapter knows of a caller before the project's settings are read.
#[derive(Clone, Debug)]
pub struct CallerSettings {
    /// The notebook that the request names.
    pub notebook: Option<PathBuf>,
    /// The name to act under.
    pub name: Option<String>,
    /// Whether the answer goes to a terminal.
    pub on_terminal: bool,
    /// The working directory.
    pub working_dir: PathBuf,
    /// See [`Caller::command`].
    pub command: String,
    /// See [`Caller::progress`].
    pub progress: fn(&str),
    /// Whether the answer is delivered as JSON, in which each conflict has the whole texts.
    pub gets_json: bool,
    /// Whether the request has a thread to itself, as a command has whose process ends with it. File work
    /// that may block then runs on that thread: some sandboxes allow no second thread.
    pub has_own_thread: bool,
}

impl Caller {
    /// Makes a caller, with the settings of the notebook's project.
    ///
    /// # Errors
    /// The settings cannot be read.
    pub fn of(settings: CallerSettings) -> Result<Self, Problem> {
        let named = target::named(settings.notebook.as_deref(), &ProcessVariables);
        let project = Project::find(named.as_deref().unwrap_or(&settings.working_dir));
        if let Some(project) = &project {
            let checked = project.check_version();
            checked.map_err(|error| Problem::new(ProblemKind::Failed, causes(&error)))?;
        }
        let config = match &project {
            Some(project) => project.settings(),
            None => Config::default().with(|name| std::env::var_os(name)),
        };
        let config = config.map_err(|error| {
            let kind = match error {
                ConfigError::Variable { .. } => ProblemKind::Usage,
                _ => ProblemKind::Failed,
            };
            Problem::new(kind, causes(&error))
        })?;
        let name = settings.name.as_deref();
        let configured = config.name.as_deref();
        let (actor, is_person) =
            Actor::of_command(name, &ProcessVariables, configured, settings.on_terminal);
        if actor.to_string().contains(char::is_control) {
            let text = format!(
                "{:?} is not a name: it has control characters",
                actor.to_string()
            );
            return Err(Problem::new(ProblemKind::Usage, text).hint(GIVES_NAME));
        }
        if actor.is_reserved() {
            let text = format!(
                "{:?} cannot be your name: nb uses it for others",
                actor.name()
            );
            return Err(Problem::new(ProblemKind::Usage, text).hint(GIVES_NAME));
        }
        // A path from a variable is relative to the working directory; one from the settings file, to its
        // project.
        let configured = config.notebook.filter(|_| named.is_none());
        let root = project.as_ref().map(Project::root);
        let configured = root.and_then(|root| Some(root.join(configured?)));
        Ok(Self {
            by: actor.to_string(),
            actor,
            is_person,
            working_dir: settings.working_dir,
            notebook: settings.notebook.or(configured),
            project,
            timeout: config.timeout,
            command: settings.command,
            progress: settings.progress,
            notices: PendingNotices::default(),
            shown: PendingCells::default(),
            gets_json: settings.gets_json,
            has_own_thread: settings.has_own_thread,
            cancel: Cancel::default(),
            state: Arc::default(),
        })
    }

    /// Returns the id of the actor; people read [`Actor::name`].
    pub fn by(&self) -> &str {
        &self.by
    }

    /// Returns the notebook that the request acts on, once it is known.
    pub fn target_notebook(&self) -> Option<&TargetNotebook> {
        self.state.target_notebook.get()
    }

    /// Sets the notebook that the request acts on: the answer then reports what others did there.
    pub(crate) fn set_target_notebook(&self, project: &Project, key: &str) {
        let _ = self.state.target_notebook.set(TargetNotebook {
            project: project.clone(),
            key: key.to_owned(),
        });
    }

    /// Finds recorders that were killed in the caller's project, and starts others that finish their jobs. Removes the
    /// folders that killed commands left.
    pub async fn notice(&self) {
        if temporary::is_any() {
            let sweep = |_: &Self| {
                temporary::sweep();
                Ok(())
            };
            let _ = blocking(self, sweep).await;
        }
        if let Some(project) = &self.project {
            let _ = self.state.lost.set(lost::notice(project, self.by()).await);
        }
    }

    /// Takes the cells that a view has shown; they count as seen once the answer is delivered.
    pub(super) fn has_shown(&self, view: View<'_>) {
        self.shown.add(view.into_shown());
    }

    /// Takes the cursor up to which the answer has the outputs of a job.
    pub(super) fn has_followed(&self, folder: JobFolder, cursor: Cursor) {
        self.state.followed().push((folder, cursor));
    }

    /// Records what the caller has seen in its answer. What cannot be recorded is shown again.
    pub(super) fn remember_seen(&self) {
        self.shown.delivered();
        for (folder, cursor) in self.state.followed().drain(..) {
            let _ = folder.move_cursor(self.by(), cursor);
        }
    }

    /// Returns the notebook that the request, the settings or `NB_NOTEBOOK` names.
    pub(super) fn named(&self) -> Option<PathBuf> {
        target::named(self.notebook.as_deref(), &ProcessVariables)
    }

    /// Returns the session of the notebook that the request is about.
    pub(super) async fn target(&self) -> Result<Target, Problem> {
        let target = self.resolve(self.notebook.as_deref()).await;
        let target = target.map_err(|error| Problem::of_target(&error, &self.command))?;
        self.set_target_notebook(&target.project, &target.notebook_key);
        Ok(target)
    }

    /// Returns the session of the notebook that the request is about, as [`Caller::target`] does. Where several
    /// are open and none is named, that is the one that the caller used last. It is for requests that end
    /// nothing.
    pub(super) async fn target_or_last_used(&self) -> Result<Target, Problem> {
        let target = self.resolve_or_last_used().await;
        let target = target.map_err(|error| Problem::of_target(&error, &self.command))?;
        self.set_target_notebook(&target.project, &target.notebook_key);
        Ok(target)
    }

    /// Finds a session; a notebook that another program has renamed takes up its own first.
    async fn resolve(&self, notebook: Option<&Path>) -> Result<Target, TargetError> {
        let resolve = || target::resolve(notebook, &self.working_dir, &ProcessVariables);
        let target = resolve().await;
        if let Err(TargetError::NotOpen { notebook }) = &target
            && let Some(note) = take_up(notebook, self.by()).await
        {
            (self.progress)(&note);
            return resolve().await;
        }
        target
    }

    async fn resolve_or_last_used(&self) -> Result<Target, TargetError> {
        let several = match self.resolve(self.notebook.as_deref()).await {
            Err(TargetError::Several {
                notebooks,
                live: true,
            }) => notebooks,
            other => return other,
        };
        match self.last_used(&several) {
            Some(notebook) => {
                let name = notebook.file_name().unwrap_or_default().display();
                (self.progress)(&format!(
                    "{name}: the one of {} open notebooks that you used last",
                    several.len()
                ));
                self.resolve(Some(&notebook)).await
            }
            None => Err(TargetError::Several {
                notebooks: several,
                live: true,
            }),
        }
    }

    /// Returns the notebook in which the caller did something last.
    fn last_used(&self, notebooks: &[PathBuf]) -> Option<PathBuf> {
        let project = Project::find(&self.working_dir)?;
        let keys: Vec<_> = notebooks.iter().map(|it| project.key(it)).collect();
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        let events = project.events_of(&keys).within(LAST_USED_BYTES);
        let is_own = |event: &Event| self.actor.has_done(&Actor::parse(event.actor().as_deref()));
        events.filter(is_own).find_map(|event| {
            let key = event.notebook.unwrap_or(event.session);
            let at = keys.iter().position(|it| *it == key)?;
            notebooks.get(at).cloned()
        })
    }

    /// Returns the notebook that the request is about: the one that is named, else the only open one, else the
    /// open one that the caller used last.
    ///
    /// It needs no kernel. If no notebook is named and none is open, that is a usage error.
    pub(super) async fn notebook_file(&self) -> Result<NotebookFile, Problem> {
        let path = match self.named() {
            Some(path) => path,
            None => match self.resolve_or_last_used().await {
                Ok(target) => target.session.notebook,
                Err(error @ TargetError::NoneOpen { .. }) => {
                    let message = format!("no notebook is named, and {}", causes(&error));
                    let hints = commands_here(&self.working_dir, &self.command);
                    return Err(Problem::new(ProblemKind::Usage, message).all_hints(hints));
                }
                Err(error) => return Err(Problem::of_target(&error, &self.command)),
            },
        };
        let file = NotebookFile::of(&path)?;
        for note in transaction::finish(&file) {
            (self.progress)(&format!("{}: {note}", file.path.display()));
        }
        self.set_target_notebook(&file.project, &file.key);
        Ok(file)
    }

    /// Returns the project of the named notebook, else the one at or above the working directory.
    pub(super) fn project(&self) -> Result<Project, Problem> {
        let from = self.named().unwrap_or_else(|| self.working_dir.clone());
        Project::find(&from).ok_or_else(|| {
            let text = format!("no notebook was opened in {}", from.display());
            Problem::new(ProblemKind::Usage, text).hint(open_one())
        })
    }

    /// Returns how long to wait for a kernel; 0 seconds are for ever.
    pub(crate) fn kernel_timeout(&self, timeout: Option<f64>) -> Result<Duration, Problem> {
        let for_ever = Duration::from_secs(u64::from(u32::MAX));
        Ok(match self.wait(timeout)? {
            Some(wait) => wait.unwrap_or(for_ever),
            None => DEFAULT_TIMEOUT,
        })
    }

    /// Returns how long the caller wants to wait: `None` if nothing sets a limit, `Some(None)` for ever.
    #[allow(
        clippy::option_option,
        reason = "nothing said and no limit are different"
    )]
    pub fn wait(&self, timeout: Option<f64>) -> Result<Option<Option<Duration>>, Problem> {
        let Some(seconds) = timeout.or(self.timeout) else {
            return Ok(None);
        };
        if seconds == 0.0 {
            return Ok(Some(None));
        }
        match Duration::try_from_secs_f64(seconds) {
            Ok(wait) => Ok(Some(Some(wait))),
            Err(_) => {
                let text = format!("--timeout {seconds} is not a number of seconds");
                Err(Problem::new(ProblemKind::Usage, text))
            }
        }
    }
}

/// Returns the project at or above a folder or notebook. `hint` says what to do if there is none.
pub(super) fn open_project(from: &Path, hint: Hint) -> Result<Project, Problem> {
    Project::find(from).ok_or_else(|| {
        let text = format!("no notebook is open in {}", from.display());
        Problem::new(ProblemKind::NoKernel, text).hint(hint)
    })
}

/// Ends an analysis when it is dropped.
struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Runs work that may block on a disk or a lock: on tokio's pool for blocking work, unless the request has
/// a thread to itself. The work is finished even if the caller's future is dropped, but for the analysis of a notebook,
/// which changes nothing: that ends.
pub(super) async fn blocking<T: Send + 'static>(
    caller: &Caller,
    work: impl FnOnce(&Caller) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    if caller.has_own_thread {
        return work(caller);
    }
    let caller = Caller {
        cancel: Cancel::default(),
        ..caller.clone()
    };
    let _cancels = CancelOnDrop(caller.cancel.clone());
    match tokio::task::spawn_blocking(move || work(&caller)).await {
        Ok(result) => result,
        Err(error) => Err(Problem::failed("finish the work", &error)),
    }
}

/// Runs a request that alternates between blocking file work and waiting for kernels, where [`blocking`]
/// would run it.
pub(super) async fn on_own_thread<T, F>(
    caller: &Caller,
    request: impl FnOnce(Caller) -> F + Send + 'static,
) -> Result<T, Problem>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Problem>>,
{
    if caller.has_own_thread {
        return request(caller.clone()).await;
    }
    blocking(caller, move |caller| {
        let caller = Caller {
            has_own_thread: true,
            ..caller.clone()
        };
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Problem::failed("wait for kernels", &error))?
            .block_on(request(caller))
    })
    .await
}

/// Returns the command once for each notebook of the folder, or once with a placeholder.
fn commands_here(folder: &Path, command: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    let mut notebooks: Vec<_> = names
        .filter(|name| Path::new(name).extension().is_some_and(|it| it == "ipynb"))
        .map(|name| format!("{command} -n {}", quote(Path::new(&name))))
        .collect();
    notebooks.sort();
    notebooks.truncate(MOST_SUGGESTED);
    if notebooks.is_empty() {
        notebooks.push(format!("{command} -n NOTEBOOK.ipynb"));
    }
    notebooks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_analysis_ends_when_its_request_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let caller = Caller::of(CallerSettings {
            notebook: None,
            name: Some("ada".to_owned()),
            on_terminal: false,
            working_dir: folder.path().to_owned(),
            command: "nb cells".to_owned(),
            progress: |_| {},
            gets_json: false,
            has_own_thread: false,
        })
        .unwrap();
        let (begun, mut is_begun) = tokio::sync::mpsc::channel(1);
        let (ended, is_ended) = std::sync::mpsc::channel();
        let work = blocking(&caller, move |caller| {
            begun.blocking_send(()).unwrap();
            while caller.cancel.check().is_ok() {
                std::thread::yield_now();
            }
            ended.send(()).unwrap();
            Ok(())
        });
        tokio::select! {
            _ = work => panic!("it is not cancelled yet"),
            _ = is_begun.recv() => {}
        }
        is_ended.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(
            caller.cancel.check().is_ok(),
            "the next request is another one"
        );
    }
}
