//! The errors of writing a notebook.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::activity::collaboration::RoomServer;
use crate::editing::notebook_file::{NotebookFile, NotebookFileError};
use crate::notebook::{Document, size};
use crate::project::{NotLocked, free_bytes};

/// Why a notebook is not written while a page has it open in a room.
pub(crate) const SILENT_ROOM: &str =
    "a page of JupyterLab has it open with jupyter-collaboration and does not answer";

/// Why a notebook was not written; the file is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum WriteError<E: std::error::Error + 'static> {
    /// The notebook could not be read.
    #[error(transparent)]
    NotebookFile(#[from] NotebookFileError),
    /// The change cannot be made.
    #[error(transparent)]
    Change(E),
    /// The file is read-only.
    #[error("cannot write {}: it is read-only", notebook.path.display())]
    ReadOnly {
        /// The notebook.
        notebook: Box<NotebookFile>,
    },
    /// The file or its folder is immutable (`chattr +i`).
    #[error("cannot write {}: {} is immutable", notebook.path.display(), path.display())]
    Immutable {
        /// The notebook.
        notebook: Box<NotebookFile>,
        /// The file or folder.
        path: PathBuf,
    },
    /// The file is another user's, and its folder is sticky.
    #[error("cannot write {}: it is another user's, and its folder {} is sticky, in which users cannot replace others' files", notebook.path.display(), notebook.real.parent().unwrap_or(&notebook.real).display())]
    Sticky {
        /// The notebook.
        notebook: Box<NotebookFile>,
    },
    /// No new file can be made in the folder, which writing a notebook needs.
    #[error("cannot write {}: no new file can be made in its folder", notebook.path.display())]
    Folder {
        /// The notebook.
        notebook: Box<NotebookFile>,
        /// The system's error.
        source: io::Error,
    },
    /// JupyterLab may have the notebook open in a room; see [`crate::activity::collaboration`].
    #[error("cannot write {}: {room}, where a change of the file drops what is being typed", notebook.path.display())]
    InRoom {
        /// The notebook.
        notebook: Box<NotebookFile>,
        /// The server of the room.
        room: RoomServer,
    },
    /// A page of JupyterLab has the notebook open in a room, and does not answer.
    #[error("cannot write {}: {SILENT_ROOM}", notebook.path.display())]
    SilentRoom {
        /// The notebook.
        notebook: Box<NotebookFile>,
    },
    /// Another `nb` holds the lock of the notebook's writers.
    #[error("cannot write {}", notebook.path.display())]
    Locked {
        /// The notebook.
        notebook: Box<NotebookFile>,
        /// The process that holds it, and how long this one has waited.
        source: NotLocked,
    },
    /// The file system or the user's quota is full.
    #[error("cannot write {}: it needs {} beside it and {} are free on its file system", notebook.path.display(), size(*needed), free.map_or_else(|| "too few".to_owned(), size))]
    Full {
        /// The notebook.
        notebook: Box<NotebookFile>,
        /// How many bytes the new text has.
        needed: u64,
        /// How many bytes this user may still write there.
        free: Option<u64>,
        /// The system's error.
        source: io::Error,
    },
    /// The notebook could not be written.
    #[error("cannot write {}", notebook.path.display())]
    Write {
        /// The notebook.
        notebook: Box<NotebookFile>,
        /// The system's error.
        source: io::Error,
    },
    /// Another program saves the notebook again and again.
    #[error("cannot write {}: another program saves it again and again", notebook.path.display())]
    Contended {
        /// The notebook.
        notebook: Box<NotebookFile>,
    },
}

impl<E: std::error::Error> WriteError<E> {
    pub(super) fn of(file: &NotebookFile, text: &Document, failed: SwapError) -> Self {
        let notebook = Box::new(file.clone());
        if failed.is_refused() {
            let folder = file.real.parent().unwrap_or(&file.real);
            if let Some(path) = [&file.real, folder].into_iter().find(|it| is_immutable(it)) {
                let path = path.to_owned();
                return Self::Immutable { notebook, path };
            }
            let found = std::fs::metadata(folder).ok();
            let found = found.zip(std::fs::metadata(&file.real).ok());
            let me = rustix::process::geteuid().as_raw();
            if found.is_some_and(|(folder, file)| is_kept_by_sticky(&folder, &file, me)) {
                return Self::Sticky { notebook };
            }
        }
        match failed {
            SwapError::ReadOnly => Self::ReadOnly { notebook },
            SwapError::Gone => {
                let path = file.path.clone();
                NotebookFileError::Missing { path }.into()
            }
            SwapError::Full(source) => Self::Full {
                needed: text.chunks().map(|chunk| chunk.len() as u64).sum(),
                free: free(&file.real),
                notebook,
                source,
            },
            SwapError::Folder(source) => Self::Folder { notebook, source },
            SwapError::Io(source) => Self::Write { notebook, source },
        }
    }
}

/// Why a notebook was not exchanged; the file is unchanged.
#[derive(Debug)]
pub(super) enum SwapError {
    /// The notebook is read-only.
    ReadOnly,
    /// The notebook does not exist any more.
    Gone,
    /// The file system or the user's quota is full.
    Full(io::Error),
    /// No file can be made in the folder.
    Folder(io::Error),
    /// Another system call failed.
    Io(io::Error),
}

impl SwapError {
    /// Makes an error of a failed system call.
    pub(super) fn of(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full(error),
            _ => Self::Io(error),
        }
    }

    /// Returns whether the cause is a missing permission.
    fn is_refused(&self) -> bool {
        match self {
            Self::ReadOnly => true,
            Self::Folder(error) | Self::Io(error) => {
                error.kind() == io::ErrorKind::PermissionDenied
            }
            Self::Gone | Self::Full(_) => false,
        }
    }
}

/// Returns how many bytes this user may still write beside a notebook.
fn free(notebook: &Path) -> Option<u64> {
    free_bytes(notebook.parent()?)
}

/// Returns whether a file or folder is immutable.
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

/// Returns whether a folder's sticky bit forbids `user` to replace a file.
fn is_kept_by_sticky(folder: &Metadata, file: &Metadata, user: u32) -> bool {
    const STICKY: u32 = 0o1000;
    folder.mode() & STICKY != 0 && folder.uid() != user && file.uid() != user && user != 0
}
