//! Reads the journal as it grows: from a position on, oldest first, across rotated files.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use super::journal::{self, file_of};
use super::{Event, Position};
use crate::project::beneath;
use crate::project::folder::{JOURNAL, Project};
use crate::project::watch::FolderWatch;

/// The pause between two reads where the system reports no changes.
const PACE: Duration = Duration::from_millis(250);

/// The longest line that is read, in bytes.
const LINE_BYTES_MAX: usize = 32 << 20;

/// The events from a position on, as they are written.
///
/// It holds one line in memory. It skips files that were removed before they were read, lines of unknown
/// kinds, torn lines, and lines of more than 32 MiB. If the journal was removed and a new one begun, it
/// reads the new one from the beginning.
#[derive(Debug)]
pub struct EventFollower {
    journal: PathBuf,
    /// The folder of the earlier files.
    earlier: PathBuf,
    file: Option<BufReader<File>>,
    /// Whether `file` is the current file, which may still grow.
    is_current: bool,
    /// Whether the current file was renamed to an earlier one or removed.
    is_replaced: bool,
    /// The position of the next line.
    position: Position,
    /// The part of the next line that was read so far, and its length in bytes.
    line: Vec<u8>,
    length: usize,
    longest: usize,
    watch: FolderWatch,
}

impl Project {
    /// Follows the events of all sessions from a position on; must be called within a runtime. From
    /// [`super::Events::end`] on, it returns the events that are written after that.
    pub fn follow_events(&self, from: Position) -> EventFollower {
        EventFollower {
            journal: self.journal_file(),
            earlier: self.earlier_journals(),
            file: None,
            is_current: false,
            is_replaced: false,
            position: from,
            line: Vec::new(),
            length: 0,
            longest: LINE_BYTES_MAX,
            // The watch begins before the first read, which then sees every change that the watch
            // does not report.
            watch: FolderWatch::begin(&[self.dir()], PACE),
        }
    }
}

