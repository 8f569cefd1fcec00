//! Notebook resolution: which notebook a command or the proxy means, and which kernel it uses.
//! Whether that kernel is alive is decided in [`super::liveness`].

use std::path::{Path, PathBuf};

use super::liveness::{Liveness, is_in_use, liveness, recorded_liveness};
use crate::hint;
use crate::hint::shell::quote;
use crate::hint::{Hint, Verb, nb};
use crate::kernel::variables::Variables;
use crate::project::{Project, ProjectError, Relation, Session, State, StateError, Status};

/// The notebook that a command means, and its session.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its project.
    pub project: Project,
    /// The key in `state.json` of the session whose kernel it uses: another notebook's if it shares
    /// that one's kernel. Locks, logs and the journal use this key.
    pub key: String,
    /// The notebook's own key, which is shown to people.
    pub notebook_key: String,
    /// The session, with this notebook's path.
    pub session: Session,
}

impl Target {
    /// Says whether the notebook shares the kernel of another one.
    pub fn is_shared(&self) -> bool {
        self.key != self.notebook_key
    }
}

/// Why no notebook was resolved.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The notebook is in no project.
    #[error("{} has no kernel", notebook.display())]
    NotOpen {
        /// The notebook.
        notebook: PathBuf,
    },
    /// No notebook is open here.
    #[error("no notebook is open in {}", folder.display())]
    NoneOpen {
        /// The folder that was searched.
        folder: PathBuf,
    },
    /// Several notebooks are possible and none was named.
    #[error("{}; name one", if *live { "several notebooks are open" } else { "no kernel runs here, and several notebooks had one" })]
    Several {
        /// Their paths.
        notebooks: Vec<PathBuf>,
        /// Whether their kernels are alive.
        live: bool,
    },
    /// The project's state is not usable.
    #[error(transparent)]
    State(#[from] StateError),
    /// The project's folder is unusable.
    #[error(transparent)]
    Project(#[from] ProjectError),
}

impl TargetError {
    /// Returns the commands that fix it; `command` is the one that was typed, without a notebook.
    pub fn hints(&self, command: &str) -> Vec<Hint> {
        match self {
            Self::NotOpen { notebook } => vec![nb(Verb::Open).notebook(notebook).into()],
            Self::NoneOpen { .. } => vec![open_one()],
            Self::Several { notebooks, .. } => notebooks
                .iter()
                .map(|notebook| hint![command.to_owned(), " -n ", &**notebook])
                .collect(),
            Self::State(_) | Self::Project(_) => Vec::new(),
        }
    }
}

/// Returns the hint to open some notebook.
pub fn open_one() -> Hint {
    let open = nb(Verb::Open).without_notebook();
    open.word("NOTEBOOK.ipynb").into()
}

/// Returns the note about a `.nb` that is not used, since this user's `nb` did not make it.
pub fn unused_folder(dir: &Path) -> String {
    let shown = dir.display();
    match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            format!("{shown} is not used: it cannot be read ({error})")
        }
        _ => format!(
            "{shown} was not made by your nb on this machine: it is not used; to move it away: mv {} {}",
            quote(dir),
            quote(&dir.with_file_name(".nb.old"))
        ),
    }
}

/// Returns the notebook that was named by an argument, or else by `NB_NOTEBOOK`.
pub fn named(argument: Option<&Path>, variables: &dyn Variables) -> Option<PathBuf> {
    argument
        .map(Path::to_owned)
        .or_else(|| variables.path("NB_NOTEBOOK"))
}

