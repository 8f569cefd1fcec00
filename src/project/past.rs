//! The journal, read from its end: what runs now, who did what, since when nothing has happened.
//!
//! A journal grows for months, and what is asked of it happened lately. It is read backwards, no
//! further than the answer needs.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use jiff::Timestamp;

use super::beneath;
use super::folder::Project;
use super::journal::Entry;

/// How much is read at once. A line that is longer makes it grow.
const CHUNK: u64 = 32 << 10;

/// How far back anybody looks: what is older than so many bytes is not asked for.
pub(super) const FAR: u64 = 32 << 20;

/// The journal's entries of one session, or of several, newest first.
#[derive(Debug)]
pub struct Past {
    /// None where there is no journal yet, or it cannot be read any further.
    file: Option<File>,
    /// Where the bytes begin that are in memory.
    from: u64,
    /// Those of them that no entry was made of yet.
    bytes: Vec<u8>,
    /// Nothing before this is read.
    stop: u64,
    end: u64,
    /// The sessions, and as they stand in a line: one without any of these is another session's.
    /// Saves reading most lines of a shared journal.
    sessions: Vec<(String, Vec<u8>)>,
}

/// An entry and where its line begins in the journal.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// The place, in bytes.
    pub at: u64,
    /// The entry.
    pub entry: Entry,
}

/// One execution, as its entries tell of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The request's id.
    pub msg_id: String,
    /// Who asked for it, where that is known.
    pub by: Option<String>,
    /// The notebook cell that its client named.
    pub cell: Option<String>,
    /// Its source, where that is kept.
    pub code: Option<String>,
    /// When it was asked for, or seen to begin.
    pub since: Timestamp,
}

/// What the journal tells of a session's kernel as it is now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Present {
    /// The execution whose end nobody has told yet. Only where the kernel is busy it really runs:
    /// whoever would have told its end may have been killed.
    pub running: Option<Cell>,
    /// When something happened last.
    pub last: Option<Timestamp>,
}

impl Project {
    /// Returns the entries of one session, newest first.
    pub fn past(&self, session: &str) -> Past {
        self.past_of(&[session])
    }

    /// Returns the entries of several sessions, newest first.
    pub fn past_of(&self, sessions: &[&str]) -> Past {
        Past::open(beneath::open(&self.journal_file()).ok(), sessions)
    }

    /// Returns what the journal tells of this generation of a session's kernel.
    pub fn present(&self, session: &str, generation: u64) -> Present {
        present(self.past(session).map(|placed| placed.entry), generation)
    }

    /// Says who has run code in this generation, front ends' own code aside; each name once.
    pub fn authors(&self, session: &str, generation: u64) -> Vec<String> {
        authors(self.past(session).map(|placed| placed.entry), generation)
    }
}

impl Past {
    fn open(file: Option<File>, sessions: &[&str]) -> Self {
        let sessions = sessions.iter().map(|session| {
            // As the writer writes it, without the quotes around.
            let mark = serde_json::to_string(session).unwrap_or_default();
            ((*session).to_owned(), mark.trim_matches('"').into())
        });
        let mut past = Self {
            file,
            from: 0,
            bytes: Vec::new(),
            stop: 0,
            end: 0,
            sessions: sessions.collect(),
        };
        if let Some(Ok(end)) = past.file.as_ref().map(|file| file.metadata()) {
            past.from = end.len();
            past.end = end.len();
            past.stop = end.len().saturating_sub(FAR);
            past.leave_out_the_torn_end();
        }
        past
    }

    /// Returns where the next entry will begin: one that is just being written begins there too.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// A last line without its end is half written, or torn by a crash.
    fn leave_out_the_torn_end(&mut self) {
        while !self.bytes.contains(&b'\n') && self.read_back().is_ok_and(|read| read) {}
        let whole = self.bytes.iter().rposition(|byte| *byte == b'\n');
        self.bytes.truncate(whole.map_or(0, |at| at + 1));
        self.end = self.from + self.bytes.len() as u64;
    }

    /// Reads what lies before the bytes in memory; says whether there was anything.
    fn read_back(&mut self) -> io::Result<bool> {
        let Some(file) = &mut self.file else {
            return Ok(false);
        };
        let size = CHUNK
            .max(self.bytes.len() as u64)
            .min(self.from - self.stop);
        if size == 0 {
            return Ok(false);
        }
        let start = self.from - size;
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(size).read_to_end(&mut bytes)?;
        bytes.append(&mut self.bytes);
        self.bytes = bytes;
        self.from = start;
        Ok(true)
    }

    /// Takes the last line from the bytes in memory, with its place.
    fn line(&mut self) -> Option<(u64, Vec<u8>)> {
        loop {
            if self.bytes.last() == Some(&b'\n') {
                self.bytes.pop();
            }
            let before = self.bytes.iter().rposition(|byte| *byte == b'\n');
            if let Some(before) = before {
                let line = self.bytes.split_off(before + 1);
                return Some((self.from + before as u64 + 1, line));
            }
            if !self.read_back().unwrap_or(false) {
                // The first line of all; of one that was left out before, this is the rest.
                let line = std::mem::take(&mut self.bytes);
                return (self.from == 0 && !line.is_empty()).then_some((0, line));
            }
        }
    }
}

