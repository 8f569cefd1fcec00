//! The recorder: a process that runs a job's cells and keeps everything that they say.
//!
//! It is nobody's descendant, so that killing whoever asked, with all that hangs on it, loses
//! nothing. What the kernel says goes into the job at once; into the notebook it goes seldom, since
//! an editor that shows the notebook reads it anew each time: once the run has begun and each second
//! while it is young, then at gaps that grow where a front end is joined or where writing takes long,
//! and at the end.

mod elsewhere;
mod gaps;
mod hearing;
mod kept;
mod questions;
pub(crate) mod resume;
pub mod salvage;
mod writing;

pub(super) use self::elsewhere::hash;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use self::elsewhere::Elsewhere;
use self::hearing::Asked;
use self::writing::Recorded;
use super::run::{Options, Ran, RunError, Runner, Status};
use crate::lifecycle::target::recorded;
use crate::notebook::Widgets;
use crate::project::Project;
use crate::project::jobs::{Events, Job, JobFolder, JobState};
use crate::task::causes::with_causes;

/// Runs a job to its end. Nothing happens where another recorder has it.
///
/// # Errors
/// The job's folder cannot be read or written.
pub(crate) async fn perform(project: &Project, folder: &JobFolder) -> io::Result<()> {
    perform_with(project, folder, async |recorder| {
        let runner = recorder.run_all().await;
        let left = async {
            if let Some(runner) = runner {
                runner.leave().await;
            }
        };
        tokio::join!(left, recorder.finish());
    })
    .await
}

/// Does something with a job as its only recorder, and hears meanwhile what others ask of it.
async fn perform_with(
    project: &Project,
    folder: &JobFolder,
    does: impl AsyncFnOnce(&Recorder<'_>),
) -> io::Result<()> {
    let Some(_lock) = folder.lock()? else {
        return Ok(());
    };
    let job = folder.read().map_err(io::Error::other)?;
    if job.state == JobState::Done {
        return Ok(());
    }
    let recorder = Recorder::new(project, folder, job)?;
    tokio::select! {
        () = does(&recorder) => {}
        never = recorder.listen() => match never {},
        never = recorder.write_job_soon() => match never {},
        never = recorder.write_now_and_then() => match never {},
        never = recorder.write_when_told() => match never {},
    }
    Ok(())
}

/// What never comes.
enum Never {}

/// How long what is known of a job may be only here: the record of a job with many small cells is
/// longer than what they say.
const MOMENT: Duration = Duration::from_millis(20);

struct Recorder<'a> {
    project: &'a Project,
    folder: &'a JobFolder,
    job: RefCell<Job>,
    events: RefCell<Events>,
    /// The outputs of each cell.
    outputs: RefCell<Vec<Recorded>>,
    /// The widgets that its cells made or changed.
    widgets: RefCell<Widgets>,
    /// What it shows in cells of earlier executions.
    elsewhere: RefCell<Elsewhere>,
    /// The cell under way.
    at: Cell<usize>,
    /// The cells whose outputs are not in the notebook yet.
    unwritten: RefCell<BTreeSet<usize>>,
    changed: Notify,
    /// What is known of the job has changed, and is not on disk yet.
    job_changed: Notify,
    /// One write at a time.
    writing: tokio::sync::Mutex<()>,
    asked: Asked,
}

impl<'a> Recorder<'a> {
    fn new(project: &'a Project, folder: &'a JobFolder, job: Job) -> io::Result<Self> {
        Ok(Self {
            project,
            folder,
            events: RefCell::new(folder.events()?),
            outputs: RefCell::new(vec![Recorded::of(&job); job.cells.len()]),
            widgets: RefCell::new(writing::no_widgets(&job)),
            elsewhere: RefCell::default(),
            at: Cell::new(0),
            unwritten: RefCell::default(),
            changed: Notify::new(),
            job_changed: Notify::new(),
            writing: tokio::sync::Mutex::default(),
            job: RefCell::new(job),
            asked: Asked::default(),
        })
    }

    /// Runs its cells; returns what has joined the kernel, to be left.
    async fn run_all(&self) -> Option<Runner> {
        let cells = self.job.borrow().cells.len();
        let mut runner = None;
        let mut ended: Option<&str> = None;
        for at in 0..cells {
            self.at.set(at);
            if let Some(why) = ended {
                self.job(|job| job.cells[at].status = Some(why.to_owned()));
                continue;
            }
            let (status, notes) = match self.run_one(at, &mut runner).await {
                Ok(ran) => (self.ended(at, &ran), ran.notes),
                Err(error) => {
                    // The words for it are the error's own.
                    (error.word().to_owned(), vec![with_causes(&error)])
                }
            };
            let goes_on = {
                let job = self.job.borrow();
                let may_raise = job.allow_errors || job.cells[at].may_raise;
                status == "ok" || (status == "error" && may_raise)
            };
            if !goes_on {
                ended = Some("not_run");
            }
            self.job_soon(|job| {
                job.cells[at].status = Some(status);
                job.notes.extend(notes);
            });
        }
        runner
    }

