//! The records of unsaved texts: one in the folder `.nb` of each project of which a notebook is open.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;

use super::open_file::OpenFile;
use crate::kernel::process::Process;
use crate::project::live_editor::{LiveEditor, LiveNotebook};
use crate::project::{Project, pid_namespace};

/// The records that this process has written.
#[derive(Debug, Default)]
pub(super) struct Records {
    written: BTreeMap<PathBuf, (Project, Vec<LiveNotebook>)>,
}

impl Records {
    /// Writes the records of those projects in which something has changed; of all if `renews`.
    pub(super) fn write<'a>(
        &mut self,
        (editor, can_change, only_texts): (&str, bool, bool),
        files: impl Iterator<Item = &'a mut OpenFile>,
        renews: bool,
    ) {
        let mut now: BTreeMap<PathBuf, (Project, Vec<LiveNotebook>)> = BTreeMap::new();
        for file in files {
            let project = file.project().clone();
            let (_, notebooks) = now
                .entry(project.dir().to_owned())
                .or_insert_with(|| (project, Vec::new()));
            notebooks.push(file.record());
        }
        for (folder, (project, _)) in &self.written {
            if !now.contains_key(folder) {
                let _ = project.remove_live_editor(std::process::id());
            }
        }
        for (folder, (project, notebooks)) in &mut now {
            notebooks.sort_by(|one, other| one.notebook.cmp(&other.notebook));
            let is_as_before = self
                .written
                .get(folder)
                .is_some_and(|(_, before)| before == notebooks);
            if is_as_before && !renews {
                continue;
            }
            let process = Process::current();
            let record = LiveEditor {
                pid: process.pid,
                start_time: process.start_time,
                boot_id: process.boot_id,
                pid_namespace: pid_namespace(),
                at: Timestamp::now(),
                editor: editor.to_owned(),
                can_change,
                only_texts,
                notebooks: notebooks.clone(),
            };
            if let Err(error) = project.write_live_editor(&record) {
                tracing::warn!(%error, "unsaved texts are not recorded");
            }
        }
        self.written = now;
    }

    /// Removes all records.
    pub(super) fn remove(&mut self) {
        for (project, _) in self.written.values() {
            let _ = project.remove_live_editor(std::process::id());
        }
        self.written.clear();
    }
}
