//! Runs a notebook's cells from top to bottom in a fresh kernel, and keeps their outputs in memory.
//!
//! As with Restart & Run All, the first cell that fails ends the run, unless it is tagged as one that may raise. A cell
//! that asks for input fails at once, since nobody can answer.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use super::exec::MAX_OUTPUT;
use super::recorder::outputs::JobOutputs;
use super::run::{ExecutionEvent, Prompt, RunError, RunObserver, RunOptions, Runner};
use crate::kernel::process::{Process, Signal};
use crate::lifecycle::fresh::FreshKernel;
use crate::notebook::Json;
use crate::project::event::CellEnd;
use crate::project::jobs::{Job, JobCell};

/// How long a cell may run on after the interrupt at its time limit.
const IGNORES: Duration = Duration::from_secs(5);

/// A run of cells in a fresh kernel, during and after it.
pub struct FreshRun {
    job: Job,
    max_time: Option<Duration>,
    outputs: RefCell<JobOutputs>,
    ended: RefCell<Vec<EndedCell>>,
    /// The cell that runs, by its position among the cells.
    at: Cell<usize>,
    /// When its request was sent.
    sent: Cell<Option<Instant>>,
    is_over_time: Cell<bool>,
    process: RefCell<Option<Process>>,
}

/// A cell whose run has ended.
#[derive(Clone, Debug)]
struct EndedCell {
    end: CellEnd,
    took: Duration,
    notes: Vec<String>,
}

/// What a cell gave in a fresh kernel.
#[derive(Clone, Debug)]
pub struct FreshCell {
    /// Its index in the notebook.
    pub index: usize,
    /// How it ended.
    pub end: CellEnd,
    /// Its outputs, as a notebook has them.
    pub outputs: Vec<Json>,
    /// How long it took.
    pub took: Duration,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl FreshRun {
    /// Prepares the run of these cells. Each is interrupted after `max_time`.
    pub fn new(cells: Vec<JobCell>, max_time: Option<Duration>) -> Self {
        let job = Job {
            cells,
            max_output: Some(MAX_OUTPUT),
            ..Job::default()
        };
        Self {
            outputs: RefCell::new(JobOutputs::of(&job)),
            job,
            max_time,
            ended: RefCell::default(),
            at: Cell::default(),
            sent: Cell::default(),
            is_over_time: Cell::default(),
            process: RefCell::default(),
        }
    }

    /// Runs the cells. `begins` gets the index of each cell that begins. May be cancelled; the results so far stay.
    ///
    /// # Errors
    /// The kernel cannot be used.
    pub async fn perform(
        &self,
        kernel: &mut FreshKernel,
        by: &str,
        begins: impl Fn(usize),
    ) -> Result<(), RunError> {
        let Some(session) = kernel.session().cloned() else {
            return Ok(());
        };
        let (project, key) = kernel.project();
        let mut runner = Runner::join(project, key, &session, by, None).await?;
        *self.process.borrow_mut() = runner.process().cloned();
        for (at, cell) in self.job.cells.iter().enumerate() {
            self.at.set(at);
            self.sent.set(None);
            self.is_over_time.set(false);
            begins(cell.index.unwrap_or_default());
            let options = RunOptions {
                code: cell.code.clone(),
                cell: cell.cell.clone(),
                goes_on: at + 1 < self.job.cells.len(),
                may_ask: false,
            };
            let ran = runner.run(&options, self).await?;
            // As nbclient does: no front end fills output widgets.
            for content in self.outputs.borrow_mut().widgets.unsent_updates() {
                if let Ok(content) = RawValue::from_string(content.text().into_owned()) {
                    runner.tell_comm(&content);
                }
            }
            let mut notes = ran.notes;
            notes.extend(self.over_time_note());
            notes.extend(kernel.changed_originals().iter().map(|it| changed_note(it)));
            self.ended.borrow_mut().push(EndedCell {
                end: ran.status,
                took: ran.took,
                notes,
            });
            let may_raise = cell.may_raise && ran.status == CellEnd::Error;
            if ran.status != CellEnd::Ok && !may_raise {
                break;
            }
        }
        runner.leave().await;
        Ok(())
    }

    /// Returns what the cells that have ended have given, with the paths of the kernel's folder as those of the notebook's.
    pub fn results(&self, kernel: &FreshKernel) -> Vec<FreshCell> {
        let (ended, outputs) = (self.ended.borrow(), self.outputs.borrow());
        let all = self.job.cells.iter().zip(ended.iter()).zip(&outputs.cells);
        let all = all.map(|((cell, ended), outputs)| FreshCell {
            index: cell.index.unwrap_or_default(),
            end: ended.end,
            outputs: outputs
                .all()
                .into_iter()
                .map(|it| kernel.relocated(it))
                .collect(),
            took: ended.took,
            notes: ended.notes.clone(),
        });
        all.collect()
    }

    fn over_time_note(&self) -> Option<String> {
        let limit = self.max_time.filter(|_| self.is_over_time.get())?;
        Some(format!(
            "it ran longer than {} s, and was interrupted",
            limit.as_secs_f64()
        ))
    }
}

fn changed_note(original: &Path) -> String {
    format!(
        "{} changed while it ran, outside the private copy: it is the original",
        original.display()
    )
}

impl RunObserver for FreshRun {
    fn on_event(&self, event: &ExecutionEvent) {
        let mut outputs = self.outputs.borrow_mut();
        match event {
            ExecutionEvent::Begun => outputs.widgets.begin(),
            ExecutionEvent::Iopub(message) => {
                let (kind, content) = (&*message.msg_type, &message.content);
                outputs.take(self.at.get(), kind, content, &message.buffers);
            }
            ExecutionEvent::Counted(_) | ExecutionEvent::Prompt(_) | ExecutionEvent::Stopped => {}
        }
    }

    fn on_sent(&self, _msg_id: &str) {
        self.sent.set(Some(Instant::now()));
    }

    async fn answer(&self, _prompt: Prompt) -> Option<String> {
        // A kernel that asks although it must not.
        None
    }

    async fn interrupted(&self) {
        let (Some(limit), Some(sent)) = (self.max_time, self.sent.get()) else {
            return std::future::pending().await;
        };
        let until = |due: Instant| tokio::time::sleep_until(due.into());
        if !self.is_over_time.get() {
            until(sent + limit).await;
            self.is_over_time.set(true);
            return;
        }
        until(sent + limit + IGNORES).await;
        if let Some(process) = &*self.process.borrow() {
            let _ = process.signal_group(Signal::KILL);
        }
        std::future::pending::<()>().await;
    }
}
