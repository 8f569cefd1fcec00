//! Writing a job's outputs into the notebook: seldom while it runs, and always at its end.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};

use super::{Never, Recorder};
use crate::notebook::{CellType, Document, EditError, Execution, Folded, Json};
use crate::ops::causes::with_causes;
use crate::ops::editing::transaction;
use crate::ops::kernels::status::joined_to;

/// How long after they began outputs go into the notebook, and the least gap between two writes.
const GAP: Duration = Duration::from_secs(2);

/// The longest gap, unless writing takes very long.
const LONGEST_GAP: Duration = Duration::from_secs(30);

/// A write that takes longer than this is not quick.
const QUICK: Duration = Duration::from_millis(40);

/// At most one part of so many of the time goes into writing: 2 %.
const SHARE: u32 = 50;

/// What an execution leaves, as it grows.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorded {
    pub(super) folded: Folded,
    pub(super) busy: Option<Timestamp>,
    pub(super) input: Option<Timestamp>,
    pub(super) idle: Option<Timestamp>,
}

impl Recorder<'_> {
    /// Writes outputs into the notebook while the job runs.
    pub(super) async fn write_now_and_then(&self) -> Never {
        let mut gap = GAP;
        loop {
            self.changed.notified().await;
            tokio::time::sleep(gap).await;
            let begun = Instant::now();
            self.write();
            let took = begun.elapsed();
            let session = self.job.borrow().session.clone();
            let is_watched = took > QUICK || !joined_to(self.project, &session).is_empty();
            gap = if is_watched {
                LONGEST_GAP.min(gap * 2)
            } else {
                GAP
            };
            gap = gap.max(took * SHARE);
        }
    }

    /// Writes outputs when the system asks all to end, and goes on: the kernel may live.
    pub(super) async fn write_when_told(&self) -> Never {
        let Ok(mut told) = signal(SignalKind::terminate()) else {
            return std::future::pending().await;
        };
        loop {
            told.recv().await;
            self.write();
        }
    }

    /// Writes the outputs that are not in the notebook yet.
    pub(super) fn write(&self) {
        let cells: Vec<usize> = std::mem::take(&mut *self.unwritten.borrow_mut())
            .into_iter()
            .collect();
        let Some(page) = self.page.as_ref().filter(|_| !cells.is_empty()) else {
            return;
        };
        let mut missed = Vec::new();
        let written = page.as_ref().map_err(Clone::clone).and_then(|page| {
            let written = transaction::write(page, false, |document| {
                missed.clear();
                let mut after = document.clone();
                for at in &cells {
                    if let Some(why) = self.put(&mut after, *at)? {
                        missed.push((*at, why));
                    }
                }
                let widgets = self.widgets.borrow();
                if !widgets.is_empty() {
                    after.put_widgets(&widgets)?;
                }
                Ok::<_, EditError>(after)
            });
            written.map_err(|error| with_causes(&error))
        });
        if let Err(why) = written {
            missed = cells.iter().map(|at| (*at, why.clone())).collect();
        }
        self.job(|job| {
            for at in cells {
                let why = missed.iter().find(|(missed, _)| *missed == at);
                job.cells[at].unwritten = why.map(|(_, why)| why.clone());
            }
        });
    }

    /// Puts a cell's outputs into the notebook; says why not, where there is no such cell any more.
    fn put(&self, document: &mut Document, at: usize) -> Result<Option<String>, EditError> {
        let job = self.job.borrow();
        let (Some(ran), outputs) = (job.cells.get(at), self.outputs.borrow()) else {
            return Ok(None);
        };
        let (Some(id), Some(recorded)) = (&ran.cell, outputs.get(at)) else {
            return Ok(None);
        };
        let cells = document.cells();
        let Some(index) = cells.iter().position(|cell| cell.id() == id) else {
            return Ok(Some("the cell is not in the notebook any more".to_owned()));
        };
        let Some(cell) = cells
            .get(index)
            .filter(|cell| cell.cell_type() == CellType::Code)
        else {
            return Ok(Some("the cell is no code any more".to_owned()));
        };
        let mut execution = Execution {
            outputs: recorded.folded.outputs(),
            execution_count: ran.execution_count,
            times: recorded.times(),
        };
        if cell.source() != ran.code {
            let note = "These are outputs of an earlier text of this cell, which was edited while it ran.\n";
            let note = format!(
                "{{\"output_type\":\"stream\",\"name\":\"stderr\",\"text\":{}}}",
                Json::string(note).text()
            );
            execution
                .outputs
                .insert(0, Json::parse(&note).expect("it is JSON"));
            execution.execution_count = None;
        }
        document.set_execution(index, &execution)?;
        Ok(None)
    }
}

impl Recorded {
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
