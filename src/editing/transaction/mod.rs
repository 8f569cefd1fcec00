//! The only way that anything writes a notebook.
//!
//! Under the lock of the notebook's writers: read, apply the change, put the new text in its place
//! by an exchange, and look at what was swapped out. If somebody saved in between, who takes no
//! lock, that is merged and put in place again, so a saved edit is never lost. What was swapped
//! out stays until nobody can write into it any more; what a stopped command left, the next one
//! finishes.

mod create;
mod draft;
mod error;
mod finish;
mod holders;
mod leftover;
mod swap;
mod swapped_out;
mod text;
mod touch;

use std::time::Duration;

pub use error::WriteError;
pub use finish::finish;
pub use touch::settle;

pub(crate) use create::create;

use self::swap::{SwapResult, SwappedSave, put};
use self::touch::Saves;
use super::file_stamp::FileStamp;
use super::notebook_file::{NotebookFile, NotebookFileError};
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

/// Changes a notebook. What somebody else saves in between is merged; with `force` the change is
/// made again, of what they saved: the last writer wins.
///
/// # Errors
/// The notebook cannot be read or written, or the change not be made.
pub fn write<E: std::error::Error + 'static>(
    page: &NotebookFile,
    force: bool,
    change: impl FnMut(&Document) -> Result<Document, E>,
) -> Result<Written, WriteError<E>> {
    write_running(page, force, &|_| false, change)
}

/// Changes a notebook as [`write`] does, for whoever runs the cells that `runs` names: their outputs
/// are the writer's whatever others save meanwhile.
///
/// # Errors
/// As [`write`].
pub(crate) fn write_running<E: std::error::Error + 'static>(
    page: &NotebookFile,
    force: bool,
    runs: &dyn Fn(&str) -> bool,
    change: impl FnMut(&Document) -> Result<Document, E>,
) -> Result<Written, WriteError<E>> {
    // Where the lock cannot be had, as in a sandbox, the look at what was swapped out must do.
    let lock: Option<Lock> = match lock_notebook(&page.real, LOCKED) {
        Ok(lock) => Some(lock),
        Err(NotLocked::Unusable(_)) => None,
        Err(source) => {
            let page = Box::new(page.clone());
            return Err(WriteError::Locked { page, source });
        }
    };
    let notes = finish::leftovers(page, lock.as_ref());
    let mut written = write_locked(page, lock.as_ref(), force, runs, change)?;
    written.notes.splice(0..0, notes);
    Ok(written)
}

/// Changes a notebook whose lock is held, where it can be had.
fn write_locked<E: std::error::Error + 'static>(
    page: &NotebookFile,
    lock: Option<&Lock>,
    force: bool,
    runs: &dyn Fn(&str) -> bool,
    mut change: impl FnMut(&Document) -> Result<Document, E>,
) -> Result<Written, WriteError<E>> {
    let (before, stamp) = page.read_stamped()?;
    let mine = change(&before).map_err(WriteError::Change)?;
    let saves = Saves::before(lock, &stamp);
    let mut rounds = Rounds::new(page, runs, before, stamp, mine, saves);
    for _ in 0..TRIES {
        if text::same(&rounds.wanted, &rounds.there) {
            return rounds.end();
        }
        rounds.wanted = rounds.wanted.with_other_size(&rounds.there, None);
        let theirs = match put(page, &rounds.there, &rounds.stamp, &rounds.wanted) {
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
                let error = WriteError::of(page, &rounds.wanted, failed);
                return rounds.failed(error);
            }
        };
        if force {
            rounds.again(theirs, &mut change);
        } else {
            rounds.merge(theirs);
        }
    }
    let page = Box::new(page.clone());
    rounds.failed(WriteError::Contended { page })
}

