//! Writing a whole private file so that a reader sees the old text or the new one.

use std::io::{self, Write};
use std::path::Path;

/// Replaces the file's content atomically; the file is readable by its user only.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    write(path, content, true)
}

/// Like [`replace`], for what may be lost or empty after a power cut: it does not wait for the disk.
pub fn replace_unsynced(path: &Path, content: &[u8]) -> io::Result<()> {
    write(path, content, false)
}

fn write(path: &Path, content: &[u8], is_synced: bool) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let mut file = tempfile::Builder::new()
        .prefix(".nb-")
        .tempfile_in(folder.unwrap_or(Path::new(".")))?;
    file.write_all(content)?;
    if is_synced {
        file.as_file().sync_data()?;
    }
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
