//! `names/` and `seen/`: the notifications that an actor got, and the revisions that it has seen of a
//! notebook. Each is a file that is changed under its folder's lock.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::beneath;
use super::folder::Project;
use super::lock::Lock;
use super::state_folder::short_name;

/// How long a command waits for another one that holds the lock.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The age at which an unused file or a cursor is removed.
pub const FORGOTTEN: Duration = Duration::from_secs(180 * 24 * 3600);

impl Project {
    /// Returns the path of an actor's cursors and notices.
    pub fn name_file(&self, name: &str) -> PathBuf {
        let name = format!("{}.json", short_name(name));
        self.dir().join("names").join(name)
    }

    /// Returns the path of the revisions that an actor has seen of a notebook. Every command reads the
    /// cursors, and these may be a hundred times as long, so they have a file of their own.
    pub fn seen_file(&self, key: &str, name: &str) -> PathBuf {
        let name = format!("{}.{}.json", short_name(key), short_name(name));
        self.dir().join("seen").join(name)
    }
}

/// Reads one of these files; returns the default if it cannot be read.
pub fn read<T: Default + DeserializeOwned>(file: &Path) -> T {
    beneath::read_json(file, beneath::SMALL).unwrap_or_default()
}

/// Changes one of these files under its folder's lock, and returns its new content. When it makes a new
/// file, it removes files that are older than [`FORGOTTEN`].
///
/// # Errors
/// The file cannot be written, or another process holds the lock all the time.
pub fn update<T>(file: &Path, change: impl FnOnce(&mut T)) -> io::Result<T>
where
    T: Clone + Default + PartialEq + Serialize + DeserializeOwned,
{
    let folder = file.parent().unwrap_or(file);
    beneath::make_subfolder(folder)?;
    let lock = Lock::within(&folder.join("lock"), TIMEOUT)?;
    let _lock = lock.ok_or_else(|| io::Error::from(io::ErrorKind::TimedOut))?;
    let before: Option<T> = beneath::read_json(file, beneath::SMALL);
    if before.is_none() {
        beneath::remove_unused(folder, FORGOTTEN);
    }
    let mut after = before.clone().unwrap_or_default();
    change(&mut after);
    if before.as_ref() != Some(&after) {
        beneath::write_json(file, &after)?;
    }
    Ok(after)
}
