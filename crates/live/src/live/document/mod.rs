//! What `nb` knows about a notebook that is open in an editor, and what it asks the editor to do.
//!
//! Three versions: `base` is what the editor and the file last had in common, `editor` what the editor has now, and
//! `file` what the file has. Each change leads to one merge of all three. The differences from `editor` to its result
//! are requests to the editor. When the editor has done all of them, the file becomes the base. A cell in conflict keeps
//! the base's text, so that each later merge finds the conflict again, until the person chooses or the texts agree.

mod requests;
mod saves;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

#[cfg(test)]
pub(super) use self::requests::in_order;
use self::requests::{Change, apply};
use super::cell_data::{CellData, NotebookData};
use super::editor_cells::{CellNames, insert, with_cells};
use super::protocol::{EditorCell, EditorEvent, EditorRequest, Keep, OpenedDocument};
#[cfg(test)]
use super::tests::reached;
use crate::notebook::{
    Cell, Conflict, Document, DocumentEditError, NewCell, Revision, merge, unite_texts,
};
use crate::project::live_editor::StoredInRoom;

/// How many texts of a cell are known by which a save of the editor is recognised, at most.
const MOST_TEXTS: usize = 512;

/// How many of the last texts of a cell are known whole, by which a save is recognised that was merged with lines of others.
const LAST_TEXTS: usize = 16;

/// How many versions of the file are known that an editor may have loaded, at most.
const MOST_VERSIONS: usize = 32;

/// A notebook's file at one moment.
#[derive(Clone, Debug)]
pub struct FileSnapshot {
    /// The notebook.
    pub document: Document,
    /// A text that differs for two versions with different bytes.
    pub stamp: String,
    /// Who wrote it.
    pub by: String,
    /// The ids of the cells that commands of `nb` have removed since the version before. Of cells that other programs have
    /// removed nothing is known: such a version may be an earlier save of the editor.
    pub removed: HashSet<String>,
}

/// A text that an editor has and the file has not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsavedCell {
    /// The cell's id; for a cell that is not in the file, one that no cell there has.
    pub id: String,
    /// The text in the editor.
    pub source: String,
    /// The text that the editor and the file last had in common, for an editor that takes texts alone.
    pub base: Option<String>,
}

/// Where the exchange with the editor stands.
#[derive(Debug)]
enum Phase {
    /// Something changed since the last merge.
    Changed,
    /// The editor has not answered these requests yet.
    Waiting(Box<Batch>),
    /// The editor has refused a request, and nothing has changed since: the person types, as a rule.
    Refused,
    /// The editor has what the last merge asked for.
    Settled,
}

/// The requests that follow from one merge.
#[derive(Debug)]
struct Batch {
    /// By number: the ids of the cells that the requests concern, and what the notebook is once they are done.
    open: BTreeMap<u64, Change>,
    /// What becomes the base once all are done.
    base: Document,
    stamp: String,
    was_refused: bool,
    /// Whether something else changed while the editor worked.
    has_changed: bool,
}

/// A conflict as the person sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ShownConflict {
    base: Option<String>,
    mine: String,
    theirs: String,
}

