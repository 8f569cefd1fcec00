//! Messages that a subscriber has not read and that memory is too scarce for: they wait in a file without a
//! name.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Where a [`Publisher`](super::Publisher) puts messages beyond a subscriber's budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpillTo {
    /// The folder of the files, one for each subscriber that needs one. They have no name there, no other
    /// process can open them, and the system removes them when the process ends.
    pub folder: PathBuf,
    /// The maximum number of bytes for one subscriber.
    pub bytes: u64,
}

/// A queue of bytes on disk. It is a ring, so that the file never becomes longer than its limit.
#[derive(Debug)]
pub(super) struct Spill {
    to: SpillTo,
    file: Option<File>,
    /// How many bytes were taken and put since it was last empty.
    taken: u64,
    put: u64,
}

/// How many bytes are read at once.
const CHUNK: usize = 256 * 1024;

impl Spill {
    pub(super) fn new(to: SpillTo) -> Self {
        Self {
            to,
            file: None,
            taken: 0,
            put: 0,
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.put - self.taken
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends all of these bytes, or none.
    ///
    /// # Errors
    /// If the limit is reached ([`io::ErrorKind::QuotaExceeded`]), or the system has no space.
    pub(super) fn put(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<()> {
        let more: u64 = slices.iter().map(|slice| slice.len() as u64).sum();
        if self.len() + more > self.to.bytes {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(unnamed_in(&self.to.folder)?),
        };
        let mut at = self.put;
        for slice in slices {
            let (first, rest) = slice.split_at(before_end(at, slice.len(), self.to.bytes));
            file.write_all_at(first, at % self.to.bytes)?;
            file.write_all_at(rest, 0)?;
            at += slice.len() as u64;
        }
        // Set last, so that bytes of a failed write do not count.
        self.put = at;
        Ok(())
    }

    /// Removes and returns some of the first bytes; none only if it is empty.
    pub(super) fn take(&mut self) -> io::Result<Vec<u8>> {
        let len = usize::try_from(self.len()).unwrap_or(usize::MAX).min(CHUNK);
        let mut chunk = vec![0; len];
        if let Some(file) = &self.file {
            let (first, rest) = chunk.split_at_mut(before_end(self.taken, len, self.to.bytes));
            file.read_exact_at(first, self.taken % self.to.bytes)?;
            file.read_exact_at(rest, 0)?;
        }
        self.taken += len as u64;
        if self.is_empty() {
            // A new file: the system frees the space of the old one.
            *self = Self::new(self.to.clone());
        }
        Ok(chunk)
    }
}

fn unnamed_in(folder: &Path) -> io::Result<File> {
    let file = tempfile::tempfile_in(folder)?;
    // The umask may have allowed more.
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Returns how many of `len` bytes fit between this position of the ring and its end.
fn before_end(at: u64, len: usize, ring: u64) -> usize {
    usize::try_from(ring - at % ring).map_or(len, |room| room.min(len))
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use proptest::prelude::*;

    use super::*;

    fn spill(bytes: u64) -> Spill {
        let folder = std::env::temp_dir();
        Spill::new(SpillTo { folder, bytes })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_is_taken_is_what_was_put_in_order(
            puts in proptest::collection::vec((0..400_000usize, any::<bool>()), 1..20),
        ) {
            let mut spill = spill(500_000);
            let (mut wanted, mut got, mut next) = (Vec::new(), Vec::new(), 0u8);
            for (len, takes) in puts {
                let bytes: Vec<u8> = std::iter::repeat_with(|| {
                    next = next.wrapping_mul(5).wrapping_add(3);
                    next
                })
                .take(len)
                .collect();
                let (one, other) = bytes.split_at(len / 3);
                let before = spill.len();
                match spill.put(&[IoSlice::new(one), IoSlice::new(other)]) {
                    Ok(()) => wanted.extend(bytes),
                    Err(error) => {
                        prop_assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
                        prop_assert!(before + len as u64 > 500_000);
                        prop_assert_eq!(spill.len(), before);
                    }
                }
                if takes {
                    got.extend(spill.take().unwrap());
                }
            }
            while !spill.is_empty() {
                got.extend(spill.take().unwrap());
            }
            prop_assert!(spill.file.is_none(), "an empty one has no file");
            prop_assert!(got == wanted);
        }
    }

    #[test]
    fn nobody_else_can_open_the_file() {
        use std::os::unix::fs::MetadataExt;
        let mut spill = spill(10);
        spill.put(&[IoSlice::new(b"secret")]).unwrap();
        let about = spill.file.as_ref().unwrap().metadata().unwrap();
        assert_eq!(
            (about.permissions().mode() & 0o777, about.nlink()),
            (0o600, 0)
        );
    }

    #[test]
    fn a_folder_that_takes_nothing_is_an_error_and_nothing_is_there() {
        let folder = PathBuf::from("/nonexistent");
        let mut spill = Spill::new(SpillTo { folder, bytes: 10 });
        let error = spill.put(&[IoSlice::new(b"x")]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(spill.is_empty());
    }
}
