//! Finishing what a stopped command left beside a notebook.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::leftover::Leftover;
use super::swapped_out::{SwappedOut, look};
use super::touch::Saves;
use super::{text, write_locked};
use crate::editing::file_stamp::FileStamp;
use crate::editing::notebook_file::NotebookFile;
use crate::notebook::{Document, merge};
use crate::project::{Lock, try_lock_notebook};

/// How old a leftover is at least that cannot be told from the work of a living `nb`.
const OLD: Duration = Duration::from_secs(60);

/// How old the leftover of a notebook is at least that has another name by now.
const ORPHANED: Duration = Duration::from_secs(24 * 60 * 60);

/// Finishes what a stopped command left beside a notebook, for one who only reads it.
///
/// What somebody saved into a file that had been swapped out is merged into the notebook. Returns
/// what the user should know. It costs a look into the project's folder where nothing is left, and
/// nothing is done while another `nb` writes.
pub fn finish(page: &NotebookFile) -> Vec<String> {
    if !Leftover::may_be(page) {
        return Vec::new();
    }
    match try_lock_notebook(&page.real) {
        Ok(Some(lock)) => leftovers(page, Some(&lock)),
        // Somebody is writing: it is theirs.
        Ok(None) => Vec::new(),
        Err(_) => leftovers(page, None),
    }
}

/// Finishes what was left beside a notebook that is to be written.
pub(super) fn leftovers(page: &NotebookFile, lock: Option<&Lock>) -> Vec<String> {
    let Ok((own, others)) = Leftover::all(page) else {
        return Vec::new();
    };
    let mut notes = Vec::new();
    for leftover in own {
        let is_old = || age(&leftover).is_some_and(|age| age > OLD);
        if !leftover.is_alive() && (lock.is_some() || is_old()) {
            // What cannot be done now is tried again by the next.
            notes.extend(one(page, lock, leftover).ok().flatten());
        }
    }
    for leftover in others {
        if age(&leftover).is_some_and(|age| age > ORPHANED) {
            notes.extend(orphan(page, leftover).ok().flatten());
        }
    }
    if lock.is_some() {
        let left = Leftover::all(page).map(|(own, _)| own).unwrap_or_default();
        Leftover::sweep(page, &left);
    }
    notes
}

/// How long ago it was put where it is.
fn age(leftover: &Leftover) -> Option<Duration> {
    let found = std::fs::metadata(&leftover.path).ok()?;
    let moved = UNIX_EPOCH + Duration::from_secs(found.ctime().try_into().ok()?);
    SystemTime::now().duration_since(moved).ok()
}

/// Finishes one; returns what there is to tell.
fn one(page: &NotebookFile, lock: Option<&Lock>, leftover: Leftover) -> io::Result<Option<String>> {
    let file = File::open(&leftover.path)?;
    let found = file.metadata()?;
    if leftover.is_draft(&found) {
        leftover.remove();
        return Ok(None);
    }
    let base = leftover.base();
    let stamp = FileStamp::of(&found);
    let looked = match &base {
        Some(base) => look(&file, &stamp.doubtful(), Some(base), Duration::ZERO)?,
        None if leftover.is_as_base(&stamp) => look(&file, &stamp.trusted(), None, Duration::ZERO)?,
        None => look(&file, &stamp.doubtful(), None, Duration::ZERO)?,
    };
    let (mut saved, stamp, held) = match looked {
        SwappedOut::Same => {
            leftover.remove();
            return Ok(None);
        }
        SwappedOut::Held(_) => return Ok(None),
        SwappedOut::Saved { saved, stamp, held } => (*saved, stamp, held),
        SwappedOut::Broken => {
            let kept = leftover.put_away(page)?;
            return Ok(Some(format!(
                "a program was stopped while it saved this notebook; what it wrote is kept as {}",
                kept.display()
            )));
        }
    };
    let Some(mut base) = base else {
        let (current, _) = page.read_stamped().map_err(io::Error::other)?;
        if text::same(&current, &saved) {
            leftover.remove();
            return Ok(None);
        }
        let kept = leftover.put_away(page)?;
        return Ok(Some(format!(
            "what somebody saved while an nb was killed could not be merged; it is kept as {}: nb diff shows what it has",
            kept.display()
        )));
    };
    let mut lost = 0;
    let written = write_locked(page, lock, false, &|_| false, |current| {
        // Who saved last knows best: what the stopped command put there is older than what was
        // saved into the file it swapped out, anything else is newer.
        let now = std::fs::metadata(&page.real).map(|found| FileStamp::of(&found));
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
        "what somebody saved while an nb was stopped is merged into this notebook".to_owned()
    });
    let now = FileStamp::of(&std::fs::metadata(&page.real)?);
    if written.wrote {
        let mut saves = Saves::before(lock, &now);
        saves.saw(&stamp);
        saves.wrote(page, &now);
    }
    if lost + written.conflicts.len() > 0 && !held {
        let kept = leftover.put_away(page)?;
        return Ok(Some(format!(
            "what somebody saved while an nb was stopped is merged into this notebook, but for {} of its changes; the whole is kept as {}",
            lost + written.conflicts.len(),
            kept.display()
        )));
    }
    if held {
        leftover.rebase(page, &now, &saved, &stamp);
    } else {
        leftover.remove();
    }
    Ok(merged)
}

/// Clears away what was left of a notebook that has another name by now, or none.
fn orphan(page: &NotebookFile, leftover: Leftover) -> io::Result<Option<String>> {
    let found = std::fs::metadata(&leftover.path)?;
    if leftover.is_draft(&found) || leftover.is_as_base(&FileStamp::of(&found)) {
        leftover.remove();
        return Ok(None);
    }
    let kept = leftover.put_away(page)?;
    Ok(Some(format!(
        "what somebody saved into a notebook that was moved since is kept as {}",
        kept.display()
    )))
}