/// A notebook that is open in an editor.
#[derive(Debug)]
pub struct LiveDocument {
    base: Document,
    editor: Document,
    file: FileSnapshot,
    /// What the editor and the file have besides texts.
    editor_data: NotebookData,
    file_data: NotebookData,
    names: CellNames,
    phase: Phase,
    /// The hashes of the texts that each cell had in the editor since the base, the last one last.
    texts: HashMap<String, VecDeque<u64>>,
    /// The last of these texts, where the editor's saves are commands of `nb`, each with the base at that time.
    last_texts: HashMap<String, VecDeque<(String, String)>>,
    /// The hashes of the versions that the file had since the base, the last one last.
    versions: VecDeque<u64>,
    conflicts: BTreeMap<String, ShownConflict>,
    /// The conflicts that ended since the person saved over the file's text.
    overwritten: BTreeMap<String, ShownConflict>,
    /// The texts that the person chose for cells in conflict, each with the text that the choice replaces and the
    /// text before both changes.
    chosen: HashMap<String, Choice>,
    /// The cells whose text before the document was opened is not known.
    unknown: HashSet<String>,
    requests: VecDeque<EditorRequest>,
    seq: u64,
    /// The stamp of the file's version that the base is.
    stamp: String,
    /// The stamp of the last `synced`.
    synced: Option<String>,
    save: Save,
    /// The last version that others have written while the editor saves.
    during_save: Option<VersionOfOthers>,
    /// Versions of others that saves of the editor have replaced, until the editor has what was new in them.
    replaced: Vec<VersionOfOthers>,
    /// Whether the editor has saved since the file was read: what the file has besides texts is the editor's.
    has_saved: bool,
    /// Whether the file's version is still to be written by a command that waits for the editor.
    is_proposed: bool,
    /// Whether the file was written, or is to be, since it was read: what is known of it is not merged any more.
    needs_file: bool,
    /// Whether the editor was asked to report its cells, and nothing else is asked until it has.
    is_reopening: bool,
    /// Whether the editor can do what requests ask for.
    can_change: bool,
    /// Whether the editor takes texts and the order of cells alone, and its saves are commands of `nb`.
    only_texts: bool,
    /// Whether the document is in a room, whose server writes the file: all that the file has comes from the editors.
    is_room: bool,
    /// Whether that server was asked to write what was proposed.
    is_stored: bool,
    /// What has become of what was proposed in a room.
    stored: StoredInRoom,
}

/// Where a save of the editor stands.
#[derive(Debug, PartialEq, Eq)]
enum Save {
    /// None is under way.
    None,
    /// The editor waits for the file's changes. With the ids of the cells whose text has changed since: for them it is not
    /// known which text is saved if the editor does not wait.
    Asked(HashSet<String>),
    /// The editor takes its texts and writes the file. With the ids of the cells that the person has changed since.
    Writing(HashSet<String>),
}

/// A version of the file that others have written while the editor saved.
#[derive(Debug)]
struct VersionOfOthers {
    /// What the editor and the file had in common before, with what the editor itself has saved since.
    before: Document,
    file: Document,
    /// The texts before of the cells that a command of `nb` has removed, by their ids.
    removed: HashMap<String, String>,
    stamp: String,
}

#[derive(Clone, Debug)]
struct Choice {
    mine: String,
    result: String,
    base: String,
}

impl LiveDocument {
    /// Makes the record of a document that an editor has opened. `earlier` are the texts of the file's version that the editor
    /// was synced with last, by the cells' ids; it is empty if they are not known. `can_change` says whether the editor can
    /// do what requests ask for; otherwise its texts are known, and it gets none.
    ///
    /// # Errors
    /// The notebook is of a format that `nb` does not edit.
    pub fn open(
        opened: &OpenedDocument,
        file: FileSnapshot,
        earlier: &HashMap<String, String>,
        can_change: bool,
    ) -> Result<Self, DocumentEditError> {
        let no_names = CellNames::default();
        let (editor, names) = with_cells(&file.document, &opened.cells, &no_names)?;
        let data = NotebookData::of(&file.document);
        let mut live = Self {
            base: editor.clone(),
            editor,
            editor_data: data.clone(),
            file_data: data,
            stamp: file.stamp.clone(),
            file,
            names,
            phase: Phase::Changed,
            texts: HashMap::new(),
            last_texts: HashMap::new(),
            versions: VecDeque::new(),
            conflicts: BTreeMap::new(),
            overwritten: BTreeMap::new(),
            chosen: HashMap::new(),
            unknown: HashSet::new(),
            requests: VecDeque::new(),
            seq: 0,
            synced: None,
            save: Save::None,
            during_save: None,
            replaced: Vec::new(),
            has_saved: false,
            is_proposed: false,
            needs_file: false,
            is_reopening: false,
            can_change,
            only_texts: false,
            is_room: opened.room,
            is_stored: false,
            stored: StoredInRoom::default(),
        };
        let has_file = opened.synced.as_ref() == Some(&live.file.stamp);
        if opened.room || has_file {
            live.base = live.file.document.clone();
        } else if opened.dirty {
            live.find_base(earlier)?;
        }
        Ok(live)
    }

    /// From now on the editor is asked for texts and the order of cells alone: it reads the rest of the file by itself. Its
    /// saves are commands of `nb`, which propose texts that it had.
    pub fn take_only_texts(&mut self) {
        self.only_texts = true;
    }

