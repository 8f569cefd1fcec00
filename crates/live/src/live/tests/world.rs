//! Two editors, others who write the file, and the messages under way between them.
//!
//! Each typed line is a word that occurs once, so the reference is a list of words: each must be in the file or in an editor at the
//! end, once, unless its cell was removed or a person chose against it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use proptest::prelude::*;

use super::reached;
use crate::live::document::in_order;
use crate::live::protocol::{EditorCell, EditorEvent, EditorRequest, Keep, OpenedDocument};
use crate::live::{FileSnapshot, LiveDocument};
use crate::notebook::{CellExecution, CellType, Document, Json, NewCell};

/// One step of a world; the numbers choose an editor, a cell, a line.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Type(u8, u8, u8),
    Report(u8),
    NewCell(u8, u8),
    RemoveCell(u8, u8),
    MoveCell(u8, u8, u8),
    RemakeCell(u8, u8),
    ToNb(u8),
    ToEditor(u8, bool),
    FileEdit(u8, u8),
    FileInsert(u8),
    FileRemove(u8),
    FileMove(u8, u8),
    FileRun(u8),
    FileTag(u8),
    Propose(u8, u8),
    EndProposal(bool),
    Run(u8, u8),
    NoticeFile(u8),
    Save(u8),
    Overwrite(u8),
    /// Another program writes a line of a cell while an editor saves, which replaces it.
    SaveOver(u8, u8, u8),
    /// A command of `nb` removes a cell while an editor saves, which replaces it.
    SaveOverRemoval(u8, u8),
    Choose(u8, u8),
    TryAgain(u8),
    RestartNb(u8),
    Nonsense(u8),
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let n = || any::<u8>();
    let step = prop_oneof![
        6 => (n(), n(), n()).prop_map(|(e, c, l)| Step::Type(e, c, l)),
        4 => n().prop_map(Step::Report),
        1 => (n(), n()).prop_map(|(e, c)| Step::NewCell(e, c)),
        1 => (n(), n()).prop_map(|(e, c)| Step::RemoveCell(e, c)),
        1 => (n(), n(), n()).prop_map(|(e, c, to)| Step::MoveCell(e, c, to)),
        1 => (n(), n()).prop_map(|(e, c)| Step::RemakeCell(e, c)),
        8 => n().prop_map(Step::ToNb),
        8 => (n(), proptest::bool::weighted(0.1)).prop_map(|(e, types)| Step::ToEditor(e, types)),
        5 => (n(), n()).prop_map(|(c, l)| Step::FileEdit(c, l)),
        1 => n().prop_map(Step::FileInsert),
        1 => n().prop_map(Step::FileRemove),
        1 => (n(), n()).prop_map(|(c, to)| Step::FileMove(c, to)),
        2 => n().prop_map(Step::FileRun),
        1 => n().prop_map(Step::FileTag),
        3 => (n(), n()).prop_map(|(c, l)| Step::Propose(c, l)),
        3 => proptest::bool::weighted(0.7).prop_map(Step::EndProposal),
        1 => (n(), n()).prop_map(|(e, c)| Step::Run(e, c)),
        5 => n().prop_map(Step::NoticeFile),
        3 => n().prop_map(Step::Save),
        1 => n().prop_map(Step::Overwrite),
        2 => (n(), n(), n()).prop_map(|(e, c, l)| Step::SaveOver(e, c, l)),
        1 => (n(), n()).prop_map(|(e, c)| Step::SaveOverRemoval(e, c)),
        2 => (n(), n()).prop_map(|(e, k)| Step::Choose(e, k)),
        2 => n().prop_map(Step::TryAgain),
        1 => n().prop_map(Step::RestartNb),
        1 => n().prop_map(Step::Nonsense),
    ];
    proptest::collection::vec(step, 1..50)
}

struct Editor {
    cells: Vec<EditorCell>,
    /// The execution count and the tag of each cell that has one, by the cell's name.
    data: BTreeMap<String, CellData>,
    /// The cells whose text `nb` does not know yet.
    unreported: BTreeSet<String>,
    live: LiveDocument,
    to_nb: VecDeque<EditorEvent>,
    to_editor: VecDeque<EditorRequest>,
    /// The last version of the file that `nb` has read.
    noticed: u64,
    /// The version of the file that a save may replace.
    seen: u64,
    /// The stamp of the last `synced`.
    synced: Option<String>,
    /// The words that others wrote while the editor saved over them, and the ids of their cells.
    replaced: BTreeMap<String, String>,
    /// The words that the person may bring back.
    offered: BTreeSet<String>,
    is_dirty: bool,
    /// The file's text of each cell that is shown as a conflict.
    conflicts: BTreeMap<String, String>,
}

