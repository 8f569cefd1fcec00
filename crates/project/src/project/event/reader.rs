//! The reader of the journal, from its end backwards and no further than needed.

use std::cmp::Ordering;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use memchr::memmem;
use serde::{Deserialize, Serialize};

use super::journal::{file_of, open_current};
use super::{Event, EventKind};
use crate::project::beneath;
use crate::project::folder::Project;
use crate::project::moved::Moves;

/// How many bytes are read first: a few events. Each further read doubles what was read, up to [`LARGEST_CHUNK`], or
/// more for a longer line.
const CHUNK: u64 = 4 << 10;

/// How many bytes are read at once.
const LARGEST_CHUNK: u64 = 64 << 10;

/// How many bytes are read at most: no caller needs older events.
const MOST_BYTES: u64 = 32 << 20;

/// A position in the journal. Later positions are greater, across files too.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Position {
    /// The number of the file, or the number that it gets when it becomes an earlier one.
    pub file: u64,
    /// The offset in the file, in bytes.
    pub offset: u64,
}

/// The events of one session, or of several, newest first.
#[derive(Debug)]
pub struct Events {
    /// The sessions, with their keys as they appear in a line: lines without such a key need not be
    /// parsed.
    sessions: Vec<(String, Vec<u8>)>,
    moves: Moves,
    /// The earlier files that were not opened yet, in order, and their folder.
    earlier: Vec<u64>,
    folder: PathBuf,
    /// The open file; `None` if there is no journal, or the file cannot be read any further.
    file: Option<File>,
    number: u64,
    /// The offset of the bytes in memory.
    from: u64,
    bytes: Vec<u8>,
    /// How many more bytes may be read, and how many were read.
    left: u64,
    read: u64,
    /// The position before which nothing is read.
    after: Position,
    end: Position,
    position: Position,
}

impl Project {
    /// Returns the events of one session, newest first.
    pub fn events(&self, session: &str) -> Events {
        self.events_of(&[session])
    }

    /// Returns the events of several sessions, newest first.
    pub fn events_of(&self, sessions: &[&str]) -> Events {
        Events::open(
            self,
            &self.journal_file(),
            self.earlier_journals(),
            sessions,
        )
    }

    /// Returns the calls of agents' tools about several sessions, newest first. The journal has those that earlier
    /// versions of `nb` recorded.
    pub fn calls_of(&self, sessions: &[&str]) -> impl Iterator<Item = Event> + use<> {
        let (file, earlier) = self.calls();
        let calls = Events::open(self, &file, earlier, sessions);
        let is_call = |event: &Event| matches!(event.kind, EventKind::Called(_));
        calls.chain(self.events_of(sessions)).filter(is_call)
    }

    /// Returns the events of all sessions, oldest first.
    pub fn all_events(&self) -> Vec<Event> {
        let mut all: Vec<_> = self.events_of(&[]).collect();
        all.reverse();
        all
    }
}

impl Events {
    /// Opens a series of files at its end; an empty list means all sessions.
    fn open(project: &Project, current: &Path, folder: PathBuf, sessions: &[&str]) -> Self {
        let (earlier, file) = open_current(current, &folder);
        let sessions = sessions.iter().map(|session| {
            let session = project.current_key(session);
            // As the writer encodes it, without the quotes around it.
            let mark = serde_json::to_string(&session).unwrap_or_default();
            (session, mark.trim_matches('"').into())
        });
        let mut events = Self {
            sessions: sessions.collect(),
            moves: Moves::read(project.dir()),
            number: earlier.last().map_or(1, |last| last + 1),
            earlier,
            folder,
            file: None,
            from: 0,
            bytes: Vec::new(),
            left: MOST_BYTES,
            read: 0,
            after: Position::default(),
            end: Position::default(),
            position: Position::default(),
        };
        events.begin(file);
        events.drop_incomplete_line();
        events.end = events.place(events.bytes.len());
        events.position = events.end;
        events
    }

    /// Limits how many bytes are read.
    pub fn within(mut self, bytes: u64) -> Self {
        self.left = self.left.min(bytes);
        self
    }

    /// Leaves out the events before a position, at which an event begins or the next one will.
    pub fn after(mut self, position: Position) -> Self {
        self.after = position;
        self
    }

    /// Returns how many bytes were read.
    pub(super) fn bytes_read(&self) -> u64 {
        self.read
    }

    /// Returns the position of the next event to be written; a line that is still incomplete begins
    /// there.
    pub fn end(&self) -> Position {
        self.end
    }

    /// Returns the position of the event that was returned last.
    pub fn position(&self) -> Position {
        self.position
    }

    fn place(&self, index: usize) -> Position {
        Position {
            file: self.number,
            offset: self.from + index as u64,
        }
    }

    /// Starts to read a file at its end.
    fn begin(&mut self, file: Option<File>) {
        let length = file.as_ref().and_then(|file| file.metadata().ok());
        self.from = length.map_or(0, |found| found.len());
        self.file = file;
    }

    /// Returns the offset in the present file before which nothing is read.
    fn first_offset(&self) -> u64 {
        match self.number.cmp(&self.after.file) {
            Ordering::Less => u64::MAX,
            Ordering::Equal => self.after.offset,
            Ordering::Greater => 0,
        }
    }

