//! Which cells show outputs of another source than they have now.

use std::collections::HashMap;

use crate::editing::notebook_file::NotebookFile;
use crate::notebook::{Cell, CellType, Document};
use crate::project::event::{EventKind, ExecutionStart};

/// How many of the journal's events are read for it: a list of cells must cost little.
const ENTRIES: usize = 1000;

/// Returns those of these places whose outputs are of an earlier source: marked so by the recorder, as
/// the cell was edited while it ran; or edited since, where a job of the journal's last entries ran it.
/// Of what front ends run only they know when it is.
pub fn stale(page: &NotebookFile, document: &Document, places: &[usize]) -> Vec<usize> {
    let cells = places.iter().filter_map(|place| {
        let cell = document.cells().get(*place)?;
        (cell.cell_type() == CellType::Code).then_some((*place, cell))
    });
    let marked = cells.clone().filter(|(_, cell)| cell.has_stale_note());
    let mut stale: Vec<_> = marked.map(|(place, _)| place).collect();
    // One that is marked has no count.
    let mut ran = cells.filter(|(_, cell)| cell.execution_count().is_some());
    let Some(first) = ran.next() else {
        return stale;
    };
    let key = page.project.state().map(|state| state.owner_key(&page.key));
    let key = key.unwrap_or_else(|_| page.key.clone());
    let events = page.project.events(&key).take(ENTRIES);
    let events = events.filter(|event| event.notebook() == page.key);
    let starts = events.filter_map(|event| match event.kind {
        EventKind::Asked(start) if start.store_history => Some(start),
        _ => None,
    });
    // Where nobody has run anything through nb the cells need not be looked at.
    let mut starts = starts.peekable();
    if starts.peek().is_none() {
        return stale;
    }
    let ran = std::iter::once(first).chain(ran);
    let mut asked: HashMap<_, _> = ran
        .map(|(place, cell)| (cell.id(), (place, cell)))
        .collect();
    for start in starts {
        // The last that ran it counts, whoever that was.
        let cell = start.cell.as_deref().and_then(|id| asked.remove(id));
        if let Some((place, cell)) = cell
            && is_of_another(page, cell, &start)
        {
            stale.push(place);
        }
        if asked.is_empty() {
            break;
        }
    }
    stale
}

/// Says whether this execution left the outputs of a cell, and ran another source.
fn is_of_another(page: &NotebookFile, cell: &Cell, ran: &ExecutionStart) -> bool {
    if ran.code.as_ref().is_none_or(|code| *code == cell.source()) {
        return false;
    }
    // Who ran it past us has left another number.
    let job = ran.job.as_ref().and_then(|id| page.project.job(id).ok());
    let job = job.and_then(|folder| folder.read().ok());
    let cells = job.iter().flat_map(|job| &job.cells);
    let mut runs = cells.filter(|it| it.msg_id.as_ref() == Some(&ran.msg_id));
    let count = runs.next().and_then(|it| it.execution_count);
    count.is_some() && count == cell.execution_count()
}