    /// Takes the file's version for the base but for the texts that differ: there it is the earlier text. Without one it is
    /// not known which one is newer, so a person must choose between them.
    fn find_base(&mut self, earlier: &HashMap<String, String>) -> Result<(), DocumentEditError> {
        self.base = self.file.document.clone();
        let in_file: Vec<_> = self.file.document.cells().iter().map(Cell::id).collect();
        for at in (0..in_file.len()).rev() {
            let Some(cell) = self.file.document.cells().get(at) else {
                continue;
            };
            let was = earlier.get(cell.id());
            match self.editor.cell_by_id(cell.id()) {
                // Either the person removed it, or others inserted it.
                None if was.is_none() => drop(self.base.remove(at)?),
                Some(mine) if mine.source() == cell.source() => {}
                _ if was.is_some_and(|was| cell.source() == *was) => {}
                _ if was.is_some() => {
                    reached("an earlier base");
                    self.base.set_source(at, was.map_or("", |was| was))?;
                }
                _ => {
                    self.base.set_source(at, "")?;
                    self.unknown.insert(cell.id().to_owned());
                    reached("an unknown base");
                }
            }
        }
        Ok(())
    }

    /// Takes in what the editor reports.
    pub fn event(&mut self, event: EditorEvent) {
        let known = match event {
            EditorEvent::Open(opened) => {
                self.is_room = opened.room;
                self.reopen(&opened.cells, opened.dirty || opened.room)
                    .is_ok()
            }
            EditorEvent::Text { cell, source } => self.text(&cell, &source),
            EditorEvent::Cells { order, new } => self.cells(&order, &new),
            EditorEvent::Saving => self.saving(),
            EditorEvent::Saved { order } => self.saved(&order),
            EditorEvent::Applied { seq } => self.applied(seq),
            EditorEvent::Refused { seq, source } => self.refused(seq, source),
            EditorEvent::Choose { cell, keep, theirs } => self.choose(&cell, keep, &theirs),
        };
        if !known && !self.is_reopening {
            self.is_reopening = true;
            self.requests.push_back(EditorRequest::Reopen);
        }
    }

    /// Takes in another version of the file.
    pub fn file(&mut self, file: FileSnapshot) {
        // As after a look at a file that nobody has written.
        let is_known = file.stamp == self.file.stamp && !self.is_proposed && !self.needs_file;
        if is_known && !self.has_saved && matches!(self.phase, Phase::Settled) {
            return;
        }
        self.take_version(file);
        self.is_proposed = false;
        if self.is_room {
            self.base.clone_from(&self.file.document);
            self.editor.take_data(&self.base);
            self.editor_data.clone_from(&self.file_data);
        }
        if std::mem::take(&mut self.has_saved) {
            self.editor_data.clone_from(&self.file_data);
            self.take_own_saves();
            self.replace_version_of_others();
            return;
        }
        self.take_own_saves();
    }

    /// Takes in a version that a command of `nb` writes into the file once the editor has it. It is followed by
    /// [`LiveDocument::written`], or by [`LiveDocument::file`] with what the file has instead.
    pub fn propose(&mut self, mut file: FileSnapshot) {
        file.document.adopt_ids(&self.file.document);
        let before = self.file.document.cells().iter().map(Cell::id);
        let is_removed = |id: &&str| file.document.cell_by_id(id).is_none();
        file.removed = before.filter(is_removed).map(str::to_owned).collect();
        self.take_version(file);
        self.is_proposed = true;
        self.is_stored = false;
        self.stored = StoredInRoom::default();
    }

    /// The proposed version is in the file.
    pub fn written(&mut self) {
        self.is_proposed = false;
        self.say_synced();
    }

    /// Says whether the editor has the version of the file, or shows as conflicts what it has not.
    pub fn has_version(&self) -> bool {
        matches!(self.phase, Phase::Settled)
            && !self.needs_file
            && !self.is_reopening
            && !self.is_to_store()
    }

    /// Returns the revision of the file's version.
    pub fn revision(&self) -> Revision {
        self.file.document.revision()
    }

