//! What others may read of this proxy while it serves.

use std::cell::Cell;

use crate::kernel::process::Process;
use crate::project::Project;
use crate::project::joined::Joined;

/// This proxy's record in `.nb/proxies/`; removed when it is dropped.
pub(super) struct Presence {
    project: Project,
    record: Joined,
    clients: Cell<Option<usize>>,
}

impl Presence {
    /// Prepares the record; [`Presence::tell`] writes it.
    pub(super) fn new(project: Project, session: String, front_end: String) -> Self {
        let process = Process::current();
        let record = Joined {
            pid: process.pid,
            start_time: process.start_time,
            boot_id: process.boot_id,
            session: Some(session),
            front_end,
            since: jiff::Timestamp::now(),
            clients: 0,
            other: serde_json::Map::new(),
        };
        Self {
            project,
            record,
            clients: Cell::new(None),
        }
    }

    /// Writes the record, where the number of clients has changed.
    pub(super) fn tell(&self, clients: usize) {
        if self.clients.replace(Some(clients)) == Some(clients) {
            return;
        }
        let record = Joined {
            clients,
            ..self.record.clone()
        };
        if let Err(error) = self.project.write_joined(&record) {
            tracing::warn!("cannot write who is joined: {error}");
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let _ = self.project.remove_joined(self.record.pid);
    }
}

/// Returns what kind of front end launched this process, as far as its environment tells.
pub(super) fn front_end(has: impl Fn(&str) -> bool) -> &'static str {
    // VS Code's extension host passes its own VSCODE_ variables on; jupyter_server sets JPY_ ones.
    if [
        "VSCODE_PID",
        "VSCODE_CWD",
        "VSCODE_IPC_HOOK",
        "VSCODE_NLS_CONFIG",
    ]
    .into_iter()
    .any(&has)
    {
        "VS Code"
    } else if has("JPY_SESSION_NAME") {
        "JupyterLab"
    } else if has("JPY_PARENT_PID") {
        "Jupyter"
    } else {
        "a Jupyter client"
    }
}

#[cfg(test)]
mod tests {
    use super::front_end;

    #[test]
    fn front_ends_are_told_apart_by_what_they_set() {
        let with = |names: &'static [&str]| front_end(|name| names.contains(&name));
        assert_eq!(with(&["VSCODE_PID", "JPY_PARENT_PID"]), "VS Code");
        assert_eq!(with(&["JPY_SESSION_NAME", "JPY_PARENT_PID"]), "JupyterLab");
        assert_eq!(with(&["JPY_PARENT_PID"]), "Jupyter");
        assert_eq!(with(&[]), "a Jupyter client");
    }
}
