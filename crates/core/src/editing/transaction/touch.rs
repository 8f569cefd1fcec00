//! Sets a later modification time on a notebook that `nb` wrote shortly after an editor's save.
//!
//! After its save an editor reads the file's modification time, to tell others' changes from its own. If
//! `nb` writes between the save and that read, the editor takes the new time for that of its own save:
//! it shows the old text, and its next save overwrites what `nb` wrote without asking (seen in VS Code
//! with 25 ms between the two). A later modification time makes it read the file again.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::sizes::Sizes;
use crate::editing::file_stamp::FileStamp;
use crate::editing::notebook_file::NotebookFile;
use crate::notebook::Revision;
use crate::project::{Lock, NotLocked, lock_notebook};

/// A write of `nb` is close to a save if less than this is between them.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// How long after the write the file is touched; the editor has read the time by then.
const TOUCH_DELAY: Duration = Duration::from_millis(500);

/// How much the modification time is moved. VS Code notices one millisecond; JupyterLab asks its
/// user about a file whose time moved by half a second.
pub(super) const NUDGE: Duration = Duration::from_millis(20);

/// How long to wait for another writer. If that takes longer, its write makes the touch
/// unnecessary.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// How many bytes of a lock file are read at most.
pub(super) const NOTE_BYTES: usize = 32 << 10;

/// The threads that wait to touch a notebook.
static PENDING: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

/// Waits until this process has touched all notebooks that it has to: half a second at most, or longer
/// while another process writes one of them. Every `main` ends with it.
///
/// The process waits itself, after it has printed its answer: a helper process would take as long to
/// start, and the wait is needed only if a person saved within the second before.
pub fn settle() {
    let pending = std::mem::take(&mut *PENDING.lock().unwrap_or_else(PoisonError::into_inner));
    for thread in pending {
        let _ = thread.join();
    }
}

/// The time at which another program last saved a notebook, and the sizes that the file had, as far as a
/// write of `nb` knows.
///
/// The writers' lock file records which file the last write of `nb` put in place, so that `nb`'s
/// own writes do not count as other programs' saves.
#[derive(Debug)]
pub(super) struct Saves<'a> {
    lock: Option<&'a Lock>,
    /// In nanoseconds since 1970, by the file system's clock.
    last: Option<i128>,
    /// The sizes that the file had.
    pub(super) sizes: Sizes,
}

impl<'a> Saves<'a> {
    /// Returns the time of the last save of a notebook with this stamp, and with this text if that is known.
    pub(super) fn before(
        lock: Option<&'a Lock>,
        found: &FileStamp,
        text: Option<Revision>,
    ) -> Self {
        let note = read_note(lock);
        let mut sizes = Sizes::default();
        let (size, modified) = found.content();
        let last = match note {
            Some(note) if note.placed == key(found) => {
                sizes = note.sizes;
                sizes.keep(size, text, Timestamp::now());
                note.saved
            }
            note => {
                sizes = note.map_or(sizes, |note| note.sizes);
                sizes.add(size, text, Timestamp::now());
                Some(modified)
            }
        };
        Self { lock, last, sizes }
    }

    /// Adds another save, by the stamp of the file that it wrote.
    pub(super) fn add(&mut self, saved: &FileStamp) {
        self.last = self.last.max(Some(saved.content().1));
        self.add_size(saved, None);
    }

    /// Adds the size of a file with a text, if that is known.
    pub(super) fn add_size(&mut self, file: &FileStamp, text: Option<Revision>) {
        self.sizes.add(file.content().0, text, Timestamp::now());
    }

    /// Records the file that is in place now, and touches it later if a save was close to the write.
    pub(super) fn record_write(&self, notebook: &NotebookFile, placed: &FileStamp) {
        write_note(self.lock, placed, self.last, self.sizes.clone());
        let close = i128::try_from(CLOSE_TIME.as_nanos()).unwrap_or(i128::MAX);
        let distance = self.last.map(|last| (placed.content().1 - last).abs());
        if distance.is_some_and(|distance| distance <= close) {
            let (notebook, placed, last) = (notebook.real.clone(), *placed, self.last);
            call_later(move || touch(&notebook, &placed, last));
        }
    }
}

