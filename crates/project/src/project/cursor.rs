//! How far each actor has read a job's events: a small file for each actor, in the job's folder and
//! removed with it.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::beneath;
use super::jobs::JobFolder;

/// A position in the events of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The offset of the first unread event, in bytes; see [`JobFolder::messages`].
    pub at: u64,
    /// How many of the job's cells the actor has seen end.
    pub over: usize,
}

impl JobFolder {
    /// Returns how far an actor has read the job; the beginning if it has read nothing.
    pub fn cursor(&self, name: &str) -> Cursor {
        let read = beneath::read_json(&self.cursor_file(name), beneath::SMALL);
        read.unwrap_or_default()
    }

    /// Stores how far an actor has read the job.
    pub fn move_cursor(&self, name: &str, cursor: Cursor) -> io::Result<()> {
        beneath::write_json(&self.cursor_file(name), &cursor)
    }

    fn cursor_file(&self, name: &str) -> PathBuf {
        // A name may contain any character and be long; a file name has 255 bytes at most.
        let bytes = name.as_bytes();
        let name = hex::encode(bytes.get(..100).unwrap_or(bytes));
        self.path().join(format!("seen-{name}.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Project;

    #[test]
    fn each_name_has_its_own_place() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let (_, folder) = crate::project::jobs::tests::job(&project);
        let far = super::Cursor { at: 70, over: 1 };
        folder.move_cursor("ada/../x", far).unwrap();
        assert_eq!(folder.cursor("ada/../x"), far);
        assert_eq!(folder.cursor("bob"), super::Cursor::default());
        folder.move_cursor(&"é".repeat(300), far).unwrap();
        assert_eq!(folder.cursor(&"é".repeat(300)), far);
    }
}
