//! `displays.json`: which outputs of which cells a kernel can still update by their display ids.
//!
//! A later execution may update a display id that another cell shows; its recorder finds the outputs of that
//! id here. The file is bounded, and describes the present kernels only.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::beneath;
use super::folder::Project;
use super::lock::Lock;

/// The display ids that one execution of a cell shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Displays {
    /// The session of its kernel.
    pub session: String,
    /// The generation of that kernel; another generation knows none of the ids.
    pub generation: u64,
    /// The notebook.
    pub path: PathBuf,
    /// The cell's id.
    pub cell: String,
    /// A hash of the source that ran.
    pub source: String,
    /// The execution count, which tells this execution from all others.
    pub execution_count: u64,
    /// How many outputs the cell has after the execution.
    pub outputs: usize,
    /// The ids, each with the indices of its outputs.
    pub ids: BTreeMap<String, Vec<usize>>,
}

/// How many cells are stored at most; the oldest are dropped.
const MOST_CELLS: usize = 500;

/// How many ids of one cell are stored.
const MOST_IDS: usize = 1000;

/// How long to wait for the lock, which is never held for so long.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

impl Project {
    /// Returns the stored displays of a session's present kernel; empty if there are none or the
    /// file cannot be read.
    pub fn displays(&self, session: &str, generation: u64) -> Vec<Displays> {
        let mut all = read(&self.displays_file());
        let session = self.current_key(session);
        for it in &mut all {
            it.path = self.current_path(&it.path, &self.key(&it.path));
            it.session = self.current_key(&it.session);
        }
        all.retain(|it| it.session == session && it.generation == generation);
        all
    }

    /// Stores the display ids of an execution in place of those stored for the same cell.
    pub fn note_displays(&self, mut new: Displays) -> io::Result<()> {
        let file = self.displays_file();
        let lock = Lock::within(&file.with_extension("lock"), LOCK_TIMEOUT)?;
        let _lock = lock.ok_or_else(|| io::Error::from(io::ErrorKind::TimedOut))?;
        let mut all = read(&file);
        let before = all.clone();
        all.retain(|it| {
            let is_older = it.session == new.session && it.generation < new.generation;
            !is_older && (it.cell != new.cell || it.path != new.path)
        });
        while new.ids.len() > MOST_IDS {
            new.ids.pop_last();
        }
        if !new.ids.is_empty() {
            all.push(new);
        }
        all.drain(..all.len().saturating_sub(MOST_CELLS));
        match all == before {
            true => Ok(()),
            false => beneath::write_json(&file, &all),
        }
    }

    fn displays_file(&self) -> PathBuf {
        self.dir().join("displays.json")
    }
}

fn read(file: &Path) -> Vec<Displays> {
    beneath::read_json(file, beneath::SMALL).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(cell: &str, generation: u64, ids: &[&str]) -> Displays {
        Displays {
            session: "a.ipynb".to_owned(),
            generation,
            path: "/p/a.ipynb".into(),
            cell: cell.to_owned(),
            source: String::new(),
            execution_count: 1,
            outputs: 1,
            ids: ids.iter().map(|id| ((*id).to_owned(), vec![0])).collect(),
        }
    }

    #[test]
    fn the_last_execution_of_a_cell_by_the_present_kernel_is_known() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        assert!(project.displays("a.ipynb", 1).is_empty());
        project.note_displays(shown("c", 1, &["x"])).unwrap();
        project.note_displays(shown("d", 1, &["x"])).unwrap();
        project.note_displays(shown("c", 1, &["y"])).unwrap();
        let known = project.displays("a.ipynb", 1);
        assert_eq!(known, [shown("d", 1, &["x"]), shown("c", 1, &["y"])]);
        assert!(project.displays("b.ipynb", 1).is_empty());
        // This execution shows nothing any more.
        project.note_displays(shown("d", 1, &[])).unwrap();
        assert_eq!(project.displays("a.ipynb", 1).len(), 1);
        project.note_displays(shown("e", 2, &["z"])).unwrap();
        assert!(project.displays("a.ipynb", 1).is_empty());
        for at in 0..MOST_CELLS + 10 {
            let cell = format!("c{at}");
            project.note_displays(shown(&cell, 2, &["x"])).unwrap();
        }
        let known = project.displays("a.ipynb", 2);
        assert_eq!((known.len(), &*known[0].cell), (MOST_CELLS, "c10"));
    }
}
