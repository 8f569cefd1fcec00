//! What the editor is asked for after a merge.

use std::collections::BTreeMap;

use super::{LiveDocument, ShownConflict, new_cell, reached};
use crate::live::cell_data::{CellData, Metadata, Results, difference, outputs};
use crate::live::editor_cells::CellNames;
use crate::live::protocol::{EditorCell, EditorRequest};
use crate::notebook::{Cell, Conflict, Document, NewCell, unite_texts};

/// A change of the editor's notebook by a request.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// The text that the editor gets, and the one that becomes the base's.
    Set {
        id: String,
        source: String,
        in_base: String,
    },
    Insert {
        after: Option<String>,
        new: NewCell,
    },
    Remove {
        id: String,
    },
    Order(Vec<String>),
    /// The metadata of a cell, or of the notebook.
    Metadata(Option<String>, Metadata),
    Results(String, Results),
    /// The server of the room writes the file.
    Store,
}

impl LiveDocument {
    /// Queues messages about conflicts that are new, that have changed, or that are over.
    pub(super) fn show(&mut self, conflicts: Vec<Conflict>) {
        let mut now = BTreeMap::new();
        for conflict in conflicts {
            let Some(id) = conflict.cell else {
                continue;
            };
            let shown = ShownConflict {
                base: conflict.base.filter(|_| !self.unknown.contains(&id)),
                // The merge takes the file for its writer.
                mine: conflict.theirs.unwrap_or_default(),
                theirs: conflict.yours.unwrap_or_default(),
            };
            now.insert(id, shown);
        }
        for (id, shown) in &self.conflicts {
            let Some(cell) = self.names.name(id).filter(|_| !now.contains_key(id)) else {
                continue;
            };
            if self.is_overwritten(id, shown) {
                reached("a text is overwritten");
                self.overwritten.insert(id.clone(), shown.clone());
                self.requests.push_back(EditorRequest::Overwritten {
                    cell: cell.to_owned(),
                    theirs: shown.theirs.clone(),
                });
            }
            let cell = cell.to_owned();
            self.requests.push_back(EditorRequest::Settled { cell });
        }
        for (id, shown) in &now {
            if let Some(name) = self.names.name(id)
                && self.conflicts.get(id) != Some(shown)
            {
                self.requests.push_back(EditorRequest::Conflict {
                    cell: name.to_owned(),
                    by: self.file.by.clone(),
                    base: shown.base.clone(),
                    mine: shown.mine.clone(),
                    theirs: shown.theirs.clone(),
                });
            }
        }
        self.conflicts = now;
    }

    /// Says whether the file has the person's text in place of the other one, and no command of `nb` writes it: the person
    /// has saved. The file may be read before the editor says so.
    fn is_overwritten(&self, id: &str, shown: &ShownConflict) -> bool {
        let saved = self.file.document.cell_by_id(id).map(Cell::source);
        !self.is_proposed
            && saved.as_deref() == Some(&*shown.mine)
            && unite_texts(&shown.mine, &shown.theirs) != shown.mine
    }

    /// Queues the requests that make the editor's notebook the target; returns them by number.
    pub(super) fn ask(&mut self, target: &Document, base: &Document) -> BTreeMap<u64, Change> {
        let mut open = BTreeMap::new();
        let by = self.file.by.clone();
        let name_of = |names: &CellNames, id: &str| names.name(id).unwrap_or(id).to_owned();
        let mut order: Vec<String> = Vec::new();
        for cell in self.editor.cells() {
            let stays = target
                .cell_by_id(cell.id())
                .filter(|it| it.cell_type() == cell.cell_type());
            if stays.is_some() {
                order.push(cell.id().to_owned());
                continue;
            }
            self.seq += 1;
            self.requests.push_back(EditorRequest::Remove {
                seq: self.seq,
                cell: name_of(&self.names, cell.id()),
                was: cell.source().into_owned(),
                by: by.clone(),
            });
            let id = cell.id().to_owned();
            open.insert(self.seq, Change::Remove { id });
        }
        let mut before: Option<String> = None;
        for cell in target.cells() {
            let id = cell.id().to_owned();
            if !order.contains(&id) {
                self.seq += 1;
                self.requests.push_back(EditorRequest::Insert {
                    seq: self.seq,
                    after: before.as_deref().map(|id| name_of(&self.names, id)),
                    new: EditorCell {
                        cell: id.clone(),
                        id: Some(id.clone()),
                        cell_type: cell.cell_type(),
                        source: cell.source().into_owned(),
                    },
                    by: by.clone(),
                });
                let at = before
                    .as_ref()
                    .and_then(|it| order.iter().position(|id| id == it));
                order.insert(at.map_or(0, |at| at + 1), id.clone());
                let after = before.clone();
                let new = new_cell(cell, cell.id());
                open.insert(self.seq, Change::Insert { after, new });
            }
            before = Some(id);
        }
        let wanted: Vec<_> = target
            .cells()
            .iter()
            .map(|cell| cell.id().to_owned())
            .collect();
        if order != wanted {
            self.seq += 1;
            self.requests.push_back(EditorRequest::Order {
                seq: self.seq,
                order: wanted.iter().map(|id| name_of(&self.names, id)).collect(),
                by: by.clone(),
            });
            open.insert(self.seq, Change::Order(wanted));
        }
        for cell in target.cells() {
            let Some(now) = self.editor.cell_by_id(cell.id()) else {
                continue;
            };
            if now.source() == cell.source() || now.cell_type() != cell.cell_type() {
                continue;
            }
            let source = cell.source().into_owned();
            let in_base = base
                .cell_by_id(cell.id())
                .map(|it| it.source().into_owned());
            self.seq += 1;
            self.requests.push_back(EditorRequest::Set {
                seq: self.seq,
                cell: name_of(&self.names, cell.id()),
                was: now.source().into_owned(),
                source: source.clone(),
                base: in_base
                    .clone()
                    .filter(|it| self.only_texts && *it != source),
                by: by.clone(),
            });
            open.insert(
                self.seq,
                Change::Set {
                    id: cell.id().to_owned(),
                    source,
                    in_base: in_base.unwrap_or_default(),
                },
            );
        }
        if !self.only_texts {
            self.ask_for_data(target, &mut open);
        }
        open
    }

