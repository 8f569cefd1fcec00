//! Writing down what becomes of a notebook: by `nb`'s own commands, and by others between them.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use jiff::Timestamp;

use super::keep::Versions;
use super::known::{Head, Intent, Known};
use super::steps::{self, Manifest};
use super::{Deed, GLANCE, TURN, overwritten};
use crate::activity::participants::joined;
use crate::editing::notebook_file::NotebookFile;
use crate::editing::transaction::Written;
use crate::notebook::{Cell, CellChange, ChangeKind, Document, ExactBytes, Revision};
use crate::project::event::{CellStep, Event, EventKind, NotebookChange, OverwrittenEdit};
use crate::project::fresh_id;
use crate::project::ledger::Ledger;

/// So many of the journal's last entries are looked through for what the ledger has missed: a
/// process that was killed has written one or two.
const LAST: usize = 20;

/// One command's look at a notebook, or its change of it. The ledger is locked as long as it lives,
/// so that the ledger learns of changes in the order in which they reach the file.
///
/// That something cannot be written down keeps nobody from reading and editing: it is logged.
#[derive(Debug)]
pub struct Recording<'a> {
    page: &'a NotebookFile,
    by: &'a str,
    /// None where it cannot be had.
    ledger: Option<Ledger>,
    known: Option<Known>,
    /// What this command itself means to write.
    own: Option<String>,
}

impl<'a> Recording<'a> {
    /// Waits for the ledger to look at the notebook, and reads it.
    pub fn look(page: &'a NotebookFile, by: &'a str) -> Self {
        Self::begin(page, by, GLANCE)
    }

    /// Waits for the ledger to change the notebook, and reads it.
    pub fn edit(page: &'a NotebookFile, by: &'a str) -> Self {
        Self::begin(page, by, TURN)
    }

    fn begin(page: &'a NotebookFile, by: &'a str, within: Duration) -> Self {
        let ledger = page.project.ledger(&page.key, within);
        let ledger = ledger.inspect_err(|error| warn(page, error)).ok();
        let known = ledger.as_ref().and_then(Ledger::read);
        Self {
            page,
            by,
            ledger,
            known,
            own: None,
        }
    }

    /// Whether nothing has happened to the cells since the ledger was written.
    fn knows(&self, document: &Document) -> bool {
        let known = self.known.as_ref();
        known.is_some_and(|known| known.intent.is_none() && is_same(&known.cells, document))
    }

    /// Compares a notebook that was read after the recording has begun with the ledger, and writes
    /// down what others saved since.
    pub fn touch(&mut self, document: &Document) {
        if self.ledger.is_some() && !self.knows(document) {
            let done = self.catch_up(document);
            let _ = done.inspect_err(|error| warn(self.page, error));
        }
    }

    fn catch_up(&mut self, document: &Document) -> io::Result<()> {
        let there = steps::manifest(document);
        let Some(mut known) = self.known.take() else {
            let mut versions = Versions::default();
            for (cell, (_, revision)) in document.cells().iter().zip(&there) {
                versions.bare(cell, *revision);
            }
            versions.keep(&self.page.project);
            return self.write(Known::new(&self.page.key, there));
        };
        let told = self.replay(&mut known);
        if let Some(intent) = known.intent.take()
            && self.own.as_ref() != Some(&intent.op)
            && !told.contains(&intent.op)
            && intent.has_landed(&known.cells, &there)
        {
            self.finish(&mut known, intent)?;
        }
        let steps = steps::between(&known.cells, &there);
        if !steps.is_empty() {
            let in_place = known.file.is_some() && known.file == self.file();
            self.saved(&mut known, document, there, steps, in_place)?;
        }
        self.write(known)
    }

    /// Takes in what the journal tells and the ledger does not: the process that wrote it down was
    /// killed in between. Returns the ops of the last edits.
    fn replay(&self, known: &mut Known) -> Vec<String> {
        let events = self.page.project.events(&self.page.key);
        let entries = events.filter_map(|event| {
            let by = event.actor();
            Some((event.into_change()?, by))
        });
        let mut entries: Vec<_> = entries.take(LAST).collect();
        let ops = entries
            .iter()
            .filter_map(|(recorded, _)| recorded.op.clone());
        let ops = ops.collect();
        if entries
            .first()
            .is_none_or(|(last, _)| last.after == known.revision)
        {
            return ops;
        }
        let newer = entries
            .iter()
            .position(|(recorded, _)| recorded.before == known.revision);
        entries.truncate(newer.map_or(0, |at| at + 1));
        for (recorded, by) in entries.into_iter().rev() {
            if recorded.before != known.revision {
                continue;
            }
            known.advance(steps::forth(&known.cells, &recorded.changes));
            match (&recorded.op, &by) {
                (Some(op), Some(by)) => known.watch(op, by, &recorded.changes),
                _ => known.watched.retain(|edit| {
                    let is_lost =
                        |lost: &OverwrittenEdit| (&lost.cell, &lost.op) == (&edit.cell, &edit.op);
                    !recorded.overwritten.iter().any(is_lost)
                }),
            }
        }
        ops
    }

