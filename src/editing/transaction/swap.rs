//! Putting a new text into a notebook's place, and looking at what was there.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Access, CWD, RenameFlags, access, renameat_with};
use rustix::io::Errno;

use super::draft::{self, Draft};
use super::leftover::Leftover;
use super::swapped_out::{PATIENCE, SwappedOut, look};
use crate::editing::file_stamp::FileStamp;
use crate::editing::notebook_file::NotebookFile;
use crate::notebook::Document;

/// What came of it.
#[derive(Debug)]
pub(super) enum SwapResult {
    /// It is in place, and what was there is what was read.
    Done {
        /// What the notebook is now.
        placed: FileStamp,
        /// What there is to tell.
        note: Option<String>,
    },
    /// It is in place, and somebody saved in between.
    SwappedSave(Box<SwappedSave>),
    /// It is not: the file is another one already.
    Missed,
}

/// What somebody saved in between; it stays beside the notebook until [`SwappedSave::merged`].
#[derive(Debug)]
pub(super) struct SwappedSave {
    /// What they saved.
    pub(super) saved: Box<Document>,
    /// What the notebook is now.
    pub(super) placed: FileStamp,
    leftover: Leftover,
    stamp: FileStamp,
    held: bool,
}

/// Why it was not put there; nothing was changed.
#[derive(Debug)]
pub(super) enum SwapError {
    /// Nobody may write it.
    ReadOnly,
    /// The notebook is gone.
    Gone,
    /// The disk is full.
    Full(io::Error),
    /// No file can be made beside it.
    Folder(io::Error),
    /// Something else.
    Io(io::Error),
}

impl SwapError {
    /// Whether somebody may not do it, rather than it cannot be done.
    pub(super) fn is_refused(&self) -> bool {
        match self {
            Self::ReadOnly => true,
            Self::Folder(error) | Self::Io(error) => {
                error.kind() == io::ErrorKind::PermissionDenied
            }
            Self::Gone | Self::Full(_) => false,
        }
    }

    fn of(error: io::Error) -> Self {
        match is_full(&error) {
            true => Self::Full(error),
            false => Self::Io(error),
        }
    }
}

impl SwappedSave {
    /// Returns the stamp of what they saved.
    pub(super) fn saved_at(&self) -> &FileStamp {
        &self.stamp
    }

    /// Says that what they saved is in the notebook.
    pub(super) fn merged(self, page: &NotebookFile, now: &FileStamp) {
        if self.held {
            self.leftover.rebase(page, now, &self.saved, &self.stamp);
        } else {
            self.leftover.remove();
        }
    }

    /// Keeps what they saved where they find it; returns what to tell.
    pub(super) fn put_away(self, page: &NotebookFile) -> Option<String> {
        let kept = self.leftover.put_away(page).ok()?;
        Some(format!(
            "two programs saved the same lines at the same moment: the last stays, the other is kept as {}",
            kept.display()
        ))
    }
}

/// Puts a text into the place of a notebook that was `there` when it was read.
pub(super) fn put(
    page: &NotebookFile,
    there: &Document,
    stamp: &FileStamp,
    text: &Document,
) -> Result<SwapResult, SwapError> {
    let found = std::fs::metadata(&page.real).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => SwapError::Gone,
        _ => SwapError::of(error),
    })?;
    if !stamp.is_same_file(&FileStamp::of(&found)) {
        return Ok(SwapResult::Missed);
    }
    // Moving needs no right to write the file itself; taking the right away says what is meant,
    // to root too.
    if found.permissions().readonly() {
        return Err(SwapError::ReadOnly);
    }
    match access(&page.real, Access::WRITE_OK) {
        Err(Errno::ACCESS | Errno::PERM) => return Err(SwapError::ReadOnly),
        other => other.map_err(|error| SwapError::of(error.into()))?,
    }
    let early = Leftover::prepare(page, there, stamp);
    let result = put_draft(page, there, stamp, text, &early, &found);
    match result {
        Ok(SwapResult::Missed) | Err(_) => early.remove(),
        Ok(_) => {}
    }
    result
}

fn put_draft(
    page: &NotebookFile,
    there: &Document,
    stamp: &FileStamp,
    text: &Document,
    early: &Leftover,
    found: &std::fs::Metadata,
) -> Result<SwapResult, SwapError> {
    let draft = Draft::write(early.path.clone(), &page.real, found, text);
    let draft = draft.map_err(|failed| match failed {
        draft::DraftError::Make(error) if !is_full(&error) => SwapError::Folder(error),
        draft::DraftError::Make(error) | draft::DraftError::Fill(error) => SwapError::of(error),
    })?;
    place(page, there, stamp, early, draft)
}

