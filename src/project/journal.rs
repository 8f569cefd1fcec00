//! `journal.jsonl`: who did what, one line an event.
//!
//! An execution is keyed by the kernel's generation and the request's `msg_id`: the asker's side
//! writes `asked` and `done`, an observer of others' traffic writes `seen` and a `done` of the status
//! `seen`; readers keep one per key. A last line that a crash tore is skipped by readers and fenced off by the next writer.
//!
//! **The rule of size**: a journal of more than 128 MB is cut to its last 32 MB, further back than
//! which nobody reads it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::beneath;
use super::folder::Project;
use super::lock;
use super::past::FAR;

/// From how many bytes on it is cut.
const LIMIT: u64 = 4 * FAR;

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// When it happened.
    pub at: Timestamp,
    /// What happened: `asked`, `done`, `seen`, `opened`, `restarted`, `stopped`, `interrupted`, …
    pub event: String,
    /// The session's key, see [`Project::key`].
    pub session: String,
    /// Which of the session's kernels it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// The request that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub msg_id: Option<String>,
    /// Who did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The cell that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
    /// The notebook whose cell it is, where that is not the session's own: others may share its kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notebook: Option<String>,
    /// The job that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The code that was executed; left out where the user does not want it kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Whether a person or an agent asked: front ends run code of their own with
    /// `store_history:false`.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub store_history: bool,
    /// Whether the kernel ran nothing when it was sent: what was asked before has ended.
    #[serde(default, skip_serializing_if = "is_no")]
    pub alone: bool,
    /// How it ended: `ok`, `error`, `aborted`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// An error was among its outputs: what an observer tells of the end, who has seen no reply.
    #[serde(default, skip_serializing_if = "is_no")]
    pub raised: bool,
    /// How long it took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// Fields of another version or another event.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Entry {
    /// Returns an entry of this moment.
    pub fn now(event: &str, session: &str) -> Self {
        Self {
            at: Timestamp::now(),
            event: event.to_owned(),
            session: session.to_owned(),
            generation: None,
            msg_id: None,
            by: None,
            cell: None,
            notebook: None,
            job: None,
            code: None,
            store_history: true,
            alone: false,
            status: None,
            raised: false,
            took_ms: None,
            other: Map::new(),
        }
    }
}

/// The journal of a project, open for appending.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// How long it may become, and how much of it stays when it is cut.
    limit: u64,
    stays: u64,
    /// Whether the user wants code kept.
    keeps_code: bool,
}

impl Project {
    /// Opens the journal for appending.
    ///
    /// Code is left out where `journal.code = false` says so, and where the settings cannot be
    /// read: what should not have been kept cannot be taken back.
    pub fn journal(&self) -> io::Result<Journal> {
        let keeps_code = self.config().is_ok_and(|config| config.journal.code);
        Journal::open(&self.journal_file(), keeps_code)
    }

    /// Appends entries, in order. That they cannot be written is told in the log and stops nothing: what
    /// they tell of has happened.
    pub fn write_down(&self, entries: &[Entry]) {
        let written = self.journal();
        if let Err(error) = written.and_then(|mut journal| journal.append_all(entries)) {
            tracing::warn!(%error, "the journal could not be written");
        }
    }

