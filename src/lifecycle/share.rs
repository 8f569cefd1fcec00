//! Notebooks that use another notebook's kernel.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::life::{Life, life, unseen};
use super::open_error::OpenError;
use super::start::{Held, empty_session};
use crate::kernel::process::Process;
use crate::kernel::process::connection::KernelFiles;
use crate::kernel::shell::quote;
use crate::project::{Place, Project, Session, Status};

/// Why a notebook cannot share another's kernel.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// It is the same notebook.
    #[error("{} cannot share a kernel with itself", notebook.display())]
    Itself {
        /// The notebook.
        notebook: PathBuf,
    },
    /// The other one shares this one's kernel.
    #[error("{} already shares the kernel of {}", other.display(), notebook.display())]
    Circle {
        /// The notebook that is opened.
        notebook: PathBuf,
        /// The one whose kernel was asked for.
        other: PathBuf,
    },
    /// Nothing is known of the other one.
    #[error("{} has no kernel and does not exist", other.display())]
    Unknown {
        /// The one whose kernel was asked for.
        other: PathBuf,
    },
    /// They are in different projects.
    #[error("{} is not in the project of {}", notebook.display(), other.display())]
    OtherProject {
        /// The notebook that is opened.
        notebook: PathBuf,
        /// The one whose kernel was asked for.
        other: PathBuf,
        /// That kernel's connection file.
        connection_file: Option<PathBuf>,
    },
    /// It has a kernel, with variables, that would be left behind.
    #[error("{} has a kernel of its own, which runs", notebook.display())]
    HasOwn {
        /// The notebook that is opened.
        notebook: PathBuf,
    },
}

impl ShareError {
    /// Returns the command that mends it.
    pub fn hint(&self) -> String {
        match self {
            Self::Itself { notebook } | Self::Circle { notebook, .. } => {
                format!("nb open {}", quote(notebook))
            }
            Self::Unknown { other } => format!("nb open {}", quote(other)),
            Self::OtherProject {
                notebook,
                connection_file: Some(file),
                ..
            } => format!("nb open {} --attach {}", quote(notebook), quote(file)),
            Self::OtherProject { other, .. } => {
                format!("start it first: nb open {}", quote(other))
            }
            Self::HasOwn { notebook } => {
                format!("end it first: nb shutdown {}", quote(notebook))
            }
        }
    }
}

/// Returns whose kernel `notebook` will have when it asks for that of `other`: the key in the
/// project of both, and what is known of that kernel.
pub(super) fn owner(notebook: &Path, other: &Path) -> Result<(String, Option<Session>), OpenError> {
    let unknown = || ShareError::Unknown {
        other: other.to_owned(),
    };
    let there = Project::find(other).ok_or_else(unknown)?;
    let state = there.state()?;
    let other_key = there.key(other);
    if !state.sessions.contains_key(&other_key) && !other.exists() {
        return Err(unknown().into());
    }
    let owner = state.partner(&other_key);
    let session = state.sessions.get(&owner).cloned();
    let here = Project::find(notebook).filter(|here| here.state_file() == there.state_file());
    if here.is_none() {
        return Err(ShareError::OtherProject {
            notebook: notebook.to_owned(),
            other: other.to_owned(),
            connection_file: session.map(|session| session.connection_file),
        }
        .into());
    }
    let (notebook, other) = (notebook.to_owned(), other.to_owned());
    match there.key(&notebook) {
        key if key == other_key => Err(ShareError::Itself { notebook }.into()),
        key if key == owner => Err(ShareError::Circle { notebook, other }.into()),
        _ => Ok((owner, session)),
    }
}

/// Returns the sessions whose kernel runs while their notebook's file is gone: it was moved or deleted.
pub(super) fn orphans(project: &Project) -> Vec<String> {
    let sessions = project.state().map(|state| state.sessions);
    let sessions = sessions.unwrap_or_default().into_iter();
    let orphans = sessions.filter(|(key, session)| {
        let is_own = session.kernel_of.is_none() && session.status == Status::Live;
        let runs = || Process::recorded(session).is_some_and(|process| process.is_alive());
        is_own && is_gone(project, key) && runs()
    });
    orphans.map(|(key, _)| key).collect()
}

/// Says whether a notebook's file is certainly not there.
fn is_gone(project: &Project, key: &str) -> bool {
    matches!(project.notebook(key).try_exists(), Ok(false))
}

/// Records that a notebook shares the kernel of `owner`, which is open.
pub(super) async fn join(
    project: &Project,
    key: &str,
    owner: &str,
    patience: Duration,
) -> Result<(), OpenError> {
    let held = Held::wait(project, key, patience).await?;
    let notebook = project.notebook(key);
    leave(&held, project.state()?.sessions.get(key)).await?;
    let file = KernelFiles::fresh(project).map_err(|source| OpenError::Lock {
        dir: project.dir().to_owned(),
        source,
    })?;
    project.update(|state| {
        let before = state.sessions.get(key).cloned();
        let old_file = before.as_ref().map(|before| before.connection_file.clone());
        // A kernel of its own, if it ever gets one again, is the next one.
        let had_one = before.as_ref().is_some_and(|before| {
            before.pid.is_some() || !before.owned && before.kernel_of.is_none()
        });
        let mut session = before.unwrap_or_else(|| empty_session(&notebook));
        session.generation += u64::from(had_one);
        if !session.owned {
            session.kernelspec = None;
        }
        // By what it had or else has now the notebook is known to others, see `rename`.
        let shared = state.sessions.get(owner);
        let shared = shared.and_then(|session| session.kernelspec.clone());
        let session = Session {
            // Never made: what is known of this session's kernel is the owner's.
            connection_file: file.connection_file().to_owned(),
            kernelspec: session.kernelspec.or(shared),
            pid: None,
            start_time: None,
            place: Place::here(),
            started_at: None,
            owned: true,
            status: Status::Live,
            ended: None,
            kernel_info: None,
            kernel_of: Some(owner.to_owned()),
            ..session
        };
        state.sessions.insert(key.to_owned(), session);
        // What names the session's old file must not look like somebody else's kernel.
        if state.connection_file.is_some()
            && state.connection_file == old_file
            && let Some(session) = state.session(key)
        {
            state.mirror(&session);
        }
    })?;
    Ok(())
}

/// Makes sure that a session has no kernel of its own: one that runs is not given up.
pub(super) async fn leave(held: &Held<'_>, recorded: Option<&Session>) -> Result<(), OpenError> {
    let Some(session) = recorded.filter(|session| session.owned) else {
        return Ok(());
    };
    match life(session).await {
        Life::Own(process) if session.status == Status::Stopped => {
            // Whoever shut it down was killed before it was gone.
            held.end(&process, Duration::ZERO).await;
        }
        Life::Own(_) | Life::Foreign => {
            let notebook = session.notebook.clone();
            return Err(ShareError::HasOwn { notebook }.into());
        }
        Life::Elsewhere => return Err(unseen(session)),
        Life::Gone => {}
    }
    KernelFiles::of(&session.connection_file).remove(&held.variables);
    Ok(())
}

/// Lets go of a shared kernel, which goes on; the record says with whom it was shared.
pub(super) fn let_go(session: &mut Session, owner: &str, by: &str) {
    session.ended = Some(super::shutdown::ended(
        session,
        &format!("let go of the kernel of {owner}"),
        Some(by),
    ));
    session.status = Status::Stopped;
}
