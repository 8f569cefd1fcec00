//! `live/<pid>.json`: the notebooks that editors have open through `nb live`, and their unsaved texts.
//!
//! `nb live` writes its record when something changes and each [`RENEWED`], and removes it when it ends. One that was
//! killed leaves its record behind, and one that stands still does not renew it: a reader checks both.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::beneath;
use super::folder::Project;
use super::joined::person_at;
use crate::notebook::Revision;

/// The time after which a record is written anew.
pub const RENEWED: Duration = Duration::from_secs(5);

/// The age from which on a record says nothing: its process stands still.
const MOST_AGE: Duration = Duration::from_secs(15);

/// An `nb live`, and what its editor has open of one project.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveEditor {
    /// The process of `nb live`.
    pub pid: u32,
    /// When that process started, as the platform counts.
    pub start_time: u64,
    /// The boot of the machine that `start_time` belongs to.
    pub boot_id: String,
    /// The namespace that its pid belongs to; empty where that is not known.
    pub pid_namespace: String,
    /// When the record was written.
    pub at: Timestamp,
    /// The editor's name, for a reader.
    pub editor: String,
    /// Whether the editor makes the changes that it is asked for.
    #[serde(default)]
    pub can_change: bool,
    /// Whether the editor reads by itself what the file has besides texts, such as outputs: they may be written while a cell
    /// runs.
    #[serde(default)]
    pub only_texts: bool,
    /// The open notebooks.
    pub notebooks: Vec<LiveNotebook>,
}

/// A notebook that is open in an editor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveNotebook {
    /// The notebook's key in the project.
    pub notebook: String,
    /// Whether a server has it in a room, and writes the file.
    #[serde(default)]
    pub room: bool,
    /// The revision of the notebook that the editor has saved last.
    #[serde(default)]
    pub saved: Option<Revision>,
    /// When the person began to type what is unsaved.
    pub since: Option<Timestamp>,
    /// The cells whose text is unsaved.
    pub cells: Vec<UnsavedText>,
}

/// The unsaved text of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnsavedText {
    /// The cell's id.
    pub cell: String,
    /// The text in the editor.
    pub source: String,
    /// The text from which the person began, if the editor merges what others write: of that, not of the file's, it is known
    /// which lines the person has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
}

/// What became of a change that was given to an editor in a room, whose people type on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredInRoom {
    /// By id: the texts of the editor that were replaced, where they were not those of the file.
    pub replaced: BTreeMap<String, String>,
    /// The ids of the cells that keep the text of the people, who have changed the same lines.
    pub refused: Vec<String>,
}

impl LiveEditor {
    /// Returns the name under which the person at this editor acts.
    pub fn by(&self) -> String {
        person_at(&self.editor)
    }

    /// Says whether the record is young enough to be believed. A time in the future, to which a clock that was set back
    /// leads, counts.
    pub fn is_current(&self, now: Timestamp) -> bool {
        Duration::try_from(now.duration_since(self.at)).is_ok_and(|age| age < MOST_AGE)
            || self.at > now
    }
}

impl Project {
    /// Writes or replaces a record. It means nothing after a power cut, so it is not synced.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_live_editor(&self, editor: &LiveEditor) -> io::Result<()> {
        self.make_folder("live")?;
        beneath::write_json(&self.live_editor_file(editor.pid), editor)
    }

    /// Removes the record of a process, if there is one.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove_live_editor(&self, pid: u32) -> io::Result<()> {
        match beneath::remove_file(&self.live_editor_file(pid)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Returns all records, of running and of killed processes; unreadable ones are skipped.
    pub fn live_editors(&self) -> Vec<LiveEditor> {
        let mut files = beneath::paths(&self.dir().join("live"));
        files.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
        let records = files.iter();
        records
            .filter_map(|path| beneath::read_json(path, beneath::SMALL))
            .collect()
    }

    /// Returns the file of a process's record.
    pub fn live_editor_file(&self, pid: u32) -> PathBuf {
        self.dir().join("live").join(format!("{pid}.json"))
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn a_record_counts_while_it_is_renewed() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        assert!(project.live_editors().is_empty());
        let now = Timestamp::now();
        let record = LiveEditor {
            pid: 41,
            start_time: 5,
            boot_id: "b".into(),
            pid_namespace: String::new(),
            at: now,
            editor: "VS Code".into(),
            can_change: true,
            only_texts: false,
            notebooks: vec![LiveNotebook {
                room: false,
                saved: None,
                notebook: "a.ipynb".into(),
                since: Some(now),
                cells: vec![UnsavedText {
                    cell: "c".into(),
                    source: "x".into(),
                    base: None,
                }],
            }],
        };
        project.write_live_editor(&record).unwrap();
        std::fs::write(project.live_editor_file(42), "{").unwrap();
        assert_eq!(project.live_editors(), std::slice::from_ref(&record));
        let after = |seconds| record.is_current(now + SignedDuration::from_secs(seconds));
        assert!(after(0) && after(14) && after(-60) && !after(16));
        project.remove_live_editor(41).unwrap();
        project.remove_live_editor(41).unwrap();
        assert!(project.live_editors().is_empty());
    }
}