/// What others do while an editor saves.
#[derive(Clone, Copy, Debug)]
enum Beside {
    /// A line of a cell is written.
    Writes(u8, u8),
    /// A cell is removed.
    Removes(u8),
}

/// What a cell has besides its text.
#[derive(Clone, Debug, Default, PartialEq)]
struct CellData {
    count: Option<u64>,
    tag: Option<u64>,
}

/// A version that a command of `nb` writes once the editors have it.
struct Proposal {
    after: Document,
    number: u64,
    /// The version from which it was made.
    before: u64,
}

pub(super) struct World {
    file: Document,
    /// The file's version, and how many versions there were.
    version: u64,
    versions: u64,
    /// The texts of each version, by the cells' ids.
    past: HashMap<u64, HashMap<String, String>>,
    proposal: Option<Proposal>,
    editors: Vec<Editor>,
    words: u64,
    /// The words that must be somewhere.
    kept: BTreeSet<String>,
    /// The words of cells that were removed.
    gone: BTreeSet<String>,
    /// The cells that commands of `nb` have removed, with the version without them.
    removals: Vec<(u64, String)>,
    /// The texts of the cells that were removed under a save, by their ids: none of them comes back as it was, unless others
    /// have changed it since.
    removed: BTreeMap<String, String>,
}

pub(super) fn notebook(sources: &[&str]) -> Document {
    let cell = |(at, source): (usize, &&str)| {
        format!(
            r#"{{"cell_type":"code","id":"c{at}","source":{source:?},"outputs":[],"execution_count":null,"metadata":{{}}}}"#
        )
    };
    let cells: Vec<_> = sources.iter().enumerate().map(cell).collect();
    let text = format!(
        r#"{{"cells":[{}],"metadata":{{}},"nbformat":4,"nbformat_minor":5}}"#,
        cells.join(",")
    );
    Document::parse(text).unwrap()
}

pub(super) fn cells_of(document: &Document, prefix: &str) -> Vec<EditorCell> {
    let cells = document.cells().iter();
    cells
        .map(|cell| EditorCell {
            cell: format!("{prefix}-{}", cell.id()),
            id: Some(cell.id().to_owned()),
            cell_type: cell.cell_type(),
            source: cell.source().into_owned(),
        })
        .collect()
}

/// A document without unsaved changes.
pub(super) fn clean(cells: Vec<EditorCell>) -> OpenedDocument {
    OpenedDocument {
        cells,
        ..OpenedDocument::default()
    }
}

/// A document with unsaved changes.
pub(super) fn edited(cells: Vec<EditorCell>) -> OpenedDocument {
    OpenedDocument {
        dirty: true,
        ..clean(cells)
    }
}

