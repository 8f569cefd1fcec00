//! The front ends that are joined to a project's kernels.

use jiff::Timestamp;

use crate::kernel::process::Process;
use crate::project::event::RunningExecution;
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
pub fn retain_waiting(waiting: &mut Vec<RunningExecution>, joined: &[JoinedFrontEnd]) {
    let now = Timestamp::now();
    waiting.retain(|cell| {
        let is_of = |front_end: &JoinedFrontEnd| {
            cell.by.as_deref() == Some(&*front_end.by()) && front_end.was_there(cell.since, now)
        };
        joined.iter().any(is_of)
    });
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::json;

    use super::*;
    use crate::project::event::RunningExecution;

    #[test]
    fn a_cell_waits_while_its_front_end_is_joined() {
        let now = Timestamp::now();
        let at = |minutes| now + SignedDuration::from_mins(minutes);
        let joined = |front_end: &str, minutes| -> JoinedFrontEnd {
            let record = json!({
                "pid": 1, "start_time": 1, "boot_id": "b", "front_end": front_end,
                "since": at(minutes),
            });
            serde_json::from_value(record).unwrap()
        };
        let waits = |joined: &[JoinedFrontEnd]| {
            let request = RunningExecution {
                notebook: "a.ipynb".to_owned(),
                msg_id: "1".to_owned(),
                by: Some("human (VS Code)".to_owned()),
                cell: None,
                code: None,
                job: None,
                store_history: true,
                since: at(-5),
                prompt: None,
            };
            let mut waiting = vec![request];
            retain_waiting(&mut waiting, joined);
            !waiting.is_empty()
        };
        assert!(waits(&[joined("JupyterLab", -1), joined("VS Code", -9)]));
        assert!(!waits(&[]) && !waits(&[joined("JupyterLab", -9)]));
        // The proxy that has the cell was killed, and a later one of the same front end runs.
        assert!(!waits(&[joined("VS Code", -1)]));
        // The clock was set back after the front end had joined.
        assert!(waits(&[joined("VS Code", 60)]));
    }
}
