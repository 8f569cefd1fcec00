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
            pid_namespace: crate::project::pid_namespace(),
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
