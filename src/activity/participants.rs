//! The front ends that are joined to a project's kernels.

use crate::kernel::process::Process;
use crate::project::event::WaitingCell;
use crate::project::joined::JoinedFrontEnd;
use crate::project::{Project, boot_id, pid_namespace};

/// Returns the records of the proxies that run.
pub fn joined(project: &Project) -> Vec<JoinedFrontEnd> {
    joined_and_killed(project).0
}

/// Returns the records of the proxies that run, and of those of this boot and pid namespace that were killed.
pub fn joined_and_killed(project: &Project) -> (Vec<JoinedFrontEnd>, Vec<JoinedFrontEnd>) {
    let (alive, mut killed): (Vec<_>, Vec<_>) = project
        .list_joined()
        .into_iter()
        .partition(|joined| Process::joined(joined).is_alive());
    killed.retain(is_of_here);
    (alive, killed)
}

/// Says whether a proxy belongs to this boot and pid namespace: only then can this process find out
/// whether it runs.
pub fn is_of_here(joined: &JoinedFrontEnd) -> bool {
    let own_namespace = pid_namespace();
    let is_own = joined.pid_namespace.is_empty() || joined.pid_namespace == own_namespace;
    is_own && joined.boot_id == boot_id()
}

/// Returns the proxies that serve a session's kernel now, for any of the notebooks that share it.
pub fn joined_to(project: &Project, key: &str) -> Vec<JoinedFrontEnd> {
    let found = joined(project);
    if found.is_empty() {
        return found;
    }
    let state = project.state().unwrap_or_default();
    let serves = |joined: &JoinedFrontEnd| {
        let session = joined.session.as_deref();
        session.is_some_and(|session| state.owner_key(session) == key)
    };
    found.into_iter().filter(serves).collect()
}

/// Removes the cells whose proxy has ended: these wait no more.
pub fn retain_waiting(waiting: &mut Vec<WaitingCell>, joined: &[JoinedFrontEnd]) {
    waiting.retain(|cell| {
        let is_of = |front_end: &JoinedFrontEnd| {
            cell.request.by.as_deref() == Some(&*front_end.by())
                && cell.request.since >= front_end.since
        };
        joined.iter().any(is_of)
    });
}
