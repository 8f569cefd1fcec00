//! Writing a whole private file so that a reader sees the old text or the new one.

use std::io::{self, Write};
use std::path::Path;

/// When what was written is safe from a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Before anybody sees it.
    Synced,
    /// Some time later, or when somebody asks for it.
    Unsynced,
}

/// Replaces the file's content atomically; the file is readable by its user only.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_as(path, content, How::Synced)
}

/// Like [`replace`], for what may be lost or empty after a power cut: it does not wait for the disk.
pub fn replace_unsynced(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_as(path, content, How::Unsynced)
}

/// Does one or the other.
pub fn replace_as(path: &Path, content: &[u8], how: How) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let mut file = tempfile::Builder::new()
        .prefix(".nb-")
        .tempfile_in(folder.unwrap_or(Path::new(".")))?;
    file.write_all(content)?;
    if how == How::Synced {
        file.as_file().sync_data()?;
    }
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