    /// Queues the requests that give the editor what the file has besides texts.
    pub(super) fn ask_for_data(&mut self, target: &Document, open: &mut BTreeMap<u64, Change>) {
        let by = &self.file.by;
        let mut ask = |request: &dyn Fn(u64) -> EditorRequest, change: Change| {
            self.seq += 1;
            self.requests.push_back(request(self.seq));
            open.insert(self.seq, change);
        };
        let before = &self.editor_data.metadata;
        if let Some((was, metadata)) = difference(before, &self.file_data.metadata) {
            let request = |seq| EditorRequest::Metadata {
                seq,
                cell: None,
                was: was.clone(),
                metadata: metadata.clone(),
                by: by.clone(),
            };
            let change = Change::Metadata(None, self.file_data.metadata.clone());
            ask(&request, change);
        }
        let nothing = CellData::default();
        for cell in self.file.document.cells() {
            let id = cell.id();
            let name = self.names.name(id).unwrap_or(id);
            let Some(now) = self.file_data.cells.get(id) else {
                continue;
            };
            if target.cell_by_id(id).is_none() {
                continue;
            }
            let before = self.editor_data.cells.get(id).unwrap_or(&nothing);
            if let Some((was, metadata)) = difference(&before.metadata, &now.metadata) {
                let request = |seq| EditorRequest::Metadata {
                    seq,
                    cell: Some(name.to_owned()),
                    was: was.clone(),
                    metadata: metadata.clone(),
                    by: by.clone(),
                };
                let change = Change::Metadata(Some(id.to_owned()), now.metadata.clone());
                ask(&request, change);
            }
            if before.results != now.results {
                let request = |seq| EditorRequest::Outputs {
                    seq,
                    cell: name.to_owned(),
                    outputs: outputs(cell),
                    execution_count: cell.execution_count(),
                    by: by.clone(),
                };
                ask(&request, Change::Results(id.to_owned(), now.results));
            }
        }
    }
}

/// Makes a change in one of the versions.
pub(super) fn apply(document: &mut Document, change: &Change) {
    let at = |document: &Document, id: &str| document.position_by_id(id);
    match change {
        Change::Set { id, source, .. } => {
            if let Some(at) = at(document, id) {
                let _ = document.set_source(at, source);
            }
        }
        Change::Insert { after, new } => {
            let before = after.as_ref().and_then(|id| at(document, id));
            let _ = document.insert(before.map_or(0, |at| at + 1), new);
        }
        Change::Remove { id } => {
            if let Some(at) = at(document, id) {
                let _ = document.remove(at);
            }
        }
        Change::Order(order) => {
            for (place, id) in in_order(document, order).iter().enumerate() {
                if let Some(at) = at(document, id) {
                    let _ = document.move_cell(at, place);
                }
            }
        }
        Change::Metadata(..) | Change::Results(..) | Change::Store => {}
    }
}

/// Returns the ids of a notebook's cells in the order of a list; a cell that the list does not name stays behind the
/// cell that it follows.
pub(in crate::live) fn in_order(document: &Document, order: &[String]) -> Vec<String> {
    let mut sorted: Vec<String> = Vec::new();
    for id in order.iter().filter(|id| document.cell_by_id(id).is_some()) {
        sorted.push(id.clone());
    }
    let mut before: Option<&str> = None;
    for cell in document.cells() {
        if !order.iter().any(|id| id == cell.id()) {
            let at = before.and_then(|before| sorted.iter().position(|id| id == before));
            sorted.insert(at.map_or(0, |at| at + 1), cell.id().to_owned());
        }
        before = Some(cell.id());
    }
    sorted
}
