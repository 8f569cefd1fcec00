//! Writing a job's outputs into the notebook: seldom while it runs, and always at its end.

use std::time::Instant;

use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};

use super::gaps::{Gaps, Wrote};
use super::salvage::asked_again;
use super::{Never, Recorder};
use crate::activity::participants::joined_to;
use crate::execution::into_notebook::{self, Leaving};
use crate::notebook::{CellExecution, Json, OutputAccumulator, Widgets};
use crate::project::jobs::Job;

/// What an execution leaves, as it grows.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorded {
    pub(super) folded: OutputAccumulator,
    /// An error was among what it said.
    pub(super) raised: bool,
    pub(super) busy: Option<Timestamp>,
    pub(super) input: Option<Timestamp>,
    pub(super) idle: Option<Timestamp>,
}

impl Recorded {
    /// Returns what will hold as much as a job puts into the notebook. All of it is in the job.
    pub(super) fn of(job: &Job) -> Self {
        Self {
            folded: nothing_yet(job),
            ..Self::default()
        }
    }
}

/// Returns no outputs, which will be as many as a job puts into the notebook of a cell.
fn nothing_yet(job: &Job) -> OutputAccumulator {
    let most = job.max_output.map(usize::try_from).and_then(Result::ok);
    let folded = most.map(|most| {
        let more = format!("nb wait {} --all --stream shows all", job.id);
        OutputAccumulator::bounded(most, more)
    });
    folded.unwrap_or_default()
}

/// Returns no widgets, of which those that take outputs will be bounded as a job's cells are.
pub(super) fn no_widgets(job: &Job) -> Widgets {
    Widgets::bounded(nothing_yet(job))
}

