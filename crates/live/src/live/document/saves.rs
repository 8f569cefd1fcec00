//! Saves of the editor: what it has written is not a change by others.

use std::collections::{HashMap, HashSet};

use super::{LiveDocument, Phase, Save, ShownConflict, VersionOfOthers, new_cell, reached};
use crate::live::protocol::EditorRequest;
use crate::notebook::{Cell, Document, merge, merge_texts, unite_texts};

impl LiveDocument {
    pub(super) fn saving(&mut self) -> bool {
        self.save = Save::Asked(HashSet::new());
        self.during_save = None;
        self.needs_file = true;
        self.synced = None;
        self.try_again();
        self.changed();
        true
    }

    /// Gives the base the cells that the editor has saved, in their order. Their texts are recognised in the file where
    /// it is not known which text was saved.
    pub(super) fn saved(&mut self, order: &[String]) -> bool {
        self.keep_version_of_others();
        let ids: Option<Vec<_>> = order.iter().map(|name| self.names.id(name)).collect();
        let Some(ids) = ids else {
            return false;
        };
        let save = std::mem::replace(&mut self.save, Save::None);
        self.needs_file = true;
        self.has_saved = true;
        let bases = match &mut self.phase {
            Phase::Waiting(batch) => vec![&mut self.base, &mut batch.base],
            _ => vec![&mut self.base],
        };
        let is_known = |id: &str| match &save {
            Save::None => false,
            Save::Asked(changed) | Save::Writing(changed) => !changed.contains(id),
        };
        for base in bases {
            for at in (0..base.cells().len()).rev() {
                if base
                    .cells()
                    .get(at)
                    .is_some_and(|cell| !ids.contains(&cell.id()))
                {
                    let _ = base.remove(at);
                }
            }
            for (place, id) in ids.iter().enumerate() {
                let _ = match (base.position_by_id(id), self.editor.cell_by_id(id)) {
                    (Some(at), Some(cell)) if is_known(id) => base
                        .move_cell(at, place)
                        .and_then(|_| base.set_source(place, &cell.source()))
                        .map(drop),
                    (Some(at), _) => base.move_cell(at, place).map(drop),
                    (None, Some(cell)) => base.insert(place, &new_cell(cell, id)).map(drop),
                    (None, None) => Ok(()),
                };
            }
        }
        // An order that was asked for may have named a cell that was made anew since.
        for (place, id) in ids.iter().enumerate() {
            if let Some(at) = self.editor.position_by_id(id) {
                let _ = self.editor.move_cell(at, place);
            }
        }
        self.changed();
        true
    }

    /// Keeps the version that others have written since the editor got the file's last one. An editor looks at the file
    /// some time before it writes: its save may replace that version.
    pub(super) fn keep_version_of_others(&mut self) {
        let is_known = self.file.stamp == self.stamp || self.is_proposed;
        if is_known || self.is_room || !self.can_change {
            return;
        }
        let mut before = self.base.clone();
        let mut file = self.file.document.clone();
        // What the editor itself has saved, and cells that it may have removed, are no changes by others.
        for at in (0..file.cells().len()).rev() {
            let cell = &file.cells()[at];
            let source = cell.source().into_owned();
            let now = self.editor.cell_by_id(cell.id()).map(Cell::source);
            let is_own = now.is_some_and(|now| now == source) || self.had_text(cell.id(), &source);
            let _ = match before.position_by_id(cell.id()) {
                Some(at) if is_own => before.set_source(at, &source).map(drop),
                None if is_own => file.remove(at).map(drop),
                _ => Ok(()),
            };
        }
        let mut removed = HashMap::new();
        for at in (0..before.cells().len()).rev() {
            let cell = &before.cells()[at];
            if file.cell_by_id(cell.id()).is_none() {
                if self.file.removed.contains(cell.id()) {
                    removed.insert(cell.id().to_owned(), cell.source().into_owned());
                }
                let _ = before.remove(at);
            }
        }
        let is_new = |cell: &Cell| {
            let was = before.cell_by_id(cell.id());
            was.is_none_or(|was| was.source() != cell.source())
        };
        if !removed.is_empty() || file.cells().iter().any(is_new) {
            let stamp = self.file.stamp.clone();
            self.during_save = Some(VersionOfOthers {
                before,
                file,
                removed,
                stamp,
            });
        }
    }

    /// Says after a save whether it has replaced a version of others: not if the file still has that, or what others have
    /// written after the save.
    pub(super) fn replace_version_of_others(&mut self) {
        let is_saved = |cell: &Cell| {
            let base = self.base.cell_by_id(cell.id());
            base.is_some_and(|base| base.source() == cell.source())
        };
        let is_own = self.file.document.cells().iter().all(is_saved);
        let version = self.during_save.take();
        self.replaced
            .extend(version.filter(|it| is_own && it.stamp != self.file.stamp));
    }

