//! Finishes the transactions of killed commands, from their files beside the notebook.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::leftover::Leftover;
use super::sizes::SizeRule;
use super::swapped_out::{SwappedOut, check};
use super::touch::Saves;
use super::{WriteMode, write_locked};
use crate::editing::file_stamp::FileStamp;
use crate::editing::notebook_file::NotebookFile;
use crate::notebook::{Document, merge};
use crate::project::{Lock, try_lock_notebook};

/// The age from which on a leftover counts as abandoned if there is no lock, which would show
/// whether its `nb` runs.
const OLD: Duration = Duration::from_secs(60);

/// The age from which on a leftover of a renamed notebook is cleared away.
const ORPHANED: Duration = Duration::from_secs(24 * 60 * 60);

/// Finishes the transactions of killed commands on a notebook, for a command that only reads it.
///
/// A save into a file that was swapped out is merged into the notebook. Returns notes for the user.
/// If there are no leftovers, this only lists a folder of the project. It does nothing while
/// another `nb` writes.
pub fn finish(notebook: &NotebookFile) -> Vec<String> {
    if !Leftover::may_exist(notebook) {
        return Vec::new();
    }
    match try_lock_notebook(&notebook.real) {
        Ok(Some(lock)) => leftovers(notebook, Some(&lock)),
        // The process that holds the lock finishes it.
        Ok(None) => Vec::new(),
        Err(_) => leftovers(notebook, None),
    }
}

/// Finishes the transactions of killed commands on a notebook that is about to be written.
pub(super) fn leftovers(notebook: &NotebookFile, lock: Option<&Lock>) -> Vec<String> {
    let Ok((own, others)) = Leftover::all(notebook) else {
        return Vec::new();
    };
    let mut notes = Vec::new();
    for leftover in own {
        let is_old = || age(&leftover).is_some_and(|age| age > OLD);
        if !leftover.is_alive() && (lock.is_some() || is_old()) {
            // After a failure the next command tries again.
            notes.extend(finish_leftover(notebook, lock, leftover).ok().flatten());
        }
    }
    for leftover in others {
        if age(&leftover).is_some_and(|age| age > ORPHANED) {
            notes.extend(clear_orphan(notebook, leftover).ok().flatten());
        }
    }
    if lock.is_some() {
        let remaining = Leftover::all(notebook)
            .map(|(own, _)| own)
            .unwrap_or_default();
        Leftover::sweep(notebook, &remaining);
    }
    notes
}

/// Returns how long ago a leftover was renamed to its present name.
fn age(leftover: &Leftover) -> Option<Duration> {
    let found = std::fs::metadata(&leftover.path).ok()?;
    let moved = UNIX_EPOCH + Duration::from_secs(found.ctime().try_into().ok()?);
    SystemTime::now().duration_since(moved).ok()
}

/// Finishes one leftover; returns a note for the user.
fn finish_leftover(
    notebook: &NotebookFile,
    lock: Option<&Lock>,
    leftover: Leftover,
) -> io::Result<Option<String>> {
    let file = File::open(&leftover.path)?;
    let found = file.metadata()?;
    if leftover.is_draft(&found) {
        leftover.remove();
        return Ok(None);
    }
    let base = leftover.base();
    let stamp = FileStamp::of(&found);
    let checked = match &base {
        Some(base) => check(&file, &stamp.doubtful(), Some(base), Duration::ZERO)?,
        None if leftover.is_as_base(&stamp) => {
            check(&file, &stamp.trusted(), None, Duration::ZERO)?
        }
        None => check(&file, &stamp.doubtful(), None, Duration::ZERO)?,
    };
    let (mut saved, stamp, is_open) = match checked {
        SwappedOut::Same => {
            leftover.remove();
            return Ok(None);
        }
        SwappedOut::Held(_) => return Ok(None),
        SwappedOut::Saved {
            saved,
            stamp,
            is_open,
        } => (*saved, stamp, is_open),
        SwappedOut::Broken => {
            let kept = leftover.move_to_trash(notebook)?;
            return Ok(Some(format!(
                "a program was stopped while it saved this notebook; what it wrote is kept as {}",
                kept.display()
            )));
        }
    };
    let Some(mut base) = base else {
        let (current, _) = notebook.read_stamped().map_err(io::Error::other)?;
        if current.has_same_bytes(&saved) {
            leftover.remove();
            return Ok(None);
        }
        let kept = leftover.move_to_trash(notebook)?;
        return Ok(Some(format!(
            "what another program saved while an nb was killed could not be merged; it is kept as {}: compare it with the notebook",
            kept.display()
        )));
    };
    let mut lost = 0;
    let mode = WriteMode {
        by: super::NB,
        force: false,
        in_room: false,
        size: SizeRule::New,
    };
    let written = write_locked(notebook, lock, mode, &|_| false, |current, _| {
        // The later save wins. The file that the killed command put in place is older than what was
        // saved into the file that it swapped out; any other file is newer.
        let now = std::fs::metadata(&notebook.real).map(|found| FileStamp::of(&found));
        base.adopt_ids(current);
        saved.adopt_ids(&base);
        let merged = match now.is_ok_and(|now| leftover.has_placed(&now)) {
            true => merge(&base, &saved, current, &|_| false),
            false => merge(&base, current, &saved, &|_| false),
        };
        lost = merged.conflicts.len();
        Ok::<Document, Infallible>(merged.document)
    });
    let written = written.map_err(io::Error::other)?;
    let merged = written.wrote.then(|| {
        "what another program saved while an nb was stopped is merged into this notebook".to_owned()
    });
    let now = FileStamp::of(&std::fs::metadata(&notebook.real)?);
    if written.wrote {
        let mut saves = Saves::before(lock, &now, None);
        saves.add(&stamp);
        saves.record_write(notebook, &now);
    }
    if lost + written.conflicts.len() > 0 && !is_open {
        let kept = leftover.move_to_trash(notebook)?;
        return Ok(Some(format!(
            "what another program saved while an nb was stopped is merged into this notebook, but for {} of its changes; the whole is kept as {}",
            lost + written.conflicts.len(),
            kept.display()
        )));
    }
    if is_open {
        leftover.rebase(notebook, &now, &saved, &stamp);
    } else {
        leftover.remove();
    }
    Ok(merged)
}

/// Removes a leftover of a notebook that was renamed or removed, or moves it to the trash.
fn clear_orphan(notebook: &NotebookFile, leftover: Leftover) -> io::Result<Option<String>> {
    let found = std::fs::metadata(&leftover.path)?;
    if leftover.is_draft(&found) || leftover.is_as_base(&FileStamp::of(&found)) {
        leftover.remove();
        return Ok(None);
    }
    let kept = leftover.move_to_trash(notebook)?;
    Ok(Some(format!(
        "what another program saved into a notebook that was moved since is kept as {}",
        kept.display()
    )))
}
