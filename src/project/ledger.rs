//! `notebooks/<name>.json`: a notebook's cells as `nb` last saw them, under a lock of its own.
//!
//! `editing::history` defines the content. The lock is held while the ledger is read and written and
//! while the notebook is changed, so the ledger changes in the same order as the notebook.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::beneath;
use super::folder::Project;
use super::lock::Lock;
use super::state_folder::short_name;

/// The ledger of a notebook, locked.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    _lock: Lock,
}

impl Project {
    /// Locks the ledger of a notebook; waits for `within` at most.
    pub fn ledger(&self, key: &str, within: Duration) -> io::Result<Ledger> {
        let name = short_name(key);
        let folder = self.make_folder("notebooks")?;
        let lock = Lock::within(&folder.join(format!("{name}.lock")), within)?;
        let held = || io::Error::new(io::ErrorKind::TimedOut, "another nb holds the ledger");
        Ok(Ledger {
            _lock: lock.ok_or_else(held)?,
            path: folder.join(format!("{name}.json")),
        })
    }

    /// Reads the ledger of a notebook without its lock, in its last written state: it is replaced
    /// as a whole. `None` if there is none that can be read.
    pub fn last_ledger<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let name = format!("{}.json", short_name(key));
        let path = self.dir().join("notebooks").join(name);
        beneath::read_json(&path, beneath::LARGE)
    }
}

impl Ledger {
    /// Reads the ledger. `None` if there is none or it cannot be read: then it is rebuilt, and
    /// changes that were not recorded yet are lost.
    pub fn read<T: DeserializeOwned>(&self) -> Option<T> {
        let bytes = beneath::read(&self.path, beneath::LARGE).ok()?;
        let read = serde_json::from_slice(&bytes);
        read.inspect_err(
            |error| tracing::warn!(%error, path = %self.path.display(), "a ledger cannot be read and is replaced"),
        )
        .ok()
    }

    /// Replaces the ledger.
    pub fn write<T: Serialize>(&self, content: &T) -> io::Result<()> {
        beneath::write_json(&self.path, content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_kept_for_each_notebook_and_begun_anew_where_it_is_damaged() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let ledger = project.ledger("a.ipynb", Duration::ZERO).unwrap();
        assert_eq!(ledger.read::<Vec<u32>>(), None);
        ledger.write(&[1, 2]).unwrap();
        assert!(project.ledger("a.ipynb", Duration::ZERO).is_err());
        // The lock of another notebook is free while this one is held.
        let other = project.ledger("b.ipynb", Duration::ZERO).unwrap();
        assert_eq!(other.read::<Vec<u32>>(), None);
        drop(ledger);
        let ledger = project.ledger("a.ipynb", Duration::ZERO).unwrap();
        assert_eq!(ledger.read(), Some(vec![1, 2]));
        std::fs::write(&ledger.path, "[1,").unwrap();
        assert_eq!(ledger.read::<Vec<u32>>(), None);
    }
}
