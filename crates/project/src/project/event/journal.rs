//! The writer of the journal: a current file and one or two earlier ones.
//!
//! `.nb/journal.jsonl` grows by one write at a time, under its lock. At `LIMIT` it is renamed, under the
//! lock, to `.nb/journal/<number>.jsonl` with increasing numbers, and the next writer makes a new file.
//! No file is ever rewritten, so each [`super::Position`] stays valid.
//!
//! The calls of agents' tools are in files of their own, `.nb/calls.jsonl` and `.nb/calls/`, in the same way: an agent
//! makes many, and no reader of the journal needs them.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Event;
use crate::project::folder::{EARLIER_JOURNALS, JOURNAL, Project};
use crate::project::{beneath, lock};

/// The size in bytes at which the current file becomes an earlier one.
const LIMIT: u64 = 32 << 20;

/// How many earlier files are kept.
const EARLIER: usize = 2;

/// The limit for the calls of agents' tools: about 18,000 calls a file.
const LIMIT_OF_CALLS: u64 = 8 << 20;

/// How many earlier files of calls are kept.
const EARLIER_OF_CALLS: usize = 1;

/// The journal of a project, open for appending.
#[derive(Debug)]
pub struct Journal {
    project: Project,
    path: PathBuf,
    /// The folder of the earlier files.
    folder: PathBuf,
    file: File,
    pub(super) limit: u64,
    /// How many earlier files are kept.
    earlier: usize,
    /// Whether the user's settings say that code is stored.
    keeps_code: bool,
}

impl Project {
    /// Opens the journal for appending.
    ///
    /// Code is omitted if `journal.code = false` says so, or if the settings cannot be read.
    pub fn journal(&self) -> io::Result<Journal> {
        Journal::open(self, self.journal_file(), self.earlier_journals())
    }

    /// Records a call of an agent's tool. A failure is logged and not returned.
    pub fn record_call(&self, event: &Event) {
        let (path, folder) = self.calls();
        let calls = Journal::open(self, path, folder);
        let written = calls.and_then(|mut calls| {
            (calls.limit, calls.earlier) = (LIMIT_OF_CALLS, EARLIER_OF_CALLS);
            calls.append(event)
        });
        if let Err(error) = written {
            tracing::warn!(%error, "a call could not be recorded");
        }
    }

    /// Appends events to the journal, in order. A failure is logged and not returned: the events have
    /// happened.
    pub fn record(&self, events: &[Event]) {
        let written = self.journal();
        if let Err(error) = written.and_then(|mut journal| journal.append_all(events)) {
            tracing::warn!(%error, "the journal could not be written");
        }
    }
}

impl Journal {
    fn open(project: &Project, path: PathBuf, folder: PathBuf) -> io::Result<Self> {
        Ok(Self {
            file: beneath::read_append(&path)?,
            project: project.clone(),
            folder,
            path,
            limit: LIMIT,
            earlier: EARLIER,
            keeps_code: project.config().is_ok_and(|config| config.journal.code),
        })
    }

    /// Goes on in the journal of the project, which may have been moved.
    pub fn follow(&mut self, project: &Project) -> io::Result<()> {
        if self.project != *project {
            *self = project.journal()?;
        }
        Ok(())
    }

    /// Appends one event, with one write under the file's lock.
    pub fn append(&mut self, event: &Event) -> io::Result<()> {
        self.append_all(std::slice::from_ref(event))
    }

    /// Appends events, in order, with one write under the file's lock.
    ///
    /// # Errors
    /// The file cannot be written, or another process holds the lock all the time.
    pub fn append_all(&mut self, events: &[Event]) -> io::Result<()> {
        let timeout = lock::lock_timeout();
        if self.append_within(events, timeout)? {
            return Ok(());
        }
        Err(self.held(timeout))
    }

    /// Returns the error that another process has held the lock for `waited`.
    pub fn held(&self, waited: Duration) -> io::Error {
        lock::held_error(&self.path, waited)
    }