pub(super) fn put_data(document: &mut Document, at: usize, count: Option<u64>, tag: Option<u64>) {
    if let Some(count) = count {
        let output = format!(r#"{{"output_type":"stream","name":"stdout","text":"{count}"}}"#);
        let run = CellExecution {
            outputs: vec![Json::parse(&output).unwrap()],
            execution_count: Some(count),
            times: None,
        };
        document.set_execution(at, &run).unwrap();
    }
    if let Some(tag) = tag {
        let tag = Json::parse(&tag.to_string()).unwrap();
        document.set_metadata(at, &["tag"], &tag).unwrap();
    }
}

fn data_of(document: &Document) -> Vec<CellData> {
    let number = |json: Json| json.text().parse().unwrap();
    let cells = document.cells().iter();
    cells
        .map(|cell| CellData {
            count: cell.execution_count(),
            tag: cell.metadata(&["tag"]).map(number),
        })
        .collect()
}

fn sources(document: &Document) -> Vec<String> {
    let cells = document.cells().iter();
    cells.map(|cell| cell.source().into_owned()).collect()
}

/// Returns the text with a new line in it.
fn with_line(text: &str, line: u8, word: &str) -> String {
    let mut lines: Vec<&str> = text.split('\n').collect();
    let at = usize::from(line) % (lines.len() + 1);
    lines.insert(at, word);
    lines.join("\n")
}

impl World {
    pub(super) fn new() -> Self {
        let file = notebook(&["a0\nb0\nc0", "a1\nb1", "a2"]);
        let editors = ["p", "q"].map(|prefix| {
            let cells = cells_of(&file, prefix);
            let live = LiveDocument::open(
                &clean(cells.clone()),
                version(&file, 0),
                &HashMap::new(),
                true,
            )
            .unwrap();
            Editor {
                cells,
                data: BTreeMap::new(),
                unreported: BTreeSet::new(),
                live,
                to_nb: VecDeque::new(),
                to_editor: VecDeque::new(),
                noticed: 0,
                seen: 0,
                synced: None,
                replaced: BTreeMap::new(),
                offered: BTreeSet::new(),
                is_dirty: false,
                conflicts: BTreeMap::new(),
            }
        });
        let kept = ["a0", "b0", "c0", "a1", "b1", "a2"].map(str::to_owned);
        Self {
            file,
            version: 0,
            versions: 0,
            past: HashMap::new(),
            proposal: None,
            editors: editors.into(),
            words: 0,
            kept: kept.into(),
            gone: BTreeSet::new(),
            removals: Vec::new(),
            removed: BTreeMap::new(),
        }
    }

    pub(super) fn run(mut self, steps: &[Step]) {
        for step in steps {
            let cells = self.file.cells().iter();
            let texts = cells.map(|cell| (cell.id().to_owned(), cell.source().into_owned()));
            self.past.insert(self.version, texts.collect());
            self.step(*step);
        }
        self.end();
    }

    fn word(&mut self) -> String {
        self.words += 1;
        let word = format!("w{}", self.words);
        self.kept.insert(word.clone());
        word
    }

    fn forget(&mut self, text: &str) {
        for word in text.split('\n') {
            self.kept.remove(word);
        }
    }

    fn step(&mut self, step: Step) {
        let count = self.editors.len();
        let of = |number: u8| usize::from(number) % count;
        match step {
            Step::Type(e, c, line) => {
                let word = self.word();
                self.editors[of(e)].type_line(c, line, &word);
            }
            Step::Report(e) => self.editors[of(e)].report(),
            Step::NewCell(e, at) => {
                let source = self.word();
                let number = self.words;
                self.editors[of(e)].new_cell(at, &source, number);
            }
            Step::RemoveCell(e, c) => {
                if let Some(removed) = self.editors[of(e)].remove_cell(c) {
                    self.forget(&removed.source);
                    // What others wrote in that cell is removed with it.
                    self.forget_cell(removed.id.as_deref());
                }
            }
            Step::MoveCell(e, c, to) => self.editors[of(e)].move_cell(c, to),
            Step::RemakeCell(e, c) => {
                self.words += 1;
                let number = self.words;
                self.editors[of(e)].remake_cell(c, number);
            }
            Step::ToNb(e) => self.deliver(of(e)),
            Step::ToEditor(e, types) => self.editors[of(e)].take_request(types),
            Step::FileEdit(c, line) => {
                if !self.file.cells().is_empty() {
                    let at = usize::from(c) % self.file.cells().len();
                    let word = self.word();
                    let text = with_line(&self.file.cells()[at].source(), line, &word);
                    self.file.set_source(at, &text).unwrap();
                    self.is_written();
                }
            }
            Step::FileInsert(at) => {
                let source = self.word();
                let at = usize::from(at) % (self.file.cells().len() + 1);
                let new = NewCell {
                    id: format!("agent-{}", self.words),
                    cell_type: CellType::Code,
                    source,
                    metadata: None,
                };
                self.file.insert(at, &new).unwrap();
                self.is_written();
            }
            Step::FileRemove(c) => {
                if !self.file.cells().is_empty() {
                    let at = usize::from(c) % self.file.cells().len();
                    let id = self.file.cells()[at].id().to_owned();
                    let text = self.file.cells()[at].source().into_owned();
                    self.forget(&text);
                    self.forget_cell(Some(&id));
                    self.file.remove(at).unwrap();
                    self.is_written();
                    self.removals.push((self.version, id));
                }
            }
            Step::FileMove(c, to) => {
                let count = self.file.cells().len();
                if count > 0 {
                    let (from, to) = (usize::from(c) % count, usize::from(to) % count);
                    self.file.move_cell(from, to).unwrap();
                    self.is_written();
                }
            }
            Step::FileRun(c) => {
                self.end_saves();
                if let Some(at) = self.cell_of_file(c) {
                    self.words += 1;
                    self.removed.remove(self.file.cells()[at].id());
                    put_data(&mut self.file, at, Some(self.words), None);
                    self.is_written();
                }
            }
            Step::FileTag(c) => {
                self.end_saves();
                if let Some(at) = self.cell_of_file(c) {
                    self.words += 1;
                    self.removed.remove(self.file.cells()[at].id());
                    put_data(&mut self.file, at, None, Some(self.words));
                    self.is_written();
                }
            }
            Step::Propose(c, line) => self.propose(c, line),
            Step::EndProposal(is_written) => self.end_proposal(is_written),
            Step::Run(e, c) => {
                self.words += 1;
                let count = self.words;
                self.editors[of(e)].run(c, count);
            }
            Step::NoticeFile(e) => self.notice(of(e)),
            Step::Save(e) => self.save(of(e), false, None),
            Step::Overwrite(e) => {
                // A removal that the person overwrites is undone.
                self.removed.clear();
                self.save(of(e), true, None);
            }
            Step::SaveOverRemoval(e, c) => {
                self.save(of(e), false, Some(Beside::Removes(c)));
                self.end_saves();
            }
            Step::SaveOver(e, c, line) => {
                self.save(of(e), false, Some(Beside::Writes(c, line)));
                if line % 2 == 0 {
                    self.notice(of(e));
                }
                // What others write before that is taken for what they wrote in place of the version that was replaced.
                self.end_saves();
            }
            Step::Choose(e, keep) => self.choose(of(e), keep),
            Step::TryAgain(e) => {
                let editor = &mut self.editors[of(e)];
                editor.live.try_again();
                editor.pump();
            }
            Step::RestartNb(e) => self.restart(of(e)),
            Step::Nonsense(e) => {
                let to_nb = &mut self.editors[of(e)].to_nb;
                to_nb.push_back(EditorEvent::Applied { seq: 1_000_000 });
                to_nb.push_back(EditorEvent::Text {
                    cell: "none".to_owned(),
                    source: String::new(),
                });
            }
        }
    }

    /// The words of a cell that is removed may go, in the file and in the editors.
    fn forget_cell(&mut self, id: Option<&str>) {
        let Some(id) = id else {
            return;
        };
        let mut texts: Vec<String> = Vec::new();
        let in_file = self.file.cell_by_id(id);
        texts.extend(in_file.map(|cell| cell.source().into_owned()));
        for editor in &self.editors {
            let cells = editor.cells.iter();
            texts.extend(
                cells
                    .filter(|it| it.id.as_deref() == Some(id))
                    .map(|it| it.source.clone()),
            );
        }
        let replaced = self.editors.iter().flat_map(|it| &it.replaced);
        texts.extend(
            replaced
                .filter(|(_, of)| *of == id)
                .map(|(word, _)| word.clone()),
        );
        let proposed = self.proposal.as_ref();
        let proposed = proposed.and_then(|proposal| proposal.after.cell_by_id(id));
        texts.extend(proposed.map(|cell| cell.source().into_owned()));
        for text in texts {
            self.forget(&text);
            self.gone.extend(words(&text));
        }
    }

    fn cell_of_file(&self, number: u8) -> Option<usize> {
        usize::from(number).checked_rem(self.file.cells().len())
    }

    fn is_written(&mut self) {
        self.versions += 1;
        self.version = self.versions;
    }

    /// Delivers what editors have saved: of what is written in the milliseconds before that, besides texts, it is not known
    /// who wrote it.
    fn end_saves(&mut self) {
        for at in 0..self.editors.len() {
            let is_saved = |event: &EditorEvent| matches!(event, EditorEvent::Saved { .. });
            if !self.editors[at].to_nb.iter().any(is_saved) {
                continue;
            }
            while self.editors[at].to_nb.iter().any(is_saved) {
                self.deliver(at);
            }
            self.notice(at);
        }
    }

    /// A command of `nb` tells the editors of a change before it writes it.
    fn propose(&mut self, cell: u8, line: u8) {
        let (None, Some(at)) = (&self.proposal, self.cell_of_file(cell)) else {
            return;
        };
        self.end_saves();
        self.words += 1;
        self.removed.remove(self.file.cells()[at].id());
        let word = format!("w{}", self.words);
        let mut after = self.file.clone();
        let text = with_line(&after.cells()[at].source(), line, &word);
        after.set_source(at, &text).unwrap();
        put_data(&mut after, at, Some(self.words), Some(self.words));
        self.versions += 1;
        let proposal = Proposal {
            after,
            number: self.versions,
            before: self.version,
        };
        for editor in &mut self.editors {
            editor
                .live
                .propose(version(&proposal.after, proposal.number));
            editor.pump();
        }
        self.proposal = Some(proposal);
    }

    /// The command writes the file, if it is still the one that it has read, or fails.
    fn end_proposal(&mut self, is_written: bool) {
        let Some(proposal) = self.proposal.take() else {
            return;
        };
        let is_written = is_written && proposal.before == self.version;
        if !is_written {
            reached("a change that is not written");
            for editor in 0..self.editors.len() {
                self.notice(editor);
            }
            return;
        }
        reached("a change that is written");
        for word in sources(&proposal.after).iter().flat_map(|it| words(it)) {
            if !sources(&self.file)
                .iter()
                .flat_map(|it| words(it))
                .any(|it| it == word)
                && !self.gone.contains(&word)
            {
                self.kept.insert(word);
            }
        }
        (self.file, self.version) = (proposal.after, proposal.number);
        for editor in &mut self.editors {
            editor.live.written();
            editor.pump();
        }
    }

    fn notice(&mut self, editor: usize) {
        let editor = &mut self.editors[editor];
        match &self.proposal {
            Some(proposal) if proposal.before == self.version => {
                editor
                    .live
                    .propose(version(&proposal.after, proposal.number));
            }
            _ => {
                let mut file = version(&self.file, self.version);
                let since = (self.removals.iter()).filter(|(version, _)| *version > editor.noticed);
                file.removed = since.map(|(_, id)| id.clone()).collect();
                editor.noticed = self.version;
                editor.live.file(file);
            }
        }
        editor.pump();
    }

    fn deliver(&mut self, editor: usize) {
        let of = &mut self.editors[editor];
        if let Some(event) = of.to_nb.pop_front() {
            of.live.event(event);
            of.pump();
            if of.live.needs_file() {
                self.notice(editor);
            }
        }
    }

    /// Saves an editor's cells: if the file is the one that the editor has, or over any version. `beside` is what others do
    /// just before the editor writes.
    fn save(&mut self, editor: usize, overwrites: bool, beside: Option<Beside>) {
        self.end_saves();
        self.editors[editor].report();
        self.editors[editor].give_ids();
        self.editors[editor].to_nb.push_back(EditorEvent::Saving);
        let mut rounds = 0;
        while !self.editors[editor].to_nb.is_empty() {
            rounds += 1;
            assert!(rounds < 200, "the save does not come to an end");
            self.deliver(editor);
            self.notice(editor);
            while !self.editors[editor].to_editor.is_empty() {
                self.editors[editor].take_request(false);
            }
        }
        if self.editors[editor].seen != self.version && !overwrites {
            self.editors[editor].live.give_up_save();
            return;
        }
        if let Some(Beside::Removes(cell)) = beside
            && let Some(at) = self.cell_of_file(cell)
            && self.proposal.is_none()
        {
            reached("a removal under a save");
            let id = self.file.cells()[at].id().to_owned();
            let text = self.file.cells()[at].source().into_owned();
            self.forget(&text);
            self.forget_cell(Some(&id));
            self.file.remove(at).unwrap();
            self.is_written();
            self.removals.push((self.version, id.clone()));
            self.removed.insert(id, text);
            self.notice(editor);
        }
        if let Some(Beside::Writes(cell, line)) = beside
            && let Some(at) = self.cell_of_file(cell)
            && self.proposal.is_none()
        {
            let word = self.word();
            let text = with_line(&self.file.cells()[at].source(), line, &word);
            self.file.set_source(at, &text).unwrap();
            self.is_written();
            let id = self.file.cells()[at].id().to_owned();
            self.editors[editor].replaced.insert(word, id);
            self.notice(editor);
        }
        let editor = &mut self.editors[editor];
        let mut lost: Vec<String> = sources(&self.file);
        let mut saved = notebook(&[]);
        for (at, cell) in editor.cells.iter().enumerate() {
            let new = NewCell {
                id: cell.id.clone().unwrap(),
                cell_type: cell.cell_type,
                source: cell.source.clone(),
                metadata: None,
            };
            saved.insert(at, &new).unwrap();
            if let Some(data) = editor.data.get(&cell.cell) {
                put_data(&mut saved, at, data.count, data.tag);
            }
        }
        let kept: BTreeSet<String> = sources(&saved).iter().flat_map(|it| words(it)).collect();
        self.file = saved;
        self.versions += 1;
        self.version = self.versions;
        editor.seen = self.version;
        editor.is_dirty = false;
        let order = editor.cells.iter().map(|it| it.cell.clone()).collect();
        editor.to_nb.push_back(EditorEvent::Saved { order });
        if overwrites {
            for text in &mut lost {
                for word in words(text).filter(|it| !kept.contains(it)) {
                    self.kept.remove(&word);
                }
            }
        }
    }

    fn choose(&mut self, editor: usize, keep: u8) {
        let editor = &mut self.editors[editor];
        let Some((cell, theirs)) = editor.conflicts.iter().next() else {
            return;
        };
        let (cell, theirs) = (cell.clone(), theirs.clone());
        let mine = editor
            .cells
            .iter()
            .find(|it| it.cell == cell)
            .map(|it| it.source.clone());
        let mine = mine.unwrap_or_default();
        let keep = [Keep::Mine, Keep::Theirs, Keep::Both][usize::from(keep) % 3];
        let of = |text: &str| -> BTreeSet<String> { words(text).collect() };
        let lost: Vec<_> = match keep {
            Keep::Mine => of(&theirs).difference(&of(&mine)).cloned().collect(),
            Keep::Theirs => of(&mine).difference(&of(&theirs)).cloned().collect(),
            Keep::Both => Vec::new(),
        };
        editor.report();
        editor
            .to_nb
            .push_back(EditorEvent::Choose { cell, keep, theirs });
        for word in lost {
            self.kept.remove(&word);
        }
    }

    /// Starts `nb` again for an editor: all messages under way are lost.
    fn restart(&mut self, editor: usize) {
        let file = version(&self.file, self.version);
        self.removed.clear();
        self.editors[editor].noticed = self.version;
        // What a save has replaced is known to no other process.
        let words: Vec<_> = std::mem::take(&mut self.editors[editor].replaced)
            .into_keys()
            .collect();
        words.iter().for_each(|word| self.forget(word));
        let editor = &mut self.editors[editor];
        editor.to_nb.clear();
        editor.to_editor.clear();
        editor.unreported.clear();
        editor.conflicts.clear();
        // What is unsaved is compared with the file: a tab without changes has what it has seen of the file.
        let opened = OpenedDocument {
            dirty: editor.is_dirty,
            synced: editor.synced.clone(),
            ..clean(editor.cells.clone())
        };
        let synced = editor.synced.as_ref().and_then(|it| it.parse().ok());
        // The history has some of the earlier versions.
        let is_kept = |version: &u64| version.is_multiple_of(2);
        let earlier = synced.filter(is_kept).and_then(|it| self.past.get(&it));
        let earlier = earlier.cloned().unwrap_or_default();
        editor.live = LiveDocument::open(&opened, file, &earlier, true).unwrap();
        editor.pump();
    }

    /// Delivers everything, settles all conflicts, saves, and compares.
    fn end(mut self) {
        self.end_proposal(false);
        for round in 0..200 {
            for at in 0..self.editors.len() {
                self.editors[at].report();
                self.notice(at);
                while !self.editors[at].to_nb.is_empty() || !self.editors[at].to_editor.is_empty() {
                    self.deliver(at);
                    self.editors[at].take_request(false);
                }
                if self.editors[at].live.is_refused() {
                    self.editors[at].live.try_again();
                    self.editors[at].pump();
                    continue;
                }
                if !self.editors[at].conflicts.is_empty() {
                    self.choose(at, 2);
                    continue;
                }
                if !self.has_file(at) {
                    self.save(at, false, None);
                }
            }
            let is_quiet = |at: usize| {
                let editor = &self.editors[at];
                editor.to_nb.is_empty()
                    && editor.to_editor.is_empty()
                    && editor.conflicts.is_empty()
                    && !editor.live.needs_file()
                    && self.has_file(at)
            };
            if (0..self.editors.len()).all(is_quiet) {
                break;
            }
            assert!(
                round < 199,
                "no rest: file {:?} {:?}, editors {:?} {:?}",
                sources(&self.file),
                data_of(&self.file),
                self.texts(),
                self.editors
                    .iter()
                    .map(Editor::all_data)
                    .collect::<Vec<_>>(),
            );
        }
        let mut found: HashMap<String, usize> = HashMap::new();
        for word in sources(&self.file).iter().flat_map(|it| words(it)) {
            *found.entry(word).or_default() += 1;
        }
        let offered = |word: &String| self.editors.iter().any(|it| it.offered.contains(word));
        for word in self.kept.iter().filter(|word| !offered(word)) {
            assert!(
                found.contains_key(word),
                "{word} is lost: {:?}",
                sources(&self.file)
            );
        }
        for cell in self.file.cells() {
            let is_back = self.removed.get(cell.id()) == Some(&cell.source().into_owned());
            assert!(!is_back, "{} is back", cell.id());
        }
        for (word, count) in found {
            assert_eq!(count, 1, "{word} is there twice: {:?}", sources(&self.file));
        }
    }

    /// Says whether an editor has the cells of the file.
    fn has_file(&self, editor: usize) -> bool {
        let editor = &self.editors[editor];
        editor.texts() == sources(&self.file) && editor.all_data() == data_of(&self.file)
    }

    fn texts(&self) -> Vec<Vec<String>> {
        self.editors.iter().map(Editor::texts).collect()
    }
}

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split('\n')
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
}

