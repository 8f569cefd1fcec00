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
const ID: &str = "id";

/// The length of an id, in hexadecimal digits.
const LENGTH: usize = 32;

/// The longest path that is read, in bytes.
const LONGEST_PATH: u64 = 64 << 10;

/// Who made a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
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
pub(super) fn whose(dir: &Path) -> Whose {
    match memory() {
        Some(memory) => whose_in(dir, &memory),
        // Without a home folder nothing was ever recorded.
        None if std::fs::symlink_metadata(dir).is_ok() => Whose::Foreign,
        None => Whose::Nobody,
    }
}

/// Marks an empty folder as this user's, and returns its owner afterwards.
pub(super) fn claim(dir: &Path) -> io::Result<Whose> {
    let memory = memory().ok_or_else(|| io::Error::other("there is no home folder"))?;
    claim_in(dir, &memory)
}

fn whose_in(dir: &Path, memory: &Path) -> Whose {
    let found = match std::fs::symlink_metadata(dir) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Whose::Nobody,
        Err(_) => return Whose::Foreign,
    };
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
        return Whose::Foreign;
    }
    let Some(id) = id_of(dir) else {
        return match is_empty(dir) {
            true => Whose::Empty,
            false => Whose::Foreign,
        };
    };
    let record = memory.join(name(&id));
    let Ok(recorded) = beneath::read(&record, LONGEST_PATH) else {
        return Whose::Foreign;
    };
    let recorded = PathBuf::from(std::ffi::OsString::from_vec(recorded));
    if recorded == dir {
        return Whose::Ours;
    }
    let is_same = std::fs::symlink_metadata(&recorded)
        .is_ok_and(|there| (there.dev(), there.ino()) == (found.dev(), found.ino()));
    if !is_same && id_of(&recorded) == Some(id) {
        // The original still exists: this folder is a copy of it.
        return Whose::Foreign;
    }
    if !is_same && let Err(error) = save::replace(&record, dir.as_os_str().as_bytes()) {
        tracing::warn!(%error, "the new path of {} cannot be recorded", dir.display());
    }
    Whose::Ours
}

fn claim_in(dir: &Path, memory: &Path) -> io::Result<Whose> {
    make_private(memory)?;
    let memory = memory.canonicalize()?;
    // Two commands may find the same empty folder.
    let _lock = Lock::wait(&memory.join("lock"))?;
    let whose = whose_in(dir, &memory);
    if whose != Whose::Empty {
        return Ok(whose);
    }
    let id = uuid::Uuid::new_v4().simple().to_string();
    // The record is written first: a folder whose id is not recorded would be a stranger's.
    let record = memory.join(name(id.as_bytes()));
    save::replace(&record, dir.as_os_str().as_bytes())?;
    let written = beneath::create(&dir.join(ID)).and_then(|mut file| file.write_all(id.as_bytes()));
    if let Err(error) = written {
        let _ = std::fs::remove_file(record);
        return Err(error);
    }
    Ok(Whose::Ours)
}

/// Makes programs with another state folder use the same records, so that folders that they make are
/// this user's.
pub fn share_records(state_home: &Path) -> io::Result<()> {
    let no_home = || io::Error::other("there is no home folder");
    let memory = memory().ok_or_else(no_home)?;
    let theirs = state_home.join("nb");
    make_private(&memory)?;
    make_private(&theirs)?;
    match std::os::unix::fs::symlink(memory, theirs.join("folders")) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Forgets a folder of this user's that is about to be removed.
pub fn disown(dir: &Path) {
    if let (Some(memory), Some(id), Whose::Ours) = (memory(), id_of(dir), whose(dir)) {
        let _ = std::fs::remove_file(memory.join(name(&id)));
    }
}

/// Returns the id of a folder: the content of a private file.
fn id_of(dir: &Path) -> Option<Vec<u8>> {
    let file = beneath::open(&dir.join(ID)).ok()?;
    // Version control and archives create files that other users can read, unless configured
    // otherwise.
    if file.metadata().ok()?.mode() & 0o077 != 0 {
        return None;
    }
    let id = beneath::read_from(&file, 2 * LENGTH as u64).ok()?;
    (id.len() == LENGTH && id.iter().all(u8::is_ascii_hexdigit)).then_some(id)
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
        is_file && entry.file_name() == ID
    })
}

