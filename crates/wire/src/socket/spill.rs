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
    target: SpillTo,
    file: Option<File>,
    /// The numbers of bytes that were taken and put since it was last empty.
    taken_bytes: u64,
    put_bytes: u64,
}

/// How many bytes are read at once.
const CHUNK: usize = 256 * 1024;

impl Spill {
    pub(super) fn new(target: SpillTo) -> Self {
        Self {
            target,
            file: None,
            taken_bytes: 0,
            put_bytes: 0,
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.put_bytes - self.taken_bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Says whether so many bytes may be appended.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.len() + bytes <= self.target.bytes
    }

    /// Appends all of these bytes, or none.
    ///
    /// # Errors
    /// If the limit is reached ([`io::ErrorKind::QuotaExceeded`]), or the system has no space.
    pub(super) fn put(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<()> {
        let added: u64 = slices.iter().map(|slice| slice.len() as u64).sum();
        if !self.has_room(added) {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(unnamed_in(&self.target.folder)?),
        };
        let mut at = self.put_bytes;
        for slice in slices {
            let (first, rest) = slice.split_at(before_end(at, slice.len(), self.target.bytes));
            file.write_all_at(first, at % self.target.bytes)?;
            file.write_all_at(rest, 0)?;
            at += slice.len() as u64;
        }
        // Set last, so that bytes of a failed write do not count.
        self.put_bytes = at;
        Ok(())
    }

    /// Removes and returns some of the first bytes; none only if it is empty.
    pub(super) fn take(&mut self) -> io::Result<Vec<u8>> {
        let len = usize::try_from(self.len()).unwrap_or(usize::MAX).min(CHUNK);
        let mut chunk = vec![0; len];
        if let Some(file) = &self.file {
            let (first, rest) =
                chunk.split_at_mut(before_end(self.taken_bytes, len, self.target.bytes));
            file.read_exact_at(first, self.taken_bytes % self.target.bytes)?;
            file.read_exact_at(rest, 0)?;
        }
        self.taken_bytes += len as u64;
        if self.is_empty() {
            // A new file: the system frees the space of the old one.
            *self = Self::new(self.target.clone());
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
        fn bytes_are_taken_in_the_order_in_which_they_were_put(
            puts in proptest::collection::vec((0..400_000usize, any::<bool>()), 1..20),
        ) {
            let mut spill = spill(500_000);
            let (mut expected, mut actual, mut next) = (Vec::new(), Vec::new(), 0u8);
            for (len, is_taken) in puts {
                let bytes: Vec<u8> = std::iter::repeat_with(|| {
                    next = next.wrapping_mul(5).wrapping_add(3);
                    next
                })
                .take(len)
                .collect();
                let (one, other) = bytes.split_at(len / 3);
                let before = spill.len();
                match spill.put(&[IoSlice::new(one), IoSlice::new(other)]) {
                    Ok(()) => expected.extend(bytes),
                    Err(error) => {
                        prop_assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
                        prop_assert!(before + len as u64 > 500_000);
                        prop_assert_eq!(spill.len(), before);
                    }
                }
                if is_taken {
                    actual.extend(spill.take().unwrap());
                }
            }
            while !spill.is_empty() {
                actual.extend(spill.take().unwrap());
            }
            prop_assert!(spill.file.is_none(), "an empty one has no file");
            prop_assert!(actual == expected);
        }
    }

    #[test]
    fn no_other_process_can_open_the_file() {
        use std::os::unix::fs::MetadataExt;
        let mut spill = spill(10);
        spill.put(&[IoSlice::new(b"secret")]).unwrap();
        let metadata = spill.file.as_ref().unwrap().metadata().unwrap();
        assert_eq!(
            (metadata.permissions().mode() & 0o777, metadata.nlink()),
            (0o600, 0)
        );
    }

    #[test]
    fn a_failed_put_leaves_an_empty_spill() {
        let folder = PathBuf::from("/nonexistent");
        let mut spill = Spill::new(SpillTo { folder, bytes: 10 });
        let error = spill.put(&[IoSlice::new(b"x")]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(spill.is_empty());
    }
}