pub(super) fn version(file: &Document, version: u64) -> FileSnapshot {
    FileSnapshot {
        document: file.clone(),
        stamp: version.to_string(),
        by: "claude".to_owned(),
        removed: HashSet::new(),
    }
}

impl Editor {
    fn texts(&self) -> Vec<String> {
        self.cells.iter().map(|cell| cell.source.clone()).collect()
    }

    /// Returns what each cell has besides its text.
    fn all_data(&self) -> Vec<CellData> {
        let cells = self.cells.iter();
        cells
            .map(|it| self.data.get(&it.cell).cloned().unwrap_or_default())
            .collect()
    }

    fn run(&mut self, cell: u8, count: u64) {
        let at = usize::from(cell).checked_rem(self.cells.len());
        if let Some(cell) = at.and_then(|at| self.cells.get(at)) {
            self.data.entry(cell.cell.clone()).or_default().count = Some(count);
            self.is_dirty = true;
        }
    }

    fn type_line(&mut self, cell: u8, line: u8, word: &str) {
        if self.cells.is_empty() {
            self.new_cell(0, word, u64::from(line) + 1_000_000);
            return;
        }
        let at = usize::from(cell) % self.cells.len();
        let cell = &mut self.cells[at];
        cell.source = with_line(&cell.source, line, word);
        self.unreported.insert(cell.cell.clone());
        self.is_dirty = true;
    }