    /// Says whether the document is in a room: its server writes what is proposed.
    pub fn is_room(&self) -> bool {
        self.is_room
    }

    /// Returns what has become of what was proposed last in a room.
    pub fn stored(&self) -> &StoredInRoom {
        &self.stored
    }

    /// Says whether the room's server is still to be asked to write what was proposed.
    fn is_to_store(&self) -> bool {
        self.is_room && self.is_proposed && !self.is_stored
    }

    fn take_version(&mut self, mut file: FileSnapshot) {
        if !matches!(self.save, Save::None) {
            self.keep_version_of_others();
        }
        if self.versions.len() == MOST_VERSIONS {
            self.versions.pop_front();
        }
        self.versions.push_back(cells_hash(&file.document));
        if file.stamp != self.file.stamp {
            self.file_data = NotebookData::of(&file.document);
        }
        file.removed.extend(self.file.removed.drain());
        let document = &file.document;
        file.removed.retain(|id| document.cell_by_id(id).is_none());
        self.file = file;
        self.needs_file = false;
        self.changed();
    }

    /// Asks once more for what the editor has refused. To be called some time after a refusal.
    pub fn try_again(&mut self) {
        if matches!(self.phase, Phase::Refused) {
            self.phase = Phase::Changed;
        }
    }

    /// Ends the wait for a save that does not come. To be called two seconds after the answer to `saving`.
    pub fn give_up_save(&mut self) {
        self.during_save = None;
        self.save = Save::None;
    }

    /// Says whether the file is to be read now, for [`LiveDocument::file`].
    pub fn needs_file(&self) -> bool {
        self.needs_file
    }

    /// Says whether `nb` waits for the end of a save.
    pub fn is_saving(&self) -> bool {
        matches!(self.save, Save::Writing(_))
    }

    /// Says whether the editor has refused a request, and [`LiveDocument::try_again`] is to be called.
    pub fn is_refused(&self) -> bool {
        matches!(self.phase, Phase::Refused)
    }

    /// Returns the next message for the editor; `None` if there is none until something happens.
    pub fn poll(&mut self) -> Option<EditorRequest> {
        let is_held = self.needs_file || self.is_reopening || matches!(self.save, Save::Writing(_));
        let may_merge = self.requests.is_empty() && !is_held;
        if may_merge && matches!(self.phase, Phase::Changed) {
            self.merge();
        }
        if may_merge && matches!(self.phase, Phase::Settled) && self.is_to_store() {
            self.seq += 1;
            self.requests
                .push_back(EditorRequest::Store { seq: self.seq });
            self.wait(
                BTreeMap::from([(self.seq, Change::Store)]),
                self.base.clone(),
            );
        }
        self.requests.pop_front()
    }

    /// Returns the texts that the editor has, in the order of its cells.
    pub fn texts(&self) -> Vec<String> {
        let cells = self.editor.cells().iter();
        cells.map(|cell| cell.source().into_owned()).collect()
    }

    /// Returns the notebook as the editor has it.
    pub fn document(&self) -> &Document {
        &self.editor
    }

    /// Returns the editor's name of the cell with an id.
    pub fn cell_name(&self, id: &str) -> Option<&str> {
        self.names.name(id)
    }

    /// Returns the id of the cell that the editor calls so.
    pub fn cell_id(&self, name: &str) -> Option<&str> {
        self.names.id(name)
    }

    /// Returns the texts that only the editor has.
    pub fn unsaved(&self) -> Vec<UnsavedCell> {
        let cells = self.editor.cells().iter();
        let unsaved = cells.filter(|cell| {
            let before = self.base.cell_by_id(cell.id());
            let in_file = self.file.document.cell_by_id(cell.id());
            let differs =
                |other: Option<&Cell>| other.is_none_or(|it| it.source() != cell.source());
            differs(before) && differs(in_file)
        });
        let base = |cell: &Cell| {
            let base = self.base.cell_by_id(cell.id());
            base.filter(|_| self.only_texts)
                .map(|base| base.source().into_owned())
        };
        unsaved
            .map(|cell| UnsavedCell {
                id: cell.id().to_owned(),
                source: cell.source().into_owned(),
                base: base(cell),
            })
            .collect()
    }