/// Records the file that `nb` has put in place, for the next holder of the lock.
fn write_note(lock: Option<&Lock>, placed: &FileStamp, saved: Option<i128>, mut sizes: Sizes) {
    sizes.forget_old(Timestamp::now());
    let note = Note {
        placed: key(placed),
        saved,
        sizes,
    };
    // If the record is missing, a file is touched once too often, and an edit may have the size of an earlier version.
    if let Some((lock, note)) = lock.zip(serde_json::to_vec(&note).ok()) {
        let _ = lock.set_content(&note);
    }
}

/// Records a file that `nb` has made or touched.
pub(super) fn note_own(lock: Option<&Lock>, placed: &FileStamp, saved: Option<i128>) {
    let mut sizes = read_note(lock).map_or_else(Sizes::default, |note| note.sizes);
    sizes.keep(placed.content().0, None, Timestamp::now());
    write_note(lock, placed, saved, sizes);
}

fn read_note(lock: Option<&Lock>) -> Option<Note> {
    let note = lock?.content(NOTE_BYTES).ok()?;
    serde_json::from_slice(&note).ok()
}

/// Calls `touch` half a second later, or not at all if no thread can be started.
fn call_later(touch: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().spawn(|| {
        std::thread::sleep(TOUCH_DELAY);
        touch();
    });
    let mut pending = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    // A recorder runs for a long time.
    pending.retain(|thread| !thread.is_finished());
    pending.extend(thread);
}

/// Moves a notebook's modification time a little, unless the file was written since `placed`.
fn touch(notebook: &Path, placed: &FileStamp, saved: Option<i128>) {
    let lock = match lock_notebook(notebook, LOCK_TIMEOUT) {
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
        note_own(lock.as_ref(), &FileStamp::of(&found), saved);
    }
}

/// Opens the notebook without blocking: it may have become a pipe.
fn open(notebook: &Path) -> std::io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(notebook)
}

/// The content of a lock file.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    /// The inode, size and time of the file that `nb` has put in place last.
    placed: (u64, u64, i128),
    /// When another program last saved.
    saved: Option<i128>,
    /// The sizes that the file had.
    #[serde(default)]
    sizes: Sizes,
}

fn key(stamp: &FileStamp) -> (u64, u64, i128) {
    let (size, modified) = stamp.content();
    (stamp.ino(), size, modified)
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
            let sizes = Sizes::default();
            let note = Note {
                placed,
                saved,
                sizes,
            };
            let text = serde_json::to_vec(&note).unwrap();
            let read = serde_json::from_slice::<Note>(&text).unwrap();
            assert_eq!((read.placed, read.saved), (placed, saved));
        }
    }

    /// Makes a file, and returns its path and its stamp from when it was put in place.
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
    fn only_an_unchanged_file_is_touched() {
        let (_temp, path, old) = placed();
        let long_ago = SystemTime::now() - Duration::from_secs(10);
        File::open(&path).unwrap().set_modified(long_ago).unwrap();
        touch(&path, &old, None);
        assert_eq!(modified(&path), long_ago, "it has another time");
        let placed = stamp(&path);
        touch(&path, &placed, None);
        assert_eq!(modified(&path), long_ago + NUDGE);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
        // The touch does not count as a save.
        let lock = lock_notebook(&path, LOCK_TIMEOUT).unwrap();
        assert_eq!(Saves::before(Some(&lock), &stamp(&path), None).last, None);
        drop(lock);
        std::fs::write(&path, "theirs").unwrap();
        let theirs = stamp(&path);
        touch(&path, &placed, None);
        assert!(theirs.agrees(&stamp(&path)));
        // A path that is not a regular file any more does not block.
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