    /// Writes down the edit of a process that was killed before it could do so itself.
    fn finish(&self, known: &mut Known, intent: Intent) -> io::Result<()> {
        let after = steps::forth(&known.cells, &intent.steps);
        let recorded = NotebookChange {
            op: Some(intent.op.clone()),
            deed: Some(intent.deed.op),
            before: known.revision,
            after: steps::revision(&after),
            changes: intent.steps,
            forced: intent.deed.forced,
            undoes: intent.deed.undoes,
            conflicts: 0,
            exact: intent.exact,
            overwritten: Vec::new(),
        };
        known.watch(&intent.op, &intent.by, &recorded.changes);
        self.journal(recorded, Some(intent.by))?;
        known.advance(after);
        Ok(())
    }

    /// Writes down what somebody else saved: `in_place`, or so that it may have been merged with what
    /// `nb` wrote at the same moment.
    fn saved(
        &self,
        known: &mut Known,
        document: &Document,
        there: Manifest,
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
        versions.keep(&self.page.project);
        let by = self.front_end();
        let text = |revision: Revision| super::version_source(self.page, revision);
        let (watched, before) = (&mut known.watched, &known.cells);
        let mut lost = overwritten::judge(watched, before, &there, in_place, &text);
        if self.page.project.objects().is_none() {
            // There is nothing that could be brought back.
            lost.iter_mut().for_each(|one| one.revision = None);
        }
        let recorded = NotebookChange {
            op: None,
            deed: None,
            before: known.revision,
            after: steps::revision(&there),
            changes: steps,
            forced: false,
            undoes: None,
            conflicts: 0,
            exact: None,
            overwritten: lost,
        };
        self.journal(recorded, by)?;
        known.advance(there);
        Ok(())
    }

    /// Returns the name of whoever can have saved: the one whose front end is joined, if it is one.
    fn front_end(&self) -> Option<String> {
        let state = self.page.project.state().ok()?;
        let keys = [self.page.key.clone(), state.owner_key(&self.page.key)];
        let here = |key: &Option<String>| key.as_ref().is_some_and(|key| keys.contains(key));
        let joined = joined(&self.page.project).into_iter();
        let names: HashSet<_> = joined
            .filter(|joined| here(&joined.session))
            .map(|joined| joined.by())
            .collect();
        let mut names = names.into_iter();
        names.next().filter(|_| names.next().is_none())
    }

    /// Notes what is about to be written: a process that is killed before it can say that it was
    /// done shall not have its edit taken for a human's. `before` is what was touched last.
    pub fn intend(
        &mut self,
        before: &Document,
        after: &Document,
        changes: &[CellChange],
        deed: &Deed,
    ) {
        if self.ledger.is_some()
            && let Some(mut known) = self.known.take()
        {
            let (steps, exact) = self.steps(&known, before, after, changes);
            known.intent = (!steps.is_empty()).then(|| Intent {
                op: fresh_id(),
                by: self.by.to_owned(),
                at: Timestamp::now(),
                deed: deed.clone(),
                steps,
                exact,
            });
            if let Some(intent) = &known.intent {
                self.own = Some(intent.op.clone());
                let done = self.write(known);
                let _ = done.inspect_err(|error| warn(self.page, error));
            } else {
                self.known = Some(known);
            }
        }
    }

    /// Returns what a command does to the cells, and keeps the versions that are needed to undo it.
    fn steps(
        &self,
        known: &Known,
        before: &Document,
        after: &Document,
        changes: &[CellChange],
    ) -> (Vec<CellStep>, Option<String>) {
        let there = steps::manifest_after(after, before, &known.cells);
        let mut steps = steps::between(&known.cells, &there);
        let (old, new) = (by_id(before), by_id(after));
        let mut versions = Versions::default();
        for step in &steps {
            let (old, new) = (old.get(&*step.cell), new.get(&*step.cell));
            if step.before != step.after {
                if let Some((cell, revision)) = old.zip(step.before) {
                    versions.bare(cell, revision);
                }
                if let Some((cell, revision)) = new.zip(step.after) {
                    versions.bare(cell, revision);
                }
            }
        }
        // What a cell's run had left is kept where the command has taken it away.
        let mut looked = HashSet::new();
        for change in changes {
            let Some(cell) = old.get(&*change.cell) else {
                continue;
            };
            let now = new.get(&*change.cell).copied();
            // An undo brings outputs back, and so does a restore: that is something to take back too.
            let lost = cell.has_other_results_than(now);
            let came = now.is_some_and(|now| now.has_other_results_than(Some(cell)));
            let only_came = came && !cell.has_run();
            if change.what == ChangeKind::Nothing
                || !looked.insert(&*change.cell)
                || !(lost || came)
            {
                continue;
            }
            let revision = cell.revision();
            let kept = lost.then(|| versions.whole(cell, revision)).flatten();
            let lasting = [ChangeKind::Removed, ChangeKind::Edited];
            let step = steps
                .iter_mut()
                .find(|step| step.cell == change.cell && lasting.contains(&step.what));
            match step {
                Some(step) => (step.kept, step.came) = (kept, only_came),
                None => steps.push(CellStep {
                    cell: change.cell.clone(),
                    what: ChangeKind::Outputs,
                    index: change.index,
                    from: None,
                    before: Some(revision),
                    after: Some(revision),
                    kept,
                    came: only_came,
                }),
            }
        }
        let exact = match steps.is_empty() {
            true => None,
            false => ExactBytes::of(before, after).and_then(|exact| versions.exact(&exact)),
        };
        versions.keep(&self.page.project);
        (steps, exact)
    }

