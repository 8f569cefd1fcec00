//! The transaction in which `nb` writes a notebook; no other code writes one.
//!
//! Under the lock of the notebook's writers: read the file, apply the change, give it to the editors that have the
//! notebook open through `nb live`, exchange the file with a new one, and check the file that was swapped out. If another
//! program, which takes no lock, has saved in between, its save is merged and the file exchanged again, so that no save is
//! lost. The swapped-out file stays until no process can write into it any more. If a command is killed, the next one
//! finishes its transaction. A notebook in a room of jupyter-collaboration is written by its server (`room`).

mod create;
mod draft;
mod error;
mod finish;
mod holders;
mod leftover;
mod live_editors;
mod rename;
mod room;
mod sizes;
mod swap;
mod swapped_out;
mod text;
mod touch;

use std::time::Duration;

pub(crate) use error::SILENT_ROOM;
pub use error::WriteError;
pub use finish::finish;
pub use live_editors::{Proposal, ProposalAnswer, WRITTEN, is_confined, stamp};
pub(crate) use live_editors::{has_open, has_room, names_of_asked};
pub use rename::{RenameError, rename};
pub use touch::settle;

pub use create::create;
pub(super) use sizes::{SizeRule, Sizes};

use self::live_editors::LiveEditors;
use self::swap::{SwapResult, SwappedSave, put};
use self::touch::Saves;
use super::file_stamp::FileStamp;
use super::notebook_file::{NotebookFile, NotebookFileError};
use crate::activity::collaboration;
use crate::kernel::variables::ProcessVariables;
use crate::notebook::{Conflict, Document, merge};
use crate::project::{Lock, NotLocked, lock_notebook};

/// The writer of what no actor asked for.
pub(super) const NB: &str = "nb";

/// How long to wait for another `nb`, whose own waits within a transaction take seconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// How often to merge and try again if another program keeps saving the notebook.
const MOST_ATTEMPTS: usize = 20;

/// The note about a file for which no new size was found.
const SIZE_NOTE: &str = "the file has a size that it had before in the last 24 hours, since white space could not give it another: an editor that has shown it since then may save over this edit without a question; reload the notebook there";

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

/// How a notebook is written.
#[derive(Clone, Copy)]
pub(super) struct WriteMode<'a> {
    /// Who writes.
    pub(super) by: &'a str,
    /// Whether the change is made again from another program's save in between, in place of a merge.
    pub(super) force: bool,
    /// Whether the notebook is written although JupyterLab may have it open in a room.
    pub(super) in_room: bool,
    /// Which sizes the file may get.
    pub(super) size: SizeRule,
}

/// Changes a notebook. A save of another program in between is merged; with `force` the change is
/// made again from that save: the last writer wins. Without `force` a notebook that may be open in a room of
/// jupyter-collaboration is not written. The file gets a size that it did not have in the last day.
///
/// # Errors
/// The notebook cannot be read or written, or the change fails.
pub fn write<E: std::error::Error + 'static>(
    notebook: &NotebookFile,
    by: &str,
    force: bool,
    mut change: impl FnMut(&Document) -> Result<Document, E>,
) -> Result<TransactionResult, WriteError<E>> {
    let mode = WriteMode {
        by,
        force,
        in_room: force,
        size: SizeRule::New,
    };
    write_with(notebook, mode, |document, _| change(document))
}

/// Like [`write()`], in another mode. The change gets the sizes that the file had.
///
/// # Errors
/// As [`write()`].
pub(super) fn write_with<E: std::error::Error + 'static>(
    notebook: &NotebookFile,
    mode: WriteMode<'_>,
    change: impl FnMut(&Document, &Sizes) -> Result<Document, E>,
) -> Result<TransactionResult, WriteError<E>> {
    write_running_with(notebook, mode, &|_| false, change)
}

/// Like [`write()`], for the recorder of the cells that `runs` names: the outputs of these cells are the
/// recorder's, even if other programs save others in the meantime. The file only gets another size than before.
///
/// # Errors
/// As [`write()`].
pub(crate) fn write_running<E: std::error::Error + 'static>(
    notebook: &NotebookFile,
    by: &str,
    force: bool,
    runs: &dyn Fn(&str) -> bool,
    mut change: impl FnMut(&Document) -> Result<Document, E>,
) -> Result<TransactionResult, WriteError<E>> {
    let mode = WriteMode {
        by,
        force,
        in_room: force,
        size: SizeRule::OtherThanNow,
    };
    write_running_with(notebook, mode, runs, |document, _| change(document))
}