/// Returns the session that a command means: the named notebook's, or else the only live one of the
/// project at or above `folder`.
///
/// A named notebook's session may have any status; the caller checks what it needs.
pub async fn resolve(
    argument: Option<&Path>,
    folder: &Path,
    variables: &dyn Variables,
) -> Result<Target, TargetError> {
    match named(argument, variables) {
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

/// Returns the session of the kernel that a notebook uses, even if only the top-level fields of
/// `state.json` name it.
pub fn recorded(state: &State, project: &Project, key: &str) -> Option<Session> {
    state.session(key).or_else(|| {
        let last = state.last_opened()?;
        let same = project.key(&last.notebook) == project.key(&project.notebook(key));
        same.then_some(last)
    })
}

async fn only_live(folder: &Path) -> Result<Target, TargetError> {
    let none_open = || TargetError::NoneOpen {
        folder: folder.to_owned(),
    };
    let project = Project::find(folder).ok_or_else(none_open)?;
    let state = project.state()?;
    let mut sessions = Vec::new();
    for (key, session) in state.all() {
        let is_used = is_in_use(&session.status, &liveness(&session).await);
        sessions.push((key, session, is_used));
    }
    let Candidates { mut sessions, live } = candidates(&state, sessions);
    match sessions.len() {
        0 => Err(none_open()),
        1 => {
            let (notebook_key, session) = sessions.remove(0);
            Ok(Target {
                project,
                key: state.owner_key(&notebook_key),
                notebook_key,
                session,
            })
        }
        _ => Err(TargetError::Several {
            live,
            notebooks: sessions.into_iter().map(|(_, it)| it.notebook).collect(),
        }),
    }
}

/// Returns the key of the only session whose kernel is in use, or else of the one that was opened
/// last. It is for a front end, which cannot ask the user for the notebook. No kernel is asked.
pub fn only_or_last_opened(state: &State) -> Option<String> {
    let all = state.all().into_iter().map(|(key, session)| {
        let liveness = recorded_liveness(&session);
        // A kernel that is out of reach cannot be served.
        let is_used = is_in_use(&session.status, &liveness) && liveness != Liveness::OutOfReach;
        (key, session, is_used)
    });
    let found = candidates(state, all);
    if let ([(key, _)], true) = (&found.sessions[..], found.live) {
        return Some(key.clone());
    }
    let mut all = state.all();
    let last = state.last_opened();
    let is_last = |(_, session): &(String, Session)| {
        let last = last.as_ref();
        last.is_some_and(|last| last.notebook == session.notebook)
    };
    let found = all.iter().position(is_last).or(all.len().checked_sub(1))?;
    Some(all.swap_remove(found).0)
}

/// The sessions that are possible if no notebook is named.
struct Candidates {
    sessions: Vec<(String, Session)>,
    /// Whether their kernels are in use.
    live: bool,
}

/// Returns the candidates: sessions that are in use, or else all. If all of them share one kernel,
/// only its owner's session is returned. This is the rule.
fn candidates(state: &State, all: impl IntoIterator<Item = (String, Session, bool)>) -> Candidates {
    let all = all.into_iter();
    let (live, others): (Vec<_>, Vec<_>) = all.partition(|(_, _, is_used)| *is_used);
    let any_live = !live.is_empty();
    // If no kernel is alive, a single notebook can still be reported or opened again.
    let sessions = if any_live { live } else { others };
    let mut sessions: Vec<_> = sessions.into_iter().map(|(key, it, _)| (key, it)).collect();
    if any_live {
        let owners: Vec<_> = sessions
            .iter()
            .map(|(key, _)| state.owner_key(key))
            .collect();
        let is_one_kernel = owners.windows(2).all(|two| two[0] == two[1]);
        if is_one_kernel && sessions.iter().any(|(key, _)| *key == owners[0]) {
            sessions.retain(|(key, _)| *key == owners[0]);
        }
    }
    Candidates {
        sessions,
        live: any_live,
    }
}

/// Says whether `nb` may start a session's kernel on this machine.
pub fn may_be_started(session: &Session) -> bool {
    session.is_owned() && session.relation() != Relation::OtherHost
}

/// Returns another notebook of the project whose kernel is alive and could be shared.
pub fn other_live_notebook(state: &State, project: &Project, key: &str) -> Option<PathBuf> {
    let others = state.all().into_iter().map(|(_, session)| session);
    let mut live = others.filter(|session| {
        project.key(&session.notebook) != key
            && !matches!(session.status, Status::Stopped | Status::Died)
            && recorded_liveness(session).is_up()
    });
    live.next().map(|session| session.notebook)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::process::Process;
    use crate::project::{Backend, HostIdentity};

    /// Makes a state with a session for each notebook; the last one counts as opened last.
    fn state(sessions: Vec<(&str, Session)>) -> State {
        let mut state = State::default();
        for (key, session) in sessions {
            let notebook = PathBuf::from(format!("/p/{key}"));
            let connection_file = PathBuf::from(format!("/p/{key}.json"));
            let session = Session {
                notebook,
                connection_file,
                ..session
            };
            state.open(key, session);
        }
        state
    }

    fn session(status: Status, start_time: Option<u64>) -> Session {
        let mut session = Session::local(PathBuf::new());
        session.status = status;
        if let Some(start_time) = start_time {
            session.set_process(std::process::id(), start_time, None);
        }
        session
    }

    fn live() -> Session {
        session(Status::Live, Some(Process::current().start_time))
    }

    fn dead() -> Session {
        session(Status::Live, Some(Process::current().start_time + 1))
    }

    fn chosen(state: &State) -> Option<String> {
        only_or_last_opened(state)
    }

    #[test]
    fn several_live_kernels_leave_the_last_opened_one() {
        let both = state(vec![("a", live()), ("b", live())]);
        assert_eq!(chosen(&both).as_deref(), Some("b"));
        assert_eq!(
            chosen(&state(vec![("a", live()), ("b", dead())])).as_deref(),
            Some("a")
        );
        let attached = |pid| Session::attached("/p/a".into(), PathBuf::new(), Some(pid));
        let two = state(vec![
            ("a", attached(std::process::id())),
            ("b", attached(u32::MAX)),
        ]);
        assert_eq!(chosen(&two).as_deref(), Some("a"));
        assert_eq!(
            chosen(&state(vec![("a", dead()), ("b", dead())])).as_deref(),
            Some("b")
        );
        assert_eq!(chosen(&State::default()), None);
    }

    #[test]
    fn a_kernel_that_is_being_started_is_meant_and_one_of_another_host_is_not() {
        for status in [Status::Starting, Status::Restarting] {
            let starting = state(vec![("a", session(status, None)), ("b", dead())]);
            assert_eq!(chosen(&starting).as_deref(), Some("a"));
        }
        let mut other_host = live();
        if let Backend::Local(kernel) = &mut other_host.backend {
            kernel.host = HostIdentity {
                name: "there".to_owned(),
                boot_id: "b".to_owned(),
                ..HostIdentity::default()
            };
        }
        assert_eq!(recorded_liveness(&other_host), Liveness::OutOfReach);
        assert!(is_in_use(&other_host.status, &Liveness::OutOfReach));
        assert!(!may_be_started(&other_host));
        let both = state(vec![("a", live()), ("b", other_host)]);
        assert_eq!(chosen(&both).as_deref(), Some("a"));
    }

    #[test]
    fn notebooks_that_share_a_kernel_mean_that_of_its_owner() {
        let sharer = |owner: &str| Session {
            backend: Backend::shared_with(owner),
            ..session(Status::Live, None)
        };
        let shared = state(vec![("b", live()), ("a", sharer("b")), ("c", sharer("b"))]);
        assert_eq!(chosen(&shared).as_deref(), Some("b"));
        let two = state(vec![("b", live()), ("a", sharer("b")), ("c", live())]);
        assert_eq!(chosen(&two).as_deref(), Some("c"));
    }
}
