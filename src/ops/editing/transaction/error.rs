//! Why a notebook was not written.

use std::io;

use super::swap::{Failed, free};
use crate::notebook::{Document, size};
use crate::ops::editing::page::{Page, PageError};
use crate::project::NotLocked;

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
    #[error("cannot write {}: it is read-only", page.path.display())]
    ReadOnly {
        /// The notebook.
        page: Box<Page>,
    },
    /// No new file can be made beside it, through which a notebook is written.
    #[error("cannot write {}: no new file can be made in its folder", page.path.display())]
    Folder {
        /// The notebook.
        page: Box<Page>,
        /// What the system said.
        source: io::Error,
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
    #[error("cannot write {}: it needs {} beside it and {} are free on its file system", page.path.display(), size(*needed), free.map_or_else(|| "too few".to_owned(), size))]
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

impl<E: std::error::Error> WriteError<E> {
    pub(super) fn of(page: &Page, text: &Document, failed: Failed) -> Self {
        let boxed = Box::new(page.clone());
        match failed {
            Failed::ReadOnly => Self::ReadOnly { page: boxed },
            Failed::Gone => Self::Page(PageError::Missing {
                path: page.path.clone(),
            }),
            Failed::Full(source) => Self::Full {
                needed: text.chunks().map(|chunk| chunk.len() as u64).sum(),
                free: free(&page.real),
                page: boxed,
                source,
            },
            Failed::Folder(source) => Self::Folder {
                page: boxed,
                source,
            },
            Failed::Io(source) => Self::Write {
                page: boxed,
                source,
            },
        }
    }
}
