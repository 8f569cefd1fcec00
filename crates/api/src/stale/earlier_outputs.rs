//! Finds the cells that the present kernel has not run and whose outputs come from an earlier source.

use std::collections::HashMap;

use crate::editing::notebook_file::NotebookFile;
use crate::notebook::{Cell, CellType, Document};
use crate::project::event::{EventKind, ExecutionStart, requests};

/// How many of the journal's events are read for this: a list of cells must be quick.
const MOST_EVENTS: usize = 1000;

/// Returns those of the cells at `places` whose outputs come from an earlier source. Either the
/// recorder has marked them, since the cell was edited while it ran; or they were edited since a job
/// among the journal's last events ran them. For cells that front ends ran, only the front ends know.
pub(super) fn outputs_of_earlier_text(
    notebook: &NotebookFile,
    document: &Document,
    places: &[usize],
) -> Vec<usize> {
    let cells = places.iter().filter_map(|place| {
        let cell = document.cells().get(*place)?;
        (cell.cell_type() == CellType::Code).then_some((*place, cell))
    });
    let marked = cells.clone().filter(|(_, cell)| cell.has_stale_note());
    let mut stale: Vec<_> = marked.map(|(place, _)| place).collect();
    // A marked cell has no execution count.
    let mut run_cells = cells.filter(|(_, cell)| cell.execution_count().is_some());
    let Some(first) = run_cells.next() else {
        return stale;
    };
    let key = notebook
        .project
        .state()
        .map(|state| state.owner_key(&notebook.key));
    let key = key.unwrap_or_else(|_| notebook.key.clone());
    let requests = requests(notebook.project.events(&key).take(MOST_EVENTS));
    let requests = requests.filter(|event| event.notebook() == notebook.key);
    let starts = requests.filter_map(|event| match event.kind {
        EventKind::Requested(start) => Some(start),
        _ => None,
    });
    // If nothing was run through nb, the cells need not be checked.
    let mut starts = starts.peekable();
    if starts.peek().is_none() {
        return stale;
    }
    let run_cells = std::iter::once(first).chain(run_cells);
    let mut cells: HashMap<_, _> = run_cells
        .map(|(place, cell)| (cell.id(), (place, cell)))
        .collect();
    for start in starts {
        // Only the last run of the cell counts, by any actor.
        let cell = start.cell.as_deref().and_then(|id| cells.remove(id));
        if let Some((place, cell)) = cell
            && is_of_earlier_source(notebook, cell, &start)
        {
            stale.push(place);
        }
        if cells.is_empty() {
            break;
        }
    }
    stale
}

/// Says whether this execution made the outputs of a cell, from another source than its present
/// one.
fn is_of_earlier_source(notebook: &NotebookFile, cell: &Cell, ran: &ExecutionStart) -> bool {
    if ran.code.as_ref().is_none_or(|code| *code == cell.source()) {
        return false;
    }
    // A later run that is not in the journal has left another execution count.
    let job = ran
        .job
        .as_ref()
        .and_then(|id| notebook.project.job(id).ok());
    let job = job.and_then(|folder| folder.read().ok());
    let cells = job.iter().flat_map(|job| &job.cells);
    let mut runs = cells.filter(|it| it.msg_id.as_ref() == Some(&ran.msg_id));
    let count = runs.next().and_then(|it| it.execution_count);
    count.is_some() && count == cell.execution_count()
}
