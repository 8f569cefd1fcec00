//! The transaction in which `nb` writes a notebook; no other code writes one.
//!
//! Under the lock of the notebook's writers: read the file, apply the change, exchange the file with a new
//! one, and check the file that was swapped out. If another program, which takes no lock, has saved in
//! between, its save is merged and the file exchanged again, so that no save is lost. The swapped-out file
//! stays until no process can write into it any more. If a command is killed, the next one finishes its
//! transaction.

mod create;
mod draft;
mod error;
mod finish;
mod holders;
mod leftover;
mod rename;
mod swap;
mod swapped_out;
mod text;
mod touch;

use std::time::Duration;

pub use error::WriteError;
pub use finish::finish;
pub use rename::{RenameError, rename};
pub use touch::settle;

pub(crate) use create::create;

use self::swap::{SwapResult, SwappedSave, put};
use self::touch::Saves;
use super::file_stamp::FileStamp;
use super::notebook_file::{NotebookFile, NotebookFileError};
use crate::notebook::{Conflict, Document, merge};
use crate::project::{Lock, NotLocked, lock_notebook};

/// How long to wait for another `nb`, whose own waits within a transaction take seconds.
const LOCKED: Duration = Duration::from_secs(30);

/// How often to merge and try again if another program keeps saving the notebook.
const TRIES: usize = 20;

/// The result of a transaction.
#[derive(Clone, Debug)]
pub struct TransactionResult {
    /// The notebook to which the change was applied: the file as it was read under the lock.
    pub before: Document,
    /// The notebook that another program saved in between, with which the change was merged.
    pub theirs: Option<Document>,
    /// The notebook in the file now.
    pub after: Document,
    /// Whether the file was written: not if no byte would change.
    pub wrote: bool,
    /// The parts of the change that are not in the file.
    pub conflicts: Vec<Conflict>,
    /// Notes for the user, one line each.
    pub notes: Vec<String>,
}

/// Changes a notebook. A save of another program in between is merged; with `force` the change is
/// made again from that save: the last writer wins.
///
/// # Errors
/// The notebook cannot be read or written, or the change fails.
pub fn write<E: std::error::Error + 'static>(
    notebook: &NotebookFile,
    force: bool,
    change: impl FnMut(&Document) -> Result<Document, E>,
) -> Result<TransactionResult, WriteError<E>> {
    write_running(notebook, force, &|_| false, change)
}

/// Like [`write`], for the recorder of the cells that `runs` names: the outputs of these cells are the
/// recorder's, even if other programs save others in the meantime.
///
/// # Errors
/// As [`write`].
pub(crate) fn write_running<E: std::error::Error + 'static>(
    notebook: &NotebookFile,
    force: bool,
    runs: &dyn Fn(&str) -> bool,
    change: impl FnMut(&Document) -> Result<Document, E>,
) -> Result<TransactionResult, WriteError<E>> {
    // If there is no lock, as in a sandbox, the check of the swapped-out file is the only
    // protection.
    let lock: Option<Lock> = match lock_notebook(&notebook.real, LOCKED) {
        Ok(lock) => Some(lock),
        Err(NotLocked::Unusable(_)) => None,
        Err(source) => {
            let notebook = Box::new(notebook.clone());
            return Err(WriteError::Locked { notebook, source });
        }
    };
    let notes = finish::leftovers(notebook, lock.as_ref());
    let mut written = write_locked(notebook, lock.as_ref(), force, runs, change)?;
    written.notes.splice(0..0, notes);
    Ok(written)
}

/// Changes a notebook under its lock, or without one if it cannot be locked.
fn write_locked<E: std::error::Error + 'static>(
    notebook: &NotebookFile,
    lock: Option<&Lock>,
    force: bool,
    runs: &dyn Fn(&str) -> bool,
    mut change: impl FnMut(&Document) -> Result<Document, E>,
) -> Result<TransactionResult, WriteError<E>> {
    let (before, stamp) = notebook.read_stamped()?;
    let mine = change(&before).map_err(WriteError::Change)?;
    let mut rounds = Rounds {
        notebook,
        runs,
        there: before.clone(),
        base: before,
        wanted: mine.clone(),
        mine,
        theirs: None,
        conflicts: Vec::new(),
        saves: Saves::before(lock, &stamp),
        stamp,
        wrote: false,
        over: Vec::new(),
        disputed: false,
        refused: None,
        notes: Vec::new(),
    };
    for _ in 0..TRIES {
        if rounds.wanted.has_same_bytes(&rounds.there) {
            return rounds.end();
        }
        rounds.wanted = rounds.wanted.with_other_size(&rounds.there, None);
        let theirs = match put(notebook, &rounds.there, &rounds.stamp, &rounds.wanted) {
            Ok(SwapResult::Done { placed, note }) => {
                rounds.notes.extend(note);
                rounds.stamp = placed;
                rounds.wrote = true;
                return rounds.end();
            }
            Ok(SwapResult::SwappedSave(over)) => rounds.placed_over(*over),
            Ok(SwapResult::Missed) => match rounds.read_again() {
                Ok(Some(theirs)) => theirs,
                Ok(None) => continue,
                Err(error) => return rounds.failed(error.into()),
            },
            Err(failed) => {
                let error = WriteError::of(notebook, &rounds.wanted, failed);
                return rounds.failed(error);
            }
        };
        if force {
            rounds.again(theirs, &mut change);
        } else {
            rounds.merge(theirs);
        }
    }
    let notebook = Box::new(notebook.clone());
    rounds.failed(WriteError::Contended { notebook })
}

