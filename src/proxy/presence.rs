//! The record of this proxy, which other processes read while it serves.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::failure_log::FailureLog;
use super::storage::FileWork;
use crate::kernel::process::Process;
use crate::project::FollowedProject;
use crate::project::counters::Counters;
use crate::project::joined::JoinedFrontEnd;

/// This proxy's record in `.nb/proxies/`; [`Presence::withdraw`] removes it.
pub(super) struct Presence {
    project: Arc<FollowedProject>,
    record: RefCell<JoinedFrontEnd>,
    stage: Cell<RecordStage>,
    work: Rc<FileWork>,
    failures: FailureLog,
}

/// Whether the record is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RecordStage {
    /// It is not written, and has not changed since the last attempt.
    New,
    /// It is written in its present state.
    Written,
    /// It has changed, and a write is pending, which includes later changes.
    Changed,
    /// It is removed and not written again.
    Withdrawn,
}

impl Presence {
    /// Prepares the record; [`Presence::update`] writes it. `work` is shared by all records of this process,
    /// because they may be in the same file.
    pub(super) fn new(
        project: Arc<FollowedProject>,
        session: String,
        front_end: String,
        work: Rc<FileWork>,
    ) -> Self {
        let process = Process::current();
        let record = JoinedFrontEnd {
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
            stage: Cell::new(RecordStage::New),
            work,
            failures: FailureLog::default(),
        }
    }

    /// Starts to write the record, if something in it has changed.
    pub(super) fn update(self: &Rc<Self>, clients: usize, counters: Option<Counters>) {
        let mut record = self.record.borrow_mut();
        let counters = counters.map(Box::new);
        let counters_change = counters.as_ref().is_some_and(|new| {
            record
                .counters
                .as_ref()
                .is_none_or(|old| !is_same(old, new))
        });
        if self.stage.get() == RecordStage::Written && record.clients == clients && !counters_change
        {
            return;
        }
        record.clients = clients;
        if let Some(counters) = counters {
            record.counters = Some(counters);
        }
        if matches!(self.stage.get(), RecordStage::New | RecordStage::Written) {
            self.stage.set(RecordStage::Changed);
            let presence = Rc::clone(self);
            tokio::task::spawn_local(async move { presence.write().await });
        }
    }

    async fn write(&self) {
        let permit = self.work.acquire().await;
        if self.stage.get() != RecordStage::Changed {
            return;
        }
        self.stage.set(RecordStage::Written);
        let (project, record) = (Arc::clone(&self.project), self.record.borrow().clone());
        let written = permit
            .run(move || project.now().write_joined(&record))
            .await;
        match written.flatten() {
            Ok(()) => self
                .failures
                .recovered("this proxy's record is written again"),
            Err(error) => {
                if self.stage.get() == RecordStage::Written {
                    // The next change writes the whole record.
                    self.stage.set(RecordStage::New);
                }
                let text = format!("cannot write this proxy's record: {error}");
                self.failures.report(error.kind(), &text);
            }
        }
    }

    /// Removes the record; it is not written again.
    pub(super) async fn withdraw(&self) {
        self.stage.set(RecordStage::Withdrawn);
        let permit = self.work.acquire().await;
        let (project, pid) = (Arc::clone(&self.project), self.record.borrow().pid);
        let _ = permit.run(move || project.now().remove_joined(pid)).await;
    }
}

/// Returns whether only the time differs.
fn is_same(old: &Counters, new: &Counters) -> bool {
    *old == Counters {
        at: old.at,
        ..new.clone()
    }
}
