//! Executions, written into the project's journal.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::trouble::Trouble;
use crate::project::Project;
use crate::project::journal::{Entry, Journal};
use crate::route::{Execution, Phase};

/// One life of a session's kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Life {
    session: String,
    generation: u64,
    /// The notebook that is served, where the kernel is another's.
    notebook: Option<String>,
}

/// The journal of the project, as this proxy writes it.
///
/// Entries are collected and written together once the messages that led to them have gone on
/// their way: a lock on a file is no part of a cell's round trip.
pub(super) struct Log {
    by: String,
    journal: Option<RefCell<Journal>>,
    /// Whose kernel and which of its lives each number is that the bridge counts with.
    lives: RefCell<HashMap<u64, Life>>,
    started: RefCell<HashMap<(u64, String), Instant>>,
    unwritten: RefCell<Vec<Entry>>,
    /// Since when somebody holds the journal's lock, and when it is tried again.
    held: Cell<Option<Instant>>,
    again: Cell<Option<Instant>>,
    trouble: Trouble,
}

/// So many entries are kept for a journal that cannot be written; the oldest go first.
const UNWRITTEN: usize = 1000;

/// How long is waited for somebody who holds the journal's lock, which is for moments: meanwhile no message
/// passes.
const MOMENT: Duration = Duration::from_millis(2);

/// How often a lock is tried that was not had.
const AGAIN: Duration = Duration::from_millis(50);

/// A lock that is held for longer is told in the log.
const LONG: Duration = Duration::from_secs(1);

impl Log {
    /// Opens the journal. One that cannot be written is told once; work goes on without it.
    pub(super) fn open(project: &Project, by: String) -> Self {
        let journal = project
            .journal()
            .inspect_err(|error| tracing::warn!("the journal cannot be written: {error}"))
            .ok()
            .map(RefCell::new);
        Self {
            by,
            journal,
            lives: RefCell::default(),
            started: RefCell::default(),
            unwritten: RefCell::default(),
            held: Cell::new(None),
            again: Cell::new(None),
            trouble: Trouble::default(),
        }
    }

    /// Learns which life of which session's kernel the bridge means by a number, and for which
    /// notebook.
    pub(super) fn follow(&self, number: u64, session: &str, generation: u64, notebook: &str) {
        let life = Life {
            session: session.to_owned(),
            generation,
            notebook: (notebook != session).then(|| notebook.to_owned()),
        };
        self.lives.borrow_mut().insert(number, life);
    }

    /// Takes an interrupt by this front end's user; [`Log::write`] writes it.
    ///
    /// `number` is the bridge's for the kernel's present life.
    pub(super) fn interrupted(&self, number: u64, withdrawn: usize) {
        let Some(Life {
            session,
            generation,
            ..
        }) = self.life(number)
        else {
            return;
        };
        let mut entry = Entry::now("interrupted", &session);
        entry.generation = Some(generation);
        entry.by = Some(self.by.clone());
        entry.other.insert("withdrawn".to_owned(), withdrawn.into());
        self.unwritten.borrow_mut().push(entry);
    }

    fn life(&self, number: u64) -> Option<Life> {
        self.lives.borrow().get(&number).cloned()
    }

    /// Takes one step of an execution; [`Log::write`] writes it.
    pub(super) fn take(&self, execution: Execution) {
        let Some(life) = self
            .life(execution.generation)
            .filter(|_| self.journal.is_some())
        else {
            return;
        };
        let key = (execution.generation, execution.msg_id.clone());
        let is_others = matches!(execution.phase, Phase::Seen | Phase::Over { .. });
        let mut started = self.started.borrow_mut();
        let mut took = || started.remove(&key).map(|start| start.elapsed());
        let (event, status, took, raised) = match execution.phase {
            phase @ (Phase::Asked | Phase::Seen) => {
                started.insert(key, Instant::now());
                let event = if phase == Phase::Asked {
                    "asked"
                } else {
                    "seen"
                };
                (event, None, None, false)
            }
            Phase::Over { raised } => ("done", Some("seen".to_owned()), took(), raised),
            Phase::Done(status) => ("done", Some(status), took(), false),
        };
        let mut entry = Entry::now(event, &life.session);
        entry.generation = Some(life.generation);
        entry.msg_id = Some(execution.msg_id);
        // Of others' executions only their own name for themselves is known.
        entry.by = Some(if is_others {
            execution.username
        } else {
            self.by.clone()
        });
        entry.cell = execution.cell;
        entry.store_history = execution.store_history;
        entry.code = execution.code;
        entry.status = status;
        entry.raised = raised;
        entry.notebook = life.notebook.filter(|_| !is_others);
        entry.took_ms = took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        self.unwritten.borrow_mut().push(entry);
    }

    /// Returns when [`Log::write`] wants to be called.
    pub(super) fn due(&self) -> Option<Instant> {
        self.again.get()
    }

    /// Returns how many entries wait.
    pub(super) fn waiting(&self) -> usize {
        self.unwritten.borrow().len()
    }

    /// Writes what was taken; later, where somebody holds the journal's lock.
    pub(super) fn write(&self) {
        let entries = self.unwritten.take();
        self.again.set(None);
        let Some(journal) = self.journal.as_ref().filter(|_| !entries.is_empty()) else {
            return;
        };
        let mut journal = journal.borrow_mut();
        let now = Instant::now();
        let moment = match self.held.get() {
            None => MOMENT,
            Some(_) => Duration::ZERO,
        };
        match journal.append_within(&entries, moment) {
            Ok(true) => {
                self.held.set(None);
                self.trouble.is_over("the journal is written again");
            }
            Ok(false) => {
                let since = self.held.get().unwrap_or(now);
                self.held.set(Some(since));
                self.again.set(Some(now + AGAIN));
                if since.elapsed() > LONG {
                    let text = journal.held(since.elapsed());
                    self.trouble.is(
                        "held",
                        &format!("the journal waits, {UNWRITTEN} entries at most: {text}"),
                    );
                }
                self.put_back(entries);
            }
            Err(error) => {
                let text = format!("the journal cannot be written: {error}");
                self.trouble.is(error.kind(), &text);
                // With the next ones. A reader keeps one of each, should some have been written.
                self.put_back(entries);
            }
        }
    }

    fn put_back(&self, entries: Vec<Entry>) {
        let oldest = entries.len().saturating_sub(UNWRITTEN);
        if oldest > 0 {
            tracing::warn!("{oldest} entries of the journal are lost: it cannot be written");
        }
        self.unwritten
            .replace(entries.into_iter().skip(oldest).collect());
    }
}
