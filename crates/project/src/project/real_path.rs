//! The path of a file without symlinks.

use std::io;
use std::path::{Path, PathBuf};

/// Returns `path` with every symlink resolved; its last part need not exist.
pub fn real_path(path: &Path) -> io::Result<PathBuf> {
    if let Ok(real) = path.canonicalize() {
        return Ok(real);
    }
    let absolute = std::path::absolute(path)?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(folder), Some(name)) => Ok(folder.canonicalize()?.join(name)),
        _ => Ok(absolute),
    }
}
