//! `proxies/<pid>.json`: which front ends are joined to a kernel now.
//!
//! A proxy writes its record when it serves and removes it when it ends. One that was killed
//! leaves its record behind, so a reader checks that the process still lives.

use std::io;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::beneath;
use super::counters::Counters;
use super::folder::Project;
use super::moved::Moves;

/// One proxy and the front end behind it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JoinedFrontEnd {
    /// The proxy's process.
    pub pid: u32,
    /// When that process started, as the platform counts.
    pub start_time: u64,
    /// The boot of the machine that `start_time` belongs to.
    pub boot_id: String,
    /// The namespace that its pid belongs to; empty where that is not known.
    #[serde(default)]
    pub pid_namespace: String,
    /// The key of the session that it serves; none while it is not known.
    #[serde(default)]
    pub session: Option<String>,
    /// The kind of front end, for a reader: `VS Code`, `JupyterLab`, …
    #[serde(default)]
    pub front_end: String,
    /// When it began to serve.
    pub since: Timestamp,
    /// How many clients are connected to it.
    #[serde(default)]
    pub clients: usize,
    /// Its counters, as of a moment ago.
    #[serde(default)]
    pub counters: Option<Box<Counters>>,
    /// Fields of another version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl JoinedFrontEnd {
    /// The name of VS Code and the editors made of it, as a front end.
    pub const VS_CODE: &str = "VS Code";

    /// Returns whether the front end had joined at a moment. If it joined in the future, the clock was set back
    /// since, and it counts as joined.
    pub fn was_there(&self, at: Timestamp, now: Timestamp) -> bool {
        self.since <= at || self.since > now
    }

    /// Returns the name under which the person at this front end acts.
    pub fn by(&self) -> String {
        person_at(&self.front_end)
    }
}

/// Returns the name under which the person at a front end acts.
pub fn person_at(front_end: &str) -> String {
    format!("human ({front_end})")
}

impl Project {
    /// Writes or replaces a proxy's record. It means nothing after a power cut, so it is not synced.
    pub fn write_joined(&self, joined: &JoinedFrontEnd) -> io::Result<()> {
        self.make_folder("proxies")?;
        beneath::write_json(&self.joined_file(joined.pid), joined)
    }

    /// Removes a proxy's record; returns whether there was one.
    pub fn remove_joined(&self, pid: u32) -> io::Result<bool> {
        match beneath::remove_file(&self.joined_file(pid)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => removed.map(|()| true),
        }
    }

    /// Returns all records, of running and of killed proxies; unreadable ones are skipped.
    pub fn list_joined(&self) -> Vec<JoinedFrontEnd> {
        let mut files = beneath::paths(&self.proxies_dir());
        files.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
        let all = files.iter();
        let all = all.filter_map(|path| beneath::read_json(path, beneath::SMALL));
        let mut found: Vec<JoinedFrontEnd> = all.collect();
        let moves = Moves::read(self.dir());
        for joined in &mut found {
            let session = joined.session.as_ref();
            joined.session = session.map(|key| moves.since(key, joined.since));
        }
        found.sort_by_key(|joined| (joined.since, joined.pid));
        found
    }

    fn joined_file(&self, pid: u32) -> PathBuf {
        self.proxies_dir().join(format!("{pid}.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_and_go() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        assert!(project.list_joined().is_empty());
        let joined = JoinedFrontEnd {
            pid: 41,
            start_time: 5,
            boot_id: "b".into(),
            pid_namespace: String::new(),
            session: Some("a.ipynb".into()),
            front_end: "VS Code".into(),
            since: Timestamp::now(),
            clients: 1,
            counters: Some(Box::default()),
            other: Map::new(),
        };
        project.write_joined(&joined).unwrap();
        std::fs::write(project.proxies_dir().join("42.json"), "{").unwrap();
        assert_eq!(project.list_joined(), [joined]);
        assert!(project.remove_joined(41).unwrap());
        assert!(!project.remove_joined(41).unwrap());
        assert!(project.list_joined().is_empty());
    }
}
