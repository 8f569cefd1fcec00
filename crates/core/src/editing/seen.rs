//! The revisions of cells that an actor has seen: `nb` has shown them to it, or written them for it.
//!
//! `.nb/seen/` has a file for each notebook and actor. Its size is bounded: it holds the last few
//! revisions of each cell; when it has too many cells, those that are no longer in the notebook are
//! removed; and a file that was not written for half a year is removed.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::notebook_file::NotebookFile;
use crate::activity::actor::Actor;
use crate::notebook::Revision;
use crate::project::names;

/// How many revisions of a cell are stored: another actor's undo restores an earlier one.
const MOST_REVISIONS: usize = 4;

/// The number of cells above which those that are not in the notebook are removed.
const MOST_CELLS: usize = 4_000;

/// The cells of a notebook that an actor has seen.
#[derive(Debug)]
pub struct SeenCells {
    notebook: NotebookFile,
    path: PathBuf,
    content: SeenFile,
    /// The revisions that are not in the file yet, in the order in which they were seen.
    new: Vec<(String, Revision)>,
}

/// The file's content: the revisions of each cell, the last one seen at the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct SeenFile {
    notebook: String,
    name: String,
    cells: BTreeMap<String, Vec<Revision>>,
}

impl SeenCells {
    /// Reads what an actor has seen. All front ends and terminals are one human.
    pub fn of(notebook: &NotebookFile, name: &str) -> Self {
        let name = if Actor::from(name).is_human() {
            "human"
        } else {
            name
        };
        let path = notebook.project.seen_file(&notebook.key, name);
        let content = SeenFile {
            notebook: notebook.key.clone(),
            name: name.to_owned(),
            ..names::read(&path)
        };
        Self {
            notebook: notebook.clone(),
            path,
            content,
            new: Vec::new(),
        }
    }

    /// Returns whether the actor has seen this revision of a cell.
    pub fn has(&self, cell: &str, revision: Revision) -> bool {
        let known = self.content.cells.get(cell);
        known.is_some_and(|known| known.contains(&revision))
    }

    /// Returns the revision of a cell that the actor saw last.
    pub fn last(&self, cell: &str) -> Option<Revision> {
        self.content.cells.get(cell)?.last().copied()
    }

    /// Returns the ids of all cells of which the actor has seen a revision.
    pub fn cells(&self) -> HashSet<String> {
        self.content.cells.keys().cloned().collect()
    }

    /// Marks a revision of a cell as seen.
    pub fn show(&mut self, cell: &str, revision: Revision) {
        if self.last(cell) != Some(revision) {
            self.content.show(cell, revision);
            self.new.push((cell.to_owned(), revision));
        }
    }

    /// Stores the new revisions. A failure is only logged: the actor has to view the cells once
    /// more.
    pub fn remember(&mut self) {
        if self.new.is_empty() {
            return;
        }
        let known = &self.content;
        let stored = names::update(&self.path, |content: &mut SeenFile| {
            content.notebook.clone_from(&known.notebook);
            content.name.clone_from(&known.name);
            // Another command of this actor may have stored more in the meantime.
            for (cell, revision) in self.new.drain(..) {
                content.show(&cell, revision);
            }
            if content.cells.len() > MOST_CELLS
                && let Ok(document) = self.notebook.read()
            {
                let present_ids: HashSet<_> =
                    document.cells().iter().map(|cell| cell.id()).collect();
                content.cells.retain(|id, _| present_ids.contains(&**id));
            }
        });
        match stored {
            Ok(content) => self.content = content,
            Err(error) => tracing::warn!(%error, "the seen revisions cannot be stored"),
        }
    }
}

impl SeenFile {
    fn show(&mut self, cell: &str, revision: Revision) {
        let known = self.cells.entry(cell.to_owned()).or_default();
        known.retain(|known| *known != revision);
        known.push(revision);
        let too_many = known.len().saturating_sub(MOST_REVISIONS);
        known.drain(..too_many);
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
        let notebook = NotebookFile::of(&path).unwrap();
        let rev = |number: u8| -> Revision { format!("{number:010}").parse().unwrap() };
        let (mut one, mut two) = (
            SeenCells::of(&notebook, "claude"),
            SeenCells::of(&notebook, "claude"),
        );
        assert!(!one.has("a", rev(1)));
        one.show("a", rev(1));
        one.remember();
        // Two concurrent commands of one actor lose none of each other's revisions.
        two.show("b", rev(2));
        two.remember();
        let seen = SeenCells::of(&notebook, "claude");
        assert!(seen.has("a", rev(1)) && seen.has("b", rev(2)) && !seen.has("a", rev(2)));
        assert!(!SeenCells::of(&notebook, "codex").has("a", rev(1)));
        for number in 2..=9 {
            one.show("a", rev(number));
        }
        assert!(one.has("a", rev(9)) && one.has("a", rev(6)) && !one.has("a", rev(1)));
        let mut human = SeenCells::of(&notebook, "human (VS Code)");
        human.show("a", rev(1));
        human.remember();
        assert!(SeenCells::of(&notebook, "human").has("a", rev(1)));
    }
}