    /// Starts to read the next earlier file. Returns false if there is none.
    fn begin_earlier(&mut self) -> bool {
        let wanted = self.earlier.pop().filter(|it| *it >= self.after.file);
        let Some(number) = wanted else {
            return false;
        };
        self.number = number;
        let file = beneath::open(&file_of(&self.folder, number)).ok();
        self.begin(file);
        self.file.is_some()
    }

    /// Drops an incomplete last line, which is still being written or was torn by a crash.
    fn drop_incomplete_line(&mut self) {
        while !self.bytes.contains(&b'\n') && self.read_back() {}
        let whole = self.bytes.iter().rposition(|byte| *byte == b'\n');
        self.bytes.truncate(whole.map_or(0, |at| at + 1));
    }

    /// Reads the bytes before those in memory. Returns false if there are none, or the limit is reached.
    fn read_back(&mut self) -> bool {
        let size = CHUNK
            .max(self.read.min(LARGEST_CHUNK))
            .max(self.bytes.len() as u64)
            .min(self.from.saturating_sub(self.first_offset()))
            .min(self.left);
        let Some(file) = self.file.as_mut().filter(|_| size > 0) else {
            return false;
        };
        let start = self.from - size;
        let mut bytes = Vec::new();
        let read = file
            .seek(SeekFrom::Start(start))
            .and_then(|_| file.take(size).read_to_end(&mut bytes));
        if read.is_err() {
            return false;
        }
        bytes.append(&mut self.bytes);
        self.bytes = bytes;
        self.from = start;
        self.left -= size;
        self.read += size;
        true
    }

    /// Removes the last line from the bytes in memory and returns it.
    fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            if self.bytes.last() == Some(&b'\n') {
                self.bytes.pop();
            }
            if let Some(before) = memchr::memrchr(b'\n', &self.bytes) {
                self.position = self.place(before + 1);
                return Some(self.bytes.split_off(before + 1));
            }
            if self.read_back() {
                continue;
            }
            if self.from > self.first_offset() {
                // An incomplete line, since the limit was reached.
                return None;
            }
            let first = std::mem::take(&mut self.bytes);
            if !first.is_empty() {
                self.position = self.place(0);
                return Some(first);
            }
            if !self.begin_earlier() {
                return None;
            }
        }
    }

    fn is_wanted(&self, line: &[u8]) -> bool {
        let mut sessions = self.sessions.iter();
        // A line may have an earlier name.
        let parses_all = self.sessions.is_empty() || !self.moves.is_empty();
        parses_all || sessions.any(|(_, mark)| memmem::find(line, mark).is_some())
    }
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            let line = self.line()?;
            if self.position < self.after {
                return None;
            }
            if !self.is_wanted(&line) {
                continue;
            }
            let Ok(mut event) = serde_json::from_slice::<Event>(&line) else {
                continue;
            };
            self.moves.rename(&mut event);
            let mut sessions = self.sessions.iter();
            if self.sessions.is_empty() || sessions.any(|(session, _)| event.session == *session) {
                return Some(event);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use serde_json::json;

    use super::*;
    use crate::project::event::fixtures::event;

    #[test]
    fn a_long_journal_is_read_from_its_end_and_no_further_than_needed() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        assert_eq!(project.events("a.ipynb").next(), None);
        let mut journal = project.journal().unwrap();
        let long = "x".repeat(CHUNK as usize * 3);
        for number in 0..200 {
            let code = (number % 50 == 0).then_some(&long);
            let msg_id = number.to_string();
            let own = event(json!({"event": "requested", "msg_id": msg_id, "code": code}));
            let code = "print('a.ipynb')\n".repeat(20);
            let other =
                json!({"session": "b.ipynb", "event": "requested", "msg_id": "x", "code": code});
            journal.append_all(&[own, event(other)]).unwrap();
        }
        let ids = |events: Events| -> Vec<u32> {
            let ids = events.map(|event| event.msg_id().unwrap().parse().unwrap());
            ids.collect()
        };
        assert_eq!(
            ids(project.events("a.ipynb")),
            (0..200).rev().collect::<Vec<_>>()
        );
        assert!(ids(project.events("a.ipynb").within(4 * CHUNK)).len() < 200);

        let mut events = project.events("a.ipynb");
        events.next().unwrap();
        let length = project.journal_file().metadata().unwrap().len();
        assert_eq!(events.end().offset, length);
        assert!(events.from > length - 2 * CHUNK, "it read too much");
        // The next reader's end is before an incomplete line.
        let mut raw = beneath::append(&project.journal_file()).unwrap();
        raw.write_all(br#"{"at":"2026-01-02T03"#).unwrap();
        let events = project.events("a.ipynb");
        assert_eq!(events.end().offset, length);
        assert_eq!(ids(events).len(), 200);
        // A reader that knows the older ones reads no more than the rest.
        let mut last = project.events("a.ipynb");
        let known = last.nth(2).map(|_| last.position()).unwrap();
        let mut rest = project.events("a.ipynb").after(known);
        assert_eq!(rest.by_ref().count(), 3);
        assert!(rest.bytes_read() <= CHUNK, "{}", rest.bytes_read());
        // The line of an event is at its position.
        let mut events = project.events("a.ipynb");
        let event = events.nth(3).unwrap();
        let text = std::fs::read(project.journal_file()).unwrap();
        let rest = &text[events.position().offset as usize..];
        let line = rest.split(|byte| *byte == b'\n').next().unwrap();
        assert_eq!(serde_json::from_slice::<Event>(line).unwrap(), event);
    }
}