    /// Appends events as [`Journal::append_all`] does, but waits at most `within` for the lock. Returns
    /// whether they were written.
    pub fn append_within(&mut self, events: &[Event], within: Duration) -> io::Result<bool> {
        let mut lines = Vec::new();
        for event in events {
            let mut event = event.to_write(self.keeps_code);
            event.session = self.project.current_key(&event.session);
            let notebook = event.notebook.take();
            event.notebook = notebook.map(|key| self.project.current_key(&key));
            serde_json::to_writer(&mut lines, &event)?;
            lines.push(b'\n');
        }
        if !self.lock(within)? {
            return Ok(false);
        }
        let written = self.append_locked(&lines).and_then(|()| self.rotate());
        self.file.unlock()?;
        written.map(|()| true)
    }

    /// Takes the lock on the current file. Opens the file again if another process has renamed the
    /// open one.
    fn lock(&mut self, within: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + within;
        loop {
            if !lock::take(&self.file, deadline)? {
                return Ok(false);
            }
            if is_in_place(&self.file, &self.path)? {
                return Ok(true);
            }
            self.file = beneath::read_append(&self.path)?;
        }
    }

    fn append_locked(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.ends_torn()? {
            let own_line = [b"\n", lines].concat();
            return self.file.write_all(&own_line);
        }
        self.file.write_all(lines)
    }

    /// Returns whether the last line has no end, as after a crash.
    fn ends_torn(&mut self) -> io::Result<bool> {
        if self.file.seek(SeekFrom::End(0))? == 0 {
            return Ok(false);
        }
        self.file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        self.file.read_exact(&mut last)?;
        Ok(last != *b"\n")
    }

    /// Renames a file that has reached the limit to an earlier one, and removes the oldest earlier
    /// files.
    fn rotate(&mut self) -> io::Result<()> {
        if self.file.metadata()?.len() < self.limit {
            return Ok(());
        }
        beneath::make_subfolder(&self.folder)?;
        let mut earlier = numbers(&self.folder);
        let number = earlier.last().map_or(1, |last| last + 1);
        beneath::rename(&self.path, &file_of(&self.folder, number))?;
        earlier.push(number);
        for old in earlier.iter().rev().skip(self.earlier) {
            beneath::remove_file(&file_of(&self.folder, *old))?;
        }
        Ok(())
    }
}

/// Returns the journal's files in a `.nb`, oldest first.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let folder = dir.join(EARLIER_JOURNALS);
    let earlier = numbers(&folder).into_iter();
    let earlier = earlier.map(|number| file_of(&folder, number));
    earlier.chain([dir.join(JOURNAL)]).collect()
}

/// Returns the numbers of the earlier files, in ascending order.
pub(super) fn numbers(folder: &Path) -> Vec<u64> {
    let names = beneath::list(folder).into_iter().flatten().flatten();
    let numbers = names.filter_map(|entry| {
        let name = entry.file_name();
        name.to_str()?.strip_suffix(".jsonl")?.parse().ok()
    });
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    numbers
}

/// Returns whether an open file is still the one at a path.
pub(in crate::project) fn is_in_place(file: &File, path: &Path) -> io::Result<bool> {
    let id = |found: std::fs::Metadata| (found.dev(), found.ino());
    let id_at_path = beneath::metadata(path).map(id).ok();
    Ok(id_at_path == Some(id(file.metadata()?)))
}

/// Returns the numbers of the earlier files in `folder`, and the current file, if there is one.
pub(super) fn open_current(journal: &Path, folder: &Path) -> (Vec<u64>, Option<File>) {
    loop {
        let earlier = numbers(folder);
        let file = beneath::open(journal).ok();
        // The current file may have become an earlier one between the two calls.
        if numbers(folder) == earlier {
            return (earlier, file);
        }
    }
}

