//! `names/<name>.json`: the notifications that one actor got in a project.
//!
//! The file is bounded: cursors that have not moved for half a year are removed, and only the last notices
//! are stored. A file that was not written for half a year is removed.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::project::event::Position;
use crate::project::{Project, names};

/// How many notices are stored; the oldest are removed first.
const NOTICES: usize = 200;

/// The notifications that one actor got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct DeliveredNotifications {
    /// The actor's name, for a human reader.
    pub(super) name: String,
    /// The cursors in the journal: of a kernel under its session's key, of a notebook's cells under
    /// [`cells_of`].
    pub(super) cursors: BTreeMap<String, Cursor>,
    /// The notices that are printed only once, and that the actor has got.
    pub(super) notices: Vec<String>,
}

/// How far an actor has read the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cursor {
    /// When the actor read it.
    pub(super) at: Timestamp,
    /// The position of the first new event.
    pub(super) position: Position,
    /// The generation of the session's kernel at that time.
    pub(super) generation: u64,
}

/// Returns the key of a notebook's cells in [`DeliveredNotifications::cursors`], which is never the key of a
/// session.
pub(super) fn cells_of(key: &str) -> String {
    format!("cells of {key}")
}

impl DeliveredNotifications {
    /// Reads an actor's file; returns an empty one if it cannot be read.
    pub(super) fn read(project: &Project, name: &str) -> Self {
        names::read(&project.name_file(name))
    }

    /// Changes an actor's file under the folder's lock.
    ///
    /// # Errors
    /// The file cannot be written, or another process holds the lock all the time.
    pub(super) fn update(
        project: &Project,
        name: &str,
        change: impl FnOnce(&mut Self),
    ) -> io::Result<()> {
        let changed = names::update(&project.name_file(name), |delivered: &mut Self| {
            name.clone_into(&mut delivered.name);
            change(delivered);
            delivered.bound();
        });
        changed.map(drop)
    }

    /// Moves a cursor forward, in a journal that ends at `end`. A slower command of the same actor does
    /// not move it back.
    pub(super) fn advance(&mut self, key: &str, cursor: &Cursor, end: Position) {
        let known = self.cursors.get(key);
        let is_older = known.is_some_and(|known| {
            // If the journal is shorter than it was, it is a new one.
            known.position > cursor.position && known.position <= end
        });
        if !is_older {
            self.cursors.insert(key.to_owned(), cursor.clone());
        }
    }

    fn bound(&mut self) {
        let oldest = SystemTime::now().checked_sub(names::FORGOTTEN);
        let oldest = oldest.unwrap_or(SystemTime::UNIX_EPOCH);
        self.cursors
            .retain(|_, cursor| SystemTime::from(cursor.at) > oldest);
        let too_many = self.notices.len().saturating_sub(NOTICES);
        self.notices.drain(..too_many);
    }
}

/// Returns whether an actor has not got a notice yet, which is printed only once.
pub fn is_new(project: &Project, name: &str, notice: &str) -> bool {
    let delivered = DeliveredNotifications::read(project, name);
    delivered.notices.iter().all(|stored| stored != notice)
}

/// Stores that an actor got notices. If that fails, they are printed again.
pub fn noticed(project: &Project, name: &str, notices: &[String]) {
    if notices.is_empty() {
        return;
    }
    let result = DeliveredNotifications::update(project, name, |delivered| {
        delivered.notices.retain(|stored| !notices.contains(stored));
        delivered.notices.extend_from_slice(notices);
    });
    let _ = result.inspect_err(
        |error| tracing::warn!(%error, "a notice cannot be stored: it will be printed again"),
    );
}

/// Notices for an actor that are not printed yet; they are stored once they are printed. Clones share the
/// same notices.
#[derive(Clone, Debug, Default)]
pub struct PendingNotices(Arc<Mutex<Vec<(Project, String)>>>);

impl PendingNotices {
    /// Adds a notice of a project.
    pub fn add(&self, project: &Project, notice: String) {
        self.lock().push((project.clone(), notice));
    }

    /// Stores that an actor got these notices.
    pub fn delivered(&self, name: &str) {
        for (project, notice) in std::mem::take(&mut *self.lock()) {
            noticed(&project, name, &[notice]);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Project, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        let mut delivered = DeliveredNotifications::default();
        delivered.advance("a", &cursor(20), end);
        delivered.advance("a", &cursor(10), end);
        assert_eq!(delivered.cursors["a"].position.offset, 20);
        delivered.advance("a", &cursor(30), end);
        assert_eq!(delivered.cursors["a"].position.offset, 30);
        // The journal is a new one.
        delivered.advance("a", &cursor(5), cursor(5).position);
        assert_eq!(delivered.cursors["a"].position.offset, 5);
    }
}
