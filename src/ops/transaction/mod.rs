//! The only way that anything writes a notebook.

use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use super::page::{Page, PageError};
use crate::notebook::{Conflict, Document, merge};
use crate::project::{Lock, NotLocked, lock_notebook};

/// How long another `nb` is waited for; its own waits within a transaction are seconds.
const LOCKED: Duration = Duration::from_secs(30);

/// How often a notebook that somebody saves at the same moments is merged anew.
const TRIES: usize = 20;

/// What came of a transaction.
#[derive(Clone, Debug)]
pub struct Written {
    /// What the change was made of: the file as it was when it was read under the lock.
    pub before: Document,
    /// What somebody else saved in between, into which the change was merged.
    pub theirs: Option<Document>,
    /// What the file holds now.
    pub after: Document,
    /// Whether the file was written; it is not where no byte would change.
    pub wrote: bool,
    /// What of the change did not go into the file.
    pub conflicts: Vec<Conflict>,
    /// What the user should know besides, one line each.
    pub notes: Vec<String>,
}

/// Why a notebook was not written; it is as it was.
#[derive(Debug, thiserror::Error)]
pub enum WriteError<E: std::error::Error + 'static> {
    /// It could not be read.
    #[error(transparent)]
    Page(#[from] PageError),
    /// The change cannot be made.
    #[error(transparent)]
    Change(E),
    /// Nobody may write it.
    #[error("{} is read-only", page.path.display())]
    ReadOnly {
        /// The notebook.
        page: Box<Page>,
    },
    /// Another `nb` keeps it for itself.
    #[error("cannot write {}", page.path.display())]
    Locked {
        /// The notebook.
        page: Box<Page>,
        /// Who, and how long was waited.
        source: NotLocked,
    },
    /// The disk is full, or the user's share of it.
    #[error("cannot write {}: {} are needed beside it and {} are free on its file system", page.path.display(), bytes(*needed), free.map_or_else(|| "too few".to_owned(), bytes))]
    Full {
        /// The notebook.
        page: Box<Page>,
        /// How many bytes the new text has.
        needed: u64,
        /// How many this user may still write there.
        free: Option<u64>,
        /// What the system said.
        source: io::Error,
    },
    /// It could not be written.
    #[error("cannot write {}", page.path.display())]
    Write {
        /// The notebook.
        page: Box<Page>,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody else writes it all the time.
    #[error("cannot write {}: somebody saves it again and again", page.path.display())]
    Contended {
        /// The notebook.
        page: Box<Page>,
    },
}

/// Changes a notebook. What somebody else saves in between is merged; with `force` the change is
/// made again, of what they saved: the last writer wins.
///
/// # Errors
/// The notebook cannot be read or written, or the change not be made.
pub fn write<E: std::error::Error + 'static>(
    page: &Page,
    force: bool,
    mut change: impl FnMut(&Document) -> Result<Document, E>,
) -> Result<Written, WriteError<E>> {
    let _lock = lock(page)?;
    let mut before = page.read()?;
    let mut after = change(&before).map_err(WriteError::Change)?;
    let (mut theirs, mut conflicts) = (None, Vec::new());
    for _ in 0..TRIES {
        let there = theirs.as_ref().unwrap_or(&before);
        if after.to_bytes() == there.to_bytes() {
            return Ok(Written {
                before,
                theirs,
                after,
                wrote: false,
                conflicts,
                notes: Vec::new(),
            });
        }
        let failed = |source| WriteError::Write {
            page: Box::new(page.clone()),
            source,
        };
        if replace(page, there, &after).map_err(failed)? {
            return Ok(Written {
                before,
                theirs,
                after,
                wrote: true,
                conflicts,
                notes: Vec::new(),
            });
        }
        let now = page.read()?;
        if force {
            after = change(&now).map_err(WriteError::Change)?;
            before = now;
        } else {
            let merged = merge(there, &now, &after, &|_| false);
            conflicts.extend(merged.conflicts);
            after = merged.document;
            theirs = Some(now);
        }
    }
    Err(WriteError::Contended {
        page: Box::new(page.clone()),
    })
}

/// Takes the notebook's lock; nothing where there is none, as in a sandbox: then the look at what
/// was swapped out must do.
fn lock<E: std::error::Error>(page: &Page) -> Result<Option<Lock>, WriteError<E>> {
    match lock_notebook(&page.real, LOCKED) {
        Ok(lock) => Ok(Some(lock)),
        Err(NotLocked::Unusable(_)) => Ok(None),
        Err(source) => Err(WriteError::Locked {
            page: Box::new(page.clone()),
            source,
        }),
    }
}

/// Returns a number of bytes as a person reads it.
fn bytes(count: u64) -> String {
    let units = [(1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")];
    match units.iter().find(|(size, _)| count >= *size) {
        Some((size, unit)) => {
            let tenths = count * 10 / size;
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{count} bytes"),
    }
}

/// Writes the notebook unless it is another one than was read; says whether it did.
fn replace(page: &Page, there: &Document, after: &Document) -> io::Result<bool> {
    let folder = page
        .real
        .parent()
        .ok_or_else(|| io::Error::other("it has no folder"))?;
    let found = std::fs::metadata(&page.real)?;
    let mut file = tempfile::Builder::new()
        .prefix(".nb-")
        .tempfile_in(folder)?;
    for chunk in after.chunks() {
        file.write_all(chunk)?;
    }
    file.as_file().set_permissions(found.permissions())?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        // Root may edit another's notebook and must not take it from them.
        let _ = std::os::unix::fs::fchown(file.as_file(), Some(found.uid()), Some(found.gid()));
    }
    file.as_file().sync_all()?;
    if std::fs::read(&page.real)? != there.to_bytes() {
        return Ok(false);
    }
    file.persist(&page.real).map_err(|error| error.error)?;
    Ok(true)
}