    /// Writes down what a command has done, and returns the name by which it can be undone; none
    /// where it changed nothing, or nothing can be written down. `meant` is what it was to be.
    pub fn done(
        mut self,
        written: &Written,
        meant: &Document,
        changes: &[CellChange],
        deed: &Deed,
    ) -> Option<String> {
        self.ledger.as_ref()?;
        let done = self.write_down(written, meant, changes, deed);
        done.inspect_err(|error| warn(self.page, error)).ok()?
    }

    fn write_down(
        &mut self,
        written: &Written,
        meant: &Document,
        changes: &[CellChange],
        deed: &Deed,
    ) -> io::Result<Option<String>> {
        let Some(mut known) = self.known.take() else {
            return Ok(None);
        };
        let intent = known.intent.take();
        let (op, (steps, exact)) = match (&written.theirs, intent) {
            (None, Some(intent)) if steps::is_untouched(meant, &written.after) => {
                (intent.op, (intent.steps, intent.exact))
            }
            (theirs, intent) => {
                let base = theirs.as_ref().unwrap_or(&written.before);
                // Only what others saved in between is new to the ledger.
                let there = steps::manifest(base);
                let saved = steps::between(&known.cells, &there);
                if !saved.is_empty() {
                    self.saved(&mut known, base, there, saved, false)?;
                }
                let steps = self.steps(&known, base, &written.after, changes);
                (intent.map_or_else(fresh_id, |intent| intent.op), steps)
            }
        };
        if steps.is_empty() && written.conflicts.is_empty() {
            match self.own.is_some() || written.theirs.is_some() {
                true => self.write(known)?,
                false => self.known = Some(known),
            }
            return Ok(None);
        }
        let after = steps::forth(&known.cells, &steps);
        let recorded = NotebookChange {
            op: Some(op.clone()),
            deed: Some(deed.op.clone()),
            before: known.revision,
            after: steps::revision(&after),
            forced: deed.forced,
            undoes: deed.undoes.clone(),
            conflicts: written.conflicts.len(),
            exact,
            overwritten: Vec::new(),
            changes: steps,
        };
        let changed = !recorded.changes.is_empty();
        known.watch(&op, self.by, &recorded.changes);
        self.journal(recorded, Some(self.by.to_owned()))?;
        known.advance(after);
        self.write(known)?;
        Ok(changed.then_some(op))
    }

    fn journal(&self, change: NotebookChange, by: Option<String>) -> io::Result<()> {
        let kind = match change.op {
            Some(_) => EventKind::Edited(change),
            None => EventKind::Saved(change),
        };
        let event = Event {
            by,
            ..Event::now(&self.page.key, kind)
        };
        self.page.project.journal()?.append(&event)
    }

    /// Returns which file the notebook is now.
    fn file(&self) -> Option<(u64, u64)> {
        let found = std::fs::metadata(&self.page.real).ok()?;
        Some((found.dev(), found.ino()))
    }

    fn write(&mut self, mut known: Known) -> io::Result<()> {
        known.file = self.file();
        let known = self.known.insert(known);
        match &self.ledger {
            Some(ledger) => ledger.write(known),
            None => Ok(()),
        }
    }
}

/// Whether nothing has happened to a notebook's cells since its ledger was written: most looks end
/// here, without the list of the cells. Where somebody else has the ledger it is not said.
pub fn is_known(page: &NotebookFile, document: &Document) -> bool {
    let ledger = page.project.ledger(&page.key, Duration::ZERO).ok();
    let head = ledger.and_then(|ledger| ledger.read::<Head>());
    head.is_some_and(|head| head.intent.is_none() && head.revision == document.revision())
}

fn is_same(known: &Manifest, document: &Document) -> bool {
    let cells = document.cells();
    known.len() == cells.len()
        && known
            .iter()
            .zip(cells)
            .all(|((id, revision), cell)| id == cell.id() && *revision == cell.revision())
}

fn by_id(document: &Document) -> HashMap<&str, &Cell> {
    let cells = document.cells().iter();
    cells.map(|cell| (cell.id(), cell)).collect()
}

fn warn(page: &NotebookFile, error: &io::Error) {
    let notebook = page.path.display();
    tracing::warn!(%error, %notebook, "what becomes of the notebook cannot be written down");
}