    /// Returns the journal's entries, oldest first; lines that are no entries are skipped.
    pub fn journal_entries(&self) -> io::Result<Vec<Entry>> {
        match beneath::read(&self.journal_file(), 2 * LIMIT) {
            Ok(bytes) => Ok(entries(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

impl Journal {
    fn open(path: &Path, keeps_code: bool) -> io::Result<Self> {
        Ok(Self {
            file: beneath::read_append(path)?,
            path: path.to_owned(),
            limit: LIMIT,
            stays: FAR,
            keeps_code,
        })
    }

    /// Appends one entry: one write under the file's lock.
    pub fn append(&mut self, entry: &Entry) -> io::Result<()> {
        self.append_all(std::slice::from_ref(entry))
    }

    /// Appends entries, in order, by one write under the file's lock.
    ///
    /// # Errors
    /// It cannot be written, or somebody holds the lock all the time.
    pub fn append_all(&mut self, entries: &[Entry]) -> io::Result<()> {
        let patience = lock::patience();
        if self.append_within(entries, patience)? {
            return Ok(());
        }
        Err(self.held(patience))
    }

    /// Returns the error for a lock that somebody else has held for so long.
    pub fn held(&self, waited: Duration) -> io::Error {
        lock::held(&self.path, waited)
    }

    /// As [`Journal::append_all`], but waits `within` at most for whoever holds the lock; says whether they
    /// were written.
    pub fn append_within(&mut self, entries: &[Entry], within: Duration) -> io::Result<bool> {
        let mut lines = Vec::new();
        for entry in entries {
            if entry.code.is_some() && !self.keeps_code {
                let code = None;
                serde_json::to_writer(
                    &mut lines,
                    &Entry {
                        code,
                        ..entry.clone()
                    },
                )?;
            } else {
                serde_json::to_writer(&mut lines, entry)?;
            }
            lines.push(b'\n');
        }
        if !self.lock(within)? {
            return Ok(false);
        }
        let written = self.append_locked(&lines);
        let cut = self.cut();
        self.file.unlock()?;
        written.and(cut).map(|()| true)
    }

    /// Waits for the lock on the file that is the journal now: another process may have cut it.
    fn lock(&mut self, within: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + within;
        loop {
            if !lock::take(&self.file, deadline)? {
                return Ok(false);
            }
            let of = |found: std::fs::Metadata| (found.dev(), found.ino());
            let there = beneath::metadata(&self.path).map(of).ok();
            if there == Some(of(self.file.metadata()?)) {
                return Ok(true);
            }
            self.file = beneath::read_append(&self.path)?;
        }
    }

    /// Puts the last part of a journal that is too long in its place.
    fn cut(&mut self) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        if length <= self.limit {
            return Ok(());
        }
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let path = folder.join(format!(".nb-{}", uuid::Uuid::new_v4().simple()));
        let mut shorter = beneath::create(&path)?;
        let mut last = beneath::open(&self.path)?;
        last.seek(SeekFrom::Start(length.saturating_sub(self.stays)))?;
        let mut last = BufReader::new(last);
        // The rest of a line that began before.
        last.skip_until(b'\n')?;
        io::copy(&mut last, &mut shorter)?;
        beneath::rename(&path, &self.path)
    }

    fn append_locked(&mut self, line: &[u8]) -> io::Result<()> {
        if self.ends_torn()? {
            let fenced = [b"\n", line].concat();
            return self.file.write_all(&fenced);
        }
        self.file.write_all(line)
    }

    fn ends_torn(&mut self) -> io::Result<bool> {
        if self.file.seek(SeekFrom::End(0))? == 0 {
            return Ok(false);
        }
        self.file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        self.file.read_exact(&mut last)?;
        Ok(last != *b"\n")
    }
}

fn yes() -> bool {
    true
}

fn is_yes(it: &bool) -> bool {
    *it
}

fn is_no(it: &bool) -> bool {
    !*it
}

fn entries(bytes: &[u8]) -> Vec<Entry> {
    bytes
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_costs_only_itself() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let mut journal = project.journal().unwrap();
        journal.append(&Entry::now("asked", "a.ipynb")).unwrap();
        let mut raw = std::fs::OpenOptions::new()
            .append(true)
            .open(project.journal_file())
            .unwrap();
        raw.write_all(br#"{"at":"2026-01-02T03"#).unwrap();
        journal.append(&Entry::now("done", "a.ipynb")).unwrap();
        let events: Vec<_> = project
            .journal_entries()
            .unwrap()
            .into_iter()
            .map(|entry| entry.event)
            .collect();
        assert_eq!(events, ["asked", "done"]);
    }

    #[test]
    fn somebody_who_keeps_the_lock_is_waited_for_no_longer_than_said() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let mut journal = project.journal().unwrap();
        let entry = [Entry::now("asked", "a.ipynb")];
        let keeps = File::open(project.journal_file()).unwrap();
        keeps.lock().unwrap();
        for within in [Duration::ZERO, Duration::from_millis(20)] {
            assert!(!journal.append_within(&entry, within).unwrap());
        }
        assert!(project.journal_entries().unwrap().is_empty());
        keeps.unlock().unwrap();
        assert!(journal.append_within(&entry, Duration::ZERO).unwrap());
        assert_eq!(project.journal_entries().unwrap().len(), 1);
    }

    #[test]
    fn one_that_is_too_long_keeps_its_last_part() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let (mut one, mut other) = (project.journal().unwrap(), project.journal().unwrap());
        (one.limit, one.stays) = (10_000, 4_000);
        (other.limit, other.stays) = (one.limit, one.stays);
        let mut longest = 0;
        for number in 0..300 {
            let mut entry = Entry::now("asked", "a.ipynb");
            entry.msg_id = Some(number.to_string());
            // What others wrote meanwhile, and what a process has open since before, stays.
            let journal = if number % 3 == 0 {
                &mut other
            } else {
                &mut one
            };
            journal.append(&entry).unwrap();
            longest = longest.max(project.journal_file().metadata().unwrap().len());
        }
        assert!(longest <= 10_000, "{longest}");
        let entries = project.journal_entries().unwrap();
        let ids = entries
            .iter()
            .map(|entry| entry.msg_id.clone().unwrap().parse().unwrap());
        let ids: Vec<u32> = ids.collect();
        assert!(ids.len() >= 30, "{}", ids.len());
        assert_eq!(ids, ((300 - ids.len() as u32)..300).collect::<Vec<_>>());
    }

    #[test]
    fn code_that_the_user_does_not_want_kept_is_not_written() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        std::fs::write(project.dir().join("config.toml"), "journal.code = false").unwrap();
        let mut entry = Entry::now("asked", "a.ipynb");
        entry.code = Some("secret()".to_owned());
        project.journal().unwrap().append(&entry).unwrap();
        let written = project.journal_entries().unwrap();
        assert_eq!((written.len(), &written[0].code), (1, &None));
    }

    #[test]
    fn fields_of_others_are_kept() {
        let line = br#"{"at":"2026-01-02T03:04:05Z","event":"x","session":"a","revision":"9f"}"#;
        let read = entries(line);
        assert_eq!(read[0].other["revision"], "9f");
        assert!(read[0].store_history);
        let written = serde_json::to_string(&read[0]).unwrap();
        assert_eq!(written.as_bytes(), line);
    }
}
