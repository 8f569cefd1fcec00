//! Why a notebook was not written.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::swap::{SwapError, free};
use crate::editing::notebook_file::{NotebookFile, NotebookFileError};
use crate::notebook::{Document, size};
use crate::project::NotLocked;

/// Why a notebook was not written; it is as it was.
#[derive(Debug, thiserror::Error)]
pub enum WriteError<E: std::error::Error + 'static> {
    /// It could not be read.
    #[error(transparent)]
    NotebookFile(#[from] NotebookFileError),
    /// The change cannot be made.
    #[error(transparent)]
    Change(E),
    /// Nobody may write it.
    #[error("cannot write {}: it is read-only", page.path.display())]
    ReadOnly {
        /// The notebook.
        page: Box<NotebookFile>,
    },
    /// It, or its folder, may not be changed by anybody, as `chattr +i` says.
    #[error("cannot write {}: {} is immutable", page.path.display(), what.display())]
    Immutable {
        /// The notebook.
        page: Box<NotebookFile>,
        /// The file or folder.
        what: PathBuf,
    },
    /// It is another user's, and in its folder nobody replaces others' files.
    #[error("cannot write {}: it is another user's, and its folder {} is sticky, in which nobody replaces others' files", page.path.display(), page.real.parent().unwrap_or(&page.real).display())]
    Sticky {
        /// The notebook.
        page: Box<NotebookFile>,
    },
    /// No new file can be made beside it, through which a notebook is written.
    #[error("cannot write {}: no new file can be made in its folder", page.path.display())]
    Folder {
        /// The notebook.
        page: Box<NotebookFile>,
        /// What the system said.
        source: io::Error,
    },
    /// Another `nb` keeps it for itself.
    #[error("cannot write {}", page.path.display())]
    Locked {
        /// The notebook.
        page: Box<NotebookFile>,
        /// Who, and how long was waited.
        source: NotLocked,
    },
    /// The disk is full, or the user's share of it.
    #[error("cannot write {}: it needs {} beside it and {} are free on its file system", page.path.display(), size(*needed), free.map_or_else(|| "too few".to_owned(), size))]
    Full {
        /// The notebook.
        page: Box<NotebookFile>,
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
        page: Box<NotebookFile>,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody else writes it all the time.
    #[error("cannot write {}: somebody saves it again and again", page.path.display())]
    Contended {
        /// The notebook.
        page: Box<NotebookFile>,
    },
}

impl<E: std::error::Error> WriteError<E> {
    pub(super) fn of(page: &NotebookFile, text: &Document, failed: SwapError) -> Self {
        let boxed = Box::new(page.clone());
        if failed.is_refused() {
            let folder = page.real.parent().unwrap_or(&page.real);
            if let Some(what) = [&page.real, folder].into_iter().find(|it| is_immutable(it)) {
                let (page, what) = (boxed, what.to_owned());
                return Self::Immutable { page, what };
            }
            let found = std::fs::metadata(folder).ok();
            let found = found.zip(std::fs::metadata(&page.real).ok());
            let me = rustix::process::geteuid().as_raw();
            if found.is_some_and(|(folder, file)| is_kept_by_sticky(&folder, &file, me)) {
                return Self::Sticky { page: boxed };
            }
        }
        match failed {
            SwapError::ReadOnly => Self::ReadOnly { page: boxed },
            SwapError::Gone => Self::NotebookFile(NotebookFileError::Missing {
                path: page.path.clone(),
            }),
            SwapError::Full(source) => Self::Full {
                needed: text.chunks().map(|chunk| chunk.len() as u64).sum(),
                free: free(&page.real),
                page: boxed,
                source,
            },
            SwapError::Folder(source) => Self::Folder {
                page: boxed,
                source,
            },
            SwapError::Io(source) => Self::Write {
                page: boxed,
                source,
            },
        }
    }
}

/// Whether `chattr +i` was done to a file or folder.
#[cfg(target_os = "linux")]
fn is_immutable(path: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::TYPE);
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::IMMUTABLE))
}

#[cfg(not(target_os = "linux"))]
fn is_immutable(_: &Path) -> bool {
    false
}

/// Whether a folder's sticky bit keeps `user` from replacing a file.
fn is_kept_by_sticky(folder: &Metadata, file: &Metadata, user: u32) -> bool {
    const STICKY: u32 = 0o1000;
    folder.mode() & STICKY != 0 && folder.uid() != user && file.uid() != user && user != 0
}
