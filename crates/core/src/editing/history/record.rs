//! Records a notebook's changes: those of `nb`'s own commands, and those of other programs between
//! them.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use super::keep::Versions;
use super::ledger_content::{self, EditLine, Head, Intent, LedgerContent, Watched};
use super::steps::{self, Manifest};
use super::{EDIT_TIMEOUT, READ_TIMEOUT, git_head, overwritten};
use crate::activity::participants::joined;
use crate::editing::notebook_file::NotebookFile;
use crate::editing::transaction::TransactionResult;
use crate::kernel::process::Process;
use crate::notebook::{Cell, CellChange, ChangeKind, Document, ExactBytes, Revision};
use crate::project::Project;
use crate::project::event::{
    CellStep, Event, EventKind, NotebookChange, OverwrittenEdit, requests,
};
use crate::project::fresh_id;
use crate::project::joined::JoinedFrontEnd;
use crate::project::ledger::Ledger;
use crate::project::live_editor::LiveEditor;

/// How many of the journal's last entries are compared with the ledger. A process that was killed between
/// its writes to the journal and to the ledger leaves one or two.
const LAST: usize = 20;

/// How many of the journal's last bytes are searched for them.
const LAST_BYTES: u64 = 1 << 20;

/// The command that makes an edit, as the journal names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EditCommand {
    /// `edit`, `insert`, `rm`, `move`, `clear`, `split`, `join`, `apply`, `undo`, `restore` or `fmt`.
    pub name: String,
    /// Whether checks are skipped: the last writer wins.
    pub forced: bool,
    /// The op that it undoes.
    pub undoes: Option<String>,
}

/// The recording of one command that reads or edits a notebook. It holds the ledger's lock, so that the
/// ledger records changes in the order in which they reach the file.
///
/// A failure to record is logged and fails neither reading nor editing.
#[derive(Debug)]
pub struct Recording<'a> {
    notebook: &'a NotebookFile,
    by: &'a str,
    /// `None` if the lock cannot be had, or another process holds it too long.
    ledger: Option<Ledger>,
    content: Option<LedgerContent>,
    /// The command's edit: its name in the journal, and the command.
    edit: Option<(String, &'a EditCommand)>,
    /// Whether the command's intended change was written into the ledger.
    is_intended: bool,
}

impl<'a> Recording<'a> {
    /// Waits for the ledger's lock in order to read the notebook.
    pub fn read(notebook: &'a NotebookFile, by: &'a str) -> Self {
        Self::begin(notebook, by, READ_TIMEOUT)
    }

    /// Waits for the ledger's lock in order to edit the notebook.
    pub fn edit(notebook: &'a NotebookFile, by: &'a str, command: &'a EditCommand) -> Self {
        Self {
            edit: Some((fresh_id(), command)),
            ..Self::begin(notebook, by, EDIT_TIMEOUT)
        }
    }

    fn begin(notebook: &'a NotebookFile, by: &'a str, within: Duration) -> Self {
        let ledger = notebook.project.ledger(&notebook.key, within);
        let ledger = ledger.inspect_err(|error| warn(notebook, error)).ok();
        let content = ledger.as_ref().and_then(Ledger::read);
        Self {
            notebook,
            by,
            ledger,
            content,
            edit: None,
            is_intended: false,
        }
    }

    /// Returns whether the cells are those of the ledger.
    fn is_current(&self, document: &Document) -> bool {
        let content = self.content.as_ref();
        content
            .is_some_and(|content| content.intent.is_none() && has_cells(&content.cells, document))
    }

    /// Returns whether the journal has each change of a notebook that was touched.
    pub fn has_all(&self, document: &Document) -> bool {
        self.ledger.is_some() && self.is_current(document)
    }

    /// Compares a notebook, which was read under the ledger's lock, with the ledger, and records what other
    /// programs have saved since.
    pub fn touch(&mut self, document: &Document) {
        if self.ledger.is_some() && !self.is_current(document) {
            let done = self.catch_up(document);
            let _ = done.inspect_err(|error| warn(self.notebook, error));
        }
    }