/// The state of a change that is written to a file which other programs may save at the same moments.
struct Rounds<'a, E> {
    notebook: &'a NotebookFile,
    /// The cells that the writer runs.
    runs: &'a dyn Fn(&str) -> bool,
    /// The notebook from which the change was made.
    base: Document,
    /// The notebook with the change.
    mine: Document,
    theirs: Option<Document>,
    conflicts: Vec<Conflict>,
    /// The notebook in the file, as far as known.
    there: Document,
    stamp: FileStamp,
    /// The notebook that is to be in the file.
    wanted: Document,
    wrote: bool,
    /// The times of other programs' saves.
    saves: Saves<'a>,
    /// The saves that are merged into `wanted`, but perhaps not yet in the file.
    over: Vec<SwappedSave>,
    /// Whether two of those saves changed the same lines; the last one stays.
    disputed: bool,
    /// The error with which the change could not be applied to their save: the file gets their save
    /// back.
    refused: Option<E>,
    notes: Vec<String>,
}

impl<E: std::error::Error + 'static> Rounds<'_, E> {
    /// Takes in a save that was swapped out; returns the base with their changes, without this
    /// change.
    fn placed_over(&mut self, mut over: SwappedSave) -> Document {
        over.saved.adopt_ids(&self.there);
        let theirs = self.without_mine(&over.saved);
        self.saves.saw(over.saved_at());
        self.there = self.wanted.clone();
        self.stamp = over.placed;
        self.wrote = true;
        self.over.push(over);
        theirs
    }

    /// Reads the file, which is not the expected one; returns the base with their changes, or
    /// `None` if the text is the expected one.
    fn read_again(&mut self) -> Result<Option<Document>, NotebookFileError> {
        let (mut saved, stamp) = self.notebook.read_stamped()?;
        saved.adopt_ids(&self.there);
        self.saves.saw(&stamp);
        self.stamp = stamp;
        if saved.has_same_bytes(&self.there) {
            return Ok(None);
        }
        let theirs = self.without_mine(&saved);
        self.there = saved;
        Ok(Some(theirs))
    }

    /// Returns the base with their changes, by taking this change out of their save of `there`.
    fn without_mine(&mut self, saved: &Document) -> Document {
        if !self.wrote {
            return saved.clone();
        }
        // They saved a file that contained this change and their earlier saves. So everything is merged, and
        // then a second merge takes the change out again: the rest is theirs.
        let runs_none = |_: &str| false;
        let all = merge(&self.there, saved, &self.wanted, &runs_none);
        self.disputed |= !all.conflicts.is_empty();
        merge(&self.mine, &all.document, &self.base, &runs_none).document
    }

    /// Merges the change into their save.
    fn merge(&mut self, theirs: Document) {
        let merged = merge(&self.base, &theirs, &self.mine, self.runs);
        self.wanted = merged.document;
        self.conflicts = merged.conflicts;
        self.theirs = Some(theirs);
    }

    /// Applies the change to their save.
    fn again(
        &mut self,
        theirs: Document,
        change: &mut impl FnMut(&Document) -> Result<Document, E>,
    ) {
        let mine = match &self.refused {
            None => change(&theirs),
            Some(_) => Ok(theirs.clone()),
        };
        self.mine = mine.unwrap_or_else(|error| {
            self.refused = Some(error);
            theirs.clone()
        });
        self.wanted = self.mine.clone();
        self.base = theirs;
    }

    /// Ends the transaction; the wanted notebook is in the file.
    fn end(mut self) -> Result<TransactionResult, WriteError<E>> {
        if self.wrote {
            self.saves.wrote(self.notebook, &self.stamp);
        }
        let now = std::fs::metadata(&self.notebook.real).map(|found| FileStamp::of(&found));
        for over in self.over {
            if self.disputed {
                self.notes.extend(over.put_away(self.notebook));
            } else {
                over.merged(self.notebook, now.as_ref().unwrap_or(&self.stamp));
            }
        }
        match self.refused {
            Some(error) => Err(WriteError::Change(error)),
            None => Ok(TransactionResult {
                before: self.base,
                theirs: self.theirs,
                after: self.wanted,
                wrote: self.wrote,
                conflicts: self.conflicts,
                notes: self.notes,
            }),
        }
    }

    /// Ends the transaction after a failed write. A save that is not in the file stays beside it, and the
    /// next command merges it.
    fn failed(self, error: WriteError<E>) -> Result<TransactionResult, WriteError<E>> {
        if !self.wrote || self.refused.is_some() {
            return Err(error);
        }
        self.saves.wrote(self.notebook, &self.stamp);
        let note = format!(
            "what another program saved at the same moment is not in the notebook yet ({error}); the next command on it merges that"
        );
        Ok(TransactionResult {
            before: self.base,
            theirs: None,
            after: self.there,
            wrote: true,
            conflicts: self.conflicts,
            notes: vec![note],
        })
    }
}

#[cfg(test)]
mod tests;
