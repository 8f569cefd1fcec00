//! Replaces private files as a whole: a reader sees either the old content or the new one.

use std::io::{self, Write};
use std::path::Path;

/// When new content is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Before a reader can see it.
    Synced,
    /// Some time later, or when the caller syncs it.
    Unsynced,
}

/// Replaces the file's content atomically; the file is readable by its user only.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_as(path, content, Durability::Synced)
}

/// Like [`replace`], but does not wait for the disk: after a power cut the file may be missing or
/// empty.
pub fn replace_unsynced(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_as(path, content, Durability::Unsynced)
}

/// Replaces the file's content atomically, synced or not.
pub fn replace_as(path: &Path, content: &[u8], durability: Durability) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let mut file = tempfile::Builder::new()
        .prefix(".nb-")
        .tempfile_in(folder.unwrap_or(Path::new(".")))?;
    file.write_all(content)?;
    if durability == Durability::Synced {
        file.as_file().sync_data()?;
    }
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
