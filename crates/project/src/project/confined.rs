//! The record of the notebooks whose kernels run in a sandbox or container, in the user's state folder.
//!
//! `.nb` knows a notebook by its path. When another program moves or copies the notebook, or deletes `.nb`, nothing
//! there says any more that its cells run in a sandbox. So the record has the cells.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::folder::Project;
use super::save;
use super::state_folder::{make_private, short_name, state_folder};
use crate::notebook::Revision;

/// A notebook whose kernel runs in a sandbox or container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfinedNotebook {
    /// Its path.
    pub notebook: PathBuf,
    /// The `state.json` of its project.
    pub state_file: PathBuf,
    /// Its key there.
    pub key: String,
    /// Whether it is a container.
    pub is_container: bool,
    /// The ids and revisions of its cells, as `nb` last saw them; the first 1,000.
    pub cells: Vec<(String, Revision)>,
    /// Fields of another version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// How many cells of a notebook are recorded, and how many notebooks: the oldest are dropped.
const MOST_CELLS: usize = 1000;
const MOST_NOTEBOOKS: usize = 2000;

impl ConfinedNotebook {
    /// Returns whether this is the record of a project's notebook.
    pub fn is_of(&self, project: &Project, key: &str) -> bool {
        self.key == key && self.state_file == project.state_file()
    }
}

impl Project {
    /// Records that a notebook with these cells runs in a sandbox or container.
    ///
    /// # Errors
    /// It could not be recorded.
    pub fn remember_confined(
        &self,
        key: &str,
        is_container: bool,
        cells: &[(String, Revision)],
    ) -> io::Result<()> {
        let folder = folder().ok_or_else(|| io::Error::other("there is no home folder"))?;
        self.remember_confined_in(&folder, key, is_container, cells)
    }

    fn remember_confined_in(
        &self,
        folder: &Path,
        key: &str,
        is_container: bool,
        cells: &[(String, Revision)],
    ) -> io::Result<()> {
        let entry = ConfinedNotebook {
            notebook: self.notebook(key),
            state_file: self.state_file(),
            key: key.to_owned(),
            is_container,
            cells: cells.iter().take(MOST_CELLS).cloned().collect(),
            other: Map::new(),
        };
        let file = self.confined_file(folder, key);
        let before = read(&file);
        if before.as_ref() == Some(&entry) {
            return Ok(());
        }
        make_private(folder)?;
        if before.is_none() {
            drop_oldest(folder);
        }
        save::replace_unsynced(&file, &serde_json::to_vec(&entry)?)
    }

    /// Records the present cells of a notebook, if it runs in a sandbox or container. A failure is logged and has no
    /// other effect.
    pub fn update_confined(&self, key: &str, cells: &[(String, Revision)]) {
        let Some(folder) = folder() else {
            return;
        };
        let Some(before) = read(&self.confined_file(&folder, key)) else {
            return;
        };
        let done = self.remember_confined_in(&folder, key, before.is_container, cells);
        if let Err(error) = done {
            tracing::warn!(%error, "the cells of {key}, which run in a sandbox, cannot be recorded");
        }
    }

    /// Forgets that a notebook ran in a sandbox or container.
    pub fn forget_confined(&self, key: &str) {
        if let Some(folder) = folder() {
            let _ = std::fs::remove_file(self.confined_file(&folder, key));
        }
    }

    fn confined_file(&self, folder: &Path, key: &str) -> PathBuf {
        // Paths and keys contain no zero byte.
        let whole = format!("{}\0{key}", self.state_file().to_string_lossy());
        folder.join(format!("{}.json", short_name(&whole)))
    }
}

/// Returns the notebooks whose kernels run in a sandbox or container, including those that were moved or deleted.
pub fn known() -> Vec<ConfinedNotebook> {
    folder().map(|it| known_in(&it)).unwrap_or_default()
}

fn known_in(folder: &Path) -> Vec<ConfinedNotebook> {
    let mut known: Vec<_> = files(folder).filter_map(|file| read(&file)).collect();
    known.sort_by(|one, other| one.notebook.cmp(&other.notebook));
    known
}

fn files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|ending| ending == "json"))
}

fn read(file: &Path) -> Option<ConfinedNotebook> {
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}

/// Makes room for one more record.
fn drop_oldest(folder: &Path) {
    let written = |file: &PathBuf| {
        let metadata = std::fs::metadata(file);
        let at = metadata.and_then(|it| it.modified());
        at.unwrap_or(SystemTime::UNIX_EPOCH)
    };
    let mut files: Vec<_> = files(folder).collect();
    if files.len() < MOST_NOTEBOOKS {
        return;
    }
    files.sort_by_cached_key(written);
    for file in files.iter().take(files.len() + 1 - MOST_NOTEBOOKS) {
        let _ = std::fs::remove_file(file);
    }
}

fn folder() -> Option<PathBuf> {
    Some(state_folder()?.join("confined"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notebook_is_recorded_once_with_its_last_cells() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let folder = temp.path().join("confined");
        assert_eq!(known_in(&folder), []);
        let cell = |id: &str| (id.to_owned(), Revision::of_cells([]));
        for cells in [vec![], vec![cell("one")], vec![cell("one"), cell("two")]] {
            project
                .remember_confined_in(&folder, "a.ipynb", false, &cells)
                .unwrap();
            project
                .remember_confined_in(&folder, "b.ipynb", true, &cells)
                .unwrap();
        }
        let known = known_in(&folder);
        assert_eq!(known.len(), 2);
        assert_eq!(known[0].cells, [cell("one"), cell("two")]);
        assert!(known[0].is_of(&project, "a.ipynb") && !known[0].is_of(&project, "b.ipynb"));
        assert!(known[1].is_container);
        std::fs::write(folder.join("damaged.json"), "{").unwrap();
        assert_eq!(known_in(&folder).len(), 2);
    }
}