    fn changed(&mut self) {
        match &mut self.phase {
            Phase::Waiting(batch) => batch.has_changed = true,
            phase => *phase = Phase::Changed,
        }
    }

    fn reopen(&mut self, cells: &[EditorCell], dirty: bool) -> Result<(), DocumentEditError> {
        self.is_reopening = false;
        // What was asked for before is not answered any more.
        self.phase = Phase::Changed;
        self.requests.clear();
        self.synced = None;
        let reference = match dirty {
            true => &self.editor,
            false => &self.file.document,
        };
        let (editor, names) = with_cells(reference, cells, &self.names)?;
        if !dirty {
            // The editor may have loaded a version of the file that is not read here yet.
            self.needs_file = true;
            self.has_saved = true;
            self.base = editor.clone();
            self.texts.clear();
            self.chosen.clear();
            self.unknown.clear();
        }
        (self.editor, self.names) = (editor, names);
        Ok(())
    }

    fn text(&mut self, name: &str, source: &str) -> bool {
        let Some(id) = self.names.id(name).map(str::to_owned) else {
            return false;
        };
        self.put(&id, source);
        self.changed();
        true
    }

    /// Records the text that a cell has in the editor.
    fn put(&mut self, id: &str, source: &str) {
        let Some(at) = self.editor.position_by_id(id) else {
            return;
        };
        if self.editor.set_source(at, source).is_ok() {
            self.remember_text(id, source);
        }
    }

    fn remember_text(&mut self, id: &str, source: &str) {
        if let Save::Asked(changed) | Save::Writing(changed) = &mut self.save {
            changed.insert(id.to_owned());
        }
        if self.only_texts
            && let Some(base) = self.base.cell_by_id(id)
        {
            let texts = self.last_texts.entry(id.to_owned()).or_default();
            texts.truncate(LAST_TEXTS - 1);
            texts.push_front((base.source().into_owned(), source.to_owned()));
        }
        let texts = self.texts.entry(id.to_owned()).or_default();
        texts.push_back(hash(source));
        if texts.len() > MOST_TEXTS {
            texts.pop_front();
        }
    }

    /// Says whether a cell had a text in the editor since the base.
    fn had_text(&self, id: &str, source: &str) -> bool {
        let texts = self.texts.get(id);
        texts.is_some_and(|texts| texts.contains(&hash(source)))
    }

    fn cells(&mut self, order: &[String], new: &[EditorCell]) -> bool {
        let is_known = |name: &String| {
            self.names.id(name).is_some() || new.iter().any(|cell| cell.cell == *name)
        };
        if !order.iter().all(is_known) {
            return false;
        }
        self.take_remade(order, new);
        let removed: Vec<_> = (self.editor.cells().iter().map(Cell::id))
            .filter(|id| {
                self.names
                    .name(id)
                    .is_none_or(|name| !order.iter().any(|it| it == name))
            })
            .map(str::to_owned)
            .collect();
        for id in removed {
            if let Some(at) = self.editor.position_by_id(&id)
                && self.editor.remove(at).is_ok()
            {
                self.names.remove(&id);
            }
        }
        for (cell, id) in new
            .iter()
            .filter_map(|cell| Some((cell, cell.id.as_ref()?)))
        {
            if let Some(now) = self.names.id(&cell.cell).map(str::to_owned)
                && self.names.is_chosen(&now)
                && self.editor.cell_by_id(id).is_none()
            {
                reached("a nameless cell gets its id");
                self.rename(&now, id);
            }
        }
        for (place, name) in order.iter().enumerate() {
            let at = self
                .names
                .id(name)
                .and_then(|id| self.editor.position_by_id(id));
            let done = match (at, new.iter().find(|cell| cell.cell == *name)) {
                (Some(at), _) => self.editor.move_cell(at, place).map(drop),
                (None, Some(cell)) => {
                    let others = &self.file.document;
                    let inserted = insert(&mut self.editor, &mut self.names, place, cell, others);
                    if let Some(id) = self.names.id(name).map(str::to_owned) {
                        self.remember_text(&id, &cell.source);
                    }
                    inserted
                }
                (None, None) => return false,
            };
            if done.is_err() {
                return false;
            }
        }
        // The editor has loaded the file while it was asked for the same, or for what came after.
        if self.versions.contains(&cells_hash(&self.editor)) {
            self.base = self.editor.clone();
        }
        self.changed();
        true
    }

