//! An advisory lock on a file of its own, freed by the system when its holder dies.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use etcetera::BaseStrategy;
use sha2::{Digest, Sha256};

/// A held lock; dropping it frees it.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for the lock. Only for locks that are held for moments.
    pub fn wait(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        file.lock()?;
        Ok(Self { _file: file })
    }

    /// Takes the lock if it is free.
    pub fn attempt(path: &Path) -> io::Result<Option<Self>> {
        let file = open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Waits for the lock that every writer of a notebook takes.
///
/// It lies in the user's state folder, named by the notebook's real path: the notebook itself is
/// replaced by each write, and a lock on it would be on a file that nobody reads any more.
pub fn lock_notebook(notebook: &Path) -> io::Result<Lock> {
    let base = etcetera::choose_base_strategy().map_err(io::Error::other)?;
    let folder = base
        .state_dir()
        .unwrap_or_else(|| base.data_dir())
        .join("nb/locks");
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)?;
    let real = super::real_path(notebook)?;
    let name = hex::encode(Sha256::digest(real.as_os_str().as_encoded_bytes()));
    Lock::wait(&folder.join(format!("{}.lock", &name[..16])))
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}
