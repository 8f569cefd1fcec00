//! `names/<name>.json`: what one name was told in a project.
//!
//! A file is bounded: the cursors of notebooks that the name has not looked at for half a year go, and only
//! the last notices are remembered. The file of a name that has not looked for so long goes with them.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::project::event::Position;
use crate::project::{Lock, Project, beneath};

/// How long is waited for another command of anybody's that writes there.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is remembered of a name that has not looked for so long is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(180 * 24 * 3600);

/// So many notices are remembered; the oldest go first.
const NOTICES: usize = 200;

/// What one name was told.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Memory {
    /// The name, for a human reader.
    pub(super) name: String,
    /// How far in the journal the name was told: of a kernel by its session's key, of a notebook's cells by
    /// [`cells_of`].
    pub(super) cursors: BTreeMap<String, Cursor>,
    /// What is told only once.
    pub(super) notices: Vec<String>,
}

/// How far a name was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cursor {
    /// When.
    pub(super) at: Timestamp,
    /// Where in the journal the new events begin.
    pub(super) position: Position,
    /// Which of the session's kernels the name knew.
    pub(super) generation: u64,
}

/// Returns the key of a notebook's cells in [`Memory::cursors`]: no session has such a key.
pub(super) fn cells_of(key: &str) -> String {
    format!("cells of {key}")
}

impl Memory {
    /// Reads what a name was told; nothing where that cannot be read.
    pub(super) fn read(project: &Project, name: &str) -> Self {
        let bytes = beneath::read(&project.name_file(name), beneath::SMALL).ok();
        let read = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        read.unwrap_or_default()
    }

    /// Changes what a name was told, under the folder's lock.
    ///
    /// # Errors
    /// The file cannot be written, or another process holds the lock all the time.
    pub(super) fn update(
        project: &Project,
        name: &str,
        change: impl FnOnce(&mut Self),
    ) -> io::Result<()> {
        let folder = project.make_folder("names")?;
        let lock = Lock::within(&folder.join("lock"), PATIENCE)?;
        let _lock = lock.ok_or_else(|| io::Error::from(io::ErrorKind::TimedOut))?;
        let before = Self::read(project, name);
        let mut memory = before.clone();
        name.clone_into(&mut memory.name);
        change(&mut memory);
        if memory == before {
            return Ok(());
        }
        if before.cursors.is_empty() {
            forget(&folder);
        }
        memory.bound();
        beneath::replace_unsynced(&project.name_file(name), &serde_json::to_vec(&memory)?)
    }

    /// Moves a cursor forward, in a journal that ends at `end`: a slower command of the same name does not
    /// move it back.
    pub(super) fn advance(&mut self, key: &str, cursor: &Cursor, end: Position) {
        let known = self.cursors.get(key);
        let is_older = known.is_some_and(|known| {
            // A journal that is shorter than it was is another one.
            known.position > cursor.position && known.position <= end
        });
        if !is_older {
            self.cursors.insert(key.to_owned(), cursor.clone());
        }
    }

    fn bound(&mut self) {
        let oldest = oldest();
        self.cursors
            .retain(|_, cursor| SystemTime::from(cursor.at) > oldest);
        let too_many = self.notices.len().saturating_sub(NOTICES);
        self.notices.drain(..too_many);
    }
}

/// Returns whether a name was not told of something that is told only once.
pub fn is_new(project: &Project, name: &str, notice: &str) -> bool {
    let memory = Memory::read(project, name);
    memory.notices.iter().all(|told| told != notice)
}

/// Remembers that a name was told of something. What cannot be remembered is told again.
pub fn noticed(project: &Project, name: &str, notices: &[String]) {
    if notices.is_empty() {
        return;
    }
    let done = Memory::update(project, name, |memory| {
        memory.notices.retain(|told| !notices.contains(told));
        memory.notices.extend_from_slice(notices);
    });
    let _ = done.inspect_err(|error| tracing::warn!(%error, "a notice will be told once more"));
}

/// Removes the files of names that have not looked for long.
fn forget(folder: &Path) {
    let oldest = oldest();
    for entry in beneath::list(folder).into_iter().flatten().flatten() {
        let time = entry.metadata().and_then(|data| data.modified());
        let path: PathBuf = entry.path();
        if time.is_ok_and(|time| time < oldest) && path.extension().is_some_and(|it| it == "json") {
            let _ = beneath::remove_file(&path);
        }
    }
}

fn oldest() -> SystemTime {
    let oldest = SystemTime::now().checked_sub(FORGOTTEN);
    oldest.unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_new_to_each_name_once_and_few_are_remembered() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        assert!(is_new(&project, "ada/../x", "1"));
        noticed(&project, "ada/../x", &["1".to_owned()]);
        assert!(!is_new(&project, "ada/../x", "1"));
        assert!(is_new(&project, "bob", "1"));
        let many: Vec<_> = (0..NOTICES + 5).map(|number| number.to_string()).collect();
        noticed(&project, "bob", &many);
        assert!(is_new(&project, "bob", "4") && !is_new(&project, "bob", "5"));
    }

    #[test]
    fn a_slower_command_moves_no_cursor_back() {
        let cursor = |offset| Cursor {
            at: Timestamp::now(),
            position: Position { file: 1, offset },
            generation: 1,
        };
        let end = cursor(30).position;
        let mut memory = Memory::default();
        memory.advance("a", &cursor(20), end);
        memory.advance("a", &cursor(10), end);
        assert_eq!(memory.cursors["a"].position.offset, 20);
        memory.advance("a", &cursor(30), end);
        assert_eq!(memory.cursors["a"].position.offset, 30);
        // The journal has begun anew.
        memory.advance("a", &cursor(5), cursor(5).position);
        assert_eq!(memory.cursors["a"].position.offset, 5);
    }
}
