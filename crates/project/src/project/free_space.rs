//! The space that is left on a disk.

use std::path::Path;

/// Returns how many bytes this user may still write in a folder.
pub fn free_bytes(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(found.f_bavail * found.f_frsize)
}
