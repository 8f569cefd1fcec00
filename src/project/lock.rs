//! An advisory lock on a file of its own, freed by the system when its holder dies.

use std::fs::{File, TryLockError};
use std::io;
#[cfg(target_os = "linux")]
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::FileExt;
#[cfg(target_os = "linux")]
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::beneath;
use etcetera::BaseStrategy;
use sha2::{Digest, Sha256};

/// A held lock; dropping it frees it.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Waits for the lock as long as this process waits for one that is held for moments only; see
    /// [`Lock::set_patience`].
    ///
    /// # Errors
    /// Another process holds it all the time, which the error names where that is known.
    pub fn wait(path: &Path) -> io::Result<Self> {
        let patience = patience();
        Self::within(path, patience)?.ok_or_else(|| held(path, patience))
    }

    /// Says how long this process waits for a lock that is held for moments only: a minute, where nothing is
    /// said. Whoever holds one may have been stopped.
    pub fn set_patience(patience: Duration) {
        let millis = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        PATIENCE_MS.store(millis, Ordering::Relaxed);
    }

    /// Waits for the lock, `within` at most; none where another process holds it all the time.
    pub fn within(path: &Path, within: Duration) -> io::Result<Option<Self>> {
        let file = beneath::write(path)?;
        let is_had = take(&file, Instant::now() + within)?;
        Ok(is_had.then_some(Self { file }))
    }

    /// Takes the lock if it is free.
    pub fn attempt(path: &Path) -> io::Result<Option<Self>> {
        let file = beneath::write(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Returns what its holders have written into it last, `limit` bytes at most.
    pub fn content(&self, limit: usize) -> io::Result<Vec<u8>> {
        let mut content = vec![0; limit];
        let length = self.file.read_at(&mut content, 0)?;
        content.truncate(length);
        Ok(content)
    }

    /// Replaces its content, which is for its next holders.
    pub fn set_content(&self, content: &[u8]) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_all_at(content, 0)
    }
}

/// How long this process waits in [`Lock::wait`].
static PATIENCE_MS: AtomicU64 = AtomicU64::new(60_000);

/// The longest pause between two looks.
const PAUSE_MAX: Duration = Duration::from_millis(2);

/// Returns how long this process waits for a lock that is held for moments only.
pub(super) fn patience() -> Duration {
    Duration::from_millis(PATIENCE_MS.load(Ordering::Relaxed))
}

/// Takes the lock on an open file, by looking again and again until the deadline; says whether it was had.
///
/// The system knows no deadline for `flock`, and a thread that waits in it would be left behind.
pub(super) fn take(file: &File, deadline: Instant) -> io::Result<bool> {
    let mut pause = Duration::from_micros(100);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) => {}
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Returns the error for a lock that somebody else has held for so long.
pub(super) fn held(path: &Path, waited: Duration) -> io::Error {
    let who = holder(path).unwrap_or_else(|| "another process".to_owned());
    let text = format!(
        "{} has been locked for {:.1} s by {who}",
        path.display(),
        waited.as_secs_f32()
    );
    io::Error::new(io::ErrorKind::TimedOut, text)
}

/// Why a notebook's lock was not had.
#[derive(Debug, thiserror::Error)]
pub enum NotLocked {
    /// Somebody has held it all the time.
    #[error("another nb{} has been writing it for {} s", holder.as_ref().map(|who| format!(" ({who})")).unwrap_or_default(), waited.as_secs())]
    Held {
        /// The process that holds it, where that can be known.
        holder: Option<String>,
        /// How long was waited for it.
        waited: Duration,
    },
    /// There is no such lock here, as in a sandbox or on a network's home folder.
    #[error("the lock cannot be had")]
    Unusable(#[source] io::Error),
}

/// Waits for the lock that every writer of a notebook takes, `within` at most.
///
/// It lies in the user's state folder, named by the notebook's real path: the notebook itself is
/// replaced by each write, and a lock on it would be on a file that nobody reads any more.
pub fn lock_notebook(notebook: &Path, within: Duration) -> Result<Lock, NotLocked> {
    let path = notebook_lock(notebook).map_err(NotLocked::Unusable)?;
    let lock = Lock::within(&path, within).map_err(NotLocked::Unusable)?;
    lock.ok_or_else(|| NotLocked::Held {
        holder: holder(&path),
        waited: within,
    })
}

/// Takes the lock of a notebook's writers if it is free.
pub fn try_lock_notebook(notebook: &Path) -> io::Result<Option<Lock>> {
    Lock::attempt(&notebook_lock(notebook)?)
}

fn notebook_lock(notebook: &Path) -> io::Result<PathBuf> {
    let base = etcetera::choose_base_strategy().map_err(io::Error::other)?;
    let folder = base
        .state_dir()
        .unwrap_or_else(|| base.data_dir())
        .join("nb/locks");
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)?;
    let real = super::notebook_path(notebook)?;
    let name = hex::encode(Sha256::digest(real.as_os_str().as_encoded_bytes()));
    let name = name.get(..16).unwrap_or(&name);
    // A part of the way to the home folder may be a link.
    Ok(folder.canonicalize()?.join(format!("{name}.lock")))
}

