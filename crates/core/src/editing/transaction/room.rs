//! Writes a notebook that is in a room of jupyter-collaboration: the room's server does, asked by one of the pages.

use std::time::{Duration, Instant};

use super::{ContendedWrite, ProposalAnswer};
use crate::editing::notebook_file::NotebookFileError;
use crate::notebook::{Conflict, merge};
use crate::project::live_editor::StoredInRoom;

/// How long the server may take to write what it was asked to write, and the pause between two looks at the file.
const STORE_TIMEOUT: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(10);

impl<E: std::error::Error + 'static> ContendedWrite<'_, E> {
    /// Has the room's server write the change; returns whether the file has it. Otherwise the change is made anew from what
    /// the file has now, if an editor in the room is left to try it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn write_through_room(&mut self, by: &str) -> Result<bool, NotebookFileError> {
        let answer = self.propose(by);
        let end = Instant::now() + STORE_TIMEOUT;
        match answer {
            ProposalAnswer::Go | ProposalAnswer::Silent => return Ok(false),
            ProposalAnswer::Changed => {}
            ProposalAnswer::Stored(stored) => loop {
                match self.take_stored(&stored) {
                    Ok(true) => return Ok(true),
                    // The server writes in place: a part of the text may be there.
                    Err(error) if Instant::now() >= end => return Err(error),
                    Ok(false) if Instant::now() >= end => break,
                    _ => std::thread::sleep(PAUSE),
                }
            },
        }
        if let Some(theirs) = self.read_again()? {
            self.merge(theirs);
        }
        Ok(false)
    }

    /// Reads the file; returns whether it has the change.
    fn take_stored(&mut self, stored: &StoredInRoom) -> Result<bool, NotebookFileError> {
        let (mut saved, stamp) = self.notebook.read_stamped()?;
        saved.adopt_ids(&self.in_file);
        let merged = merge(&self.base, &saved, &self.changed, self.runs);
        if !merged.document.has_same_bytes(&saved) {
            return Ok(false);
        }
        // What people have typed since, without the change.
        let mut theirs = merge(&self.changed, &saved, &self.base, &|_| false).document;
        let is_of = |conflict: &Conflict, id: &str| conflict.cell.as_deref() == Some(id);
        for cell in self.base.cells() {
            let id = cell.id();
            // They have typed in the same lines after the change, or beside them.
            let has_conflict = merged.conflicts.iter().any(|it| is_of(it, id));
            let is_refused = stored.refused.iter().any(|it| it == id);
            if has_conflict
                && !is_refused
                && let Some(at) = theirs.position_by_id(id)
            {
                let before = stored.replaced.get(id).cloned();
                let before = before.unwrap_or_else(|| cell.source().into_owned());
                let _ = theirs.set_source(at, &before);
            }
        }
        self.conflicts = merged.conflicts;
        self.conflicts.retain(|conflict| {
            let mut refused = stored.refused.iter();
            conflict.field != "source" || refused.any(|id| is_of(conflict, id))
        });
        self.theirs = (!theirs.has_same_bytes(&self.base)).then_some(theirs);
        self.in_file = saved.clone();
        self.to_write = saved;
        self.stamp = stamp;
        self.wrote = true;
        Ok(true)
    }
}
