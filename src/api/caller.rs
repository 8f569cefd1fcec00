//! What a request carries beside its own arguments: who makes it, where, and with which settings.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::problem::{Problem, ProblemKind, causes};
use crate::activity::actor::Actor;
use crate::editing::notebook_file::NotebookFile;
use crate::editing::transaction;
use crate::execution::lost::{self, Lost};
use crate::kernel::shell::quote;
use crate::kernel::variables::ProcessVariables;
use crate::lifecycle::target::{self, Target, TargetError};
use crate::project::{Config, ConfigError, Project};

/// How long a request waits for a kernel where nothing says it: agents' shells end calls without a word.
pub const PATIENCE: Duration = Duration::from_secs(45);

/// How many notebooks of the working directory are suggested.
const MOST_NEAR: usize = 5;

/// Who makes one request, where, and with which settings.
///
/// An adapter makes one for each request: what others did meanwhile is told once for each. Clones are
/// the same caller.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Who acts.
    pub actor: Actor,
    /// The working directory. Relative paths of requests count from the process's own.
    pub here: PathBuf,
    /// The notebook that is meant where a request names none.
    pub notebook: Option<PathBuf>,
    /// The project that is meant: the named notebook's, else the one at or above the working directory.
    pub project: Option<Project>,
    /// For how many seconds to wait where a request does not say it; 0 is for ever.
    pub timeout: Option<f64>,
    /// The request as a command, without a notebook: hints repeat it.
    pub command: String,
    /// Is told what a request waits for, as it happens.
    pub tell: fn(&str),
    pub(super) concerned: Arc<OnceLock<Concerned>>,
    pub(super) lost: Arc<OnceLock<Vec<Lost>>>,
}

/// The notebook that a request acts on.
#[derive(Clone, Debug)]
pub struct Concerned {
    /// Its project.
    pub project: Project,
    /// Its own key there.
    pub key: String,
}

/// What is known of a caller before the project's settings are read.
#[derive(Clone, Debug)]
pub struct Given {
    /// The notebook among the request's own words.
    pub in_words: Option<PathBuf>,
    /// The notebook that is named beside them.
    pub notebook: Option<PathBuf>,
    /// The name to act under.
    pub name: Option<String>,
    /// Whether the answer goes to a terminal.
    pub on_terminal: bool,
    /// The working directory.
    pub here: PathBuf,
    /// See [`Caller::command`].
    pub command: String,
    /// See [`Caller::tell`].
    pub tell: fn(&str),
}

impl Caller {
    /// Makes a caller, with the settings of the notebook's project.
    ///
    /// # Errors
    /// The settings cannot be read.
    pub fn of(given: Given) -> Result<Self, Problem> {
        let word = given.in_words.or_else(|| given.notebook.clone());
        let named = target::named(word.as_deref(), &ProcessVariables);
        let project = Project::find(named.as_deref().unwrap_or(&given.here));
        if let Some(project) = &project {
            let checked = project.check_version();
            checked.map_err(|error| Problem::new(ProblemKind::Failed, causes(&error)))?;
            if let Some(notice) = project.take_notice() {
                (given.tell)(&notice);
            }
        }
        let settings = match &project {
            Some(project) => project.settings(),
            None => Config::default().with(|name| std::env::var_os(name)),
        };
        let settings = settings.map_err(|error| {
            let kind = match error {
                ConfigError::Variable { .. } => ProblemKind::Usage,
                _ => ProblemKind::Failed,
            };
            Problem::new(kind, causes(&error))
        })?;
        let name = given.name.as_deref();
        let configured = settings.name.as_deref();
        let actor = Actor::of(name, &ProcessVariables, configured, given.on_terminal);
        // A variable's path counts from the working directory, which whoever resolves it knows; the
        // file's from its project.
        let configured = settings.notebook.filter(|_| named.is_none());
        let root = project.as_ref().map(Project::root);
        let configured = root.and_then(|root| Some(root.join(configured?)));
        Ok(Self {
            actor,
            here: given.here,
            notebook: given.notebook.or(configured),
            project,
            timeout: settings.timeout,
            command: given.command,
            tell: given.tell,
            concerned: Arc::default(),
            lost: Arc::default(),
        })
    }

    /// Returns the id under which the caller acts; people read [`Actor::name`].
    pub fn by(&self) -> &str {
        &self.actor.id
    }

    /// Returns the notebook that the request acts on, once that is known.
    pub fn concerned(&self) -> Option<&Concerned> {
        self.concerned.get()
    }

    /// Sets the notebook that the request acts on: what others did there belongs to the answer.
    pub(crate) fn concerns(&self, project: &Project, key: &str) {
        let _ = self.concerned.set(Concerned {
            project: project.clone(),
            key: key.to_owned(),
        });
    }