    fn report(&mut self) {
        for cell in &self.cells {
            if self.unreported.remove(&cell.cell) {
                self.to_nb.push_back(EditorEvent::Text {
                    cell: cell.cell.clone(),
                    source: cell.source.clone(),
                });
            }
        }
    }

    fn new_cell(&mut self, at: u8, source: &str, number: u64) {
        self.report();
        let at = usize::from(at) % (self.cells.len() + 1);
        let cell = EditorCell {
            cell: format!("own-{number}-{source}"),
            // VS Code has no ids for new cells, JupyterLab has.
            id: (number.is_multiple_of(2)).then(|| format!("own-{number}")),
            cell_type: CellType::Code,
            source: source.to_owned(),
        };
        self.cells.insert(at, cell.clone());
        self.is_dirty = true;
        self.report_cells(vec![cell]);
    }

    /// Gives new cells an id, as VS Code does it some time after a person has made them.
    fn give_ids(&mut self) {
        let mut new = Vec::new();
        for cell in self.cells.iter_mut().filter(|it| it.id.is_none()) {
            cell.id = Some(format!("saved-{}", cell.cell));
            new.push(cell.clone());
        }
        if !new.is_empty() {
            self.report_cells(new);
        }
    }

    fn remove_cell(&mut self, cell: u8) -> Option<EditorCell> {
        if self.cells.is_empty() {
            return None;
        }
        self.report();
        let at = usize::from(cell) % self.cells.len();
        let removed = self.cells.remove(at);
        self.conflicts.remove(&removed.cell);
        self.is_dirty = true;
        self.report_cells(Vec::new());
        Some(removed)
    }