    fn catch_up(&mut self, document: &Document) -> io::Result<()> {
        let manifest = steps::manifest(document);
        let Some(mut content) = self.content.take() else {
            let mut versions = Versions::default();
            for (cell, (_, revision)) in document.cells().iter().zip(&manifest) {
                versions.bare(cell, *revision);
            }
            versions.keep(&self.notebook.project);
            return self.write(LedgerContent::new(&self.notebook.key, manifest));
        };
        let ops = self.replay(&mut content);
        if let Some(Intent { by, change }) = content.intent.take()
            && let Some(op) = &change.op
            && self.edit.as_ref().is_none_or(|(own, _)| own != op)
            && !ops.contains(op)
            && is_in_file(&change, &content.cells, &manifest)
        {
            // The process was killed before it recorded its edit.
            self.append_change(&mut content, change, Some(by))?;
        }
        let steps = steps::between(&content.cells, &manifest);
        if !steps.is_empty() {
            let in_place = content.file.is_some() && content.file == self.file();
            self.record_save(&mut content, document, &manifest, steps, in_place)?;
        }
        self.write(content)
    }

    /// Applies changes to the ledger that are in the journal but not in the ledger: the process that
    /// recorded them was killed in between. Returns the ops of the last edits.
    fn replay(&self, content: &mut LedgerContent) -> Vec<String> {
        let events = self.notebook.project.events(&self.notebook.key);
        let events = events.within(LAST_BYTES);
        let entries = events.filter_map(|event| {
            let by = event.actor();
            Some((event.into_change()?, by))
        });
        let mut entries: Vec<_> = entries.take(LAST).collect();
        let ops = entries.iter().filter_map(|(change, _)| change.op.clone());
        let ops = ops.collect();
        let last = entries.first();
        if last.is_none_or(|(last, _)| last.after == content.revision) {
            return ops;
        }
        let mut newer = entries.iter();
        let newer = newer.position(|(change, _)| change.before == content.revision);
        entries.truncate(newer.map_or(0, |at| at + 1));
        for (change, by) in entries.into_iter().rev() {
            if change.before != content.revision {
                continue;
            }
            content.advance(steps::forth(&content.cells, &change.changes));
            let recorded = match (&change.op, &by) {
                (Some(op), Some(by)) => self.watch(content, op, by, &change),
                _ => self.forget_lost(content, &change.overwritten),
            };
            let _ = recorded.inspect_err(|error| warn(self.notebook, error));
        }
        ops
    }

    /// Adds an edit to those that are compared with later saves.
    fn watch(
        &self,
        content: &mut LedgerContent,
        op: &str,
        by: &str,
        change: &NotebookChange,
    ) -> io::Result<()> {
        let Some(ledger) = &self.ledger else {
            return Ok(());
        };
        // Those of an earlier version's ledger come first.
        let mut lines: Vec<_> = content.watched.drain(..).map(EditLine::Edit).collect();
        lines.extend(EditLine::of(op, by, change));
        ledger.add_edits(&lines)
    }

    /// Returns the edits that are compared with the next save.
    fn watched(&self, content: &LedgerContent) -> Vec<Watched> {
        let earlier = content.watched.iter().cloned().map(EditLine::Edit);
        let lines = self.ledger.iter().flat_map(Ledger::edits);
        ledger_content::watched(earlier.chain(lines))
    }

    /// Replaces the edits that are compared with the next save.
    fn keep_watched(&self, content: &mut LedgerContent, watched: &[Watched]) -> io::Result<()> {
        content.watched.clear();
        match &self.ledger {
            Some(ledger) => ledger.replace_edits(watched),
            None => Ok(()),
        }
    }

    /// Removes edits that a save wiped out from those that are compared with the next one.
    fn forget_lost(&self, content: &mut LedgerContent, lost: &[OverwrittenEdit]) -> io::Result<()> {
        if lost.is_empty() {
            return Ok(());
        }
        let mut watched = self.watched(content);
        let is = |edit: &Watched, lost: &OverwrittenEdit| {
            (&lost.cell, &lost.op) == (&edit.cell, &edit.op)
        };
        watched.retain(|edit| !lost.iter().any(|lost| is(edit, lost)));
        self.keep_watched(content, &watched)
    }

    /// Records another program's save. `in_place` says that it was made into the file that `nb`
    /// wrote; otherwise the save may have been merged with a write of `nb` at the same moment.
    fn record_save(
        &self,
        content: &mut LedgerContent,
        document: &Document,
        manifest: &Manifest,
        steps: Vec<CellStep>,
        in_place: bool,
    ) -> io::Result<()> {
        let cells = by_id(document);
        let mut versions = Versions::default();
        for step in &steps {
            let cell = cells.get(&*step.cell).zip(step.after);
            if let Some((cell, after)) = cell.filter(|_| step.before != step.after) {
                versions.bare(cell, after);
            }
        }
        versions.keep(&self.notebook.project);
        let git = git_head::moved_with(&self.notebook.real);
        let (by, joined) = match self.saved_in_editor(document) {
            Some(by) if git.is_none() => (Some(by), Vec::new()),
            _ => self.saved_by(&steps, &cells, git.is_some()),
        };
        let git = git.filter(|_| by.is_none());
        let text = |revision: Revision| super::version_source(self.notebook, revision);
        let (mut watched, before) = (self.watched(content), &content.cells);
        let known = watched.len();
        let mut overwritten =
            overwritten::take_overwritten(&mut watched, before, manifest, in_place, &text);
        if self.notebook.project.objects().is_none() {
            // The version is not stored, so it cannot be restored.
            overwritten.iter_mut().for_each(|one| one.revision = None);
        }
        let change = NotebookChange {
            overwritten,
            joined,
            git,
            ..NotebookChange::of(content.revision, content.revision, steps)
        };
        self.append_change(content, change, by)?;
        match watched.len() == known {
            true => Ok(()),
            false => self.keep_watched(content, &watched),
        }
    }