/// A change on its way into a file that others save at the same moments.
struct Rounds<'a, E> {
    page: &'a NotebookFile,
    /// The cells that the writer runs.
    runs: &'a dyn Fn(&str) -> bool,
    /// What the change was made of.
    base: Document,
    /// What it made of that.
    mine: Document,
    theirs: Option<Document>,
    conflicts: Vec<Conflict>,
    /// What is in the file, as far as is known.
    there: Document,
    stamp: FileStamp,
    /// What shall be in it.
    wanted: Document,
    wrote: bool,
    /// When others saved.
    saves: Saves<'a>,
    /// What they saved that is in `wanted`, but in the file perhaps not yet.
    over: Vec<SwappedSave>,
    /// Whether they changed the same lines in two of those: the last stays.
    disputed: bool,
    /// The change cannot be made of what they saved: theirs is put back.
    refused: Option<E>,
    notes: Vec<String>,
}

impl<'a, E: std::error::Error + 'static> Rounds<'a, E> {
    fn new(
        page: &'a NotebookFile,
        runs: &'a dyn Fn(&str) -> bool,
        before: Document,
        stamp: FileStamp,
        mine: Document,
        saves: Saves<'a>,
    ) -> Self {
        Self {
            page,
            runs,
            there: before.clone(),
            base: before,
            wanted: mine.clone(),
            mine,
            theirs: None,
            conflicts: Vec::new(),
            stamp,
            wrote: false,
            saves,
            over: Vec::new(),
            disputed: false,
            refused: None,
            notes: Vec::new(),
        }
    }

    /// Takes what was swapped out; returns what they made of the base.
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

    /// Reads what is in the file instead of what was expected; returns what they made of the base,
    /// or nothing if it has the same text.
    fn read_again(&mut self) -> Result<Option<Document>, NotebookFileError> {
        let (mut saved, stamp) = self.page.read_stamped()?;
        saved.adopt_ids(&self.there);
        self.saves.saw(&stamp);
        self.stamp = stamp;
        if text::same(&saved, &self.there) {
            return Ok(None);
        }
        let theirs = self.without_mine(&saved);
        self.there = saved;
        Ok(Some(theirs))
    }

    /// Returns what others made of the base, by what they saved in place of `there`.
    fn without_mine(&mut self, saved: &Document) -> Document {
        if !self.wrote {
            return saved.clone();
        }
        // The change was in the file when they saved, with what they saved before. Everything
        // together, and then the change taken back: what is left is theirs.
        let nobodys = |_: &str| false;
        let all = merge(&self.there, saved, &self.wanted, &nobodys);
        self.disputed |= !all.conflicts.is_empty();
        merge(&self.mine, &all.document, &self.base, &nobodys).document
    }

    /// Merges the change into what they saved.
    fn merge(&mut self, theirs: Document) {
        let merged = merge(&self.base, &theirs, &self.mine, self.runs);
        self.wanted = merged.document;
        self.conflicts = merged.conflicts;
        self.theirs = Some(theirs);
    }

    /// Makes the change again, of what they saved.
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

    /// Ends with what is wanted in the file.
    fn end(mut self) -> Result<Written, WriteError<E>> {
        if self.wrote {
            self.saves.wrote(self.page, &self.stamp);
        }
        let now = std::fs::metadata(&self.page.real).map(|found| FileStamp::of(&found));
        for over in self.over {
            if self.disputed {
                self.notes.extend(over.put_away(self.page));
            } else {
                over.merged(self.page, now.as_ref().unwrap_or(&self.stamp));
            }
        }
        match self.refused {
            Some(error) => Err(WriteError::Change(error)),
            None => Ok(Written {
                before: self.base,
                theirs: self.theirs,
                after: self.wanted,
                wrote: self.wrote,
                conflicts: self.conflicts,
                notes: self.notes,
            }),
        }
    }

    /// Ends with a file that could not be written; what they saved stays beside it if it is not in
    /// there, and the next command finishes that.
    fn failed(self, error: WriteError<E>) -> Result<Written, WriteError<E>> {
        if !self.wrote || self.refused.is_some() {
            return Err(error);
        }
        self.saves.wrote(self.page, &self.stamp);
        let note = format!(
            "what somebody saved at the same moment is not in the notebook yet ({error}); the next command on it merges that"
        );
        Ok(Written {
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
