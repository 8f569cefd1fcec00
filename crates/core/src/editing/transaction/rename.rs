//! Renames a notebook's file.

use std::io;
use std::path::{Path, PathBuf};

use super::LOCK_TIMEOUT;
use super::finish::leftovers;
use crate::editing::notebook_file::NotebookFile;
use crate::project::{Lock, NotLocked, lock_notebook};

/// Why a notebook was not renamed.
#[derive(Debug, thiserror::Error)]
pub enum RenameError {
    /// Another `nb` writes one of the two.
    #[error("{} is being written by another nb", path.display())]
    Locked {
        /// The notebook.
        path: PathBuf,
        /// The holder of its lock.
        source: NotLocked,
    },
    /// There is a file at the new path.
    #[error("{} exists, and is not overwritten", .0.display())]
    Exists(PathBuf),
    /// The system refused it.
    #[error("cannot move {} to {}", from.display(), to.display())]
    Rename {
        /// The notebook.
        from: PathBuf,
        /// Its new path.
        to: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file has its new name, and its records the old one.
    #[error("the file was moved, but not its history")]
    Record(#[source] io::Error),
}

/// Renames a notebook's file while no other `nb` writes it, and calls `record` before one can write it again.
/// No file is overwritten. A file that has the new name already, and not the old one, is only recorded.
///
/// # Errors
/// The file has its old name, except with [`RenameError::Record`].
pub fn rename(
    from: &NotebookFile,
    to: &Path,
    record: impl FnOnce() -> io::Result<()>,
) -> Result<Vec<String>, RenameError> {
    // In one order, so that two that swap names do not wait for each other.
    let mut both = [from.real.as_path(), to];
    both.sort_unstable();
    let mut locks = Vec::new();
    for path in both {
        match lock_notebook(path, LOCK_TIMEOUT) {
            Ok(lock) => locks.push((path, lock)),
            Err(NotLocked::Unusable(_)) => {}
            Err(source) => {
                let path = path.to_owned();
                return Err(RenameError::Locked { path, source });
            }
        }
    }
    let mut notes = Vec::new();
    if from.real.exists() {
        let lock = locks.iter().find(|(path, _)| *path == from.real);
        notes = leftovers(from, lock.map(|(_, lock)| lock as &Lock));
        rename_new(&from.real, to)?;
    }
    record().map_err(RenameError::Record)?;
    Ok(notes)
}

/// Renames a file to a name that no file has.
fn rename_new(from: &Path, to: &Path) -> Result<(), RenameError> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    let done = match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some file systems do not know the flag; a link is not made over a file either.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            std::fs::hard_link(from, to).and_then(|()| std::fs::remove_file(from))
        }
        done => done.map_err(io::Error::from),
    };
    done.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => RenameError::Exists(to.to_owned()),
        _ => RenameError::Rename {
            from: from.to_owned(),
            to: to.to_owned(),
            source,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_is_overwritten_and_a_renamed_one_is_only_recorded() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().canonicalize().unwrap();
        let (old, new) = (folder.join("a.ipynb"), folder.join("b.ipynb"));
        std::fs::write(&old, "a").unwrap();
        std::fs::write(&new, "b").unwrap();
        let file = NotebookFile::of(&old).unwrap();
        let refused = rename(&file, &new, || panic!("nothing to record"));
        assert!(matches!(refused, Err(RenameError::Exists(path)) if path == new));
        assert_eq!(std::fs::read(&old).unwrap(), b"a");
        std::fs::remove_file(&new).unwrap();
        let failed = rename(&file, &new, || Err(io::ErrorKind::StorageFull.into()));
        assert!(matches!(failed, Err(RenameError::Record(_))));
        assert_eq!(std::fs::read(&new).unwrap(), b"a");
        let mut recorded = false;
        rename(&file, &new, || {
            recorded = true;
            Ok(())
        })
        .unwrap();
        assert!(recorded && !old.exists());
    }
}
