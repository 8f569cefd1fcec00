//! Others' changes of cells since an actor saw them: merged with the actor's edit, or reported as a conflict.

use std::collections::HashSet;

use super::history;
use super::notebook_file::NotebookFile;
use super::seen::SeenCells;
use crate::activity::actor::Actor;
use crate::notebook::{Cell, CellChange, ChangeKind, Conflict, Document, Revision, merge_texts};

/// The texts from which an edit made its new ones.
#[derive(Clone, Debug, Default)]
pub struct EditBasis {
    /// Revisions of cells that the actor named: it knows these texts.
    pub revisions: Vec<Revision>,
    /// The texts of the other cells.
    pub text: TextBasis,
}

/// The kind of texts from which an edit made its new ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextBasis {
    /// A text that may be none of the present ones, such as an earlier version.
    #[default]
    Other,
    /// The texts that the actor saw last: others' changes since then can be merged.
    Seen,
    /// The texts in the file: the edit quotes what it replaces.
    Quoted,
}

/// An edit beside others' changes that the actor has not seen.
#[derive(Debug, Default)]
pub(super) struct UnseenEdits {
    /// The cells whose new text has lines that the actor has not seen.
    pub(super) cells: HashSet<String>,
    /// The cells among them into which others' changes were merged, with the revision of the actor's own text.
    pub(super) merged: Vec<(String, Revision)>,
}

/// An edit of a notebook, before it is written.
pub(super) struct PendingEdit<'a> {
    pub(super) notebook: &'a NotebookFile,
    /// The actor.
    pub(super) by: &'a str,
    /// The notebook in the file.
    pub(super) document: &'a Document,
    /// Whether the journal has each change of the document's cells.
    pub(super) is_recorded: bool,
    pub(super) changes: &'a [CellChange],
    pub(super) basis: &'a EditBasis,
    pub(super) seen: &'a SeenCells,
}

impl PendingEdit<'_> {
    /// Merges what others changed in the edited cells since the actor saw them into `after`.
    ///
    /// # Errors
    /// The actor edits lines that others changed, or removes a cell that they changed.
    pub(super) fn merge_unseen(&self, after: &mut Document) -> Result<UnseenEdits, Vec<Conflict>> {
        let mut unseen = UnseenEdits::default();
        let mut compared = HashSet::new();
        let mut conflicts = Vec::new();
        for change in self.changes {
            let is_text = matches!(change.kind, ChangeKind::Edited | ChangeKind::Removed);
            // The document does not have a cell that the operations inserted themselves.
            let Some(cell) = self.document.cell_by_id(&change.cell).filter(|_| is_text) else {
                continue;
            };
            let yours = after.cell_by_id(&change.cell);
            if !compared.insert(&*change.cell) || self.is_known(cell) {
                continue;
            }
            unseen.cells.insert(change.cell.clone());
            if self.basis.text == TextBasis::Quoted
                || yours.is_some_and(|yours| yours.has_same_text(cell))
            {
                continue;
            }
            let base = self.seen.last(&change.cell);
            let base = base.and_then(|seen| history::version_source(self.notebook, seen));
            let may_merge = self.basis.text == TextBasis::Seen;
            let merged = base.as_ref().zip(yours).filter(|_| may_merge);
            let merged =
                merged.and_then(|(base, yours)| merge_texts(base, &cell.source(), &yours.source()));
            if let Some((text, yours)) = merged.zip(yours) {
                history::keep_version(self.notebook, yours);
                unseen.merged.push((change.cell.clone(), yours.revision()));
                let at = after.position_by_id(&change.cell);
                if at.is_some_and(|at| after.set_source(at, &text).is_ok()) {
                    continue;
                }
            }
            let yours = after.cell_by_id(&change.cell);
            conflicts.push(Conflict {
                cell: Some(change.cell.clone()),
                field: if yours.is_some() { "source" } else { "deleted" }.to_owned(),
                base,
                yours: yours.map(|cell| cell.source().into_owned()),
                theirs: Some(cell.source().into_owned()),
                revision: Some(cell.revision()),
            });
        }
        match conflicts.is_empty() {
            true => Ok(unseen),
            false => Err(conflicts),
        }
    }

    /// Says whether nobody else has changed a cell since the actor saw it.
    fn is_known(&self, cell: &Cell) -> bool {
        let revision = cell.revision();
        self.seen.has(cell.id(), revision)
            || self.basis.revisions.contains(&revision)
            || self.is_recorded && self.is_own(cell.id(), revision)
    }

    /// Says whether the journal has only changes of the actor since a revision that it saw, or, if it has
    /// seen none, since `nb` first read the cell.
    fn is_own(&self, cell: &str, mut revision: Revision) -> bool {
        let actor = Actor::from(self.by);
        let project = &self.notebook.project;
        for event in project.events(&self.notebook.key) {
            let by = event.actor();
            let Some(change) = event.into_change() else {
                continue;
            };
            let steps = change.changes.into_iter().rev();
            for step in steps.filter(|step| step.cell == cell && step.before != step.after) {
                let is_own = by.as_deref().is_some_and(|by| actor.has_done(&by.into()));
                if step.after != Some(revision) || !is_own {
                    return false;
                }
                match step.before {
                    Some(before) if !self.seen.has(cell, before) => revision = before,
                    _ => return true,
                }
            }
        }
        self.seen.last(cell).is_none()
    }
}