impl Iterator for Past {
    type Item = Placed;

    fn next(&mut self) -> Option<Placed> {
        loop {
            let (at, line) = self.line()?;
            if !self.sessions.iter().any(|(_, mark)| holds(&line, mark)) {
                continue;
            }
            if let Ok(entry) = serde_json::from_slice::<Entry>(&line)
                && self
                    .sessions
                    .iter()
                    .any(|(session, _)| entry.session == *session)
            {
                return Some(Placed { at, entry });
            }
        }
    }
}

/// Whether these bytes are among those.
fn holds(those: &[u8], these: &[u8]) -> bool {
    let Some(first) = these.first() else {
        return true;
    };
    let mut rest = those;
    while let Some(at) = rest.iter().position(|byte| byte == first) {
        rest = &rest[at..];
        if rest.starts_with(these) {
            return true;
        }
        rest = &rest[1..];
    }
    false
}

/// Says whether a session had no entry of this generation before this one.
fn begins(entry: &Entry, generation: u64) -> bool {
    let of = entry.generation.unwrap_or(generation);
    match entry.event.as_str() {
        "opened" | "restarted" => of <= generation,
        // Ends of an earlier kernel's cells may be told late.
        "asked" => of < generation,
        _ => false,
    }
}

/// `entries` come newest first.
fn present(entries: impl Iterator<Item = Entry>, generation: u64) -> Present {
    let mut present = Present::default();
    let mut ended: HashSet<String> = HashSet::new();
    for entry in entries {
        if present.last.is_none() && is_activity(&entry) {
            present.last = Some(entry.at);
        }
        if begins(&entry, generation) {
            break;
        }
        if entry.generation.is_some_and(|of| of != generation) {
            continue;
        }
        let Some(id) = entry.msg_id.clone() else {
            continue;
        };
        match entry.event.as_str() {
            "done" => {
                // What was thrown out of the queue says nothing about what came before it.
                let ran = entry.status.as_deref() != Some("aborted");
                ended.insert(if ran { id } else { format!("{id} aborted") });
            }
            "asked" | "seen" => {
                if ended.contains(&id) {
                    // A kernel runs one after the other: what was asked before has ended.
                    break;
                }
                let was_aborted = ended.contains(&format!("{id} aborted"));
                let alone = entry.alone;
                if !was_aborted {
                    // The oldest is the one that runs; those after it are in the queue.
                    take(&mut present.running, entry, id);
                }
                if alone {
                    break;
                }
            }
            _ => {}
        }
    }
    present
}

/// Makes this execution the one that runs; its asker knows more of it than who has seen it.
fn take(running: &mut Option<Cell>, entry: Entry, id: String) {
    let known = running.take().filter(|cell| cell.msg_id == id);
    let is_asker = entry.event == "asked";
    *running = match known {
        Some(known) if !is_asker => Some(known),
        _ => Some(Cell {
            msg_id: id,
            by: entry.by,
            cell: entry.cell,
            code: entry.code,
            since: entry.at,
        }),
    };
}

/// Whether it is a sign of somebody's work on the kernel.
fn is_activity(entry: &Entry) -> bool {
    matches!(
        entry.event.as_str(),
        "asked" | "seen" | "done" | "opened" | "restarted" | "interrupted"
    )
}