    fn move_cell(&mut self, cell: u8, to: u8) {
        if self.cells.is_empty() {
            return;
        }
        self.report();
        let count = self.cells.len();
        let cell = self.cells.remove(usize::from(cell) % count);
        self.cells.insert(usize::from(to) % count, cell);
        self.is_dirty = true;
        self.report_cells(Vec::new());
    }

    /// Makes a cell anew under another name, with its id and its text.
    fn remake_cell(&mut self, cell: u8, number: u64) {
        let Some(at) = usize::from(cell).checked_rem(self.cells.len()) else {
            return;
        };
        self.report();
        let cell = &mut self.cells[at];
        let before = std::mem::replace(&mut cell.cell, format!("made-{number}"));
        let cell = cell.clone();
        self.conflicts.remove(&before);
        if let Some(data) = self.data.remove(&before) {
            self.data.insert(cell.cell.clone(), data);
        }
        self.is_dirty = true;
        self.report_cells(vec![cell]);
    }

    fn report_cells(&mut self, new: Vec<EditorCell>) {
        let order = self.cells.iter().map(|it| it.cell.clone()).collect();
        self.to_nb.push_back(EditorEvent::Cells { order, new });
    }

    fn pump(&mut self) {
        while let Some(request) = self.live.poll() {
            self.to_editor.push_back(request);
        }
    }

