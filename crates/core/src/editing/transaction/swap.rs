//! Exchanges a notebook with a new text, and checks the file that was swapped out.

use std::fs::{File, Metadata};
use std::io;

use rustix::fs::{Access, CWD, RenameFlags, access, renameat_with};
use rustix::io::Errno;

use super::draft::Draft;
use super::error::SwapError;
use super::leftover::Leftover;
use super::swapped_out::{SwappedOut, TIMEOUT, check};
use crate::editing::file_stamp::FileStamp;
use crate::editing::notebook_file::NotebookFile;
use crate::notebook::Document;

/// The result of an exchange.
#[derive(Debug)]
pub(super) enum SwapResult {
    /// The text is in place, and the swapped-out file is the one that was read.
    Done {
        /// The notebook's stamp now.
        placed: FileStamp,
        /// A note for the user.
        note: Option<String>,
    },
    /// The text is in place, and another program saved in between.
    SwappedSave(Box<SwappedSave>),
    /// The text is not in place: the notebook is no longer the file that was read.
    Missed,
}

/// Another program's save in a file that was swapped out. The file stays beside the notebook until
/// [`SwappedSave::merged`].
#[derive(Debug)]
pub(super) struct SwappedSave {
    /// The notebook that it saved.
    pub(super) saved: Box<Document>,
    /// The notebook's stamp now.
    pub(super) placed: FileStamp,
    leftover: Leftover,
    stamp: FileStamp,
    is_open: bool,
}

impl SwappedSave {
    /// Returns the stamp of the swapped-out file after the save.
    pub(super) fn saved_at(&self) -> &FileStamp {
        &self.stamp
    }

    /// Removes the file, whose save is merged into the notebook. A file that is still open for writing
    /// stays.
    pub(super) fn merged(self, notebook: &NotebookFile, now: &FileStamp) {
        if self.is_open {
            self.leftover
                .rebase(notebook, now, &self.saved, &self.stamp);
        } else {
            self.leftover.remove();
        }
    }

    /// Moves the file to the trash; returns a note for the user.
    pub(super) fn move_to_trash(self, notebook: &NotebookFile) -> Option<String> {
        let kept = self.leftover.move_to_trash(notebook).ok()?;
        Some(format!(
            "two programs saved the same lines at the same moment: the last stays, the other is kept as {}",
            kept.display()
        ))
    }
}

/// Replaces a notebook by a text, if the notebook is still the file that was read: `expected`, with
/// this stamp.
pub(super) fn put(
    notebook: &NotebookFile,
    expected: &Document,
    stamp: &FileStamp,
    text: &Document,
) -> Result<SwapResult, SwapError> {
    let Some(found) = unchanged(notebook, stamp)? else {
        return Ok(SwapResult::Missed);
    };
    // A rename needs no permission to write the file itself. But a read-only file is to stay as
    // it is, for root too.
    if found.permissions().readonly() {
        return Err(SwapError::ReadOnly);
    }
    match access(&notebook.real, Access::WRITE_OK) {
        Err(Errno::ACCESS | Errno::PERM) => return Err(SwapError::ReadOnly),
        other => other.map_err(|error| SwapError::of(error.into()))?,
    }
    let early = Leftover::prepare(notebook, expected, stamp);
    let draft = Draft::write(early.path.clone(), &notebook.real, &found, text);
    let result = draft.and_then(|draft| place(notebook, expected, stamp, &early, draft));
    if matches!(result, Ok(SwapResult::Missed) | Err(_)) {
        early.remove();
    }
    result
}

