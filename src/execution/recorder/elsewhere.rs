//! What a job shows under display ids of earlier executions: Jupyter's front ends show it in whichever
//! cell that id stands, so the recorder puts it there in the file.
//!
//! A place is known by the execution that left it. Where that cell was edited, cleared or run again
//! since, nothing is touched.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::time::Instant;

use sha2::{Digest as _, Sha256};

use super::Recorder;
use super::gaps::Wrote;
use super::writing::Recorded;
use crate::execution::flush::{ask_to_write, holders};
use crate::execution::into_notebook::{self, Update};
use crate::notebook::MimeBundle;
use crate::project::displays::Displays;
use crate::project::jobs::Job;

/// How many ids are waited with at most; each has what it shows last.
const MOST: usize = 1000;

/// What is to be shown in cells of earlier executions.
#[derive(Default)]
pub(super) struct Elsewhere {
    shown: HashMap<String, MimeBundle>,
    /// What was noted of this job's own cells.
    noted: HashMap<usize, Displays>,
    /// The ids that earlier executions have shown, once that matters.
    known: Option<HashSet<String>>,
}

impl Recorder<'_> {
    /// Takes what is shown under an id; `is_own` says that a cell of this job shows it.
    pub(super) fn takes_shown(&self, id: &str, shown: &MimeBundle, is_own: bool) {
        if !self.reaches_elsewhere() {
            return;
        }
        let mut elsewhere = self.elsewhere.borrow_mut();
        if is_own {
            let known = elsewhere.known.get_or_insert_with(|| {
                let noted = self.displays();
                noted
                    .into_iter()
                    .flat_map(|it| it.ids.into_keys())
                    .collect()
            });
            if !known.contains(id) {
                return;
            }
        }
        if elsewhere.shown.len() < MOST || elsewhere.shown.contains_key(id) {
            elsewhere.shown.insert(id.to_owned(), shown.clone());
        }
    }

    /// Says whether the job may change the notebook: code that is no cell's has no outputs there.
    fn reaches_elsewhere(&self) -> bool {
        let job = self.job.borrow();
        job.saves || job.cells.iter().all(|cell| cell.cell.is_none())
    }

    fn displays(&self) -> Vec<Displays> {
        let job = self.job.borrow();
        let generation = job.generation.unwrap_or_default();
        self.project.displays(&job.session, generation)
    }

    /// Notes what the cells show that have just been written.
    pub(super) fn note_displays(&self, all: impl IntoIterator<Item = (usize, Displays)>) {
        let mut elsewhere = self.elsewhere.borrow_mut();
        for (at, new) in all {
            let before = elsewhere.noted.get(&at);
            if before == Some(&new) || (before.is_none() && new.ids.is_empty()) {
                continue;
            }
            match self.project.note_displays(new.clone()) {
                Ok(()) => {
                    elsewhere.noted.insert(at, new);
                }
                Err(error) => tracing::warn!(%error, "what is shown could not be noted"),
            }
        }
    }

    /// Puts into earlier executions' cells what this job shows there.
    pub(super) async fn show_elsewhere(&self) -> Wrote {
        let mut shown = std::mem::take(&mut self.elsewhere.borrow_mut().shown);
        if shown.is_empty() {
            return Wrote::default();
        }
        let mut updates: BTreeMap<PathBuf, Vec<Update>> = BTreeMap::new();
        let mut found = HashSet::new();
        for place in self.displays() {
            if self.is_own(&place) {
                continue;
            }
            for (id, places) in &place.ids {
                let Some(shown) = shown.get(id) else { continue };
                found.insert(id.clone());
                let of_notebook = updates.entry(place.path.clone()).or_default();
                of_notebook.push(Update {
                    cell: place.cell.clone(),
                    source: place.source.clone(),
                    execution_count: place.execution_count,
                    outputs: place.outputs,
                    places: places.clone(),
                    shown: shown.clone(),
                });
            }
        }
        let begun = Instant::now();
        let mut wrote = Wrote::default();
        for (path, updates) in updates {
            let told = path.display().to_string();
            let put = tokio::task::spawn_blocking(move || into_notebook::update(&path, &updates));
            match put.await.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(bytes) => wrote.bytes += bytes as u64,
                Err(why) => {
                    wrote.failed = true;
                    let note = format!(
                        "what it shows in earlier cells of {told} is not there: {why}; run it again once that is mended"
                    );
                    self.job(|job| {
                        if !job.notes.contains(&note) {
                            job.notes.push(note);
                        }
                    });
                }
            }
        }
        if !wrote.failed {
            shown.retain(|id, _| !found.contains(id));
        }
        // An earlier recorder may not have noted it yet. What came meanwhile is newer.
        let mut elsewhere = self.elsewhere.borrow_mut();
        for (id, bundle) in shown {
            elsewhere.shown.entry(id).or_insert(bundle);
        }
        wrote.took = begun.elapsed();
        wrote
    }

    /// Does so at the end of the job, once earlier recorders have written what theirs show.
    pub(super) async fn show_elsewhere_at_last(&self) {
        self.show_elsewhere().await;
        if self.elsewhere.borrow().shown.is_empty() {
            return;
        }
        let session = self.job.borrow().session.clone();
        let others = holders(self.project, |job| job.session == session);
        let others = others.into_iter().filter(|it| it.id() != self.folder.id());
        if let Err(error) = ask_to_write(others.collect()).await {
            tracing::warn!(%error, "other recorders could not be asked");
        }
        self.show_elsewhere().await;
    }

    /// Says whether a place is a cell that this job runs itself: its outputs are written anyway.
    fn is_own(&self, place: &Displays) -> bool {
        let job = self.job.borrow();
        let begun = job.cells.iter().filter(|cell| cell.begun_at.is_some());
        let mut ids = begun.filter_map(|cell| cell.cell.as_ref());
        job.path == place.path && ids.any(|id| *id == place.cell)
    }
}

impl Recorded {
    /// Returns what one of a job's cells shows under display ids, once the kernel has counted it.
    pub(super) fn displays(&self, job: &Job, at: usize) -> Option<Displays> {
        let ran = job.cells.get(at)?;
        // Where a front end's cell stands is found by its text.
        if job.front_end.is_some() {
            return None;
        }
        let mut ids: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let (outputs, shown) = self.folded.displayed();
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
            outputs,
            ids,
        })
    }
}

/// Returns a hash of a source: the source itself need not be kept.
pub(in crate::execution) fn hash(source: &str) -> String {
    hex::encode(Sha256::digest(source))
}