    /// Returns the person in whose editor a notebook was saved, if the editor has said so through `nb live`.
    fn saved_in_editor(&self, document: &Document) -> Option<String> {
        let revision = document.revision();
        let has_saved = |editor: &LiveEditor| {
            let mut notebooks = editor.notebooks.iter();
            notebooks.any(|it| it.notebook == self.notebook.key && it.saved == Some(revision))
        };
        let mut editors = self.notebook.project.live_editors().into_iter();
        let editor = editors.find(|it| has_saved(it) && Process::is_live_editor_here(it))?;
        Some(editor.by())
    }

    /// Returns the actor of a front end that has saved, if there is evidence of that: it has just run the new text
    /// of one of the cells; or it is Jupyter's, whose checkpoint is the file. Otherwise any program may have written
    /// the file, and the front ends that are joined are returned.
    fn saved_by(
        &self,
        steps: &[CellStep],
        cells: &HashMap<&str, &Cell>,
        is_by_git: bool,
    ) -> (Option<String>, Vec<String>) {
        let (project, key) = (&self.notebook.project, &self.notebook.key);
        let owner = project.state().map(|state| state.owner_key(key));
        let owner = owner.unwrap_or_else(|_| key.clone());
        let mut front_ends = joined(project);
        front_ends.retain(|it| {
            it.session
                .as_ref()
                .is_some_and(|it| it == key || *it == owner)
        });
        front_ends.sort_by(|one, other| one.front_end.cmp(&other.front_end));
        front_ends.dedup_by(|one, other| one.front_end == other.front_end);
        if front_ends.is_empty() {
            return (None, Vec::new());
        }
        let changed = steps.iter().filter(|step| step.before != step.after);
        let changed = changed.filter_map(|step| cells.get(&*step.cell));
        let texts: HashSet<_> = changed.map(|cell| cell.source()).collect();
        let events = project.events_of(&[key, &owner]).within(LAST_BYTES);
        // What was run before the last change was in it.
        let since = events.take_while(|event| event.change().is_none() || event.session != *key);
        let ran = requests(since)
            .filter(|event| event.notebook() == key)
            .find_map(|event| {
                let code = event.request()?.code.as_deref()?;
                let by = event.by.as_ref();
                let by = by.filter(|_| !is_by_git && texts.contains(code))?;
                front_ends
                    .iter()
                    .map(JoinedFrontEnd::by)
                    .find(|it| it == by)
            });
        let mut jupyter = front_ends
            .iter()
            .filter(|it| it.front_end != JoinedFrontEnd::VS_CODE);
        let by = match (ran, jupyter.next(), jupyter.next()) {
            (Some(by), ..) => Some(by),
            (None, Some(only), None) if self.is_checkpoint() => Some(only.by()),
            _ => {
                return (
                    None,
                    front_ends.into_iter().map(|it| it.front_end).collect(),
                );
            }
        };
        (by, Vec::new())
    }

