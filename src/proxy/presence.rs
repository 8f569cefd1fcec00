//! What others may read of this proxy while it serves.

use std::cell::{Cell, RefCell};

use super::trouble::Trouble;
use crate::kernel::process::Process;
use crate::project::Project;
use crate::project::counters::Counters;
use crate::project::joined::Joined;

/// This proxy's record in `.nb/proxies/`; removed when it is dropped.
pub(super) struct Presence {
    project: Project,
    record: RefCell<Joined>,
    /// Whether it was ever written.
    is_written: Cell<bool>,
    trouble: Trouble,
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
            counters: None,
            other: serde_json::Map::new(),
        };
        Self {
            project,
            record: RefCell::new(record),
            is_written: Cell::new(false),
            trouble: Trouble::default(),
        }
    }

    /// Writes the record, where something in it has changed.
    pub(super) fn tell(&self, clients: usize, counters: Option<Counters>) {
        let mut record = self.record.borrow_mut();
        let counters = counters.map(Box::new);
        let counters_change = counters.as_ref().is_some_and(|new| {
            record
                .counters
                .as_ref()
                .is_none_or(|old| !is_same(old, new))
        });
        if self.is_written.replace(true) && record.clients == clients && !counters_change {
            return;
        }
        record.clients = clients;
        if let Some(counters) = counters {
            record.counters = Some(counters);
        }
        match self.project.write_joined(&record) {
            Ok(()) => self.trouble.is_over("who is joined is written again"),
            Err(error) => {
                let text = format!("cannot write who is joined: {error}");
                self.trouble.is(error.kind(), &text);
            }
        }
    }
}

/// Whether nothing but time has passed.
fn is_same(old: &Counters, new: &Counters) -> bool {
    *old == Counters {
        at: old.at,
        ..new.clone()
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let _ = self.project.remove_joined(self.record.borrow().pid);
    }
}
