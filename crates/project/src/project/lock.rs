//! An advisory lock on a lock file; the system frees it when its holder dies.

use std::fs::{File, TryLockError};
use std::io;
#[cfg(target_os = "linux")]
use std::io::Read;
use std::os::unix::fs::FileExt;
#[cfg(target_os = "linux")]
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::beneath;
use super::state_folder::{make_private, state_folder};

/// A held lock; dropping it frees it.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Waits for a lock that is held for moments only, as long as [`Lock::set_timeout`] says.
    ///
    /// # Errors
    /// Another process holds the lock all the time; the error names that process if it is known.
    pub fn wait(path: &Path) -> io::Result<Self> {
        let timeout = lock_timeout();
        Self::within(path, timeout)?.ok_or_else(|| held_error(path, timeout))
    }

    /// Sets how long this process waits for a lock that is held for moments only; the default is a minute.
    /// The process that holds it may have been stopped.
    pub fn set_timeout(timeout: Duration) {
        let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        TIMEOUT_MS.store(millis, Ordering::Relaxed);
    }

    /// Waits for the lock, for `within` at most; `None` if other processes hold it all the time.
    pub fn within(path: &Path, within: Duration) -> io::Result<Option<Self>> {
        let file = beneath::write(path)?;
        let is_taken = take(&file, Instant::now() + within)?;
        Ok(is_taken.then_some(Self { file }))
    }

    /// Takes the lock if it is free.
    pub fn attempt(path: &Path) -> io::Result<Option<Self>> {
        Self::within(path, Duration::ZERO)
    }

    /// Returns the content that a holder last wrote into the lock file, `limit` bytes at most.
    pub fn content(&self, limit: usize) -> io::Result<Vec<u8>> {
        let mut content = vec![0; limit];
        let length = self.file.read_at(&mut content, 0)?;
        content.truncate(length);
        Ok(content)
    }

    /// Replaces the content of the lock file, which later holders can read.
    pub fn set_content(&self, content: &[u8]) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_all_at(content, 0)
    }
}

/// How long [`Lock::wait`] waits, in milliseconds.
static TIMEOUT_MS: AtomicU64 = AtomicU64::new(60_000);

/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_millis(2);

/// Returns how long this process waits for a lock that is held for moments only.
pub(super) fn lock_timeout() -> Duration {
    Duration::from_millis(TIMEOUT_MS.load(Ordering::Relaxed))
}

/// Takes the lock on an open file by repeated attempts until the deadline; returns whether it was taken.
///
/// `flock` has no timeout, and a thread that blocks in it could not be ended.
pub(super) fn take(file: &File, deadline: Instant) -> io::Result<bool> {
    let mut pause = Duration::from_micros(100);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) => {}
        }
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Ok(false);
        }
        std::thread::sleep(pause.min(remaining));
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Returns the error for a lock that another process has held all the time.
pub(super) fn held_error(path: &Path, waited: Duration) -> io::Error {
    let holder_name = holder(path).unwrap_or_else(|| "another process".to_owned());
    let text = format!(
        "{} has been locked for {:.1} s by {holder_name}",
        path.display(),
        waited.as_secs_f32()
    );
    io::Error::new(io::ErrorKind::TimedOut, text)
}

/// Why a notebook's lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum NotLocked {
    /// Another process has held it all the time.
    #[error("another nb{} has been writing it for {} s", holder.as_ref().map(|who| format!(" ({who})")).unwrap_or_default(), waited.as_secs())]
    Held {
        /// The process that holds it, where that can be known.
        holder: Option<String>,
        /// How long the caller has waited.
        waited: Duration,
    },
    /// A lock file cannot be made or locked here, as in a sandbox or with a home folder on a
    /// network.
    #[error("the lock cannot be had")]
    Unusable(#[source] io::Error),
}

/// Waits for the lock that every writer of a notebook takes, for `within` at most.
///
/// The lock file is in the user's state folder, and named by the notebook's real path. The notebook
/// itself cannot be locked: each write replaces it, so the lock would be on the old file.
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
    let state = state_folder().ok_or_else(|| io::Error::other("there is no home folder"))?;
    let folder = state.join("locks");
    make_private(&folder)?;
    let real = super::notebook_path(notebook)?;
    let name = hex::encode(Sha256::digest(real.as_os_str().as_encoded_bytes()));
    let name = name.get(..16).unwrap_or(&name);
    // A part of the path to the home folder may be a link.
    Ok(folder.canonicalize()?.join(format!("{name}.lock")))
}

/// Returns the process that holds a lock and its command, from `/proc/locks`.
///
/// The kernel numbers the lines of `/proc/locks`: if a lock is freed between two reads, the second
/// read skips a line. So the list is read in one call, and read again if the lock is not in it.
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
    // `1: FLOCK  ADVISORY  WRITE 4121 fd:01:131 0 EOF`; a waiting process has an arrow before the
    // kind.
    locks.lines().find_map(|line| {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let (kind, pid, file) = (words.get(1)?, words.get(4)?, words.get(5)?);
        (*kind == "FLOCK" && file.rsplit(':').next() == Some(inode)).then(|| (*pid).to_owned())
    })
}

/// Returns the system's list of locks. The buffer is allocated first: with an empty one the
/// standard library would begin with a read of 32 bytes.
#[cfg(target_os = "linux")]
fn system_locks() -> io::Result<String> {
    let mut listed = String::with_capacity(1 << 16);
    File::open("/proc/locks")?.read_to_string(&mut listed)?;
    Ok(listed)
}

/// Returns nothing: this platform does not list locks.
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
        let held_error = lock_notebook(&notebook, Duration::ZERO).unwrap();
        assert!(try_lock_notebook(&notebook).unwrap().is_none());
        let error = lock_notebook(&notebook, Duration::from_millis(50)).unwrap_err();
        let message = error.to_string();
        if cfg!(target_os = "linux") {
            assert!(
                message.contains(&format!("process {}", std::process::id())),
                "{message}"
            );
        }
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| lock_notebook(&notebook, Duration::from_secs(20)));
            drop(held_error);
            drop(waits.join().unwrap().unwrap());
        });
    }

    #[test]
    fn the_wait_for_a_held_lock_ends_at_its_limit() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("held");
        let kept = Lock::wait(&path).unwrap();
        let other = beneath::write(&path).unwrap();
        let soon = || Instant::now() + Duration::from_millis(30);
        assert!(!take(&other, soon()).unwrap());
        let message = held_error(&path, Duration::from_millis(30)).to_string();
        assert!(
            message.contains("has been locked for 0.0 s by"),
            "{message}"
        );
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
            let held_error = Lock::wait(&path).unwrap();
            let unnamed = (0..3_000).filter(|_| holder(&path).is_none()).count();
            over.store(true, ordering);
            drop(held_error);
            assert_eq!(unnamed, 0);
        });
    }
}
