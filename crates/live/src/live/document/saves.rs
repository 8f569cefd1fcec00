//! Saves of the editor: what it has written is not a change by others.

use std::collections::HashSet;

use super::{LiveDocument, Phase, Save, new_cell, reached};
use crate::notebook::Cell;

impl LiveDocument {
    pub(super) fn saving(&mut self) -> bool {
        self.save = Save::Asked(HashSet::new());
        self.needs_file = true;
        self.synced = None;
        self.try_again();
        self.changed();
        true
    }

    /// Gives the base the cells that the editor has saved, in their order. Their texts are recognised in the file where
    /// it is not known which text was saved.
    pub(super) fn saved(&mut self, order: &[String]) -> bool {
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
        self.changed();
        true
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
