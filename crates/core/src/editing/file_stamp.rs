//! A file's stamp, which proves that a file has not changed without reading it again.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A file's identity, size and modification time, and whether they can prove that nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStamp {
    dev: u64,
    ino: u64,
    size: u64,
    /// Nanoseconds since 1970.
    modified: i128,
    settled: bool,
}

impl FileStamp {
    /// Returns the stamp of a file that is read now.
    pub(super) fn of(found: &Metadata) -> Self {
        let modified = i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec());
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_nanos());
        let age = i128::try_from(now).unwrap_or(i128::MAX) - modified;
        // A save in the same tick of the file system's clock does not change the time (git's "racily
        // clean"). Times in whole seconds come from file systems that store no fractions (FAT: two seconds).
        let tick = match found.mtime_nsec() {
            0 => Duration::from_secs(3),
            _ => Duration::from_millis(100),
        };
        Self {
            dev: found.dev(),
            ino: found.ino(),
            size: found.size(),
            modified,
            settled: age > i128::try_from(tick.as_nanos()).unwrap_or(i128::MAX),
        }
    }

    /// Returns the inode's number.
    pub(super) fn ino(&self) -> u64 {
        self.ino
    }

    /// Returns the size and the modification time, which a rename does not change.
    pub(super) fn content(&self) -> (u64, i128) {
        (self.size, self.modified)
    }

    /// Returns the stamp as proof that the file is unchanged: the caller has checked everything
    /// else.
    pub(super) fn trusted(self) -> Self {
        let settled = true;
        Self { settled, ..self }
    }

    /// Returns the stamp as one that proves nothing, so that the bytes are compared.
    pub(super) fn doubtful(self) -> Self {
        let settled = false;
        Self { settled, ..self }
    }

    /// Returns whether a file with the stamp `later` is certainly this one, unchanged.
    ///
    /// If not, its bytes must be compared. The inode's change time does not count: a rename
    /// changes it.
    pub(super) fn proves(&self, later: &Self) -> bool {
        self.settled
            && (self.dev, self.ino) == (later.dev, later.ino)
            && self.content() == later.content()
    }

    /// Returns whether a later stamp of the same path is of the same file and, judging by size and
    /// time, nothing was written to it.
    pub(super) fn is_same_file(&self, later: &Self) -> bool {
        self.agrees(later) && self.ino == later.ino
    }

    /// Returns whether, judging by size and time, nothing was written between two stamps of one open
    /// file.
    pub(super) fn agrees(&self, later: &Self) -> bool {
        self.content() == later.content()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn only_an_old_file_proves_that_it_is_unchanged() {
        let temp = tempfile::NamedTempFile::new().unwrap();
        let stamp = || FileStamp::of(&temp.as_file().metadata().unwrap());
        let at = |ago| {
            let time = SystemTime::now() - Duration::from_millis(ago);
            temp.as_file().set_modified(time).unwrap();
            stamp()
        };
        let young = at(10);
        assert!(!young.proves(&stamp()));
        let old = at(10_000);
        assert!(old.proves(&stamp()));
        temp.as_file().set_len(1).unwrap();
        assert!(!old.proves(&stamp()));

        // A time in whole seconds proves little.
        let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let whole = UNIX_EPOCH + Duration::from_secs(second.as_secs() - 1);
        temp.as_file().set_modified(whole).unwrap();
        assert!(!stamp().proves(&stamp()));

        let moved = temp.path().with_extension("moved");
        let old = at(10_000);
        std::fs::rename(temp.path(), &moved).unwrap();
        assert!(old.proves(&FileStamp::of(
            &File::open(&moved).unwrap().metadata().unwrap()
        )));
        std::fs::rename(moved, temp.path()).unwrap();
    }
}