impl Recorder<'_> {
    /// Writes outputs into the notebook while the job runs.
    pub(super) async fn write_now_and_then(&self) -> Never {
        let bytes = std::fs::metadata(&self.job.borrow().path).map(|it| it.len());
        let mut gaps = Gaps::new(bytes.unwrap_or_default());
        loop {
            self.changed.notified().await;
            tokio::time::sleep(gaps.next()).await;
            if let Some(left) = self.may_return() {
                tokio::time::sleep(left).await;
            }
            let mut wrote = self.write().await;
            let session = self.job.borrow().session.clone();
            wrote.is_watched = !joined_to(self.project, &session).is_empty();
            let begun = self
                .job
                .borrow()
                .cells
                .iter()
                .find_map(|cell| cell.begun_at);
            let age = begun.map(|at| Timestamp::now().duration_since(at).unsigned_abs());
            gaps.wrote(wrote, age.unwrap_or_default());
        }
    }

    /// Writes outputs when the system asks all to end, and goes on: the kernel may live.
    pub(super) async fn write_when_told(&self) -> Never {
        let Ok(mut told) = signal(SignalKind::terminate()) else {
            return std::future::pending().await;
        };
        loop {
            told.recv().await;
            if self.may_return().is_none() {
                self.write().await;
            }
        }
    }

    /// Writes the outputs that are not in the notebook yet. Where that fails they are written with
    /// the next ones, and at the end.
    pub(super) async fn write(&self) -> Wrote {
        let _turn = self.writing.lock().await;
        let own = self.write_own().await;
        let others = self.show_elsewhere().await;
        Wrote {
            took: own.took + others.took,
            bytes: own.bytes + others.bytes,
            failed: own.failed || others.failed,
            is_watched: false,
        }
    }

    /// Writes the outputs of the job's own cells.
    async fn write_own(&self) -> Wrote {
        let cells = std::mem::take(&mut *self.unwritten.borrow_mut());
        if cells.is_empty() || !self.job.borrow().saves {
            return Wrote::default();
        }
        let mut leaving: Vec<_> = cells.iter().filter_map(|at| self.leaving(*at)).collect();
        let again = asked_again(self.project, &self.job.borrow());
        for leaving in &mut leaving {
            leaving.asked_since = again.contains(&leaving.at);
        }
        let displays: Vec<_> = {
            let (all, job) = (self.outputs.borrow(), self.job.borrow());
            let displays = cells.iter().filter_map(|at| {
                let recorded = all.get(*at)?;
                Some((*at, recorded.displays(&job, *at)?))
            });
            displays.collect()
        };
        let widgets = self.widgets.borrow().clone();
        let path = self.job.borrow().path.clone();
        let begun = Instant::now();
        // What the kernel says meanwhile is taken.
        let put = tokio::task::spawn_blocking(move || {
            into_notebook::put(&path, &leaving, &widgets, false)
        });
        let put = put.await.unwrap_or_else(|error| Err(error.to_string()));
        let wrote = Wrote {
            took: begun.elapsed(),
            bytes: put.as_ref().map_or(0, |put| put.bytes as u64),
            failed: put.is_err(),
            is_watched: false,
        };
        if put.is_err() {
            self.unwritten.borrow_mut().extend(&cells);
            self.changed.notify_one();
        }
        if let Ok(put) = &put {
            let is_in = |at| put.missed(at).is_none() && !put.stale.contains(&at);
            self.note_displays(displays.into_iter().filter(|(at, _)| is_in(*at)));
        }
        self.job(|job| {
            let stale = put.as_ref().map(|put| put.stale.as_slice());
            for cell in stale.unwrap_or_default().iter().map(|at| &job.cells[*at]) {
                let id = cell.cell.as_deref().unwrap_or_default();
                let note = format!(
                    "{id} was edited while it ran: its outputs are in the notebook, marked as those of its earlier text"
                );
                if !job.notes.contains(&note) {
                    job.notes.push(note);
                }
            }
            for at in cells {
                job.cells[at].unwritten = match &put {
                    Err(why) => Some(why.clone()),
                    Ok(put) => put.missed(at),
                };
            }
        });
        wrote
    }

    /// Writes what is not in the notebook yet, and what could not go in before: a cell that was
    /// deleted may be back.
    pub(super) async fn write_all(&self) {
        let missed: Vec<usize> = {
            let job = self.job.borrow();
            let cells = job.cells.iter().enumerate();
            let cells = cells.filter(|(_, cell)| cell.unwritten.is_some());
            cells.map(|(at, _)| at).collect()
        };
        self.unwritten.borrow_mut().extend(missed);
        self.write().await;
    }

    /// Returns what a cell's execution has left so far.
    fn leaving(&self, at: usize) -> Option<Leaving> {
        self.outputs
            .borrow()
            .get(at)?
            .leaving(&self.job.borrow(), at)
    }
}

impl Recorded {
    /// Returns what is to be put into the notebook of one of a job's cells.
    pub(super) fn leaving(&self, job: &Job, at: usize) -> Option<Leaving> {
        let ran = job.cells.get(at)?;
        let by_text = job.front_end.is_some();
        // With a count it would look as if it had ended.
        let runs = self.idle.is_none() && ran.status.is_none();
        Some(Leaving {
            at,
            cell: match by_text {
                true => ran.cell.clone(),
                false => Some(ran.cell.clone()?),
            },
            code: ran.code.clone(),
            execution: CellExecution {
                outputs: self.folded.outputs(),
                execution_count: ran.execution_count.filter(|_| !runs),
                times: self.times(),
            },
            begun: self.busy,
            by_text,
            ran_since: false,
            asked_since: false,
        })
    }

    /// Returns the times as JupyterLab and nbclient write them into `metadata.execution`.
    fn times(&self) -> Option<Json> {
        let times = [
            ("iopub.execute_input", self.input),
            ("iopub.status.busy", self.busy),
            ("iopub.status.idle", self.idle),
            ("shell.execute_reply", self.idle),
        ];
        let times: Vec<_> = times
            .iter()
            .filter_map(|(name, at)| Some(format!("\"{name}\":\"{}\"", (*at)?)))
            .collect();
        (!times.is_empty()).then(|| Json::parse(&format!("{{{}}}", times.join(","))).ok())?
    }
}
