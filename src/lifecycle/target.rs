//! Which notebook a command means.

use std::path::{Path, PathBuf};

use crate::kernel::shell::quote;
use crate::kernel::variables::Variables;
use crate::project::{Project, ProjectError, Session, State, StateError};

use super::life;

/// The notebook that a command means, and what its project remembers of it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its project.
    pub project: Project,
    /// The key in `state.json` of the session whose kernel it uses: another notebook's where it
    /// shares that one's kernel. Locks, logs and the journal go by it.
    pub key: String,
    /// The notebook's own key, by which people know it.
    pub notebook_key: String,
    /// The session, with this notebook's path.
    pub session: Session,
}

/// Why no notebook is meant.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The notebook is in no project.
    #[error("{} has no kernel", notebook.display())]
    NotOpen {
        /// The notebook.
        notebook: PathBuf,
    },
    /// Nothing is open here.
    #[error("no notebook is open in {}", folder.display())]
    NoneOpen {
        /// Where was looked.
        folder: PathBuf,
    },
    /// Several are meant and none was named.
    #[error("{}; name one", if *live { "several notebooks are open" } else { "no kernel runs here, and several notebooks had one" })]
    Several {
        /// Their paths.
        notebooks: Vec<PathBuf>,
        /// Whether their kernels live.
        live: bool,
    },
    /// The project's memory is unusable.
    #[error(transparent)]
    State(#[from] StateError),
    /// The project's folder is unusable.
    #[error(transparent)]
    Project(#[from] ProjectError),
}

impl TargetError {
    /// Returns the commands that mend it; `words` is the one that was typed, without a notebook.
    pub fn hints(&self, words: &str) -> Vec<String> {
        match self {
            Self::NotOpen { notebook } => vec![format!("nb open {}", quote(notebook))],
            Self::NoneOpen { .. } => vec!["nb open NOTEBOOK.ipynb".to_owned()],
            Self::Several { notebooks, .. } => notebooks
                .iter()
                .map(|notebook| format!("{words} -n {}", quote(notebook)))
                .collect(),
            Self::State(_) | Self::Project(_) => Vec::new(),
        }
    }
}

/// Returns the notebook that was named: on the command line, else by `NB_NOTEBOOK`.
pub fn named(given: Option<&Path>, variables: &dyn Variables) -> Option<PathBuf> {
    given
        .map(Path::to_owned)
        .or_else(|| variables.path("NB_NOTEBOOK"))
}

/// Returns the session that a command means: the named notebook's, else the only live one of the
/// project at or above `folder`.
///
/// A named notebook's session may be of any status; whoever uses it says what it needs.
pub async fn resolve(
    given: Option<&Path>,
    folder: &Path,
    variables: &dyn Variables,
) -> Result<Target, TargetError> {
    match named(given, variables) {
        Some(notebook) => of_notebook(&notebook),
        None => only_live(folder).await,
    }
}

fn of_notebook(notebook: &Path) -> Result<Target, TargetError> {
    let not_open = || TargetError::NotOpen {
        notebook: notebook.to_owned(),
    };
    let project = Project::find(notebook).ok_or_else(not_open)?;
    let key = project.key(notebook);
    let state = project.state()?;
    let session = recorded(&state, &project, &key).ok_or_else(not_open)?;
    Ok(Target {
        project,
        key: state.owner_key(&key),
        notebook_key: key,
        session,
    })
}

/// Returns what is known of the kernel that a notebook uses, also where only the top-level fields
/// tell of it.
pub(crate) fn recorded(state: &State, project: &Project, key: &str) -> Option<Session> {
    state.session(key).or_else(|| {
        let last = state.last_opened()?;
        let same = project.key(&last.notebook) == project.key(&project.notebook(key));
        same.then_some(last)
    })
}

async fn only_live(folder: &Path) -> Result<Target, TargetError> {
    let none = || TargetError::NoneOpen {
        folder: folder.to_owned(),
    };
    let project = Project::find(folder).ok_or_else(none)?;
    let mut live: Vec<Target> = Vec::new();
    let mut others = Vec::new();
    let state = project.state()?;
    for (notebook_key, session) in state.all() {
        let target = Target {
            project: project.clone(),
            key: state.owner_key(&notebook_key),
            notebook_key,
            session,
        };
        if life::is_in_use(&target.session).await {
            live.push(target);
        } else {
            others.push(target);
        }
    }
    // Notebooks that share a kernel mean the same one: it is its owner's.
    let shared = |target: &Target| target.key != target.notebook_key;
    let owners: Vec<String> = live.iter().map(|target| target.key.clone()).collect();
    if owners.windows(2).all(|two| two[0] == two[1]) && !live.iter().all(shared) {
        live.retain(|target| !shared(target));
    }
    let any_live = !live.is_empty();
    // With nothing live, the only notebook there is can still be told about or opened again.
    let mut meant = if live.is_empty() { others } else { live };
    match meant.len() {
        0 => Err(none()),
        1 => Ok(meant.remove(0)),
        _ => Err(TargetError::Several {
            live: any_live,
            notebooks: meant
                .into_iter()
                .map(|target| target.session.notebook)
                .collect(),
        }),
    }
}
