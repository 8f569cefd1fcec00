//! `notebooks/<name>.json`: what `nb` knew last of a notebook, under a lock of its own.
//!
//! What is in it is the business of whoever keeps it. Reading and writing it, and the change of the
//! notebook that it tells of, lie under its one lock: so the ledger changes in the order in which
//! the file did.

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
    /// Waits for the ledger of a notebook, `within` at most.
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

    /// Reads the ledger of a notebook without its lock, as it was written last: it is replaced as a
    /// whole. None where there is none that can be read.
    pub fn last_ledger<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let name = format!("{}.json", short_name(key));
        let path = self.dir().join("notebooks").join(name);
        let bytes = beneath::read(&path, beneath::LARGE).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Returns the path of what a name was told.
    pub fn name_file(&self, name: &str) -> PathBuf {
        self.dir()
            .join("names")
            .join(format!("{}.json", short_name(name)))
    }

    /// Returns the path of what a name has seen of a notebook.
    pub fn seen_file(&self, key: &str, name: &str) -> PathBuf {
        let name = format!("{}.{}.json", short_name(key), short_name(name));
        self.dir().join("seen").join(name)
    }
}

impl Ledger {
    /// Reads it; none where there is none, or none that can be read: it is begun anew, which costs
    /// what was not written down yet.
    pub fn read<T: DeserializeOwned>(&self) -> Option<T> {
        let bytes = beneath::read(&self.path, beneath::LARGE).ok()?;
        let read = serde_json::from_slice(&bytes);
        read.inspect_err(
            |error| tracing::warn!(%error, path = %self.path.display(), "a ledger is begun anew"),
        )
        .ok()
    }

    /// Replaces it.
    pub fn write<T: Serialize>(&self, content: &T) -> io::Result<()> {
        beneath::replace_unsynced(&self.path, &serde_json::to_vec(content)?)
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
        // Another notebook's is free while this one is held.
        let other = project.ledger("b.ipynb", Duration::ZERO).unwrap();
        assert_eq!(other.read::<Vec<u32>>(), None);
        drop(ledger);
        let ledger = project.ledger("a.ipynb", Duration::ZERO).unwrap();
        assert_eq!(ledger.read(), Some(vec![1, 2]));
        std::fs::write(&ledger.path, "[1,").unwrap();
        assert_eq!(ledger.read::<Vec<u32>>(), None);
    }
}