    /// Notices recorders that were killed in the caller's project, and has others go on with what they
    /// recorded.
    pub async fn notice(&self) {
        if let Some(project) = &self.project {
            let _ = self.lost.set(lost::notice(project, self.by()).await);
        }
    }

    /// Returns the session that a request means.
    pub(crate) async fn target(&self, notebook: Option<PathBuf>) -> Result<Target, Problem> {
        let given = notebook.or_else(|| self.notebook.clone());
        let target = target::resolve(given.as_deref(), &self.here, &ProcessVariables)
            .await
            .map_err(|error| Problem::of_target(&error, &self.command))?;
        self.concerns(&target.project, &target.notebook_key);
        Ok(target)
    }

    /// Returns the notebook that a request means: the one that it names, else what `-n`, `NB_NOTEBOOK`
    /// or the settings name, else the only open one.
    ///
    /// It needs no kernel: that no notebook is meant is an error of the request.
    pub(crate) async fn page(&self, notebook: Option<PathBuf>) -> Result<NotebookFile, Problem> {
        let named = notebook.or_else(|| target::named(self.notebook.as_deref(), &ProcessVariables));
        let path = match named {
            Some(path) => path,
            None => match target::resolve(None, &self.here, &ProcessVariables).await {
                Ok(target) => target.session.notebook,
                Err(error @ TargetError::NoneOpen { .. }) => {
                    let message = format!("no notebook is named, and {}", causes(&error));
                    let problem = Problem::new(ProblemKind::Usage, message);
                    let hints = near(&self.here, &self.command).into_iter();
                    return Err(hints.fold(problem, Problem::hint));
                }
                Err(error) => return Err(Problem::of_target(&error, &self.command)),
            },
        };
        let page = NotebookFile::of(&path)?;
        for note in transaction::finish(&page) {
            (self.tell)(&format!("{}: {note}", page.path.display()));
        }
        self.concerns(&page.project, &page.key);
        Ok(page)
    }

    /// Returns the project of a notebook, or the one that the caller means.
    pub(crate) fn project_of(&self, notebook: Option<&Path>) -> Result<Project, Problem> {
        let from = notebook.or(self.notebook.as_deref()).unwrap_or(&self.here);
        Project::find(from).ok_or_else(|| {
            let text = format!("no notebook was opened in {}", from.display());
            Problem::new(ProblemKind::Usage, text).hint("nb open NOTEBOOK.ipynb")
        })
    }

    /// Returns for how long to wait for a kernel; 0 seconds are for ever.
    pub(crate) fn patience(&self, given: Option<f64>) -> Result<Duration, Problem> {
        let for_ever = Duration::from_secs(u64::from(u32::MAX));
        Ok(match self.wait(given)? {
            Some(wait) => wait.unwrap_or(for_ever),
            None => PATIENCE,
        })
    }

    /// Returns how long the caller wants to wait: none where nothing is said, `Some(None)` for ever.
    #[allow(
        clippy::option_option,
        reason = "nothing said and no limit are different"
    )]
    pub(crate) fn wait(&self, given: Option<f64>) -> Result<Option<Option<Duration>>, Problem> {
        let Some(seconds) = given.or(self.timeout) else {
            return Ok(None);
        };
        if seconds == 0.0 {
            return Ok(Some(None));
        }
        match Duration::try_from_secs_f64(seconds) {
            Ok(wait) => Ok(Some(Some(wait))),
            Err(_) => {
                let text = format!("--timeout {seconds} is no number of seconds");
                Err(Problem::new(ProblemKind::Usage, text))
            }
        }
    }
}

tokio::task_local! {
    /// Set where a request has its thread to itself.
    static THREAD_IS_ITS_OWN: ();
}

/// Does a request that has its thread to itself, as that of a command that ends with it: work that may wait
/// for a disk or a lock is done there. It needs no other thread, which some sandboxes do not allow.
pub async fn on_this_thread<T>(request: impl Future<Output = T>) -> T {
    THREAD_IS_ITS_OWN.scope((), request).await
}

/// Runs work that may wait for a disk or a lock, on one of tokio's threads for it. Where its caller
/// goes, it is done to its end all the same.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    if THREAD_IS_ITS_OWN.try_with(|()| ()).is_ok() {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(Problem::failed("finish the work", &error)),
    }
}

/// Returns the command with each of the folder's notebooks, or with none in particular.
fn near(folder: &Path, command: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    let mut notebooks: Vec<_> = names
        .filter(|name| Path::new(name).extension().is_some_and(|it| it == "ipynb"))
        .map(|name| format!("{command} -n {}", quote(Path::new(&name))))
        .collect();
    notebooks.sort();
    notebooks.truncate(MOST_NEAR);
    if notebooks.is_empty() {
        notebooks.push(format!("{command} -n NOTEBOOK.ipynb"));
    }
    notebooks
}
