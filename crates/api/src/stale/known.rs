//! What this process has read and found out about notebooks, so that the next analysis costs less.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::facts::KernelFacts;
use super::runs::KernelEvents;
use crate::editing::notebook_file::NotebookFile;
use crate::graph::EffectsCache;

/// What was found out about a notebook in its last analysis.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) events: KernelEvents,
    pub(super) facts: KernelFacts,
    pub(super) effects: EffectsCache,
}

/// A notebook, by its project's folder and its key, with what is known of it.
type KnownNotebook = ((PathBuf, String), Arc<Mutex<Known>>);

/// The notebooks that this process has analysed, the last one first.
static ANALYSED: Mutex<VecDeque<KnownNotebook>> = Mutex::new(VecDeque::new());

/// How many notebooks are kept.
const MOST_ANALYSED: usize = 8;

/// Calls `does` with what is known of a notebook: with nothing while another request uses it.
pub(super) fn with_known<T>(notebook: &NotebookFile, does: impl FnOnce(&mut Known) -> T) -> T {
    match known_of(notebook).try_lock() {
        Ok(mut known) => does(&mut known),
        Err(_) => does(&mut Known::default()),
    }
}

/// Returns what is known of a notebook.
fn known_of(notebook: &NotebookFile) -> Arc<Mutex<Known>> {
    let name = (notebook.project.dir().to_owned(), notebook.key.clone());
    let mut all = ANALYSED.lock().unwrap_or_else(PoisonError::into_inner);
    let at = all.iter().position(|(its, _)| *its == name);
    let entry = at.and_then(|at| all.remove(at));
    let entry = entry.unwrap_or_else(|| (name, Arc::default()));
    let known = entry.1.clone();
    all.push_front(entry);
    all.truncate(MOST_ANALYSED);
    known
}
