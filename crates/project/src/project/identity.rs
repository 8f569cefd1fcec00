//! Ownership of a folder `.nb`: this user's `nb` made it on this machine, or it is a stranger's.
//!
//! A repository or an archive may contain a `.nb`, and its files belong to the user who unpacks it.
//! So the owner of a file proves nothing. `nb` writes a random id into each folder that it makes;
//! the user's state folder stores the id's hash and the folder's path. Device and inode numbers
//! would not do: they change over reboots on some file systems.

use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::lock::Lock;
use super::state_folder::{make_private, state_folder};
use super::{beneath, save};

/// The file with a folder's id.
const ID_FILE: &str = "id";

/// The length of an id, in hexadecimal digits.
const ID_LENGTH: usize = 32;

/// The longest path that is read, in bytes.
const LONGEST_PATH: u64 = 64 << 10;

/// The owner of a folder: who made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FolderOwner {
    /// Nothing exists under this name.
    Nobody,
    /// An empty folder, which has just been made.
    Empty,
    /// This user's `nb` made it on this machine.
    Ours,
    /// Anything else.
    Foreign,
}

/// Returns who made a folder. `dir` is a real path.
pub(super) fn owner(dir: &Path) -> FolderOwner {
    match records() {
        Some(records) => owner_in(dir, &records),
        // Without a home folder nothing was ever recorded.
        None if std::fs::symlink_metadata(dir).is_ok() => FolderOwner::Foreign,
        None => FolderOwner::Nobody,
    }
}

/// Marks an empty folder as this user's, and returns its owner afterwards.
pub(super) fn claim(dir: &Path) -> io::Result<FolderOwner> {
    let records = records().ok_or_else(|| io::Error::other("there is no home folder"))?;
    claim_in(dir, &records)
}

fn owner_in(dir: &Path, records: &Path) -> FolderOwner {
    let metadata = match std::fs::symlink_metadata(dir) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return FolderOwner::Nobody,
        Err(_) => return FolderOwner::Foreign,
    };
    if !metadata.is_dir() || metadata.uid() != rustix::process::geteuid().as_raw() {
        return FolderOwner::Foreign;
    }
    let Some(id) = id_of(dir) else {
        return match is_empty(dir) {
            true => FolderOwner::Empty,
            false => FolderOwner::Foreign,
        };
    };
    let record = records.join(record_name(&id));
    let Ok(recorded) = beneath::read(&record, LONGEST_PATH) else {
        return FolderOwner::Foreign;
    };
    let recorded = PathBuf::from(std::ffi::OsString::from_vec(recorded));
    if recorded == dir {
        return FolderOwner::Ours;
    }
    let is_same = std::fs::symlink_metadata(&recorded)
        .is_ok_and(|it| (it.dev(), it.ino()) == (metadata.dev(), metadata.ino()));
    if !is_same && id_of(&recorded) == Some(id) {
        // The original still exists: this folder is a copy of it.
        return FolderOwner::Foreign;
    }
    if !is_same && let Err(error) = save::replace(&record, dir.as_os_str().as_bytes()) {
        tracing::warn!(%error, "the new path of {} cannot be recorded", dir.display());
    }
    FolderOwner::Ours
}

fn claim_in(dir: &Path, records: &Path) -> io::Result<FolderOwner> {
    make_private(records)?;
    let records = records.canonicalize()?;
    // Two commands may find the same empty folder.
    let _lock = Lock::wait(&records.join("lock"))?;
    let owner = owner_in(dir, &records);
    if owner != FolderOwner::Empty {
        return Ok(owner);
    }
    let id = uuid::Uuid::new_v4().simple().to_string();
    // The record is written first: a folder whose id is not recorded would be a stranger's.
    let record = records.join(record_name(id.as_bytes()));
    save::replace(&record, dir.as_os_str().as_bytes())?;
    let written =
        beneath::create(&dir.join(ID_FILE)).and_then(|mut file| file.write_all(id.as_bytes()));
    if let Err(error) = written {
        let _ = std::fs::remove_file(record);
        return Err(error);
    }
    Ok(FolderOwner::Ours)
}

/// Makes the folder of the records, without which no folder can be claimed.
///
/// # Errors
/// Nothing can be written into it.
pub(super) fn make_records() -> io::Result<()> {
    let records = records().ok_or_else(|| io::Error::other("there is no home folder"))?;
    make_private(&records)?;
    Ok(rustix::fs::access(&records, rustix::fs::Access::WRITE_OK)?)
}

/// Makes programs with another state folder use the same records, so that folders that they make are
/// this user's.
pub fn share_records(state_home: &Path) -> io::Result<()> {
    let no_home = || io::Error::other("there is no home folder");
    let records = records().ok_or_else(no_home)?;
    let other = state_home.join("nb");
    make_private(&records)?;
    make_private(&other)?;
    match std::os::unix::fs::symlink(records, other.join("folders")) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Forgets a folder of this user's that is about to be removed.
pub fn disown(dir: &Path) {
    if let (Some(records), Some(id), FolderOwner::Ours) = (records(), id_of(dir), owner(dir)) {
        let _ = std::fs::remove_file(records.join(record_name(&id)));
    }
}

/// Returns the id of a folder: the content of a private file.
fn id_of(dir: &Path) -> Option<Vec<u8>> {
    let file = beneath::open(&dir.join(ID_FILE)).ok()?;
    // Version control and archives create files that other users can read, unless configured
    // otherwise.
    if file.metadata().ok()?.mode() & 0o077 != 0 {
        return None;
    }
    let id = beneath::read_from(&file, 2 * ID_LENGTH as u64).ok()?;
    (id.len() == ID_LENGTH && id.iter().all(u8::is_ascii_hexdigit)).then_some(id)
}

/// Returns whether a folder is empty, or holds only an empty id file that another process is about
/// to write.
fn is_empty(dir: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return false;
    };
    entries.flatten().all(|entry| {
        let is_file = entry
            .metadata()
            .is_ok_and(|it| it.is_file() && it.len() == 0);
        is_file && entry.file_name() == ID_FILE
    })
}