    async fn run_one(&self, at: usize, runner: &mut Option<Runner>) -> Result<Ran, RunError> {
        self.asked.interrupted.set(false);
        self.asked.ends_after.set(None);
        let options = {
            let job = self.job.borrow();
            Options {
                code: job.cells[at].code.clone(),
                cell: job.cells[at].cell.clone(),
                goes_on: at + 1 < job.cells.len(),
            }
        };
        let joined = match runner {
            Some(joined) => joined,
            None => {
                let (key, by) = {
                    let job = self.job.borrow();
                    (job.session.clone(), job.actor())
                };
                let session = recorded(&self.project.state()?, self.project, &key);
                let session = session.ok_or_else(|| RunError::ended(&key, None))?;
                let mut joined = Runner::join(self.project, &key, &session, &by, None).await?;
                self.job(|job| job.generation = Some(joined.generation()));
                joined.is_of(&self.job.borrow());
                runner.insert(joined)
            }
        };
        let ran = joined.run(&options, self).await;
        // Where no front end fills output widgets, as nbclient does: one that joins later asks the
        // kernel for them.
        for content in self.widgets.borrow_mut().unsent_updates() {
            if let Ok(content) = RawValue::from_string(content.text().into_owned()) {
                joined.tell_comm(&content);
            }
        }
        ran
    }

    /// Takes the end of a cell, and returns the word for it.
    fn ended(&self, at: usize, ran: &Ran) -> String {
        let mut outputs = self.outputs.borrow_mut();
        let Some(recorded) = outputs.get_mut(at) else {
            return word(ran.status);
        };
        if recorded.busy.is_some() {
            recorded.idle = Some(Timestamp::now());
            self.unwritten.borrow_mut().insert(at);
            self.changed.notify_one();
        }
        let idle = recorded.idle;
        self.job_soon(|job| {
            let cell = &mut job.cells[at];
            cell.idle_at = idle;
            cell.execution_count = ran.execution_count;
            cell.took_ms = u64::try_from(ran.took.as_millis()).ok();
        });
        match ran.status {
            // It never left the queue.
            Status::Interrupted if recorded.busy.is_none() => "withdrawn".to_owned(),
            status => word(status),
        }
    }

    /// Changes what is known of the job.
    fn job(&self, change: impl FnOnce(&mut Job)) {
        change(&mut self.job.borrow_mut());
        self.write_job();
    }

    /// Changes what is known of the job; within a moment, in which more may change, that is written.
    fn job_soon(&self, change: impl FnOnce(&mut Job)) {
        change(&mut self.job.borrow_mut());
        self.job_changed.notify_one();
    }

    /// Writes what [`Self::job_soon`] has changed.
    async fn write_job_soon(&self) -> Never {
        loop {
            self.job_changed.notified().await;
            tokio::time::sleep(MOMENT).await;
            self.write_job();
        }
    }

    fn write_job(&self) {
        if let Err(error) = self.folder.write(&self.job.borrow()) {
            tracing::warn!(%error, "the job's record could not be written");
        }
    }

    async fn finish(&self) {
        if self.may_write_at_last().await {
            self.write_all().await;
            self.show_elsewhere_at_last().await;
        }
        self.job(|job| {
            job.state = JobState::Done;
            job.ended_at = Some(Timestamp::now());
            job.behind = None;
            job.behind_since = None;
            job.prompt = None;
            // What could not be written goes where its text is, later.
            let in_notebook = job.cells.iter().all(|cell| cell.unwritten.is_none());
            if in_notebook && !self.keeps_code() {
                job.cells.iter_mut().for_each(|cell| cell.code.clear());
            }
        });
        self.folder.tell_over();
        self.project.close_job(self.folder);
        self.project.sweep_jobs_after(self.folder);
    }

    /// Says whether code that has run may be kept.
    fn keeps_code(&self) -> bool {
        self.project
            .config()
            .is_ok_and(|config| config.journal.code)
    }
}

fn word(status: Status) -> String {
    let word = serde_json::to_value(status);
    word.ok()
        .and_then(|word| Some(word.as_str()?.to_owned()))
        .unwrap_or_default()
}