fn name(id: &[u8]) -> String {
    hex::encode(Sha256::digest(id))
}

/// Returns the folder of the records. Each is a file named by the hash of an id.
fn memory() -> Option<PathBuf> {
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
        memory: PathBuf,
    }

    impl Place {
        fn new() -> Self {
            let temp = tempfile::tempdir().unwrap();
            let root = temp.path().canonicalize().unwrap();
            let memory = root.join("memory");
            std::fs::create_dir(&memory).unwrap();
            Self {
                root,
                memory,
                _temp: temp,
            }
        }

        fn folder(&self, name: &str) -> PathBuf {
            let folder = self.root.join(name);
            std::fs::create_dir_all(&folder).unwrap();
            folder
        }

        fn whose(&self, dir: &Path) -> Whose {
            whose_in(dir, &self.memory)
        }

        fn claimed(&self, name: &str) -> PathBuf {
            let folder = self.folder(name);
            assert_eq!(claim_in(&folder, &self.memory).unwrap(), Whose::Ours);
            folder
        }
    }

    fn copy(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        std::fs::copy(from.join(ID), to.join(ID)).unwrap();
    }

    #[test]
    fn a_folder_that_was_made_here_is_ours_also_after_it_moved() {
        let place = Place::new();
        let made = place.claimed("a/.nb");
        assert_eq!(place.whose(&made), Whose::Ours);
        std::fs::rename(place.root.join("a"), place.root.join("b")).unwrap();
        assert_eq!(place.whose(&made), Whose::Nobody);
        let moved = place.root.join("b/.nb");
        assert_eq!(place.whose(&moved), Whose::Ours);
        // Its new path is recorded now: a copy at its first path is a copy.
        copy(&moved, &made);
        assert_eq!(place.whose(&made), Whose::Foreign);
        assert_eq!(place.whose(&moved), Whose::Ours);
    }

    #[test]
    fn a_copy_beside_the_original_is_a_strangers() {
        let place = Place::new();
        let made = place.claimed("a/.nb");
        let copied = place.root.join("b/.nb");
        copy(&made, &copied);
        assert_eq!(place.whose(&copied), Whose::Foreign);
        assert_eq!(place.whose(&made), Whose::Ours);
    }

    #[test]
    fn a_folder_that_was_unpacked_here_is_a_strangers() {
        let place = Place::new();
        let made = place.claimed("a/.nb");
        // As if this user's nb had made it on another machine.
        std::fs::remove_dir_all(&place.memory).unwrap();
        std::fs::create_dir(&place.memory).unwrap();
        assert_eq!(place.whose(&made), Whose::Foreign);
        let other = place.folder("other/.nb");
        std::fs::write(other.join("state.json"), "{}").unwrap();
        assert_eq!(place.whose(&other), Whose::Foreign);
        assert_eq!(claim_in(&other, &place.memory).unwrap(), Whose::Foreign);
        assert!(!other.join(ID).exists());
    }

    #[test]
    fn what_is_no_private_file_is_no_id() {
        let place = Place::new();
        let made = place.claimed("a/.nb");
        let id = made.join(ID);
        std::fs::set_permissions(&id, PermissionsExt::from_mode(0o644)).unwrap();
        assert_eq!(place.whose(&made), Whose::Foreign);
        std::fs::set_permissions(&id, PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(place.whose(&made), Whose::Ours);
        // A link to the id of another folder.
        let other = place.folder("b/.nb");
        symlink(&id, other.join(ID)).unwrap();
        assert_eq!(place.whose(&other), Whose::Foreign);
        // A link to the folder itself.
        let linked = place.folder("c").join(".nb");
        symlink(&made, &linked).unwrap();
        assert_eq!(place.whose(&linked), Whose::Foreign);
    }

    #[test]
    fn two_that_find_an_empty_folder_make_it_theirs_once() {
        let place = Place::new();
        let dir = place.folder("a/.nb");
        assert_eq!(place.whose(&dir), Whose::Empty);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    assert_eq!(claim_in(&dir, &place.memory).unwrap(), Whose::Ours);
                });
            }
        });
        let records = std::fs::read_dir(&place.memory).unwrap().count();
        assert_eq!(records, 2, "one record and the lock");
    }
}
