//! The state of a recorder: its job's record, the outputs so far, and the requests of other
//! processes.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::io;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

use super::elsewhere::EarlierUpdates;
use super::late_listener::LateListener;
use super::outputs::JobOutputs;
use crate::execution::into_notebook::NotPut;
use crate::project::jobs::{Job, JobEvents, JobFolder, JobState};
use crate::project::{Project, Session};

/// How long a change of the job may be only in memory: with many small cells the record is longer
/// than their outputs, and is not written for each of them.
const MOMENT: Duration = Duration::from_millis(20);

/// The recorder of one job.
pub(super) struct Recorder<'a> {
    pub(super) project: &'a Project,
    pub(super) folder: &'a JobFolder,
    pub(super) job: RefCell<Job>,
    pub(super) events: RefCell<JobEvents>,
    pub(super) outputs: RefCell<JobOutputs>,
    /// The updates of outputs that other executions left in their cells.
    pub(super) earlier_updates: RefCell<EarlierUpdates>,
    /// The index of the running cell.
    pub(super) at: Cell<usize>,
    /// The cells whose outputs are not in the notebook yet.
    pub(super) unwritten: RefCell<BTreeSet<usize>>,
    pub(super) changed: Notify,
    /// Notifies that the job's record has changed and is not on disk yet.
    job_changed: Notify,
    /// What held the outputs back at the last write, and since when.
    pub(super) held: RefCell<Option<(NotPut, Instant)>>,
    /// Held during a write of the notebook, so that there is only one at a time.
    pub(super) writing: tokio::sync::Mutex<()>,
    /// Notifies that the running cell is to be interrupted.
    pub(super) interrupt_signal: Notify,
    /// Whether the cell was interrupted, on request or by its time limit.
    pub(super) interrupted: Cell<bool>,
    /// Whether the cell has reached its time limit.
    pub(super) is_over_time: Cell<bool>,
    /// After how many seconds the running cell's kernel is ended, if that is not soon after the
    /// cell's time limit.
    pub(super) ends_after: Cell<Option<f64>>,
    /// Whether messages of the kernel from before this recorder's start may be missing.
    pub(super) is_partial: Cell<bool>,
    pub(super) replies: RefCell<VecDeque<String>>,
    pub(super) replied: Notify,
    /// Hands the listener over to [`super::late`], once it is connected.
    pub(super) late_sender: RefCell<Option<oneshot::Sender<LateListener>>>,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(project: &'a Project, folder: &'a JobFolder, job: Job) -> io::Result<Self> {
        Ok(Self {
            project,
            folder,
            events: RefCell::new(folder.events()?),
            outputs: RefCell::new(JobOutputs::of(&job)),
            earlier_updates: RefCell::default(),
            at: Cell::new(0),
            unwritten: RefCell::default(),
            changed: Notify::new(),
            held: RefCell::default(),
            job_changed: Notify::new(),
            writing: tokio::sync::Mutex::default(),
            job: RefCell::new(job),
            interrupt_signal: Notify::new(),
            interrupted: Cell::default(),
            is_over_time: Cell::default(),
            ends_after: Cell::default(),
            is_partial: Cell::default(),
            replies: RefCell::default(),
            replied: Notify::new(),
            late_sender: RefCell::default(),
        })
    }

    /// Changes the job's record and writes it.
    pub(super) fn job(&self, change: impl FnOnce(&mut Job)) {
        self.try_job(change);
    }

    /// Changes the job's record and writes it; returns whether it is written.
    pub(super) fn try_job(&self, change: impl FnOnce(&mut Job)) -> bool {
        change(&mut self.job.borrow_mut());
        self.write_job()
    }

    /// Changes the job's record, which is written within a moment together with other changes.
    pub(super) fn job_soon(&self, change: impl FnOnce(&mut Job)) {
        change(&mut self.job.borrow_mut());
        self.job_changed.notify_one();
    }

    /// Adds a note for the actor who asked, unless the job has the same note already.
    pub(super) fn note(&self, note: String) {
        if !self.job.borrow().notes.contains(&note) {
            self.job(|job| job.notes.push(note));
        }
    }

    /// Writes the changes of [`Self::job_soon`].
    pub(super) async fn write_job_soon(&self) -> Infallible {
        loop {
            self.job_changed.notified().await;
            tokio::time::sleep(MOMENT).await;
            self.write_job();
        }
    }

    /// Writes the job's record; returns whether it is written.
    fn write_job(&self) -> bool {
        let written = self.folder.write(&self.job.borrow());
        if let Err(error) = &written {
            tracing::warn!(%error, "the job's record could not be written");
        }
        written.is_ok()
    }

    /// Marks a cell whose outputs have to be written into the notebook.
    pub(super) fn has_changed(&self, at: usize) {
        self.unwritten.borrow_mut().insert(at);
        self.changed.notify_one();
    }

    /// Begins to listen for late outputs, before the first cell is sent, unless another process does.
    pub(super) async fn begin_to_listen(&self, session: &Session) {
        let Some(sender) = self.late_sender.take() else {
            return;
        };
        let key = self.job.borrow().session.clone();
        match LateListener::begin(self.project, &key, session).await {
            Ok(Some(listener)) => drop(sender.send(listener)),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "late outputs will not be recorded"),
        }
    }

    /// Removes the input request, if there is one, which has been answered.
    pub(super) fn answered(&self) {
        if self.job.borrow().prompt.is_some() {
            self.job(|job| {
                job.state = JobState::Running;
                job.prompt = None;
            });
        }
    }
}