fn record_name(id: &[u8]) -> String {
    hex::encode(Sha256::digest(id))
}

/// Returns the folder of the records. Each is a file named by the hash of an id.
fn records() -> Option<PathBuf> {
    let folder = state_folder()?.join("folders");
    // A part of the path to the home folder may be a link.
    Some(folder.canonicalize().unwrap_or(folder))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    struct Place {
        _temp: tempfile::TempDir,
        root: PathBuf,
        records: PathBuf,
    }

    impl Place {
        fn new() -> Self {
            let temp = tempfile::tempdir().unwrap();
            let root = temp.path().canonicalize().unwrap();
            let records = root.join("memory");
            std::fs::create_dir(&records).unwrap();
            Self {
                root,
                records,
                _temp: temp,
            }
        }

        fn folder(&self, record_name: &str) -> PathBuf {
            let folder = self.root.join(record_name);
            std::fs::create_dir_all(&folder).unwrap();
            folder
        }

        fn owner(&self, dir: &Path) -> FolderOwner {
            owner_in(dir, &self.records)
        }

        fn claimed(&self, record_name: &str) -> PathBuf {
            let folder = self.folder(record_name);
            assert_eq!(claim_in(&folder, &self.records).unwrap(), FolderOwner::Ours);
            folder
        }
    }

    fn copy(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        std::fs::copy(from.join(ID_FILE), to.join(ID_FILE)).unwrap();
    }

    #[test]
    fn a_folder_that_was_made_here_is_ours_also_after_it_moved() {
        let place = Place::new();
        let made = place.claimed("a/.nb");
        assert_eq!(place.owner(&made), FolderOwner::Ours);
        std::fs::rename(place.root.join("a"), place.root.join("b")).unwrap();
        assert_eq!(place.owner(&made), FolderOwner::Nobody);
        let moved = place.root.join("b/.nb");
        assert_eq!(place.owner(&moved), FolderOwner::Ours);
        // Its new path is recorded now: a copy at its first path is a copy.
        copy(&moved, &made);
        assert_eq!(place.owner(&made), FolderOwner::Foreign);
        assert_eq!(place.owner(&moved), FolderOwner::Ours);
    }

    #[test]
    fn a_copy_beside_the_original_is_a_strangers() {
        let place = Place::new();
        let made = place.claimed("a/.nb");
        let copied = place.root.join("b/.nb");
        copy(&made, &copied);
        assert_eq!(place.owner(&copied), FolderOwner::Foreign);
        assert_eq!(place.owner(&made), FolderOwner::Ours);
    }

    #[test]
    fn a_folder_that_was_unpacked_here_is_a_strangers() {
        let place = Place::new();
        let made = place.claimed("a/.nb");
        // As if this user's nb had made it on another machine.
        std::fs::remove_dir_all(&place.records).unwrap();
        std::fs::create_dir(&place.records).unwrap();
        assert_eq!(place.owner(&made), FolderOwner::Foreign);
        let other = place.folder("other/.nb");
        std::fs::write(other.join("state.json"), "{}").unwrap();
        assert_eq!(place.owner(&other), FolderOwner::Foreign);
        assert_eq!(
            claim_in(&other, &place.records).unwrap(),
            FolderOwner::Foreign
        );
        assert!(!other.join(ID_FILE).exists());
    }

    #[test]
    fn a_file_that_is_not_private_is_no_id() {
        let place = Place::new();
        let made = place.claimed("a/.nb");
        let id = made.join(ID_FILE);
        std::fs::set_permissions(&id, PermissionsExt::from_mode(0o644)).unwrap();
        assert_eq!(place.owner(&made), FolderOwner::Foreign);
        std::fs::set_permissions(&id, PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(place.owner(&made), FolderOwner::Ours);
        // A link to the id of another folder.
        let other = place.folder("b/.nb");
        symlink(&id, other.join(ID_FILE)).unwrap();
        assert_eq!(place.owner(&other), FolderOwner::Foreign);
        // A link to the folder itself.
        let linked = place.folder("c").join(".nb");
        symlink(&made, &linked).unwrap();
        assert_eq!(place.owner(&linked), FolderOwner::Foreign);
    }

    #[test]
    fn two_that_find_an_empty_folder_make_it_theirs_once() {
        let place = Place::new();
        let dir = place.folder("a/.nb");
        assert_eq!(place.owner(&dir), FolderOwner::Empty);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    assert_eq!(claim_in(&dir, &place.records).unwrap(), FolderOwner::Ours);
                });
            }
        });
        let records = std::fs::read_dir(&place.records).unwrap().count();
        assert_eq!(records, 2, "one record and the lock");
    }
}