impl EventFollower {
    /// Waits for the next event. Cancel safe: no event is lost.
    pub async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.read() {
                return event;
            }
            let is_journal = |name: Option<&str>| name.is_none_or(|name| name == JOURNAL);
            self.watch.changed(is_journal).await;
        }
    }

    /// Returns the next event, if one is already written.
    pub fn read(&mut self) -> Option<Event> {
        loop {
            if self.file.is_none() && !self.open() {
                return None;
            }
            if self.read_line().unwrap_or(false) {
                let is_short = self.length <= self.longest;
                self.position.offset += self.length as u64;
                let event = serde_json::from_slice(&self.line);
                self.begin_line();
                match event {
                    Ok(event) if is_short => return Some(event),
                    _ => continue,
                }
            }
            if self.is_current && self.is_in_place() {
                return None;
            }
            self.is_replaced = self.is_current;
            if !self.is_current {
                self.position = Position {
                    file: self.position.file + 1,
                    offset: 0,
                };
            }
            self.file = None;
        }
    }

    /// Returns the position of the next event, where another follower can continue.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Opens the file of the position, or the oldest later one. Returns false if there is none yet.
    fn open(&mut self) -> bool {
        self.begin_line();
        let (earlier, current) = journal::open_current(&self.journal, &self.earlier);
        let last = earlier.last().map_or(1, |last| last + 1);
        let first_file = match self.position.file > last {
            // The position is from a journal that was removed.
            true => 0,
            false => self.position.file,
        };
        let number = earlier.iter().copied().find(|number| *number >= first_file);
        let number = number.unwrap_or(last);
        if number != self.position.file {
            self.position = Position {
                file: number,
                offset: 0,
            };
        }
        self.is_current = number == last;
        let file = match self.is_current {
            true => current,
            false => beneath::open(&file_of(&self.earlier, number)).ok(),
        };
        let Some(mut file) = file else { return false };
        let is_new = std::mem::take(&mut self.is_replaced) && self.is_current;
        let length = file.metadata().map_or(0, |found| found.len());
        if is_new || length < self.position.offset {
            self.position.offset = 0;
        }
        let found = file.seek(SeekFrom::Start(self.position.offset));
        self.file = found.ok().map(|_| BufReader::new(file));
        self.file.is_some()
    }

    fn begin_line(&mut self) {
        self.line.clear();
        self.length = 0;
    }

    /// Reads more of the line; returns whether its end was reached.
    fn read_line(&mut self) -> io::Result<bool> {
        let Some(file) = &mut self.file else {
            return Ok(false);
        };
        loop {
            let bytes = file.fill_buf()?;
            let end = memchr::memchr(b'\n', bytes);
            let part = bytes.get(..end.map_or(bytes.len(), |at| at + 1));
            let part = part.unwrap_or_default();
            let length = part.len();
            if length == 0 {
                return Ok(false);
            }
            self.length += length;
            match self.length <= self.longest {
                true => self.line.extend_from_slice(part),
                false => self.line = Vec::new(),
            }
            file.consume(length);
            if end.is_some() {
                return Ok(true);
            }
        }
    }

    /// Returns whether the open file is still the journal's current one, and was not truncated.
    fn is_in_place(&self) -> bool {
        let Some(file) = self.file.as_ref().map(BufReader::get_ref) else {
            return false;
        };
        let is_whole = file
            .metadata()
            .is_ok_and(|it| it.len() >= self.position.offset);
        is_whole && journal::is_in_place(file, &self.journal).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use serde_json::json;

    use super::*;
    use crate::project::event::fixtures::{event, project};

    fn asked(number: u32) -> Event {
        event(json!({"event": "requested", "msg_id": number.to_string()}))
    }

    fn number(event: &Event) -> u32 {
        event.msg_id().unwrap().parse().unwrap()
    }

    #[tokio::test]
    async fn each_event_comes_once_across_rotated_files() {
        let (_temp, project) = project();
        let mut journal = project.journal().unwrap();
        journal.limit = 4_000;
        let mut followers =
            [1, 7, 40].map(|pace| (pace, project.follow_events(Position::default())));
        let mut received = [const { Vec::new() }; 3];
        for at in 0..300 {
            journal.append(&asked(at)).unwrap();
            for ((pace, follower), received) in followers.iter_mut().zip(&mut received) {
                if at % *pace == 0 {
                    received.extend(std::iter::from_fn(|| follower.read()).map(|it| number(&it)));
                }
            }
        }
        for ((_, mut follower), mut received) in followers.into_iter().zip(received) {
            received.extend(std::iter::from_fn(|| follower.read()).map(|it| number(&it)));
            assert_eq!(received, (0..300).collect::<Vec<_>>());
            assert_eq!(follower.position(), project.events_of(&[]).end());
        }
        // A late follower gets the files that are left, and another can continue at its position.
        let mut late = project.follow_events(Position::default());
        let first = number(&late.read().unwrap());
        assert!(first > 100, "{first}");
        let mut again = project.follow_events(late.position());
        assert_eq!(number(&again.read().unwrap()), first + 1);
        assert!(again.line.capacity() < 1 << 10);
    }

    #[tokio::test]
    async fn torn_long_and_unknown_lines_are_skipped() {
        let (_temp, project) = project();
        let mut journal = project.journal().unwrap();
        let mut follower = project.follow_events(Position::default());
        follower.longest = 1_000;
        assert_eq!(follower.read(), None);
        let mut raw = beneath::append(&project.journal_file()).unwrap();
        let later = json!({"at": "2026-01-02T03:04:05Z", "session": "a", "event": "of_later"});
        writeln!(raw, "{later}").unwrap();
        let long = json!({"event": "requested", "msg_id": "1", "code": "x".repeat(200_000)});
        journal.append(&event(long)).unwrap();
        raw.write_all(br#"{"at":"2026-01-02T03"#).unwrap();
        assert_eq!(follower.read(), None);
        assert!(follower.line.capacity() < 1_000);
        journal.append(&asked(2)).unwrap();
        assert_eq!(number(&follower.read().unwrap()), 2);
        // An incomplete line is not returned yet.
        let line = serde_json::to_string(&asked(3)).unwrap();
        let (one, other) = line.split_at(20);
        raw.write_all(one.as_bytes()).unwrap();
        assert_eq!(follower.read(), None);
        writeln!(raw, "{other}").unwrap();
        assert_eq!(number(&follower.read().unwrap()), 3);
        // A new journal, in the same file or in another one.
        std::fs::write(project.journal_file(), "").unwrap();
        journal.append(&asked(4)).unwrap();
        assert_eq!(number(&follower.read().unwrap()), 4);
        std::fs::remove_file(project.journal_file()).unwrap();
        assert_eq!(follower.read(), None);
        journal.append(&asked(5)).unwrap();
        assert_eq!(number(&follower.read().unwrap()), 5);
    }

    #[tokio::test]
    async fn an_event_wakes_who_waits_for_it() {
        let (_temp, project) = project();
        let end = project.events_of(&[]).end();
        let mut follower = project.follow_events(end);
        for at in 0..3 {
            let writes = async {
                tokio::task::yield_now().await;
                project.record(&[asked(at)]);
            };
            let (received, ()) = tokio::join!(follower.next(), writes);
            assert_eq!(number(&received), at);
        }
    }
}
