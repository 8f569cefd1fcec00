//! How far each name has seen what a job says: a small file a name, in the job's folder.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::beneath;
use super::jobs::JobFolder;

/// A place in what a job says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// Where in its events the unseen begins; see [`JobFolder::said`].
    pub at: u64,
    /// How many of its cells were seen to end.
    pub over: usize,
}

impl JobFolder {
    /// Returns how far a name has seen the job; one that never looked is at the beginning.
    pub fn cursor(&self, name: &str) -> Cursor {
        let read = beneath::read(&self.cursor_file(name), beneath::SMALL);
        let read = read
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok());
        read.unwrap_or_default()
    }

    /// Remembers how far a name has seen the job.
    pub fn move_cursor(&self, name: &str, cursor: Cursor) -> io::Result<()> {
        let text = serde_json::to_vec(&cursor)?;
        beneath::replace_unsynced(&self.cursor_file(name), &text)
    }

    fn cursor_file(&self, name: &str) -> PathBuf {
        // A name may hold anything; a file's name has 255 bytes at most.
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
