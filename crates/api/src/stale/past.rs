//! What is known of a kernel's past beside the graph: names from code that the notebook does not have any more, and files
//! that have changed since they were read.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::known::with_known;
use super::runs::past_runs;
use crate::editing::notebook_file::NotebookFile;
use crate::graph::Name;
use crate::notebook::Document;

/// The code that gave a name a value, and is in no cell of the notebook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoneCode {
    /// A cell that was deleted.
    Cell,
    /// Code that was no cell: `nb run`, a console.
    Outside,
}

/// What a notebook's kernel did that the notebook does not show.
#[derive(Debug, Default)]
pub struct KernelPast {
    gone: HashMap<Name, GoneCode>,
    /// The files that the last run of each cell read, by its id, and when it began.
    files: HashMap<String, (SystemTime, Vec<PathBuf>)>,
}

impl KernelPast {
    /// Reads what is known; nothing where the project's state cannot be read.
    pub fn of(notebook: &NotebookFile, document: &Document) -> Self {
        let mut past = Self::default();
        with_known(notebook, |known| {
            let (project, key) = (&notebook.project, &notebook.key);
            let Ok(runs) = past_runs(project, key, document, &mut known.events) else {
                return;
            };
            let state = project.state().unwrap_or_default();
            let owner = state.owner_key(key);
            if let Some(session) = state.session(&owner) {
                known.facts.read(project, &owner, &session);
            }
            for run in runs {
                let Some(cell) = run.past.cell else {
                    let code = run.past.code.unwrap_or_default();
                    let by = match run.is_cell {
                        true => GoneCode::Cell,
                        false => GoneCode::Outside,
                    };
                    let effects = known.effects.of(&code);
                    past.gone
                        .extend(effects.bound().map(|name| (name.clone(), by)));
                    continue;
                };
                let facts = run.msg_id.and_then(|id| known.facts.runs.get(&id));
                let facts = facts.and_then(|(_, facts)| facts.as_ref());
                let read_only = facts.into_iter().flat_map(|facts| {
                    let reads = facts.reads.iter();
                    reads.filter(|it| !facts.writes.contains_key(*it))
                });
                let files = read_only.filter_map(|it| it.strip_prefix("file:").map(PathBuf::from));
                if let Some(at) = run.at {
                    past.files.insert(cell, (at.into(), files.collect()));
                }
            }
        });
        past
    }

    /// Returns which code that the notebook does not have any more gave a name a value.
    pub fn gone(&self, name: &Name) -> Option<GoneCode> {
        self.gone.get(name).copied()
    }

    /// Returns the first file that the last run of a cell read and that was changed after it began.
    pub fn changed_file(&self, cell: &str) -> Option<&Path> {
        let (at, files) = self.files.get(cell)?;
        let is_changed = |file: &&PathBuf| {
            let changed = std::fs::metadata(file).and_then(|it| it.modified());
            changed.map_or(!file.exists(), |changed| changed > *at)
        };
        files.iter().find(is_changed).map(PathBuf::as_path)
    }
}
