//! The outputs of a job's cells so far, from the kernel's messages or from those stored in the job's
//! folder.

use std::collections::{BTreeMap, HashSet};
use std::io;

use crate::client::KernelException;
use crate::execution::category;
use crate::execution::into_notebook::{ExecutionResult, hash};
use crate::notebook::{CellExecution, Json, MimeBundle, OutputAccumulator, OutputChange, Widgets};
use crate::project::displays::Displays;
use crate::project::jobs::{Job, JobCell, JobFolder};

/// The outputs of one cell.
#[derive(Clone, Debug, Default)]
pub(in crate::execution) struct CellOutputs {
    folded: OutputAccumulator,
    /// The last error among them, without its traceback.
    pub(super) raised: Option<KernelException>,
}

/// The outputs of a job's cells, and the widgets that they made or changed.
#[derive(Debug)]
pub(in crate::execution) struct JobOutputs {
    pub(in crate::execution) cells: Vec<CellOutputs>,
    pub(in crate::execution) widgets: Widgets,
}

/// The changes by one message.
#[derive(Debug, Default)]
pub(in crate::execution) struct Change {
    /// The indices of the job's cells whose outputs changed.
    pub(super) cells: Vec<usize>,
    pub(super) displayed: Option<Displayed>,
}

/// The content that a message shows under a display id.
#[derive(Debug)]
pub(in crate::execution) struct Displayed {
    pub(super) id: String,
    pub(super) shown: MimeBundle,
    /// Whether a cell of this job shows it.
    pub(super) is_own: bool,
}

impl CellOutputs {
    /// Returns the outputs as a notebook has them.
    pub(in crate::execution) fn all(&self) -> Vec<Json> {
        self.folded.outputs()
    }
}

impl JobOutputs {
    /// Returns empty outputs. They hold as much as the job may write into the notebook; the job's folder
    /// has all messages.
    pub(in crate::execution) fn of(job: &Job) -> Self {
        let most = job.max_output.map(usize::try_from).and_then(Result::ok);
        let folded = most.map_or_else(OutputAccumulator::default, |most| {
            let more = format!("nb wait {} --all --stream shows all", job.id);
            OutputAccumulator::bounded(most, more)
        });
        let widgets = Widgets::bounded(folded.clone());
        let cell = CellOutputs {
            folded,
            raised: None,
        };
        Self {
            cells: vec![cell; job.cells.len()],
            widgets,
        }
    }

    /// Adds empty outputs for the cells that were added to the job.
    pub(super) fn grow(&mut self, job: &Job) {
        let all = Self::of(job).cells.into_iter();
        self.cells.extend(all.skip(self.cells.len()));
    }

    /// Reads the outputs from a job's folder, and the ids of the stored messages, if they have one.
    pub(super) fn read(job: &Job, folder: &JobFolder) -> io::Result<(Self, HashSet<String>)> {
        let (mut outputs, mut ids) = (Self::of(job), HashSet::new());
        outputs.widgets.begin();
        let none: [&[u8]; 0] = [];
        let mut from = 0;
        loop {
            let (messages, next) = folder.messages(from)?;
            if next == from {
                return Ok((outputs, ids));
            }
            from = next;
            for message in messages {
                let content = message.content.get().as_bytes();
                outputs.take(message.cell, &message.msg_type, content, &none);
                ids.extend(message.id);
            }
        }
    }

    /// Takes a message of iopub about a cell.
    pub(in crate::execution) fn take(
        &mut self,
        at: usize,
        msg_type: &str,
        content: &[u8],
        buffers: &[impl AsRef<[u8]>],
    ) -> Change {
        let own = |displayed| Change {
            cells: vec![at],
            displayed,
        };
        if self.widgets.take(msg_type, content, buffers) {
            return own(None);
        }
        let Some(cell) = self.cells.get_mut(at) else {
            return Change::default();
        };
        if msg_type == "error" {
            cell.raised = Some(category::name_and_text(content));
        }
        let (id, shown) = match cell.folded.take(msg_type, content) {
            OutputChange::Nothing => return Change::default(),
            OutputChange::Changed | OutputChange::Unreadable => return own(None),
            OutputChange::Displayed { display_id, shown } => (display_id, shown),
        };
        let is_shown = cell.folded.shows(&id);
        let mut cells = vec![at];
        for (other, cell) in self.cells.iter_mut().enumerate() {
            if other != at && cell.folded.update(&id, &shown) {
                cells.push(other);
            }
        }
        let is_own = is_shown || cells.len() > 1;
        let displayed = Some(Displayed { id, shown, is_own });
        Change { cells, displayed }
    }

    /// Returns the result of one of the job's cells for the notebook.
    pub(super) fn result(&self, job: &Job, at: usize) -> Option<ExecutionResult> {
        let (ran, outputs) = (job.cells.get(at)?, self.cells.get(at)?);
        let by_text = job.front_end.is_some();
        if !by_text && ran.cell.is_none() {
            return None;
        }
        // With an execution count the cell would seem to have ended.
        let runs = ran.idle_at.is_none() && ran.status.is_none();
        Some(ExecutionResult {
            at,
            cell: ran.cell.clone(),
            code: ran.code.clone(),
            execution: CellExecution {
                outputs: outputs.folded.outputs(),
                execution_count: ran.execution_count.filter(|_| !runs),
                times: times(ran),
            },
            begun: ran.begun_at,
            earlier_run: ran.earlier_run_at,
            by_text,
            ran_since: false,
            asked_since: false,
            is_late: false,
            is_partial: false,
            counted: ran.execution_count,
        })
    }

    /// Returns the display ids of one of the job's cells, once the kernel has sent its execution
    /// count.
    pub(super) fn displays(&self, job: &Job, at: usize) -> Option<Displays> {
        let (ran, outputs) = (job.cells.get(at)?, self.cells.get(at)?);
        // A front end's cell is found by its text, so its id is not certain.
        if job.front_end.is_some() {
            return None;
        }
        let mut ids: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let (count, shown) = outputs.folded.displayed();
        for (id, place) in shown {
            ids.entry(id.to_owned()).or_default().push(place);
        }
        Some(Displays {
            session: job.session.clone(),
            generation: job.generation?,
            path: job.path.clone(),
            cell: ran.cell.clone()?,
            source: hash(&ran.code),
            execution_count: ran.execution_count?,
            outputs: count,
            ids,
        })
    }
}

/// Returns the times in the form that JupyterLab and nbclient write into `metadata.execution`.
fn times(ran: &JobCell) -> Option<Json> {
    let times = [
        ("iopub.execute_input", ran.input_at),
        ("iopub.status.busy", ran.begun_at),
        ("iopub.status.idle", ran.idle_at),
        ("shell.execute_reply", ran.idle_at),
    ];
    let times: Vec<_> = times
        .iter()
        .filter_map(|(name, at)| Some(format!("\"{name}\":\"{}\"", (*at)?)))
        .collect();
    (!times.is_empty()).then(|| Json::parse(&format!("{{{}}}", times.join(","))).ok())?
}