    /// Returns whether the file is as Jupyter's last checkpoint: JupyterLab makes one when a person saves, and copies
    /// the file's time.
    fn is_checkpoint(&self) -> bool {
        let file = &self.notebook.real;
        let checkpoint = file.file_stem().and_then(|stem| {
            let name = format!("{}-checkpoint.ipynb", stem.to_str()?);
            Some(file.parent()?.join(".ipynb_checkpoints").join(name))
        });
        let stamp = |path: &Path| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.len(), found.modified().ok()?))
        };
        checkpoint.is_some_and(|it| stamp(&it).is_some_and(|it| stamp(file) == Some(it)))
    }

    /// Writes the intended change into the ledger before the file is written. If the process is killed
    /// before it has recorded its edit, the edit does not count as another program's save. `before` must
    /// have been touched last.
    pub fn intend(&mut self, before: &Document, after: &Document, changes: &[CellChange]) {
        if self.ledger.is_none() {
            return;
        }
        let Some(mut content) = self.content.take() else {
            return;
        };
        let change = self.change(&content, before, after, changes);
        if change.changes.is_empty() {
            content.intent = None;
            self.content = Some(content);
            return;
        }
        let by = self.by.to_owned();
        content.intent = Some(Intent { by, change });
        self.is_intended = true;
        let done = self.write(content);
        let _ = done.inspect_err(|error| warn(self.notebook, error));
    }

    /// Returns the command's changes of the cells, and stores the versions that an undo needs.
    fn change(
        &self,
        content: &LedgerContent,
        before: &Document,
        after: &Document,
        changes: &[CellChange],
    ) -> NotebookChange {
        let manifest = steps::manifest_after(after, before, &content.cells);
        let mut steps = steps::between(&content.cells, &manifest);
        let (old, new) = (by_id(before), by_id(after));
        let mut versions = Versions::default();
        for step in steps.iter().filter(|step| step.before != step.after) {
            for (cells, revision) in [(&old, step.before), (&new, step.after)] {
                if let Some((cell, revision)) = cells.get(&*step.cell).zip(revision) {
                    versions.bare(cell, revision);
                }
            }
        }
        // If the command has removed results of a cell's run, the cell is stored with them.
        let mut compared = HashSet::new();
        for change in changes {
            let Some(cell) = old.get(&*change.cell) else {
                continue;
            };
            let now = new.get(&*change.cell).copied();
            // An undo or a restore brings outputs back; that can be undone too.
            let lost = cell.has_other_results_than(now);
            let came = now.is_some_and(|now| now.has_other_results_than(Some(cell)));
            let only_came = came && !cell.has_run();
            if change.kind == ChangeKind::Nothing
                || !compared.insert(&*change.cell)
                || !(lost || came)
            {
                continue;
            }
            let revision = cell.revision();
            let kept = lost.then(|| versions.whole(cell, revision)).flatten();
            let lasting = [ChangeKind::Removed, ChangeKind::Edited];
            let step = steps
                .iter_mut()
                .find(|step| step.cell == change.cell && lasting.contains(&step.kind));
            match step {
                Some(step) => (step.kept, step.came) = (kept, only_came),
                None => steps.push(CellStep {
                    before: Some(revision),
                    after: Some(revision),
                    kept,
                    came: only_came,
                    ..CellStep::new(&change.cell, ChangeKind::Outputs, change.index)
                }),
            }
        }
        let exact = match steps.is_empty() {
            true => None,
            false => ExactBytes::of(before, after).and_then(|exact| versions.exact(&exact)),
        };
        versions.keep(&self.notebook.project);
        let mut change = NotebookChange {
            exact,
            ..NotebookChange::of(content.revision, content.revision, steps)
        };
        if let Some((op, command)) = &self.edit {
            change.op = Some(op.clone());
            change.command = Some(command.name.clone());
            change.forced = command.forced;
            change.undoes.clone_from(&command.undoes);
        }
        change
    }

    /// Records the command's edit, and returns the name by which it can be undone; `None` if it
    /// changed nothing or cannot be recorded. `intended` is the notebook that the command wanted to
    /// write.
    pub fn done(
        mut self,
        written: &TransactionResult,
        intended: &Document,
        changes: &[CellChange],
    ) -> Option<String> {
        self.ledger.as_ref()?;
        let done = self.record_edit(written, intended, changes);
        done.inspect_err(|error| warn(self.notebook, error)).ok()?
    }

    fn record_edit(
        &mut self,
        written: &TransactionResult,
        intended: &Document,
        changes: &[CellChange],
    ) -> io::Result<Option<String>> {
        let Some(mut content) = self.content.take() else {
            return Ok(None);
        };
        let change = match (&written.theirs, content.intent.take()) {
            (None, Some(intent)) if steps::is_untouched(intended, &written.after) => intent.change,
            (theirs, _) => {
                let base = theirs.as_ref().unwrap_or(&written.before);
                // Only other programs' saves in between are new to the ledger.
                let manifest = steps::manifest(base);
                let saved = steps::between(&content.cells, &manifest);
                if !saved.is_empty() {
                    self.record_save(&mut content, base, &manifest, saved, false)?;
                }
                self.change(&content, base, &written.after, changes)
            }
        };
        if change.changes.is_empty() && written.conflicts.is_empty() {
            match self.is_intended || written.theirs.is_some() {
                true => self.write(content)?,
                false => self.content = Some(content),
            }
            return Ok(None);
        }
        let op = change.op.clone().filter(|_| !change.changes.is_empty());
        let change = NotebookChange {
            conflicts: written.conflicts.len(),
            ..change
        };
        self.append_change(&mut content, change, Some(self.by.to_owned()))?;
        self.write(content)?;
        Ok(op)
    }

    /// Appends a change of the ledger's cells to the journal, and applies it to the ledger.
    fn append_change(
        &self,
        content: &mut LedgerContent,
        mut change: NotebookChange,
        by: Option<String>,
    ) -> io::Result<()> {
        let cells = steps::forth(&content.cells, &change.changes);
        (change.before, change.after) = (content.revision, steps::revision(&cells));
        let kind = match &change.op {
            Some(_) => EventKind::Edited(change),
            None => EventKind::Saved(change),
        };
        let event = Event {
            by,
            ..Event::now(&self.notebook.key, kind)
        };
        self.notebook.project.journal()?.append(&event)?;
        if let EventKind::Edited(change) = &event.kind
            && let Some(op) = &change.op
        {
            self.watch(content, op, event.by.as_deref().unwrap_or_default(), change)?;
        }
        content.advance(cells);
        Ok(())
    }

    /// Returns the device and inode of the notebook's file.
    fn file(&self) -> Option<(u64, u64)> {
        let found = std::fs::metadata(&self.notebook.real).ok()?;
        Some((found.dev(), found.ino()))
    }

    fn write(&mut self, mut content: LedgerContent) -> io::Result<()> {
        content.file = self.file();
        let content = self.content.insert(content);
        self.notebook
            .project
            .update_confined(&self.notebook.key, &content.cells);
        match &self.ledger {
            Some(ledger) => ledger.write(content),
            None => Ok(()),
        }
    }
}