/// Puts a draft into the place of the notebook that it was made of.
pub(super) fn place(
    page: &NotebookFile,
    there: &Document,
    stamp: &FileStamp,
    early: &Leftover,
    mut draft: Draft,
) -> Result<SwapResult, SwapError> {
    let placed = draft.stamp();
    let leftover = early.with_draft(page, &placed);
    draft.move_to(&leftover.path).map_err(SwapError::of)?;
    // A large draft takes its time to the disk. What somebody saved meanwhile stays in the file
    // while it is merged: an exchange would take it out first.
    if !is_still(page, stamp)? {
        return Ok(SwapResult::Missed);
    }
    // The notebook is the old path: of the two events of an exchange the one of the new path comes
    // first, and a watcher that sees the notebook leave last takes it for deleted.
    let exchange = RenameFlags::EXCHANGE;
    let swapped = match renameat_with(CWD, &page.real, CWD, &leftover.path, exchange) {
        Ok(()) => {
            draft.placed();
            File::open(&leftover.path)
        }
        Err(Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => {
            match replace(page, stamp, early, &leftover, draft)? {
                Some(swapped) => swapped,
                None => return Ok(SwapResult::Missed),
            }
        }
        Err(Errno::NOENT) => return Err(SwapError::Gone),
        Err(error) => return Err(SwapError::of(error.into())),
    };
    // The name is on disk too, where the system can do that.
    if let Some(folder) = page.real.parent() {
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
    let looked = swapped.and_then(|file| look(&file, stamp, Some(there), PATIENCE));
    Ok(match looked {
        Ok(SwappedOut::Same) => {
            leftover.remove();
            SwapResult::Done { placed, note: None }
        }
        Ok(SwappedOut::Saved { saved, stamp, held }) => {
            SwapResult::SwappedSave(Box::new(SwappedSave {
                saved,
                placed,
                leftover,
                stamp,
                held,
            }))
        }
        Ok(SwappedOut::Broken) => {
            let note = leftover.put_away(page).ok().map(|path| {
                format!(
                    "what another program wrote meanwhile is no notebook; it is kept as {}",
                    path.display()
                )
            });
            SwapResult::Done { placed, note }
        }
        // The next command goes on here.
        Ok(SwappedOut::Held(who)) => {
            let _ = leftover.keep_base(page, Some(there));
            let note = who.map(|who| {
                format!(
                    "{who} has the notebook open for writing: what it saves from here on goes in with the next command on this notebook"
                )
            });
            SwapResult::Done { placed, note }
        }
        Err(_) => {
            let _ = leftover.keep_base(page, Some(there));
            SwapResult::Done { placed, note: None }
        }
    })
}

/// Replaces the notebook where nothing can be exchanged; returns what was there, or nothing if it
/// is another one already.
///
/// A second name keeps what is replaced, and that name is looked at afterwards: it may be what
/// somebody has moved there just before. Only a file that is moved there between the two system
/// calls that follow each other here is lost; no call of such a file system closes that gap. Where
/// there are no second names, the gap is the one between opening and moving, and only we have what
/// was there, until we exit.
pub(super) fn replace(
    page: &NotebookFile,
    stamp: &FileStamp,
    early: &Leftover,
    leftover: &Leftover,
    mut draft: Draft,
) -> Result<Option<io::Result<File>>, SwapError> {
    draft.move_to(&early.path).map_err(SwapError::of)?;
    if std::fs::hard_link(&page.real, &leftover.path).is_ok() {
        if let Err(error) = draft.move_to(&page.real) {
            let _ = std::fs::remove_file(&leftover.path);
            return Err(SwapError::of(error));
        }
        draft.placed();
        return Ok(Some(File::open(&leftover.path)));
    }
    let swapped = File::open(&page.real).map_err(SwapError::of)?;
    let now = FileStamp::of(&swapped.metadata().map_err(SwapError::of)?);
    if !stamp.is_same_file(&now) {
        return Ok(None);
    }
    draft.move_to(&page.real).map_err(SwapError::of)?;
    draft.placed();
    Ok(Some(Ok(swapped)))
}

/// Whether the notebook is the file that was read, as far as its stamp tells.
fn is_still(page: &NotebookFile, stamp: &FileStamp) -> Result<bool, SwapError> {
    let found = std::fs::metadata(&page.real).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => SwapError::Gone,
        _ => SwapError::of(error),
    })?;
    Ok(stamp.is_same_file(&FileStamp::of(&found)))
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Returns how many bytes this user may still write beside a notebook.
pub(super) fn free(notebook: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(notebook.parent()?).ok()?;
    Some(found.f_bavail * found.f_frsize)
}