    /// Does what `nb` asks for; `types` says that the editor refuses since the person types just now.
    fn take_request(&mut self, types: bool) {
        let Some(request) = self.to_editor.pop_front() else {
            return;
        };
        let answer = match request {
            EditorRequest::Set {
                seq,
                cell,
                was,
                source,
                ..
            } => {
                let has = self.cells.iter_mut().find(|it| it.cell == cell);
                match has {
                    Some(has) if has.source == was && !types => {
                        has.source = source;
                        self.unreported.remove(&cell);
                        self.is_dirty = true;
                        reached("set");
                        EditorEvent::Applied { seq }
                    }
                    has => refused(seq, has.map(|it| it.source.clone()), types),
                }
            }
            EditorRequest::Insert {
                seq, after, new, ..
            } => {
                let at = match &after {
                    None => Some(0),
                    Some(after) => {
                        let before = self.cells.iter().position(|it| it.cell == *after);
                        before.map(|at| at + 1)
                    }
                };
                match at {
                    Some(at) if !types => {
                        self.cells.insert(at, new);
                        self.is_dirty = true;
                        reached("inserted");
                        EditorEvent::Applied { seq }
                    }
                    _ => refused(seq, None, types),
                }
            }
            EditorRequest::Remove { seq, cell, was, .. } => {
                let at = self.cells.iter().position(|it| it.cell == cell);
                match at {
                    Some(at) if self.cells[at].source == was && !types => {
                        self.cells.remove(at);
                        self.conflicts.remove(&cell);
                        self.unreported.remove(&cell);
                        self.is_dirty = true;
                        reached("removed");
                        EditorEvent::Applied { seq }
                    }
                    at => refused(seq, at.map(|at| self.cells[at].source.clone()), types),
                }
            }
            EditorRequest::Order { seq, order, .. } if !types => {
                self.sort(&order);
                self.is_dirty = true;
                reached("moved");
                EditorEvent::Applied { seq }
            }
            EditorRequest::Order { seq, .. } => refused(seq, None, types),
            EditorRequest::Metadata {
                seq,
                cell: Some(cell),
                metadata,
                ..
            } if self.cells.iter().any(|it| it.cell == cell) && !types => {
                reached("metadata");
                let tag = metadata.get("tag").and_then(serde_json::Value::as_u64);
                self.data.entry(cell).or_default().tag = tag;
                self.is_dirty = true;
                EditorEvent::Applied { seq }
            }
            EditorRequest::Outputs {
                seq,
                cell,
                outputs,
                execution_count,
                ..
            } if self.cells.iter().any(|it| it.cell == cell) => {
                reached("outputs");
                assert_eq!(outputs.len(), usize::from(execution_count.is_some()));
                self.data.entry(cell).or_default().count = execution_count;
                self.is_dirty = true;
                EditorEvent::Applied { seq }
            }
            EditorRequest::Metadata { seq, .. } | EditorRequest::Outputs { seq, .. } => {
                refused(seq, None, types)
            }
            EditorRequest::Conflict { cell, theirs, .. } => {
                reached("a conflict is shown");
                if self.cells.iter().any(|it| it.cell == cell) {
                    self.conflicts.insert(cell, theirs);
                }
                return;
            }
            EditorRequest::Overwritten { theirs, .. } => {
                self.offered.extend(words(&theirs));
                return;
            }
            EditorRequest::Settled { cell } => {
                reached("a conflict is over");
                self.conflicts.remove(&cell);
                return;
            }
            EditorRequest::Synced { stamp, .. } => {
                reached("synced");
                self.seen = stamp.parse().unwrap();
                self.synced = Some(stamp);
                return;
            }
            EditorRequest::Reopen => {
                reached("open again");
                self.unreported.clear();
                self.to_editor.clear();
                EditorEvent::Open(edited(self.cells.clone()))
            }
            EditorRequest::Base { .. } => unreachable!("no editor takes texts alone"),
            EditorRequest::Store { .. } => unreachable!("no document is in a room"),
        };
        self.to_nb.push_back(answer);
    }

    fn sort(&mut self, order: &[String]) {
        let as_notebook = {
            let mut document = notebook(&[]);
            for (at, cell) in self.cells.iter().enumerate() {
                let new = NewCell {
                    id: cell.cell.clone(),
                    cell_type: cell.cell_type,
                    source: String::new(),
                    metadata: None,
                };
                document.insert(at, &new).unwrap();
            }
            document
        };
        let mut cells: HashMap<_, _> = self
            .cells
            .drain(..)
            .map(|it| (it.cell.clone(), it))
            .collect();
        let sorted = in_order(&as_notebook, order);
        self.cells = sorted.iter().map(|it| cells.remove(it).unwrap()).collect();
    }
}

fn refused(seq: u64, source: Option<String>, types: bool) -> EditorEvent {
    reached(match types {
        true => "refused, the person types",
        false => "refused, another text",
    });
    EditorEvent::Refused { seq, source }
}
