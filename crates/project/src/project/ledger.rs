//! `notebooks/<name>.json`: a notebook's cells as `nb` last saw them, under a lock of its own.
//!
//! `editing::history` defines the content. The lock is held while the ledger is read and written and
//! while the notebook is changed, so the ledger changes in the same order as the notebook. Beside it,
//! `<name>.edits.jsonl` has the last edits, one line each: an edit is added without a look at the others.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::beneath;
use super::folder::Project;
use super::lock::Lock;
use super::state_folder::short_name;

/// The size in bytes at which the list of the last edits becomes the earlier one, which is replaced: each has more than
/// 400 edits.
const LIMIT_OF_EDITS: u64 = 128 << 10;

/// The ledger of a notebook, locked.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    /// The lists of the last edits: the present one, and the earlier one.
    edits: [PathBuf; 2],
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
            edits: ["edits.jsonl", "edits-before.jsonl"]
                .map(|kind| folder.join(format!("{name}.{kind}"))),
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

    /// Returns the lines of the last edits, oldest first; a line that is torn is left out.
    pub fn edits<T: DeserializeOwned>(&self) -> Vec<T> {
        let texts = self.edits.iter().rev();
        let texts = texts.filter_map(|path| beneath::read(path, beneath::LARGE).ok());
        let texts: Vec<_> = texts.collect();
        let lines = texts.iter().flat_map(|text| text.split(|it| *it == b'\n'));
        let lines = lines.filter_map(|line| serde_json::from_slice(line).ok());
        lines.collect()
    }

    /// Adds lines of edits.
    pub fn add_edits<T: Serialize>(&self, edits: &[T]) -> io::Result<()> {
        let [present, before] = &self.edits;
        let mut file = beneath::append(present)?;
        if file.metadata()?.len() > LIMIT_OF_EDITS {
            beneath::rename(present, before)?;
            file = beneath::append(present)?;
        }
        file.write_all(&lines(edits)?)
    }

    /// Replaces the lines of the last edits.
    pub fn replace_edits<T: Serialize>(&self, edits: &[T]) -> io::Result<()> {
        let [present, before] = &self.edits;
        beneath::replace_unsynced(present, &lines(edits)?)?;
        match beneath::remove_file(before) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

fn lines<T: Serialize>(edits: &[T]) -> io::Result<Vec<u8>> {
    let mut lines = Vec::new();
    for edit in edits {
        // A line that a killed process has left unfinished ends here.
        lines.push(b'\n');
        serde_json::to_writer(&mut lines, edit)?;
    }
    Ok(lines)
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

    #[test]
    fn its_edits_are_added_one_by_one_and_bounded() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let ledger = project.ledger("a.ipynb", Duration::ZERO).unwrap();
        assert_eq!(ledger.edits::<String>(), [""; 0]);
        let edits: Vec<_> = (0..1000).map(|it| format!("{it:0300}")).collect();
        for edit in &edits {
            ledger.add_edits(std::slice::from_ref(edit)).unwrap();
        }
        let kept = ledger.edits::<String>();
        assert!(kept.len() > 400 && kept.len() < 1000, "{}", kept.len());
        assert_eq!(kept, edits[edits.len() - kept.len()..]);
        // A process was killed while it wrote a line.
        let mut file = beneath::append(&ledger.edits[0]).unwrap();
        file.write_all(b"\n\"to").unwrap();
        ledger.add_edits(&["last"]).unwrap();
        let last = ledger.edits::<String>();
        assert_eq!(last[last.len() - 2..], [edits[999].as_str(), "last"]);
        ledger.replace_edits(&["only"]).unwrap();
        assert_eq!(ledger.edits::<String>(), ["only"]);
    }
}