/// `entries` come newest first.
fn authors(entries: impl Iterator<Item = Entry>, generation: u64) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut aborted: HashSet<String> = HashSet::new();
    for entry in entries {
        if begins(&entry, generation) {
            break;
        }
        if entry.generation.is_some_and(|of| of != generation) {
            continue;
        }
        let id = entry.msg_id.unwrap_or_default();
        match (entry.event.as_str(), entry.by) {
            ("done", _) if entry.status.as_deref() == Some("aborted") => {
                aborted.insert(id);
            }
            ("asked", Some(by))
                if entry.store_history && !aborted.contains(&id) && !found.contains(&by) =>
            {
                found.push(by);
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn entry(event: &str, id: &str, by: &str) -> Entry {
        let mut entry = Entry::now(event, "a.ipynb");
        entry.generation = Some(2);
        entry.msg_id = Some(id.to_owned()).filter(|id| !id.is_empty());
        entry.by = Some(by.to_owned());
        entry
    }

    fn done(id: &str, status: &str) -> Entry {
        let mut entry = entry("done", id, "x");
        entry.status = Some(status.to_owned());
        entry
    }

    fn running(entries: &[Entry]) -> Option<(String, Option<String>)> {
        let present = present(entries.iter().rev().cloned(), 2);
        present.running.map(|cell| (cell.msg_id, cell.by))
    }

    fn is(id: &str, by: &str) -> Option<(String, Option<String>)> {
        Some((id.to_owned(), Some(by.to_owned())))
    }

    #[test]
    fn what_was_asked_and_not_ended_runs() {
        assert_eq!(running(&[]), None);
        let mut told = vec![entry("restarted", "", "ada"), entry("asked", "1", "ada")];
        assert_eq!(running(&told), is("1", "ada"));
        // Behind it in the queue.
        told.push(entry("asked", "2", "bob"));
        assert_eq!(running(&told), is("1", "ada"));
        told.push(done("1", "error"));
        assert_eq!(running(&told), is("2", "bob"));
        // Its client's name for itself is not the name of who asked.
        told.push(entry("seen", "2", "username"));
        assert_eq!(running(&told), is("2", "bob"));
        told.push(done("2", "ok"));
        assert_eq!(running(&told), None);
    }

    #[test]
    fn an_end_that_nobody_told_is_known_from_what_came_after() {
        // Seen by a proxy; whoever asked writes no journal.
        let mut told = vec![entry("seen", "1", "console")];
        assert_eq!(running(&told), is("1", "console"));
        told.push(entry("asked", "2", "bob"));
        told.push(done("2", "ok"));
        assert_eq!(running(&told), None);
        // Its asker was killed; the next one saw an idle kernel before it asked.
        let mut told = vec![entry("asked", "1", "ada"), entry("asked", "2", "bob")];
        told[1].alone = true;
        assert_eq!(running(&told), is("2", "bob"));
        // Thrown out of the queue: it did not run, so that the first may still run.
        let told = [
            entry("asked", "1", "ada"),
            entry("asked", "2", "bob"),
            done("2", "aborted"),
        ];
        assert_eq!(running(&told), is("1", "ada"));
    }

    #[test]
    fn cells_of_an_earlier_kernel_do_not_run() {
        let mut early = entry("asked", "1", "ada");
        early.generation = Some(1);
        let mut late = done("1", "error");
        late.generation = Some(1);
        let told = [early.clone(), entry("restarted", "", "bob")];
        assert_eq!(running(&told), None);
        let told = [
            early,
            entry("restarted", "", "bob"),
            entry("asked", "2", "bob"),
            late,
        ];
        assert_eq!(running(&told), is("2", "bob"));
    }

    #[test]
    fn authors_are_those_whose_code_ran_for_themselves() {
        let mut startup = entry("asked", "1", "human (VS Code)");
        startup.store_history = false;
        let mut before = entry("asked", "0", "eve");
        before.generation = Some(1);
        let told = [
            before,
            entry("opened", "", "eve"),
            startup,
            entry("asked", "2", "ada"),
            done("2", "ok"),
            entry("asked", "3", "bob"),
            done("3", "aborted"),
            entry("asked", "4", "ada"),
            entry("seen", "4", "username"),
        ];
        assert_eq!(authors(told.iter().rev().cloned(), 2), ["ada"]);
    }

    #[test]
    fn a_long_journal_is_read_from_its_end_and_no_further_than_needed() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        assert_eq!(project.past("a.ipynb").next(), None);
        let mut journal = project.journal().unwrap();
        let long = "x".repeat(CHUNK as usize * 3);
        for number in 0..200 {
            let mut own = Entry::now("asked", "a.ipynb");
            own.msg_id = Some(number.to_string());
            if number % 50 == 0 {
                own.code = Some(long.clone());
            }
            let mut other = Entry::now("asked", "b.ipynb");
            other.code = Some("print('a.ipynb')\n".repeat(20));
            journal.append_all(&[own, other]).unwrap();
        }
        let ids = |past: Past| -> Vec<_> {
            past.map(|placed| placed.entry.msg_id.unwrap().parse::<u32>().unwrap())
                .collect()
        };
        assert_eq!(
            ids(project.past("a.ipynb")),
            (0..200).rev().collect::<Vec<_>>()
        );

        let mut past = project.past("a.ipynb");
        past.next().unwrap();
        let length = project.journal_file().metadata().unwrap().len();
        assert_eq!(past.end(), length);
        assert!(past.from > length - 2 * CHUNK, "it read too much");
        // Half a line: it is not there yet, and begins where the next reader will look.
        let mut raw = std::fs::OpenOptions::new()
            .append(true)
            .open(project.journal_file())
            .unwrap();
        raw.write_all(br#"{"at":"2026-01-02T03"#).unwrap();
        let past = project.past("a.ipynb");
        assert_eq!(past.end(), length);
        assert_eq!(ids(past).len(), 200);
        // A place is one that can be gone back to.
        let placed = project.past("a.ipynb").nth(3).unwrap();
        let text = std::fs::read(project.journal_file()).unwrap();
        let line = text[placed.at as usize..]
            .split(|byte| *byte == b'\n')
            .next();
        let entry: Entry = serde_json::from_slice(line.unwrap()).unwrap();
        assert_eq!(entry, placed.entry);
    }
}
