//! Touching a notebook once more after a write that came close to somebody's save.
//!
//! An editor asks for the file's time after its save, to tell others' changes from its own. Where
//! `nb` writes between the save and the question, the editor takes that write for its own: it
//! shows the old text, and its next save drops what `nb` wrote without a question (seen in VS Code
//! with 25 ms between the two). A later time of the same bytes makes it read the file again.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::OFlags;

use crate::editing::file_stamp::FileStamp;
use crate::editing::notebook_file::NotebookFile;
use crate::project::{Lock, NotLocked, lock_notebook};

/// How close to a write of `nb` a save may be that is taken for one at the same moment.
const CLOSE: Duration = Duration::from_secs(1);

/// How long after the write the file is touched: an editor has asked for its time by then.
const LATER: Duration = Duration::from_millis(500);

/// How much later the file's time becomes. It need only be another millisecond to VS Code; JupyterLab
/// asks its user about a file that became half a second younger.
pub(super) const NUDGE: Duration = Duration::from_millis(20);

/// How long another writer is waited for; while one writes there is no need to touch the file.
const LOCKED: Duration = Duration::from_secs(2);

/// No more is read of what is written in a lock's file.
const NOTE: usize = 256;

/// The threads that are going to touch a notebook.
static PENDING: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

/// Waits until every notebook that this process is to touch is touched: half a second at most,
/// but for a notebook that somebody else writes just then. Every `main` ends with it.
///
/// The process waits itself, after its answer is printed, since a helper would take as long to
/// start as it saves; it is needed only where a person saved in the second before.
pub fn settle() {
    let pending = std::mem::take(&mut *PENDING.lock().unwrap_or_else(PoisonError::into_inner));
    for thread in pending {
        let _ = thread.join();
    }
}

/// When others saved a notebook last, as far as a write of `nb` knows.
///
/// The file of the writers' lock says which file the last write of `nb` has put in place, so that
/// the writes of one command after the other are not taken for somebody else's saves.
#[derive(Debug)]
pub(super) struct Saves<'a> {
    lock: Option<&'a Lock>,
    /// In nanoseconds since 1970, by the file system's clock.
    last: Option<i128>,
}

impl<'a> Saves<'a> {
    /// Returns what is known when the notebook is `found` like this.
    pub(super) fn before(lock: Option<&'a Lock>, found: &FileStamp) -> Self {
        let note = lock.and_then(|lock| lock.content(NOTE).ok());
        let note = note.and_then(|note| Note::read(&note));
        let last = match note {
            Some(note) if note.placed == key(found) => note.saved,
            _ => Some(found.content().1),
        };
        Self { lock, last }
    }

    /// Takes in another save, by the stamp of the file that it wrote.
    pub(super) fn saw(&mut self, saved: &FileStamp) {
        self.last = self.last.max(Some(saved.content().1));
    }

    /// Notes which file is in place now. If somebody saved close to it, it is touched later.
    pub(super) fn wrote(&self, page: &NotebookFile, placed: &FileStamp) {
        note(self.lock, placed, self.last);
        let close = i128::try_from(CLOSE.as_nanos()).unwrap_or(i128::MAX);
        let distance = self.last.map(|last| (placed.content().1 - last).abs());
        if distance.is_some_and(|distance| distance <= close) {
            let (notebook, placed, last) = (page.real.clone(), *placed, self.last);
            later(move || touch(&notebook, &placed, last));
        }
    }
}

/// Notes the file that `nb` has put in place, for the next holder of the lock.
pub(super) fn note(lock: Option<&Lock>, placed: &FileStamp, saved: Option<i128>) {
    let placed = key(placed);
    // Without the note a file is touched once too often.
    let _ = lock.map(|lock| lock.set_content(Note { placed, saved }.to_string().as_bytes()));
}