    /// A cell that the editor has made anew with its id, as it does when it loads the file, is the same cell.
    fn take_remade(&mut self, order: &[String], new: &[EditorCell]) {
        for cell in new {
            let id = cell.id.as_deref().unwrap_or_default();
            let before = self.names.name(id);
            let is_gone = before.is_some_and(|before| !order.iter().any(|it| it == before));
            let was = self.editor.cell_by_id(id).map(Cell::cell_type);
            let is_new = self.names.id(&cell.cell).is_none();
            if is_new && is_gone && was == Some(cell.cell_type) {
                reached("a cell is made anew");
                self.names.remove(id);
                self.names.insert(&cell.cell, id);
                self.put(id, &cell.source);
                // Shown under the name before.
                self.conflicts.remove(id);
            }
        }
    }

    fn applied(&mut self, seq: u64) -> bool {
        // It may have been asked for before the editor reported all its cells: then its text is another one since.
        let Phase::Waiting(batch) = &mut self.phase else {
            return false;
        };
        let Some(change) = batch.open.remove(&seq) else {
            return false;
        };
        if let Change::Set { id, .. } = &change
            && self.is_room
            && let Some(mine) = self.editor.cell_by_id(id).map(Cell::source)
            && self
                .base
                .cell_by_id(id)
                .is_some_and(|it| it.source() != mine)
        {
            self.stored.replaced.insert(id.clone(), mine.into_owned());
        }
        apply(&mut self.editor, &change);
        match &change {
            Change::Set { id, source, .. } => self.remember_text(id, source),
            Change::Insert { new, .. } => self.names.insert(&new.id, &new.id),
            Change::Remove { id } => {
                self.names.remove(id);
                self.editor_data.cells.remove(id);
            }
            Change::Order(_) => {}
            Change::Metadata(None, metadata) => self.editor_data.metadata.clone_from(metadata),
            Change::Metadata(Some(id), metadata) => {
                self.data_of(id).metadata.clone_from(metadata);
            }
            Change::Results(id, results) => self.data_of(id).results = *results,
            Change::Store => self.is_stored = true,
        }
        // Of a set the base gets the text that the file had, not what became of it in the merge.
        let change = match change {
            Change::Set { id, in_base, .. } => Change::Set {
                id,
                source: in_base.clone(),
                in_base,
            },
            other => other,
        };
        apply(&mut self.base, &change);
        self.end_batch();
        true
    }

    fn refused(&mut self, seq: u64, source: Option<String>) -> bool {
        let Phase::Waiting(batch) = &mut self.phase else {
            return true;
        };
        let Some(change) = batch.open.remove(&seq) else {
            return true;
        };
        batch.was_refused = true;
        if let (Change::Set { id, .. } | Change::Remove { id }, Some(source)) = (change, source)
            && self
                .editor
                .cell_by_id(&id)
                .is_some_and(|cell| cell.source() != source)
        {
            batch.has_changed = true;
            self.put(&id, &source);
        }
        self.end_batch();
        true
    }

    /// Ends the exchange once the editor has answered all requests.
    fn end_batch(&mut self) {
        let Phase::Waiting(batch) = &mut self.phase else {
            return;
        };
        if !batch.open.is_empty() {
            return;
        }
        let (was_refused, has_changed) = (batch.was_refused, batch.has_changed);
        let (base, stamp) = (batch.base.clone(), batch.stamp.clone());
        self.phase = match (was_refused, has_changed) {
            (true, false) => Phase::Refused,
            (_, true) => Phase::Changed,
            (false, false) => Phase::Settled,
        };
        if !was_refused {
            self.replaced.clear();
            self.rebase(base, stamp);
            // The editor may have saved in between.
            self.take_own_saves();
        }
    }

    fn data_of(&mut self, id: &str) -> &mut CellData {
        self.editor_data.cells.entry(id.to_owned()).or_default()
    }