/// Returns whether a notebook's cells are those of its ledger; false if another process holds the
/// ledger. For most commands that read this is the only step, and it does not parse the list of cells.
pub fn is_known(notebook: &NotebookFile, document: &Document) -> bool {
    let ledger = notebook.project.ledger(&notebook.key, Duration::ZERO).ok();
    let head = ledger.and_then(|ledger| ledger.read::<Head>());
    head.is_some_and(|head| head.intent.is_none() && head.revision == document.revision())
}

fn has_cells(recorded: &Manifest, document: &Document) -> bool {
    let cells = document.cells();
    recorded.len() == cells.len()
        && recorded
            .iter()
            .zip(cells)
            .all(|((id, revision), cell)| id == cell.id() && *revision == cell.revision())
}

fn by_id(document: &Document) -> HashMap<&str, &Cell> {
    let cells = document.cells().iter();
    cells.map(|cell| (cell.id(), cell)).collect()
}

/// Returns whether a document has most of the cells that a notebook had when `nb` last saw it; `None` if `nb`
/// never saw it. Cells that were edited since count: their ids have stayed.
pub fn resembles(project: &Project, key: &str, document: &Document) -> Option<bool> {
    let content = project.last_ledger::<LedgerContent>(key)?;
    let cells = by_id(document);
    let same = content.cells.iter();
    let same = same.filter(|(id, revision)| {
        let by_text = || document.cells().iter().any(|it| it.revision() == *revision);
        cells.contains_key(id.as_str()) || by_text()
    });
    Some(same.count() * 2 > content.cells.len() || content.cells.is_empty() && cells.is_empty())
}

/// Returns whether `nb` has ever seen a notebook, and keeps its history.
pub fn is_kept(project: &Project, key: &str) -> bool {
    project.last_ledger::<LedgerContent>(key).is_some()
}

/// Returns whether an edit reached the file: whether the file has one of its changes.
fn is_in_file(change: &NotebookChange, before: &Manifest, after: &Manifest) -> bool {
    let of = |cells: &Manifest, id: &str| {
        let cell = cells.iter().find(|(its, _)| its == id);
        cell.map(|(_, revision)| *revision)
    };
    let index = |cells: &Manifest, id: &str| cells.iter().position(|(its, _)| its == id);
    change.changes.iter().any(|step| match step.kind {
        ChangeKind::Inserted => of(after, &step.cell).is_some(),
        ChangeKind::Removed => of(after, &step.cell).is_none(),
        ChangeKind::Edited => of(after, &step.cell) == step.after,
        ChangeKind::Moved => {
            before.len() == after.len() && index(after, &step.cell) == Some(step.index)
        }
        ChangeKind::Outputs | ChangeKind::Nothing => false,
    })
}

fn warn(notebook: &NotebookFile, error: &io::Error) {
    let notebook = notebook.path.display();
    tracing::warn!(%error, %notebook, "a change of the notebook cannot be recorded");
}
