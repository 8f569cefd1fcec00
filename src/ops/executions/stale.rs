//! Which cells show outputs of another source than they have now.

use std::collections::HashMap;

use crate::notebook::{Cell, CellType, Document};
use crate::ops::editing::page::Page;
use crate::project::journal::Entry;

/// How many of the journal's entries are read for it: a list of cells must cost little.
const ENTRIES: usize = 1000;

/// Returns those of these places whose outputs are of an earlier source: marked so by the recorder, as
/// the cell was edited while it ran; or edited since, where a job of the journal's last entries ran it.
/// Of what front ends run only they know when it is.
pub fn stale(page: &Page, document: &Document, places: &[usize]) -> Vec<usize> {
    let mut stale = Vec::new();
    let mut asked: HashMap<&str, (usize, &Cell)> = HashMap::new();
    for place in places {
        let Some(cell) = document.cells().get(*place) else {
            continue;
        };
        if cell.cell_type() != CellType::Code {
            continue;
        }
        if cell.is_marked_stale() {
            stale.push(*place);
        } else if cell.execution_count().is_some() {
            asked.insert(cell.id(), (*place, cell));
        }
    }
    if asked.is_empty() {
        return stale;
    }
    let key = page.project.state().map(|state| state.owner_key(&page.key));
    let past = page.project.past(&key.unwrap_or_else(|_| page.key.clone()));
    for entry in past.take(ENTRIES).map(|placed| placed.entry) {
        let notebook = entry.notebook.as_ref().unwrap_or(&entry.session);
        if entry.event != "asked" || !entry.store_history || *notebook != page.key {
            continue;
        }
        // The last that ran it counts, whoever that was.
        let cell = entry.cell.as_deref().and_then(|id| asked.remove(id));
        if let Some((place, cell)) = cell
            && is_of_another(page, cell, &entry)
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
fn is_of_another(page: &Page, cell: &Cell, ran: &Entry) -> bool {
    if ran.code.as_ref().is_none_or(|code| *code == cell.source()) {
        return false;
    }
    // Who ran it past us has left another number.
    let job = ran.job.as_ref().and_then(|id| page.project.job(id).ok());
    let job = job.and_then(|folder| folder.read().ok());
    let cells = job.iter().flat_map(|job| &job.cells);
    let mut runs = cells.filter(|it| it.msg_id == ran.msg_id);
    let count = runs.next().and_then(|it| it.execution_count);
    count.is_some() && count == cell.execution_count()
}
