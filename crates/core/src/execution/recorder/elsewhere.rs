//! The updates by a job of display ids that earlier executions have shown. Jupyter's front ends update
//! every cell that shows the id, so the recorder updates these cells in the file. Pure; `writing`
//! writes them.
//!
//! An output is identified by the execution that made it. If its cell was edited, cleared or run again
//! since, it is not updated.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use super::outputs::Displayed;
use crate::execution::into_notebook::Update;
use crate::notebook::MimeBundle;
use crate::project::displays::Displays;
use crate::project::jobs::Job;

/// The most ids that wait to be written; only the last content of each is stored.
const IDS_MAX: usize = 1000;

/// The updates for cells of earlier executions.
#[derive(Default)]
pub(super) struct EarlierUpdates {
    shown: HashMap<String, MimeBundle>,
    /// The displays of this job's own cells that are stored on disk.
    pub(super) noted: HashMap<usize, Displays>,
    /// The ids that earlier executions have shown; read when first needed.
    known: Option<HashSet<String>>,
}

impl EarlierUpdates {
    /// Takes a displayed content. `earlier` returns the displays of earlier executions.
    pub(super) fn take(&mut self, it: Displayed, earlier: impl FnOnce() -> Vec<Displays>) {
        if it.is_own {
            let ids = || earlier().into_iter().flat_map(|it| it.ids.into_keys());
            let known = self.known.get_or_insert_with(|| ids().collect());
            if !known.contains(&it.id) {
                return;
            }
        }
        if self.shown.len() < IDS_MAX || self.shown.contains_key(&it.id) {
            self.shown.insert(it.id, it.shown);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }

    /// Takes out the waiting updates.
    pub(super) fn take_shown(&mut self) -> HashMap<String, MimeBundle> {
        std::mem::take(&mut self.shown)
    }

    /// Puts back updates that could not be written. Updates that came since are newer and stay.
    pub(super) fn put_back(&mut self, shown: HashMap<String, MimeBundle>) {
        for (id, bundle) in shown {
            self.shown.entry(id).or_insert(bundle);
        }
    }
}

/// Returns the updates for each notebook, according to the displays of earlier executions; and the ids
/// that were found there.
pub(super) fn updates(
    job: &Job,
    shown: &HashMap<String, MimeBundle>,
    earlier: &[Displays],
) -> (BTreeMap<PathBuf, Vec<Update>>, HashSet<String>) {
    let mut updates: BTreeMap<PathBuf, Vec<Update>> = BTreeMap::new();
    let mut found = HashSet::new();
    for it in earlier.iter().filter(|it| !is_own(job, it)) {
        for (id, places) in &it.ids {
            let Some(shown) = shown.get(id) else { continue };
            found.insert(id.clone());
            let of_notebook = updates.entry(it.path.clone()).or_default();
            of_notebook.push(Update {
                cell: it.cell.clone(),
                source: it.source.clone(),
                execution_count: it.execution_count,
                outputs: it.outputs,
                places: places.clone(),
                shown: shown.clone(),
            });
        }
    }
    (updates, found)
}

/// Returns whether this job runs the cell itself: its outputs are written in any case.
fn is_own(job: &Job, it: &Displays) -> bool {
    let begun = job.cells.iter().filter(|cell| cell.begun_at.is_some());
    let mut ids = begun.filter_map(|cell| cell.cell.as_ref());
    job.path == it.path && ids.any(|id| *id == it.cell)
}
