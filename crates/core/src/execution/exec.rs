//! Runs cells of a notebook, or code outside it, as a job that outlives the command that asked for
//! it.

use std::collections::BTreeSet;

use super::run::{self, RunError};
use crate::lifecycle::death;
use crate::lifecycle::open_error::OpenError;
use crate::lifecycle::target::recorded;
use crate::notebook::{Cell, CellType, Document, Revision};
use crate::project::jobs::{Job, JobCell, JobFolder, JobGoal};
use crate::project::{Project, Session, State, Status, fresh_id};
use crate::task::{self, TaskProgram};

/// The cells that a job runs, and its settings.
#[derive(Clone, Debug, Default)]
pub struct ExecOptions {
    /// The cells or pieces of code, in order.
    pub cells: Vec<JobCell>,
    /// Whether to continue with the next cell after one that raises.
    pub allow_errors: bool,
    /// The time in seconds after which a cell is interrupted.
    pub max_time: Option<f64>,
    /// Whether outputs are written into the notebook.
    pub saves: bool,
    /// About how many bytes of text of each cell are written there; `None` is no limit.
    pub max_output: Option<u64>,
    /// The notebook's revision for which the cells were planned: an edit ends the job. With `None` an edit changes
    /// nothing.
    pub plan: Option<Revision>,
    /// What further cells are for, see [`Job::goal`].
    pub goal: Option<JobGoal>,
    /// The generation of the kernel that ran the earlier steps of the same request: no other kernel runs these cells.
    /// With `None` they are for the present kernel.
    pub for_generation: Option<u64>,
}

/// How many bytes of a cell's text go into the notebook by default: editors read the whole
/// file at each change, and few open one of many megabytes.
pub const MAX_OUTPUT: u64 = 4 << 20;

