//! Which revisions of cells have been shown to a name, or written by it.
//!
//! `.nb/seen/` has a file for each notebook and name. Its size is bounded: the last few revisions
//! of a cell count, what the notebook has no more is forgotten when there is too much, and the file
//! of a name that has not looked for half a year goes.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::notebook_file::NotebookFile;
use crate::activity::company;
use crate::notebook::{Document, Revision};
use crate::project::{Lock, Project, beneath};

/// So many revisions of a cell are remembered: somebody else's undo brings an earlier one back.
const REVISIONS: usize = 4;

/// From so many cells on those are forgotten that are not in the notebook.
const CELLS: usize = 4_000;

/// How long is waited for another command that writes there: what is not remembered fails nothing.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a name has not looked at for so long it has forgotten.
const FORGOTTEN: Duration = Duration::from_secs(180 * 24 * 3600);

/// What a name has seen of a notebook.
#[derive(Debug)]
pub struct Seen {
    project: Project,
    path: PathBuf,
    memory: Memory,
    /// What is new, in order.
    new: Vec<(String, Revision)>,
}

/// The file's content: the revisions of each cell, the last one seen at the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Memory {
    notebook: String,
    name: String,
    cells: BTreeMap<String, Vec<Revision>>,
}

impl Seen {
    /// Reads what a name has seen. There is one human, at whatever front end.
    pub fn of(page: &NotebookFile, name: &str) -> Self {
        let name = if company::is_human(name) {
            "human"
        } else {
            name
        };
        let path = page.project.seen_file(&page.key, name);
        let memory = read(&path).unwrap_or_else(|| Memory {
            notebook: page.key.clone(),
            name: name.to_owned(),
            cells: BTreeMap::new(),
        });
        Self {
            project: page.project.clone(),
            path,
            memory,
            new: Vec::new(),
        }
    }

    /// Returns whether this revision of a cell has been shown to the name, or written by it.
    pub fn has(&self, cell: &str, revision: Revision) -> bool {
        let known = self.memory.cells.get(cell);
        known.is_some_and(|known| known.contains(&revision))
    }

    /// Returns the revision of a cell that the name saw last.
    pub fn last(&self, cell: &str) -> Option<Revision> {
        self.memory.cells.get(cell)?.last().copied()
    }

    /// Returns the ids of all cells of which the name has seen anything.
    pub fn cells(&self) -> HashSet<String> {
        self.memory.cells.keys().cloned().collect()
    }

    /// Takes a revision of a cell for seen.
    pub fn show(&mut self, cell: &str, revision: Revision) {
        if self.last(cell) != Some(revision) {
            self.memory.show(cell, revision);
            self.new.push((cell.to_owned(), revision));
        }
    }

    /// Remembers what is new. It fails no command: what is not remembered is shown once more.
    pub fn remember(&mut self, document: &Document) {
        if !self.new.is_empty() {
            let done = self.write(document);
            let _ = done.inspect_err(|error| tracing::warn!(%error, "what was seen is forgotten"));
        }
    }

    fn write(&mut self, document: &Document) -> io::Result<()> {
        let folder = self.project.make_folder("seen")?;
        let lock = Lock::within(&folder.join("lock"), PATIENCE)?;
        let _lock = lock.ok_or_else(|| io::Error::from(io::ErrorKind::TimedOut))?;
        // Another command of this name may have shown more meanwhile.
        match read(&self.path) {
            Some(there) => {
                self.memory = there;
                for (cell, revision) in &self.new {
                    self.memory.show(cell, *revision);
                }
            }
            None => forget(&folder),
        }
        if self.memory.cells.len() > CELLS {
            let there: HashSet<_> = document.cells().iter().map(|cell| cell.id()).collect();
            self.memory.cells.retain(|id, _| there.contains(&**id));
        }
        self.new.clear();
        beneath::replace_unsynced(&self.path, &serde_json::to_vec(&self.memory)?)
    }
}

impl Memory {
    fn show(&mut self, cell: &str, revision: Revision) {
        let known = self.cells.entry(cell.to_owned()).or_default();
        known.retain(|known| *known != revision);
        known.push(revision);
        let too_many = known.len().saturating_sub(REVISIONS);
        known.drain(..too_many);
    }
}

fn read(path: &Path) -> Option<Memory> {
    serde_json::from_slice(&beneath::read(path, beneath::SMALL).ok()?).ok()
}

/// Removes what names saw that have not looked for long.
fn forget(folder: &Path) {
    let Some(oldest) = SystemTime::now().checked_sub(FORGOTTEN) else {
        return;
    };
    for entry in beneath::list(folder).into_iter().flatten().flatten() {
        let time = entry.metadata().and_then(|data| data.modified());
        let path = entry.path();
        if time.is_ok_and(|time| time < oldest) && path.extension().is_some_and(|it| it == "json") {
            let _ = beneath::remove_file(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notebook::new_notebook;

    #[test]
    fn each_name_has_seen_what_it_was_shown() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a.ipynb");
        std::fs::write(&path, new_notebook("python3", "Python 3", "python")).unwrap();
        let page = NotebookFile::of(&path).unwrap();
        let document = page.read().unwrap();
        let rev = |number: u8| -> Revision { format!("{number:010}").parse().unwrap() };
        let (mut one, mut two) = (Seen::of(&page, "claude"), Seen::of(&page, "claude"));
        assert!(!one.has("a", rev(1)));
        one.show("a", rev(1));
        one.remember(&document);
        // Two commands of one name at once lose nothing of each other.
        two.show("b", rev(2));
        two.remember(&document);
        let seen = Seen::of(&page, "claude");
        assert!(seen.has("a", rev(1)) && seen.has("b", rev(2)) && !seen.has("a", rev(2)));
        assert!(!Seen::of(&page, "codex").has("a", rev(1)));
        for number in 2..=9 {
            one.show("a", rev(number));
        }
        assert!(one.has("a", rev(9)) && one.has("a", rev(6)) && !one.has("a", rev(1)));
        let mut human = Seen::of(&page, "human (VS Code)");
        human.show("a", rev(1));
        human.remember(&document);
        assert!(Seen::of(&page, "human").has("a", rev(1)));
    }
}