/// Returns the path of an earlier file.
pub(super) fn file_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number}.jsonl"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::project::event::fixtures::{event, project};
    use crate::project::event::{EventKind, Position};

    #[test]
    fn a_torn_line_and_one_of_an_unknown_kind_cost_only_themselves() {
        let (_temp, project) = project();
        let mut journal = project.journal().unwrap();
        journal.append(&event(json!({"event": "opened"}))).unwrap();
        let mut raw = beneath::append(&project.journal_file()).unwrap();
        let later =
            json!({"at": "2026-01-02T03:04:05Z", "session": "a.ipynb", "event": "of_later"});
        writeln!(raw, "{later}").unwrap();
        raw.write_all(br#"{"at":"2026-01-02T03"#).unwrap();
        journal.append(&event(json!({"event": "stopped"}))).unwrap();
        let kinds = project.all_events().into_iter().map(|event| event.kind);
        assert_eq!(
            kinds.collect::<Vec<_>>(),
            [EventKind::Opened, EventKind::Stopped]
        );
    }

    #[test]
    fn an_append_waits_for_a_held_lock_no_longer_than_its_limit() {
        let (_temp, project) = project();
        let mut journal = project.journal().unwrap();
        let events = [event(json!({"event": "opened"}))];
        let holder = File::open(project.journal_file()).unwrap();
        holder.lock().unwrap();
        for within in [Duration::ZERO, Duration::from_millis(20)] {
            assert!(!journal.append_within(&events, within).unwrap());
        }
        assert!(project.all_events().is_empty());
        holder.unlock().unwrap();
        assert!(journal.append_within(&events, Duration::ZERO).unwrap());
        assert_eq!(project.all_events().len(), 1);
    }

    #[test]
    fn one_that_is_too_long_is_rotated_and_its_last_part_stays() {
        let (_temp, project) = project();
        let (mut one, mut other) = (project.journal().unwrap(), project.journal().unwrap());
        (one.limit, other.limit) = (4_000, 4_000);
        let mut positions: Vec<(u32, Position)> = Vec::new();
        for number in 0..300 {
            let asked = event(json!({"event": "requested", "msg_id": number.to_string()}));
            // The second writer has opened the file before it was rotated.
            let journal = if number % 3 == 0 {
                &mut other
            } else {
                &mut one
            };
            let end = project.events("a.ipynb").end();
            journal.append(&asked).unwrap();
            let mut events = project.events("a.ipynb");
            events.next().unwrap();
            let position = events.position();
            assert!(position >= end, "{number}: {position:?} {end:?}");
            positions.push((number, position));
        }
        assert!(positions.is_sorted_by_key(|(_, position)| *position));
        let folder = project.earlier_journals();
        assert_eq!(numbers(&folder).len(), EARLIER);
        assert!(project.journal_file().metadata().unwrap().len() <= 4_200);
        let mut found = Vec::new();
        let mut events = project.events("a.ipynb");
        while let Some(event) = events.next() {
            let number: u32 = event.msg_id().unwrap().parse().unwrap();
            // A position stays valid when its file becomes an earlier one.
            assert_eq!(positions[number as usize], (number, events.position()));
            found.push(number);
        }
        found.reverse();
        assert!(found.len() >= 60, "{}", found.len());
        assert_eq!(found, ((300 - found.len() as u32)..300).collect::<Vec<_>>());
    }

    #[test]
    fn code_that_the_user_does_not_want_kept_is_not_written() {
        let (_temp, project) = project();
        std::fs::write(project.dir().join("config.toml"), "journal.code = false").unwrap();
        let asked = event(json!({"event": "requested", "msg_id": "1", "code": "secret()"}));
        let peeked = event(json!({"event": "peeked", "code": "secret()"}));
        let called = event(json!({
            "event": "called", "client_session": "1a2b3c4d", "tool": "run_cell", "arguments": "", "result": "ok",
            "took_ms": 1, "warnings": ["line 1 runs a shell command: secret"],
        }));
        project.record(&[asked, peeked]);
        project.record_call(&called);
        assert_eq!(project.all_events().len(), 2);
        assert_eq!(project.calls_of(&["a.ipynb"]).count(), 1);
        for file in [project.journal_file(), project.calls().0] {
            let written = std::fs::read_to_string(file).unwrap();
            assert!(!written.contains("secret"), "{written}");
        }
    }
}