/// Why no job was started.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The notebook has no kernel, or it has ended.
    #[error("{notebook} has no kernel that lives: {state}")]
    NoKernel {
        /// The notebook.
        notebook: String,
        /// Its state, in words.
        state: String,
    },
    /// The kernel cannot be reached.
    #[error(transparent)]
    Kernel(#[from] RunError),
    /// The recorder could not be started.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The job could not be recorded.
    #[error("cannot write the job into {}", folder.display())]
    Job {
        /// The project's folder.
        folder: std::path::PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

impl From<crate::project::StateError> for ExecError {
    fn from(error: crate::project::StateError) -> Self {
        Self::Open(error.into())
    }
}

/// Starts a job on the kernel of a notebook, as the actor `by`; its recorder outlives this process.
///
/// # Errors
/// The notebook has no running kernel according to its record, or no process can be started.
pub async fn begin(
    project: &Project,
    notebook: &str,
    by: &str,
    wanted: ExecOptions,
) -> Result<JobFolder, ExecError> {
    let id = fresh_id();
    let task = task::Task::Record {
        state_file: project.state_file(),
        id: id.clone(),
    };
    // The recorder's process starts in the meantime.
    let recorder = task::prepare(project, &task, TaskProgram::Own);
    let (state, session) = living(project, notebook).await?;
    let mut job = Job {
        id,
        cells: wanted.cells,
        allow_errors: wanted.allow_errors,
        max_time: bounded(wanted.max_time, &session),
        saves: wanted.saves,
        max_output: wanted.max_output,
        plan: wanted.plan.map(|revision| revision.to_string()),
        goal: wanted.goal,
        for_generation: wanted.for_generation.or(Some(session.generation_to_use())),
        ..Job::new(project, notebook, state.owner_key(notebook), by)
    };
    let failed = |source| ExecError::Job {
        folder: project.dir().to_owned(),
        source,
    };
    let folder = project.make_job(&mut job).map_err(failed)?;
    let recorder = recorder.map_err(OpenError::from)?;
    recorder.begin().await.map_err(OpenError::from)?;
    Ok(folder)
}

/// Returns the project's state and the session of a notebook's kernel; fails if the kernel has
/// ended.
pub(super) async fn living(
    project: &Project,
    notebook: &str,
) -> Result<(State, Session), ExecError> {
    let state = project.state()?;
    let no_kernel = |state: &str| ExecError::NoKernel {
        notebook: notebook.to_owned(),
        state: state.to_owned(),
    };
    let session = recorded(&state, project, notebook);
    let session = session.ok_or_else(|| no_kernel("none was opened"))?;
    match session.status {
        Status::Died => {
            let death = session.ended.as_ref();
            let death = death.map(|ended| death::description(notebook, ended));
            return Err(no_kernel(death.as_deref().unwrap_or("it died")));
        }
        Status::Stopped => return Err(no_kernel("it was shut down")),
        // The recorder waits until the kernel is ready.
        Status::Starting | Status::Restarting => {}
        // Without a kernel that can be reached, a recorder would be started in vain.
        Status::Live | Status::Other(_) => {
            run::reach(project, &state.owner_key(notebook), &session).await?;
        }
    }
    Ok((state, session))
}

/// Returns how long a cell may run, in seconds: never longer than the sandbox allows.
fn bounded(wanted: Option<f64>, session: &Session) -> Option<f64> {
    let bound = session.sandbox().and_then(|it| it.max_time_s);
    match (wanted, bound) {
        (Some(wanted), Some(bound)) => Some(wanted.min(bound)),
        (wanted, bound) => wanted.or(bound),
    }
}

/// A selection of cells of a notebook.
#[derive(Clone, Debug, Default)]
pub struct CellSelection {
    /// The cells at these positions; `None` selects all.
    pub places: Option<Vec<usize>>,
    /// Whether to leave out cells that are tagged `skip-execution`, as nbclient does.
    pub skips: bool,
    /// Whether to select only cells with an error among their outputs.
    pub failed: bool,
    /// Only cells with one of these tags; empty selects all.
    pub tags: Vec<String>,
}

/// Returns the selected cells that are not empty code cells, in the order of the notebook.
pub fn cells(document: &Document, selection: &CellSelection) -> Vec<JobCell> {
    let positions = selection
        .places
        .as_ref()
        .map(|places| places.iter().copied().collect::<BTreeSet<_>>());
    let cells = document.cells().iter().enumerate();
    let cells = cells.filter(|(place, cell)| {
        cell.cell_type() == CellType::Code
            && !cell.source().trim().is_empty()
            && positions
                .as_ref()
                .is_none_or(|positions| positions.contains(place))
            && !(selection.skips && is_skipped(cell))
            && (!selection.failed || cell.outputs_summary(0).failed)
            && (selection.tags.is_empty() || has_tag(cell, &selection.tags))
    });
    cells.map(|(index, cell)| job_cell(index, cell)).collect()
}

/// Returns a cell, as it is now, for a job.
pub fn job_cell(index: usize, cell: &Cell) -> JobCell {
    JobCell {
        index: Some(index),
        revision: Some(cell.revision().to_string()),
        may_raise: may_raise(cell),
        earlier_run_at: cell.execution_began(),
        ..JobCell::new(Some(cell.id().to_owned()), cell.source().into_owned())
    }
}

/// Says whether a cell is left out when all cells run. The tag means the same for nbclient, as does the next one.
pub fn is_skipped(cell: &Cell) -> bool {
    has_tag(cell, &["skip-execution".to_owned()])
}

/// Says whether a cell is tagged as code that may raise.
pub fn may_raise(cell: &Cell) -> bool {
    has_tag(cell, &["raises-exception".to_owned()])
}

/// Says whether a cell has one of the tags.
pub fn has_tag(cell: &Cell, tags: &[String]) -> bool {
    let Some(cell_tags) = cell.metadata(&["tags"]) else {
        return false;
    };
    let cell_tags: Vec<String> = serde_json::from_str(&cell_tags.text()).unwrap_or_default();
    cell_tags.iter().any(|tag| tags.contains(tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_run_in_the_notebooks_order() {
        let document = Document::parse(
            r##"{"cells":[
                {"cell_type":"code","id":"aaaa","source":"1","metadata":{"tags":["t"]},"outputs":[{"output_type":"error","ename":"E","evalue":"","traceback":[]}]},
                {"cell_type":"markdown","id":"bbbb","source":"# 2","metadata":{"tags":["t"]}},
                {"cell_type":"code","id":"cccc","source":" \n","metadata":{},"outputs":[]},
                {"cell_type":"code","id":"dddd","source":"4","metadata":{},"outputs":[]}],
                "metadata":{},"nbformat":4,"nbformat_minor":5}"##,
        )
        .unwrap();
        let ids = |selection: CellSelection| {
            let cells = cells(&document, &selection).into_iter();
            cells.filter_map(|cell| cell.cell).collect::<Vec<_>>()
        };
        assert_eq!(ids(CellSelection::default()), ["aaaa", "dddd"]);
        let places = Some(vec![3, 1, 0, 0]);
        assert_eq!(
            ids(CellSelection {
                places,
                ..CellSelection::default()
            }),
            ["aaaa", "dddd"]
        );
        let failed = true;
        assert_eq!(
            ids(CellSelection {
                failed,
                ..CellSelection::default()
            }),
            ["aaaa"]
        );
        let tags = vec!["t".to_owned()];
        assert_eq!(
            ids(CellSelection {
                tags,
                ..CellSelection::default()
            }),
            ["aaaa"]
        );
    }
}