/// Does it half a second later, or, where no thread can be had, not at all.
fn later(touch: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().spawn(|| {
        std::thread::sleep(LATER);
        touch();
    });
    let mut pending = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    // A recorder lives long.
    pending.retain(|thread| !thread.is_finished());
    pending.extend(thread);
}

/// Gives a notebook a time that is a little later, unless somebody wrote it since `placed`.
fn touch(notebook: &Path, placed: &FileStamp, saved: Option<i128>) {
    let lock = match lock_notebook(notebook, LOCKED) {
        Ok(lock) => Some(lock),
        Err(NotLocked::Unusable(_)) => None,
        Err(NotLocked::Held { .. }) => return,
    };
    let Ok(file) = open(notebook) else { return };
    if let Ok(found) = file.metadata()
        && placed.is_same_file(&FileStamp::of(&found))
        && let Ok(modified) = found.modified()
        && file.set_modified(modified + NUDGE).is_ok()
        && let Ok(found) = file.metadata()
    {
        note(lock.as_ref(), &FileStamp::of(&found), saved);
    }
}

/// Opens what is there by now: perhaps no file any more.
fn open(notebook: &Path) -> std::io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(notebook)
}

/// What is written in a lock's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Note {
    /// The inode, size and time of the file that `nb` has put in place last.
    placed: (u64, u64, i128),
    /// When somebody else saved last.
    saved: Option<i128>,
}

fn key(stamp: &FileStamp) -> (u64, u64, i128) {
    let (size, modified) = stamp.content();
    (stamp.ino(), size, modified)
}

impl std::fmt::Display for Note {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (ino, size, modified) = self.placed;
        write!(to, "{ino} {size} {modified}")?;
        self.saved.map_or(Ok(()), |saved| write!(to, " {saved}"))
    }
}

impl Note {
    fn read(note: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(note).ok()?.split(' ');
        let placed = (
            words.next()?.parse().ok()?,
            words.next()?.parse().ok()?,
            words.next()?.parse().ok()?,
        );
        let saved = words.next().map(str::parse).transpose().ok()?;
        Some(Self { placed, saved })
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let placed = (17, 5_000_000, 1_790_000_000_123_456_789);
        for saved in [None, Some(1_790_000_000_000_000_000)] {
            let note = Note { placed, saved };
            assert_eq!(Note::read(note.to_string().as_bytes()), Some(note));
        }
        for other in ["", "1 2", "1 2 x", "1 2 3 x"] {
            assert_eq!(Note::read(other.as_bytes()), None, "{other}");
        }
    }

    /// A file, and what it was like when it was put in place.
    fn placed() -> (tempfile::TempDir, PathBuf, FileStamp) {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("t.ipynb");
        std::fs::write(&path, "text").unwrap();
        let stamp = stamp(&path);
        (temp, path, stamp)
    }

    fn stamp(path: &Path) -> FileStamp {
        FileStamp::of(&std::fs::metadata(path).unwrap())
    }

    #[test]
    fn only_what_nobody_wrote_since_is_touched() {
        let (_temp, path, old) = placed();
        let long_ago = SystemTime::now() - Duration::from_secs(10);
        File::open(&path).unwrap().set_modified(long_ago).unwrap();
        touch(&path, &old, None);
        assert_eq!(modified(&path), long_ago, "it has another time");
        let placed = stamp(&path);
        touch(&path, &placed, None);
        assert_eq!(modified(&path), long_ago + NUDGE);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
        // Its own touch is no save.
        let lock = lock_notebook(&path, LOCKED).unwrap();
        assert_eq!(Saves::before(Some(&lock), &stamp(&path)).last, None);
        drop(lock);
        std::fs::write(&path, "theirs").unwrap();
        let theirs = stamp(&path);
        touch(&path, &placed, None);
        assert!(theirs.agrees(&stamp(&path)));
        // What is no file any more is not waited for.
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        touch(&path, &theirs, None);
    }

    fn modified(path: &Path) -> SystemTime {
        std::fs::metadata(path).unwrap().modified().unwrap()
    }
}