    /// Makes the version of the file that the editor now has the base.
    fn rebase(&mut self, base: Document, stamp: String) {
        self.base = base;
        if self.only_texts {
            self.say_bases();
        }
        // A merge takes any other difference for a change by the person, which keeps a cell that others remove.
        self.editor.take_data(&self.base);
        self.versions.clear();
        self.stamp = stamp;
        let bases = &self.base;
        let editor = &self.editor;
        self.texts.retain(|id, texts| {
            let now = editor.cell_by_id(id).map(Cell::source);
            // A save that is under way may have any text since the one that the file has now.
            let in_file = bases.cell_by_id(id).map(|cell| hash(&cell.source()));
            if let Some(at) = texts.iter().rposition(|it| in_file == Some(*it)) {
                texts.drain(..at);
            }
            now.is_some()
        });
        self.last_texts.retain(|id, _| {
            let now = editor.cell_by_id(id).map(Cell::source);
            now.is_some_and(|now| bases.cell_by_id(id).is_none_or(|it| it.source() != now))
        });
        self.chosen.clear();
        let conflicts = &self.conflicts;
        self.unknown.retain(|id| conflicts.contains_key(id));
        self.say_synced();
    }

    /// Tells the editor from which texts of the file its unsaved ones are made.
    fn say_bases(&mut self) {
        for cell in self.base.cells() {
            let source = cell.source();
            let mine = self.editor.cell_by_id(cell.id());
            if mine.is_some_and(|mine| mine.source() != source)
                && let Some(name) = self.names.name(cell.id())
                && !self.conflicts.contains_key(cell.id())
            {
                self.requests.push_back(EditorRequest::Base {
                    cell: name.to_owned(),
                    source: source.into_owned(),
                });
            }
        }
    }

    /// Tells the editor that it has all that the file has.
    fn say_synced(&mut self) {
        let is_known = self.synced.as_ref() == Some(&self.stamp);
        let has_all = matches!(self.phase, Phase::Settled) && self.conflicts.is_empty();
        if is_known || self.is_proposed || !has_all {
            return;
        }
        self.synced = Some(self.stamp.clone());
        if matches!(self.save, Save::Asked(_)) {
            self.save = Save::Writing(HashSet::new());
        }
        let stamp = self.stamp.clone();
        self.requests.push_back(EditorRequest::Synced {
            revision: None,
            stamp,
            modified: None,
        });
    }

    fn choose(&mut self, name: &str, keep: Keep, seen: &str) -> bool {
        let Some(id) = self.names.id(name).map(str::to_owned) else {
            return false;
        };
        let is_overwritten = !self.conflicts.contains_key(&id);
        let shown = match is_overwritten {
            true => &self.overwritten,
            false => &self.conflicts,
        };
        let Some(shown) = shown.get(&id).filter(|it| it.theirs == seen) else {
            return true;
        };
        let (mine, theirs) = (&shown.mine, &shown.theirs);
        let result = match keep {
            Keep::Mine => mine.clone(),
            Keep::Theirs => theirs.clone(),
            Keep::Both => {
                reached("both are kept");
                unite_texts(mine, theirs)
            }
        };
        let choice = Choice {
            mine: mine.clone(),
            result,
            base: shown.base.clone().unwrap_or_default(),
        };
        let theirs = match is_overwritten {
            // The person's text is in the file by now.
            true => mine.clone(),
            false => theirs.clone(),
        };
        self.overwritten.remove(&id);
        match (
            self.base.position_by_id(&id),
            self.file.document.cell_by_id(&id),
        ) {
            (Some(at), _) => drop(self.base.set_source(at, &theirs)),
            (None, Some(cell)) => {
                let new = NewCell {
                    source: theirs,
                    ..new_cell(cell, &id)
                };
                let _ = self.base.insert(self.base.cells().len(), &new);
            }
            (None, None) => return true,
        }
        self.chosen.insert(id, choice);
        self.changed();
        true
    }

