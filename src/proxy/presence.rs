//! The record of this proxy, which others read while it serves.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::storage::FileWork;
use super::trouble::Trouble;
use crate::kernel::process::Process;
use crate::project::Project;
use crate::project::counters::Counters;
use crate::project::joined::Joined;

/// This proxy's record in `.nb/proxies/`; [`Presence::withdraw`] removes it.
pub(super) struct Presence {
    project: Project,
    record: RefCell<Joined>,
    stage: Cell<Stage>,
    work: Rc<FileWork>,
    trouble: Trouble,
}

/// What becomes of the record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It is not written, and nothing has changed since.
    New,
    /// It is written as it is.
    Written,
    /// It has changed, and is written next. More changes are written with it.
    Changed,
    /// It is removed, for good.
    Withdrawn,
}

impl Presence {
    /// Prepares the record; [`Presence::update`] writes it. `work` is that of all records of this process: they
    /// may have the same file.
    pub(super) fn new(
        project: Project,
        session: String,
        front_end: String,
        work: Rc<FileWork>,
    ) -> Self {
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
            stage: Cell::new(Stage::New),
            work,
            trouble: Trouble::default(),
        }
    }

    /// Has the record written, where something in it has changed.
    pub(super) fn update(self: &Rc<Self>, clients: usize, counters: Option<Counters>) {
        let mut record = self.record.borrow_mut();
        let counters = counters.map(Box::new);
        let counters_change = counters.as_ref().is_some_and(|new| {
            record
                .counters
                .as_ref()
                .is_none_or(|old| !is_same(old, new))
        });
        if self.stage.get() == Stage::Written && record.clients == clients && !counters_change {
            return;
        }
        record.clients = clients;
        if let Some(counters) = counters {
            record.counters = Some(counters);
        }
        if matches!(self.stage.get(), Stage::New | Stage::Written) {
            self.stage.set(Stage::Changed);
            let me = Rc::clone(self);
            tokio::task::spawn_local(async move { me.write().await });
        }
    }

    async fn write(&self) {
        let turn = self.work.turn().await;
        if self.stage.get() != Stage::Changed {
            return;
        }
        self.stage.set(Stage::Written);
        let (project, record) = (self.project.clone(), self.record.borrow().clone());
        let written = turn.run(move || project.write_joined(&record)).await;
        match written.flatten() {
            Ok(()) => self.trouble.is_over("this proxy's record is written again"),
            Err(error) => {
                if self.stage.get() == Stage::Written {
                    // The next change has all of it.
                    self.stage.set(Stage::New);
                }
                let text = format!("cannot write this proxy's record: {error}");
                self.trouble.is(error.kind(), &text);
            }
        }
    }

    /// Removes the record, which is not written again.
    pub(super) async fn withdraw(&self) {
        self.stage.set(Stage::Withdrawn);
        let turn = self.work.turn().await;
        let (project, pid) = (self.project.clone(), self.record.borrow().pid);
        let _ = turn.run(move || project.remove_joined(pid)).await;
    }
}

/// Whether nothing but time has passed.
fn is_same(old: &Counters, new: &Counters) -> bool {
    *old == Counters {
        at: old.at,
        ..new.clone()
    }
}
