//! Private files of the user's state folder that belong to no project.

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::save;
use super::state_folder::{make_private, state_folder};

/// Returns a folder of the user's state folder; makes it, readable by its user only, if it is missing.
///
/// # Errors
/// There is no home folder, or the folder cannot be made.
pub fn user_folder(name: &str) -> io::Result<PathBuf> {
    let state = state_folder().ok_or_else(|| io::Error::other("there is no home folder"))?;
    let folder = state.join(name);
    make_private(&folder)?;
    Ok(folder)
}

/// Reads a file with a secret, `most` bytes at most.
///
/// # Errors
/// The file cannot be read, is too large, belongs to another user, or other users may read it.
pub fn read_private(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = std::fs::File::open(path)?;
    let found = file.metadata()?;
    if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o077 != 0 {
        let text = "other users may read it: chmod 600 makes it private";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(bytes),
    }
}

/// Replaces a file of the user's state folder atomically; only its user may read it.
pub fn replace_private(path: &Path, content: &[u8]) -> io::Result<()> {
    save::replace(path, content)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("token");
        replace_private(&file, b"abc").unwrap();
        assert_eq!(read_private(&file, 3).unwrap(), b"abc");
        let error = read_private(&file, 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = read_private(&file, 3).unwrap_err();
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }
}
