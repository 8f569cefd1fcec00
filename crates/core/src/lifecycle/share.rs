//! Shares a kernel between notebooks.

use std::path::Path;
use std::time::Duration;

use super::liveness::{Liveness, liveness};
use super::open_error::{OpenError, ShareError};
use super::start::{LockedSession, replace};
use crate::kernel::process::Process;
use crate::kernel::process::connection::KernelFiles;
use crate::project::{Backend, Project, Session, Status};

/// Returns the owner of the kernel that `notebook` will have if it asks for that of `other`: its
/// key in the project of both, and its session.
pub(super) fn owner(notebook: &Path, other: &Path) -> Result<(String, Option<Session>), OpenError> {
    let unknown = || ShareError::Unknown {
        other: other.to_owned(),
    };
    let other_project = Project::find(other).ok_or_else(unknown)?;
    let state = other_project.state()?;
    let other_key = other_project.key(other);
    if !state.sessions.contains_key(&other_key) && !other.exists() {
        return Err(unknown().into());
    }
    let owner = state.partner(&other_key);
    let session = state.sessions.get(&owner).cloned();
    let own_project =
        Project::find(notebook).filter(|it| it.state_file() == other_project.state_file());
    if own_project.is_none() {
        return Err(ShareError::OtherProject {
            notebook: notebook.to_owned(),
            other: other.to_owned(),
            connection_file: session.map(|session| session.connection_file),
        }
        .into());
    }
    let (notebook, other) = (notebook.to_owned(), other.to_owned());
    match other_project.key(&notebook) {
        key if key == other_key => Err(ShareError::Itself { notebook }.into()),
        key if key == owner => Err(ShareError::Circle { notebook, other }.into()),
        _ => Ok((owner, session)),
    }
}

/// Returns the sessions whose kernels run although their notebooks' files were moved or deleted.
pub(super) fn orphans(project: &Project) -> Vec<String> {
    let sessions = project.state().map(|state| state.sessions);
    let sessions = sessions.unwrap_or_default().into_iter();
    let orphans = sessions.filter(|(key, session)| {
        let is_own = session.as_local().is_some() && session.status == Status::Live;
        let runs = || Process::recorded(session).is_some_and(|process| process.is_alive());
        is_own && is_gone(project, key) && runs()
    });
    orphans.map(|(key, _)| key).collect()
}

/// Says whether it is certain that a notebook's file does not exist.
fn is_gone(project: &Project, key: &str) -> bool {
    matches!(project.notebook(key).try_exists(), Ok(false))
}

/// Records that a notebook shares the kernel of `owner`, which is open.
pub(super) async fn join(
    project: &Project,
    key: &str,
    owner: &str,
    timeout: Duration,
) -> Result<(), OpenError> {
    let locked = LockedSession::wait(project, key, timeout).await?;
    let notebook = project.notebook(key);
    ensure_no_own_kernel(&locked, project.state()?.sessions.get(key)).await?;
    let file = KernelFiles::fresh(project).map_err(|source| OpenError::Lock {
        dir: project.dir().to_owned(),
        source,
    })?;
    project.update(|state| {
        let before = state.sessions.get(key).cloned();
        let old_file = before.as_ref().map(|before| before.connection_file.clone());
        // If the notebook gets a kernel of its own again, that will be the next generation.
        let had_one = before
            .as_ref()
            .is_some_and(|before| before.process().is_some() || before.is_attached());
        let mut session = before.unwrap_or_else(|| Session::local(notebook.clone()));
        session.generation += u64::from(had_one);
        if session.is_attached() {
            session.kernelspec = None;
        }
        // A later kernel of its own starts from the spec of its last one, or else of the shared one.
        let shared = state.sessions.get(owner);
        let shared = shared.and_then(|session| session.kernelspec.clone());
        let session = Session {
            // This file is never made: the kernel is described by the owner's session.
            connection_file: file.connection_file().to_owned(),
            kernelspec: session.kernelspec.or(shared),
            backend: Backend::shared_with(owner),
            started_at: None,
            status: Status::Live,
            ended: None,
            kernel_info: None,
            ..session
        };
        replace(state, key, session, old_file.as_deref());
    })?;
    Ok(())
}

/// Makes sure that a session has no kernel of its own; fails if one runs.
pub(super) async fn ensure_no_own_kernel(
    locked: &LockedSession<'_>,
    recorded: Option<&Session>,
) -> Result<(), OpenError> {
    let Some(session) = recorded.filter(|session| !session.is_attached()) else {
        return Ok(());
    };
    match liveness(session).await {
        Liveness::Own(process) if session.status == Status::Stopped => {
            // The process that shut it down was killed before the kernel had ended.
            locked.end(&process, Duration::ZERO).await;
        }
        Liveness::Own(_) | Liveness::Foreign | Liveness::Disconnected => {
            let notebook = session.notebook.clone();
            return Err(ShareError::HasOwn { notebook }.into());
        }
        Liveness::OutOfReach => return Err(OpenError::out_of_reach(session)),
        Liveness::Dead => {}
    }
    KernelFiles::of(&session.connection_file).remove(&locked.variables);
    Ok(())
}

/// Stops sharing a kernel, which continues to run; the record names its owner.
pub(super) fn detach(session: &mut Session, owner: &str, by: &str) {
    session.ended = Some(session.ends_now(&format!("let go of the kernel of {owner}"), Some(by)));
    session.status = Status::Stopped;
}