    /// Merges the three versions, and queues what the editor is to do.
    fn merge(&mut self) {
        self.drop_outdated_choices();
        if !self.can_change {
            self.take_equal_texts();
        }
        if self.only_texts {
            self.take_merged_saves();
        }
        let merged = merge(&self.base, &self.editor, &self.file.document, &|_| false);
        let mut target = merged.document;
        for (id, choice) in &self.chosen {
            if let Some(at) = target.position_by_id(id) {
                let _ = target.set_source(at, &choice.result);
            }
        }
        self.take_replaced_versions(&mut target);
        let texts = merged
            .conflicts
            .into_iter()
            .filter(|it| it.field == "source");
        let conflicts: Vec<_> = texts.filter(|it| it.cell.is_some()).collect();
        let base = self.next_base(&conflicts);
        let stamp = self.file.stamp.clone();
        if self.is_room {
            let refused = conflicts.into_iter().filter_map(|it| it.cell);
            self.stored.refused = refused.collect();
        } else if self.can_change {
            self.show(conflicts);
        }
        let open = match self.can_change {
            true => self.ask(&target, &base),
            false => BTreeMap::new(),
        };
        if open.is_empty() {
            let has_all = self.can_change || self.has_same_cells();
            self.phase = Phase::Settled;
            self.replaced.clear();
            if has_all {
                self.rebase(base, stamp);
            }
            return;
        }
        self.synced = None;
        self.wait(open, base);
    }

    /// Waits for the editor's answers to these requests.
    fn wait(&mut self, open: BTreeMap<u64, Change>, base: Document) {
        self.phase = Phase::Waiting(Box::new(Batch {
            open,
            base,
            stamp: self.file.stamp.clone(),
            was_refused: false,
            has_changed: false,
        }));
    }

    /// Takes for the base what an editor that gets no requests has in common with the file.
    fn take_equal_texts(&mut self) {
        for cell in self.file.document.cells() {
            let source = cell.source();
            let mine = self.editor.cell_by_id(cell.id());
            if mine.is_some_and(|mine| mine.source() == source)
                && let Some(at) = self.base.position_by_id(cell.id())
            {
                let _ = self.base.set_source(at, &source);
            }
        }
    }

    /// Says whether an editor that gets no requests has the cells of the file.
    fn has_same_cells(&self) -> bool {
        let (file, editor) = (self.file.document.cells(), self.editor.cells());
        let same =
            |(one, other): (&Cell, &Cell)| one.id() == other.id() && one.source() == other.source();
        file.len() == editor.len() && file.iter().zip(editor).all(same)
    }

    /// Forgets choices between texts of which one has changed since: the conflict stands again.
    fn drop_outdated_choices(&mut self) {
        let (editor, file) = (&self.editor, &self.file.document);
        let base = &mut self.base;
        self.chosen.retain(|id, choice| {
            let has = |document: &Document, text: &str| {
                document
                    .cell_by_id(id)
                    .is_some_and(|cell| cell.source() == text)
            };
            let at = base.position_by_id(id);
            let theirs = at.and_then(|at| Some(base.cells().get(at)?.source().into_owned()));
            let holds = (has(editor, &choice.mine) || has(editor, &choice.result))
                && theirs.is_some_and(|theirs| has(file, &theirs));
            if !holds && let Some(at) = at {
                reached("a choice is outdated");
                let _ = base.set_source(at, &choice.base);
            }
            holds
        });
    }

    /// Returns what becomes the base once the editor has the file's changes.
    fn next_base(&mut self, conflicts: &[Conflict]) -> Document {
        let mut next = self.file.document.clone();
        for id in conflicts.iter().filter_map(|it| it.cell.as_deref()) {
            let before = self
                .base
                .cell_by_id(id)
                .map(|cell| cell.source().into_owned());
            if before.is_none() {
                self.unknown.insert(id.to_owned());
            }
            if let Some(at) = next.position_by_id(id) {
                let _ = next.set_source(at, &before.unwrap_or_default());
            }
        }
        next
    }
}

/// Returns a hash of the cells' ids and texts.
fn cells_hash(document: &Document) -> u64 {
    let mut hasher = DefaultHasher::new();
    for cell in document.cells() {
        (cell.id(), cell.source()).hash(&mut hasher);
    }
    hasher.finish()
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Returns a copy of a cell, without outputs, that can be inserted.
fn new_cell(cell: &Cell, id: &str) -> NewCell {
    NewCell {
        id: id.to_owned(),
        cell_type: cell.cell_type(),
        source: cell.source().into_owned(),
        metadata: cell.metadata(&[]),
    }
}

/// Records for the tests that a branch was reached.
#[cfg(not(test))]
fn reached(_branch: &'static str) {}