fn write_running_with<E: std::error::Error + 'static>(
    notebook: &NotebookFile,
    mode: WriteMode<'_>,
    runs: &dyn Fn(&str) -> bool,
    change: impl FnMut(&Document, &Sizes) -> Result<Document, E>,
) -> Result<TransactionResult, WriteError<E>> {
    // If there is no lock, as in a sandbox, the check of the swapped-out file is the only
    // protection.
    let lock: Option<Lock> = match lock_notebook(&notebook.real, LOCK_TIMEOUT) {
        Ok(lock) => Some(lock),
        Err(NotLocked::Unusable(_)) => None,
        Err(source) => {
            let notebook = Box::new(notebook.clone());
            return Err(WriteError::Locked { notebook, source });
        }
    };
    let notes = finish::leftovers(notebook, lock.as_ref());
    let mut written = write_locked(notebook, lock.as_ref(), mode, runs, change)?;
    written.notes.splice(0..0, notes);
    Ok(written)
}

/// Changes a notebook under its lock, or without one if it cannot be locked.
fn write_locked<E: std::error::Error + 'static>(
    notebook: &NotebookFile,
    lock: Option<&Lock>,
    mode: WriteMode<'_>,
    runs: &dyn Fn(&str) -> bool,
    mut change: impl FnMut(&Document, &Sizes) -> Result<Document, E>,
) -> Result<TransactionResult, WriteError<E>> {
    let (before, stamp) = notebook.read_stamped()?;
    let saves = Saves::before(lock, &stamp, mode.size.text_of(&before));
    let changed = change(&before, &saves.sizes).map_err(WriteError::Change)?;
    let mut attempt = ContendedWrite {
        notebook,
        editors: LiveEditors::of(notebook),
        runs,
        in_file: before.clone(),
        base: before,
        to_write: changed.clone(),
        changed,
        theirs: None,
        conflicts: Vec::new(),
        saves,
        rule: mode.size,
        stamp,
        wrote: false,
        swapped_saves: Vec::new(),
        disputed: false,
        change_error: None,
        notes: Vec::new(),
    };
    for _ in 0..MOST_ATTEMPTS {
        if attempt.to_write.has_same_bytes(&attempt.in_file) {
            return attempt.end();
        }
        if attempt.editors.has_room() {
            match attempt.write_through_room(mode.by) {
                Ok(true) => return attempt.end(),
                Ok(false) => continue,
                Err(error) => return attempt.failed(error.into()),
            }
        }
        if !mode.in_room && !attempt.wrote {
            let notebook = Box::new(notebook.clone());
            if attempt.editors.has_silent_room() {
                return Err(WriteError::SilentRoom { notebook });
            }
            if let Some(room) = collaboration::room_of(&notebook.real, &ProcessVariables) {
                return Err(WriteError::InRoom { notebook, room });
            }
        }
        attempt.resize();
        let put = match attempt.propose(mode.by) {
            ProposalAnswer::Go => put(
                notebook,
                &attempt.in_file,
                &attempt.stamp,
                &attempt.to_write,
            ),
            ProposalAnswer::Changed | ProposalAnswer::Stored(_) | ProposalAnswer::Silent => {
                Ok(SwapResult::Missed)
            }
        };
        let theirs = match put {
            Ok(SwapResult::Done { placed, note }) => {
                attempt.notes.extend(note);
                attempt.placed(placed);
                return attempt.end();
            }
            Ok(SwapResult::SwappedSave(save)) => attempt.take_swapped_save(*save),
            Ok(SwapResult::Missed) => match attempt.read_again() {
                Ok(Some(theirs)) => theirs,
                Ok(None) => continue,
                Err(error) => return attempt.failed(error.into()),
            },
            Err(failed) => {
                let error = WriteError::of(notebook, &attempt.to_write, failed);
                return attempt.failed(error);
            }
        };
        if mode.force {
            attempt.reapply(theirs, &mut change);
        } else {
            attempt.merge(theirs);
        }
    }
    let notebook = Box::new(notebook.clone());
    attempt.failed(WriteError::Contended { notebook })
}

/// The write of a change into a file that other programs may save at the same moments.
struct ContendedWrite<'a, E> {
    notebook: &'a NotebookFile,
    editors: LiveEditors,
    /// The cells that the writer runs.
    runs: &'a dyn Fn(&str) -> bool,
    /// The notebook from which the change was made.
    base: Document,
    /// The notebook with the change.
    changed: Document,
    /// The other programs' saves, without this change.
    theirs: Option<Document>,
    conflicts: Vec<Conflict>,
    /// The notebook in the file, as far as known.
    in_file: Document,
    stamp: FileStamp,
    /// The notebook that is to be in the file.
    to_write: Document,
    wrote: bool,
    /// The times of other programs' saves, and the sizes that the file had.
    saves: Saves<'a>,
    rule: SizeRule,
    /// The saves that are merged into `to_write`, but perhaps not yet in the file.
    swapped_saves: Vec<SwappedSave>,
    /// Whether two of those saves changed the same lines; the last one stays.
    disputed: bool,
    /// The error with which the change could not be applied to the other programs' saves: the file gets
    /// their saves back.
    change_error: Option<E>,
    notes: Vec<String>,
}