/// Returns who holds a lock, as the system tells: a process and its command.
///
/// The system lists its locks by their place: where one is freed between two reads, the next read
/// passes over another. So all is read at once, and asked again where it is more than a page.
#[cfg(target_os = "linux")]
fn holder(path: &Path) -> Option<String> {
    let inode = std::fs::metadata(path).ok()?.ino().to_string();
    let pid = (0..5).find_map(|_| holding(&inode, &system_locks().ok()?))?;
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = String::from_utf8_lossy(&words).replace('\0', " ");
    let shown: String = words.trim().chars().take(60).collect();
    Some(format!("process {pid}: {shown}"))
}

/// Returns the process that holds the lock on a file.
#[cfg(target_os = "linux")]
fn holding(inode: &str, locks: &str) -> Option<String> {
    // `1: FLOCK  ADVISORY  WRITE 4121 fd:01:131 0 EOF`; who waits has an arrow before the kind.
    locks.lines().find_map(|line| {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let (kind, pid, file) = (words.get(1)?, words.get(4)?, words.get(5)?);
        (*kind == "FLOCK" && file.rsplit(':').next() == Some(inode)).then(|| (*pid).to_owned())
    })
}

/// Returns the system's list of locks, read into room that is there: without it the standard
/// library's first look would be of 32 bytes.
#[cfg(target_os = "linux")]
fn system_locks() -> io::Result<String> {
    let mut listed = String::with_capacity(1 << 16);
    File::open("/proc/locks")?.read_to_string(&mut listed)?;
    Ok(listed)
}

/// Returns nothing: this platform does not tell.
#[cfg(not(target_os = "linux"))]
fn holder(_: &Path) -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_that_keeps_it_is_named_and_one_that_frees_it_is_followed() {
        let temp = tempfile::tempdir().unwrap();
        let notebook = temp.path().join("t.ipynb");
        let held = lock_notebook(&notebook, Duration::ZERO).unwrap();
        assert!(try_lock_notebook(&notebook).unwrap().is_none());
        let error = lock_notebook(&notebook, Duration::from_millis(50)).unwrap_err();
        let said = error.to_string();
        if cfg!(target_os = "linux") {
            assert!(
                said.contains(&format!("process {}", std::process::id())),
                "{said}"
            );
        }
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| lock_notebook(&notebook, Duration::from_secs(20)));
            drop(held);
            drop(waits.join().unwrap().unwrap());
        });
    }

    #[test]
    fn a_lock_that_somebody_keeps_is_waited_for_no_longer_than_said() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("held");
        let kept = Lock::wait(&path).unwrap();
        let other = beneath::write(&path).unwrap();
        let soon = || Instant::now() + Duration::from_millis(30);
        assert!(!take(&other, soon()).unwrap());
        let said = held(&path, Duration::from_millis(30)).to_string();
        assert!(said.contains("has been locked for 0.0 s by"), "{said}");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| take(&other, Instant::now() + Duration::from_secs(20)));
            drop(kept);
            assert!(waits.join().unwrap().unwrap());
        });
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_holder_is_named_while_other_locks_come_and_go() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("held");
        let others = ["a", "b", "c"].map(|name| temp.path().join(name));
        let over = std::sync::atomic::AtomicBool::new(false);
        let ordering = std::sync::atomic::Ordering::Relaxed;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(ordering) {
                    drop(others.each_ref().map(|other| Lock::wait(other).unwrap()));
                }
            });
            let held = Lock::wait(&path).unwrap();
            let unnamed = (0..3_000).filter(|_| holder(&path).is_none()).count();
            over.store(true, ordering);
            drop(held);
            assert_eq!(unnamed, 0);
        });
    }
}
