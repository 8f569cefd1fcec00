//! Changes of files of other programs in a folder of the user's: planned, shown, and then made.

use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

/// A change of one file that has not been made yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedFile {
    /// The file.
    pub path: PathBuf,
    /// Its text; `None` if there is no file.
    pub before: Option<String>,
    /// Its text afterwards; `None` if it is to be removed.
    pub after: Option<String>,
}

/// Why a file cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum PlannedFileError {
    /// It cannot be read or written.
    #[error("{}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It is a link, or its path leads through one.
    #[error("{}: a link is not followed", .0.display())]
    Link(PathBuf),
    /// It is not what its program reads.
    #[error("{}: {why}; add this yourself: {entry}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// What should be in it.
        entry: String,
    },
    /// Another file has the name of one that `nb` writes.
    #[error("{}: it was not written by nb agent install; move it away first", .0.display())]
    Foreign(PathBuf),
}

impl PlannedFile {
    /// Says whether the file stays as it is.
    pub fn is_same(&self) -> bool {
        self.before == self.after
    }

    /// Makes the change.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self) -> Result<(), PlannedFileError> {
        let failed = |source| PlannedFileError::Io {
            path: self.path.clone(),
            source,
        };
        match &self.after {
            _ if self.is_same() => Ok(()),
            Some(text) => replace(&self.path, text).map_err(failed),
            None => std::fs::remove_file(&self.path).map_err(failed),
        }
    }
}

/// The largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a file below a folder; returns `None` if it does not exist. No part of the path below the folder may
/// be a link.
pub(super) fn read(folder: &Path, name: &Path) -> Result<Option<String>, PlannedFileError> {
    let mut path = folder.to_owned();
    for part in name.components() {
        if let Component::Normal(part) = part {
            path.push(part);
        }
        match path.symlink_metadata() {
            Ok(found) if found.is_symlink() => return Err(PlannedFileError::Link(path)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(PlannedFileError::Io { path, source }),
        }
    }
    let text = read_regular(&path);
    text.map(Some)
        .map_err(|source| PlannedFileError::Io { path, source })
}

fn read_regular(path: &Path) -> io::Result<String> {
    let refused = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    if !path.symlink_metadata()?.is_file() {
        return Err(refused("it is not a regular file"));
    }
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    match text.len() as u64 > FILE_BYTES_MAX {
        true => Err(refused("it is too long")),
        false => Ok(text),
    }
}

/// Makes a folder and those above it that are not there. Only the user may write them, also if the umask allows more:
/// programs are run from them, and settings that name programs are read.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    let mut made = std::fs::DirBuilder::new();
    made.recursive(true).mode(0o755).create(folder)
}

/// Replaces a file's text, and keeps its permissions; only the user may write a new one.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    make_folder(folder)?;
    let Ok(metadata) = path.metadata() else {
        let mut new = std::fs::File::options();
        let mut file = new.write(true).create_new(true).mode(0o644).open(path)?;
        return file.write_all(text.as_bytes());
    };
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(metadata.permissions())?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