/// Exchanges a notebook with a draft that was made of it.
pub(super) fn place(
    notebook: &NotebookFile,
    expected: &Document,
    stamp: &FileStamp,
    early: &Leftover,
    mut draft: Draft,
) -> Result<SwapResult, SwapError> {
    let placed = draft.stamp();
    let leftover = early.with_draft(notebook, &placed);
    draft.move_to(&leftover.path).map_err(SwapError::of)?;
    // Writing a large draft takes time. A save made meanwhile is merged while it is still in the file;
    // after an exchange it would be missing from the file for a moment.
    if unchanged(notebook, stamp)?.is_none() {
        return Ok(SwapResult::Missed);
    }
    // The notebook must be the old path of the call: the event for the new path comes first, and a
    // watcher takes the notebook for deleted if its last event says that it was moved away.
    let exchange = RenameFlags::EXCHANGE;
    let swapped = match renameat_with(CWD, &notebook.real, CWD, &leftover.path, exchange) {
        Ok(()) => {
            draft.placed();
            File::open(&leftover.path)
        }
        Err(Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => {
            match replace(notebook, stamp, early, &leftover, draft)? {
                Some(swapped) => swapped,
                None => return Ok(SwapResult::Missed),
            }
        }
        Err(Errno::NOENT) => return Err(SwapError::Gone),
        Err(error) => return Err(SwapError::of(error.into())),
    };
    // The folder is synced too, if the system can do that.
    if let Some(folder) = notebook.real.parent() {
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
    let checked = swapped.and_then(|file| check(&file, stamp, Some(expected), TIMEOUT));
    Ok(match checked {
        Ok(SwappedOut::Same) => {
            leftover.remove();
            SwapResult::Done { placed, note: None }
        }
        Ok(SwappedOut::Saved {
            saved,
            stamp,
            is_open,
        }) => SwapResult::SwappedSave(Box::new(SwappedSave {
            saved,
            placed,
            leftover,
            stamp,
            is_open,
        })),
        Ok(SwappedOut::Broken) => {
            let note = leftover.move_to_trash(notebook).ok().map(|path| {
                format!(
                    "what another program wrote meanwhile is not a notebook; it is kept as {}",
                    path.display()
                )
            });
            SwapResult::Done { placed, note }
        }
        // The next command merges later saves into the swapped-out file.
        Ok(SwappedOut::Held(holder)) => {
            let _ = leftover.keep_base(notebook, Some(expected));
            let note = holder.map(|holder| {
                format!(
                    "{holder} has the notebook open for writing: what it saves from here on goes in with the next command on this notebook"
                )
            });
            SwapResult::Done { placed, note }
        }
        Err(_) => {
            let _ = leftover.keep_base(notebook, Some(expected));
            SwapResult::Done { placed, note: None }
        }
    })
}

/// Replaces the notebook on a file system that cannot exchange files. Returns the file that was replaced, or
/// `None` if the notebook is not the file that was read.
///
/// A hard link keeps the replaced file, which is checked afterwards: another program may have moved a new
/// file there just before. Only a file that is moved there between the two system calls here is lost; such
/// file systems have no call that closes this gap. Without hard links the gap is the time between opening and
/// renaming, and the replaced file exists only as long as this process has it open.
pub(super) fn replace(
    notebook: &NotebookFile,
    stamp: &FileStamp,
    early: &Leftover,
    leftover: &Leftover,
    mut draft: Draft,
) -> Result<Option<io::Result<File>>, SwapError> {
    draft.move_to(&early.path).map_err(SwapError::of)?;
    if std::fs::hard_link(&notebook.real, &leftover.path).is_ok() {
        if let Err(error) = draft.move_to(&notebook.real) {
            let _ = std::fs::remove_file(&leftover.path);
            return Err(SwapError::of(error));
        }
        draft.placed();
        return Ok(Some(File::open(&leftover.path)));
    }
    let swapped = File::open(&notebook.real).map_err(SwapError::of)?;
    let now = FileStamp::of(&swapped.metadata().map_err(SwapError::of)?);
    if !stamp.is_same_file(&now) {
        return Ok(None);
    }
    draft.move_to(&notebook.real).map_err(SwapError::of)?;
    draft.placed();
    Ok(Some(Ok(swapped)))
}

/// Returns the notebook's metadata, if it is still the file with this stamp.
fn unchanged(notebook: &NotebookFile, stamp: &FileStamp) -> Result<Option<Metadata>, SwapError> {
    let found = std::fs::metadata(&notebook.real).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => SwapError::Gone,
        _ => SwapError::of(error),
    })?;
    Ok(stamp.is_same_file(&FileStamp::of(&found)).then_some(found))
}