impl<E: std::error::Error + 'static> ContendedWrite<'_, E> {
    /// Gives the notebook a size that the rule allows.
    fn resize(&mut self) {
        let sizes = &self.saves.sizes;
        if sizes.allows(self.rule, &self.to_write, &self.in_file) {
            return;
        }
        self.to_write = sizes.fit(self.rule, self.to_write.clone(), &self.in_file, None);
        if !sizes.allows(self.rule, &self.to_write, &self.in_file) {
            self.notes.push(SIZE_NOTE.to_owned());
        }
    }

    /// Gives the editors that have the notebook open what is to be written.
    fn propose(&mut self, by: &str) -> ProposalAnswer {
        self.editors
            .propose(self.notebook, &self.in_file, &self.to_write, by)
    }

    /// Records that the notebook `to_write` is in the file, with this stamp.
    fn placed(&mut self, stamp: FileStamp) {
        self.saves
            .add_size(&stamp, self.rule.text_of(&self.to_write));
        self.stamp = stamp;
        self.wrote = true;
    }

    /// Takes in another program's save, which was swapped out; returns the base with its changes, without
    /// this change.
    fn take_swapped_save(&mut self, mut save: SwappedSave) -> Document {
        save.saved.adopt_ids(&self.in_file);
        let theirs = self.without_change(&save.saved);
        self.saves.add(save.saved_at());
        self.in_file = self.to_write.clone();
        self.placed(save.placed);
        self.swapped_saves.push(save);
        theirs
    }

    /// Reads the file, which another program has replaced; returns the base with its changes, or `None` if
    /// the text is the expected one.
    fn read_again(&mut self) -> Result<Option<Document>, NotebookFileError> {
        let (mut saved, stamp) = self.notebook.read_stamped()?;
        saved.adopt_ids(&self.in_file);
        self.saves.add(&stamp);
        self.stamp = stamp;
        if saved.has_same_bytes(&self.in_file) {
            return Ok(None);
        }
        let theirs = self.without_change(&saved);
        self.in_file = saved;
        Ok(Some(theirs))
    }

    /// Returns the base with the other programs' changes: their save without this change.
    fn without_change(&mut self, saved: &Document) -> Document {
        if !self.wrote {
            return saved.clone();
        }
        // The saved file contained this change and the programs' earlier saves. So everything is merged, and
        // then a second merge takes this change out again: the rest is the programs' changes.
        let runs_none = |_: &str| false;
        let all = merge(&self.in_file, saved, &self.to_write, &runs_none);
        self.disputed |= !all.conflicts.is_empty();
        merge(&self.changed, &all.document, &self.base, &runs_none).document
    }

    /// Merges the change into the other programs' saves.
    fn merge(&mut self, theirs: Document) {
        let merged = merge(&self.base, &theirs, &self.changed, self.runs);
        self.to_write = merged.document;
        self.conflicts = merged.conflicts;
        self.theirs = Some(theirs);
    }

    /// Applies the change to the other programs' saves.
    fn reapply(
        &mut self,
        theirs: Document,
        change: &mut impl FnMut(&Document, &Sizes) -> Result<Document, E>,
    ) {
        let changed = match &self.change_error {
            None => change(&theirs, &self.saves.sizes),
            Some(_) => Ok(theirs.clone()),
        };
        self.changed = changed.unwrap_or_else(|error| {
            self.change_error = Some(error);
            theirs.clone()
        });
        self.to_write = self.changed.clone();
        self.base = theirs;
    }

    /// Ends the transaction; the notebook `to_write` is in the file.
    fn end(mut self) -> Result<TransactionResult, WriteError<E>> {
        // A room's server has written the file, not this process.
        if self.wrote && !self.editors.has_room() {
            self.editors.written();
            self.saves.record_write(self.notebook, &self.stamp);
        }
        let now = std::fs::metadata(&self.notebook.real).map(|found| FileStamp::of(&found));
        for save in self.swapped_saves {
            if self.disputed {
                self.notes.extend(save.move_to_trash(self.notebook));
            } else {
                save.merged(self.notebook, now.as_ref().unwrap_or(&self.stamp));
            }
        }
        match self.change_error {
            Some(error) => Err(WriteError::Change(error)),
            None => Ok(TransactionResult {
                before: self.base,
                theirs: self.theirs,
                after: self.to_write,
                wrote: self.wrote,
                conflicts: self.conflicts,
                notes: self.notes,
            }),
        }
    }

    /// Ends the transaction after a failed write. A save that is not in the file stays beside it, and the
    /// next command merges it.
    fn failed(self, error: WriteError<E>) -> Result<TransactionResult, WriteError<E>> {
        if !self.wrote || self.change_error.is_some() {
            return Err(error);
        }
        self.saves.record_write(self.notebook, &self.stamp);
        let note = format!(
            "what another program saved at the same moment is not in the notebook yet ({error}); the next command on it merges that"
        );
        Ok(TransactionResult {
            before: self.base,
            theirs: None,
            after: self.in_file,
            wrote: true,
            conflicts: self.conflicts,
            notes: vec![note],
        })
    }
}

#[cfg(test)]
mod tests;