    /// Adds to what the editor gets the changes of others that its saves have replaced. Where the person has changed the
    /// same lines, the text of the others is offered once.
    pub(super) fn take_replaced_versions(&mut self, target: &mut Document) {
        for version in &mut self.replaced {
            let VersionOfOthers {
                before,
                file,
                removed,
                ..
            } = version;
            reached("a replaced version");
            for (id, source) in removed {
                // A text that the person has changed stays.
                if let Some(at) = target.position_by_id(id)
                    && target.cells()[at].source() == **source
                {
                    let _ = target.remove(at);
                }
            }
            let merged = merge(before, target, file, &|_| false);
            *target = merged.document;
            for conflict in merged.conflicts {
                let (Some(id), Some(mine), Some(theirs)) =
                    (conflict.cell, conflict.theirs, conflict.yours)
                else {
                    continue;
                };
                if conflict.field != "source" {
                    continue;
                }
                let cell = self.names.name(&id).map(str::to_owned);
                let Some(cell) = cell else {
                    // The editor gets the cell only now.
                    if let Some(at) = target.position_by_id(&id) {
                        let _ = target.set_source(at, &unite_texts(&mine, &theirs));
                    }
                    continue;
                };
                reached("a replaced version is offered");
                if let (Some(at), Some(was)) = (file.position_by_id(&id), before.cell_by_id(&id)) {
                    let _ = file.set_source(at, &was.source());
                }
                self.requests.push_back(EditorRequest::Overwritten {
                    cell,
                    theirs: theirs.clone(),
                });
                let base = conflict.base;
                let shown = ShownConflict { base, mine, theirs };
                self.overwritten.insert(id, shown);
            }
        }
    }

    /// Recognises what the editor itself has saved: it is not a change by others.
    pub(super) fn take_own_saves(&mut self) {
        self.name_saved_cells();
        for cell in self.file.document.cells() {
            let source = cell.source();
            let is_own = self.had_text(cell.id(), &source);
            match self.base.position_by_id(cell.id()) {
                Some(at) if is_own => {
                    reached("an own save");
                    let _ = self.base.set_source(at, &source);
                }
                _ => {}
            }
        }
    }

    /// Recognises a text of the editor in the file, also where the command that saved it has added lines of others: what was
    /// typed since then was made from that text.
    pub(super) fn take_merged_saves(&mut self) {
        for cell in self.file.document.cells() {
            let Some(at) = self.base.position_by_id(cell.id()) else {
                continue;
            };
            let (base, file) = (self.base.cells()[at].source(), cell.source());
            let texts = self.last_texts.get(cell.id()).filter(|_| base != file);
            let mut saved = texts.into_iter().flatten().filter_map(|(before, text)| {
                let saved = merge_texts(before, text, &base)?;
                (merge_texts(&base, &saved, &file)? == file).then_some(saved)
            });
            if let Some(saved) = saved.next() {
                let _ = self.base.set_source(at, &saved);
            }
        }
    }

    /// Gives cells that the editor has saved the ids that they got in the file, if the editor knows none.
    pub(super) fn name_saved_cells(&mut self) {
        let file = &self.file.document;
        let nameless: Vec<String> = (self.editor.cells().iter().map(Cell::id))
            .filter(|id| self.names.is_chosen(id) && file.cell_by_id(id).is_none())
            .map(str::to_owned)
            .collect();
        if nameless.is_empty() {
            return;
        }
        let is_new = |cell: &&Cell| {
            self.base.cell_by_id(cell.id()).is_none() && self.editor.cell_by_id(cell.id()).is_none()
        };
        let mut new: Vec<_> = file.cells().iter().filter(is_new).collect();
        let mut renamed: Vec<(String, Cell)> = Vec::new();
        for id in nameless {
            let Some(mine) = self.editor.cell_by_id(&id) else {
                continue;
            };
            let is_it = |cell: &&Cell| {
                let source = cell.source();
                let has_text = mine.source() == source || self.had_text(&id, &source);
                has_text && cell.cell_type() == mine.cell_type()
            };
            if let Some(at) = new.iter().position(is_it) {
                renamed.push((id, new.remove(at).clone()));
            }
        }
        for (id, cell) in renamed {
            reached("a nameless cell gets its id");
            self.rename(&id, cell.id());
            // The editor has saved it: from now on both have it.
            if self.base.cell_by_id(cell.id()).is_none() {
                let _ = self
                    .base
                    .insert(self.base.cells().len(), &new_cell(&cell, cell.id()));
            }
        }
    }

    /// Gives a cell another id in all that is known of it.
    pub(super) fn rename(&mut self, id: &str, new_id: &str) {
        for document in [&mut self.editor, &mut self.base] {
            if let Some(at) = document.position_by_id(id)
                && let Some(cell) = document.cells().get(at)
            {
                let new = new_cell(cell, new_id);
                let _ = document.remove(at);
                let _ = document.insert(at, &new);
            }
        }
        self.names.rename(id, new_id);
        let new = || new_id.to_owned();
        if let Some(texts) = self.texts.remove(id) {
            self.texts.insert(new(), texts);
        }
        if let Some(conflict) = self.conflicts.remove(id) {
            self.conflicts.insert(new(), conflict);
        }
        if let Some(choice) = self.chosen.remove(id) {
            self.chosen.insert(new(), choice);
        }
        if self.unknown.remove(id) {
            self.unknown.insert(new());
        }
    }
}
