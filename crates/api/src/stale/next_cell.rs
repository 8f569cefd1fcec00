//! The next cell of a job that runs what is out of date, by what each cell before it changed.

use super::witnessed::{NextRun, WitnessedNotebook};
use crate::editing::notebook_file::NotebookFile;
use crate::execution::exec::job_cell;
use crate::notebook::Document;
use crate::project::jobs::{Job, JobCell};
use crate::task::causes::with_causes;

/// Returns the cell that a job runs next; none if the kernel has what Restart & Run All would give it.
///
/// # Errors
/// Why it is not known, or that the cells do not settle, in words.
pub fn next_cell(job: &Job) -> Result<Option<JobCell>, String> {
    let notebook = NotebookFile::of(&job.path).map_err(|error| with_causes(&error))?;
    let document = notebook.read().map_err(|error| with_causes(&error))?;
    let cells = job.cells.iter().filter(|_| job.allow_errors);
    let accepted = cells.filter_map(|cell| cell.msg_id.as_deref()).collect();
    let only = job.goal.as_ref().and_then(|goal| goal.only.as_deref());
    let witnessed = WitnessedNotebook::of(&notebook, &document, only, &accepted);
    let Some(witnessed) = witnessed.map_err(|error| with_causes(&error))? else {
        return Err("what the cells changed is not known any more: the rest is not run".to_owned());
    };
    let most = 5 * witnessed.cell_count() + 5;
    match witnessed.next() {
        NextRun::Nothing(_) => Ok(None),
        NextRun::Cell(..) if job.cells.len() >= most => Err(format!(
            "after {most} runs the cells still change what others read: run all of them on a new kernel"
        )),
        next @ NextRun::Cell(..) => Ok(next.job_cell(&document)),
    }
}

impl NextRun {
    /// Returns the cell to run, for a job.
    pub fn job_cell(self, document: &Document) -> Option<JobCell> {
        let Self::Cell(index, unbind) = self else {
            return None;
        };
        Some(JobCell {
            unbind: unbind.into_iter().collect(),
            ..job_cell(index, document.cells().get(index)?)
        })
    }
}
