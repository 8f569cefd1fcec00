//! `displays.json`: where in which notebook stands what a kernel shows under display ids.
//!
//! A later execution may show something else under the same id, wherever that stands: whoever records
//! it finds the place here. What is here is bounded, and of the present kernels only.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::beneath;
use super::folder::Project;
use super::lock::Lock;

/// What one execution of a cell shows under display ids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Displays {
    /// The session whose kernel it is.
    pub session: String,
    /// Which of its kernels: another knows none of the ids.
    pub generation: u64,
    /// The notebook.
    pub path: PathBuf,
    /// The cell's id.
    pub cell: String,
    /// A hash of the source that ran.
    pub source: String,
    /// The number that the kernel gave the execution, which tells it from every other.
    pub execution_count: u64,
    /// How many outputs it has left.
    pub outputs: usize,
    /// The ids, each with the places of its outputs.
    pub ids: BTreeMap<String, Vec<usize>>,
}

/// How many cells are known at most; the oldest go.
const CELLS: usize = 500;

/// How many ids of one cell.
const IDS: usize = 1000;

/// Longer than anybody holds the lock.
const HELD: Duration = Duration::from_secs(2);

impl Project {
    /// Returns what the present kernel of a session shows under display ids, where anybody noted it;
    /// nothing where that cannot be read.
    pub fn displays(&self, session: &str, generation: u64) -> Vec<Displays> {
        let mut all = read(&self.displays_file());
        all.retain(|it| it.session == session && it.generation == generation);
        all
    }

    /// Notes what an execution shows, instead of what was known of the cell.
    pub fn note_displays(&self, mut new: Displays) -> io::Result<()> {
        let file = self.displays_file();
        let lock = Lock::within(&file.with_extension("lock"), HELD)?;
        let _lock = lock.ok_or_else(|| io::Error::from(io::ErrorKind::TimedOut))?;
        let mut all = read(&file);
        let before = all.clone();
        all.retain(|it| {
            let is_older = it.session == new.session && it.generation < new.generation;
            !is_older && (it.cell != new.cell || it.path != new.path)
        });
        while new.ids.len() > IDS {
            new.ids.pop_last();
        }
        if !new.ids.is_empty() {
            all.push(new);
        }
        all.drain(..all.len().saturating_sub(CELLS));
        match all == before {
            true => Ok(()),
            false => beneath::replace_unsynced(&file, &serde_json::to_vec(&all)?),
        }
    }

    fn displays_file(&self) -> PathBuf {
        self.dir().join("displays.json")
    }
}

fn read(file: &Path) -> Vec<Displays> {
    let text = beneath::read(file, beneath::SMALL).ok();
    let read = text.and_then(|text| serde_json::from_slice(&text).ok());
    read.unwrap_or_default()
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
        // One that shows nothing any more.
        project.note_displays(shown("d", 1, &[])).unwrap();
        assert_eq!(project.displays("a.ipynb", 1).len(), 1);
        project.note_displays(shown("e", 2, &["z"])).unwrap();
        assert!(project.displays("a.ipynb", 1).is_empty());
        for at in 0..CELLS + 10 {
            let cell = format!("c{at}");
            project.note_displays(shown(&cell, 2, &["x"])).unwrap();
        }
        let known = project.displays("a.ipynb", 2);
        assert_eq!((known.len(), &*known[0].cell), (CELLS, "c10"));
    }
}
