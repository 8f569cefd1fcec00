//! Executions, written into the project's journal.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::storage::FileWork;
use super::trouble::Trouble;
use crate::project::Project;
use crate::project::event::{Event, EventKind, ExecutionEnd, ExecutionStart, Journal, Outcome};
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
/// Entries are collected, and written together by another thread: a lock on a file is no part of a cell's
/// round trip.
pub(super) struct Log {
    by: String,
    journal: Option<Arc<Mutex<Journal>>>,
    /// Whose kernel and which of its lives each number is that the bridge counts with.
    lives: RefCell<HashMap<u64, Life>>,
    started: RefCell<HashMap<(u64, String), Instant>>,
    unwritten: RefCell<Vec<Event>>,
    /// How many entries were let go since the journal was written last.
    lost: Cell<usize>,
    /// How many entries the other thread has now.
    in_flight: Cell<usize>,
    work: FileWork,
    /// Since when another process holds the journal's lock.
    held: Cell<Option<Instant>>,
    trouble: Trouble,
}

/// So many entries are kept for a journal that cannot be written; the oldest go first.
const UNWRITTEN: usize = 1000;

/// How long one try waits for another process that holds the journal's lock, and the pause before the next.
const TRY: Duration = Duration::from_millis(50);

/// A lock that is held for longer is told in the log.
const LONG: Duration = Duration::from_secs(1);

impl Log {
    /// Opens the journal. One that cannot be written is told once; work goes on without it.
    pub(super) fn open(project: &Project, by: String) -> Self {
        let journal = project
            .journal()
            .inspect_err(|error| tracing::warn!("the journal cannot be written: {error}"))
            .ok()
            .map(|journal| Arc::new(Mutex::new(journal)));
        Self {
            by,
            journal,
            lives: RefCell::default(),
            started: RefCell::default(),
            unwritten: RefCell::default(),
            lost: Cell::new(0),
            in_flight: Cell::new(0),
            work: FileWork::default(),
            held: Cell::new(None),
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
        let kind = match withdrawn {
            0 => EventKind::Interrupted,
            cells => EventKind::Withdrew { cells },
        };
        self.add(Event {
            generation: Some(generation),
            by: Some(self.by.clone()),
            ..Event::now(&session, kind)
        });
    }

    fn life(&self, number: u64) -> Option<Life> {
        self.lives.borrow().get(&number).cloned()
    }

    /// Takes one step of an execution; [`Log::write`] writes it.
    pub(super) fn take(&self, execution: Execution) {
        let Some(life) = self.life(execution.generation) else {
            return;
        };
        let key = (execution.generation, execution.msg_id.clone());
        let is_others = matches!(execution.phase, Phase::Seen | Phase::Over { .. });
        let mut started = self.started.borrow_mut();
        let store_history = execution.store_history;
        let start = || ExecutionStart {
            cell: execution.cell,
            code: execution.code,
            store_history,
            ..ExecutionStart::new(&execution.msg_id)
        };
        let mut end = |status| {
            let took = started.remove(&key).map(|start| start.elapsed());
            EventKind::Done(ExecutionEnd {
                store_history,
                ..ExecutionEnd::new(&execution.msg_id, status, took)
            })
        };
        let kind = match execution.phase {
            Phase::Over { raised: true } => end(Outcome::SeenError),
            Phase::Over { raised: false } => end(Outcome::Seen),
            Phase::Done(status) => end(Outcome::of_word(&status)),
            Phase::Asked => EventKind::Asked(start()),
            Phase::Seen => EventKind::Seen(start()),
        };
        if !matches!(kind, EventKind::Done(_)) {
            started.insert(key, Instant::now());
        }
        // Of others' executions only their own name for themselves is known.
        let by = match is_others {
            true => execution.username,
            false => self.by.clone(),
        };
        self.add(Event {
            generation: Some(life.generation),
            by: Some(by),
            notebook: life.notebook.filter(|_| !is_others),
            ..Event::now(&life.session, kind)
        });
    }

    fn add(&self, event: Event) {
        if self.journal.is_some() {
            self.unwritten.borrow_mut().push(event);
            self.let_oldest_go();
        }
    }

    /// Returns how many entries are not written yet.
    pub(super) fn waiting(&self) -> usize {
        self.unwritten.borrow().len() + self.in_flight.get()
    }

    /// Begins to write what was taken, unless that is under way.
    pub(super) fn write_soon(self: &Rc<Self>) {
        if self.work.is_idle() {
            let me = Rc::clone(self);
            tokio::task::spawn_local(async move { me.write().await });
        }
    }

    /// Waits until all that was taken is written, or cannot be written; another process that holds the lock is
    /// waited for. May be dropped halfway: it is written all the same.
    pub(super) async fn written(self: &Rc<Self>) {
        let me = Rc::clone(self);
        let _ = tokio::task::spawn_local(async move { me.write().await }).await;
    }

    async fn write(&self) {
        let Some(journal) = &self.journal else { return };
        let turn = self.work.turn().await;
        loop {
            let entries = self.unwritten.take();
            if entries.is_empty() {
                return;
            }
            let journal = Arc::clone(journal);
            self.in_flight.set(entries.len());
            let appended = turn.run(move || {
                let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
                let appended = journal.append_within(&entries, TRY);
                let held = matches!(appended, Ok(false)).then(|| journal.held(TRY));
                (entries, appended, held)
            });
            let appended = appended.await;
            self.in_flight.set(0);
            let (entries, appended, held) = match appended {
                Ok(done) => done,
                Err(error) => return self.failed(&error),
            };
            match appended {
                Ok(true) => {
                    self.held.set(None);
                    self.trouble.is_over("the journal is written again");
                    let lost = self.lost.take();
                    if lost > 0 {
                        tracing::warn!("{lost} entries of the journal are lost");
                    }
                }
                Ok(false) => {
                    self.put_back(entries);
                    self.waits(held);
                    tokio::time::sleep(TRY).await;
                }
                Err(error) => {
                    // With the next ones. A reader keeps one of each, should some have been written.
                    self.put_back(entries);
                    return self.failed(&error);
                }
            }
        }
    }

    /// Takes that another process holds the lock.
    fn waits(&self, held: Option<std::io::Error>) {
        let since = self.held.get().unwrap_or_else(Instant::now);
        self.held.set(Some(since));
        if since.elapsed() > LONG {
            let held = held.map(|held| held.to_string()).unwrap_or_default();
            let text = format!("the journal waits, {UNWRITTEN} entries at most: {held}");
            self.trouble.is("held", &text);
        }
    }

    fn failed(&self, error: &std::io::Error) {
        let text = format!("the journal cannot be written: {error}");
        self.trouble.is(error.kind(), &text);
    }

    fn put_back(&self, mut entries: Vec<Event>) {
        let mut unwritten = self.unwritten.borrow_mut();
        entries.append(&mut unwritten);
        *unwritten = entries;
        drop(unwritten);
        self.let_oldest_go();
    }

    fn let_oldest_go(&self) {
        let mut unwritten = self.unwritten.borrow_mut();
        let oldest = unwritten.len().saturating_sub(UNWRITTEN);
        if oldest > 0 {
            unwritten.drain(..oldest);
            if self.lost.replace(self.lost.get() + oldest) == 0 {
                tracing::warn!("the oldest entries of the journal are lost: it cannot be written");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn entries_wait_for_a_lock_that_is_held_and_the_oldest_are_let_go() {
        let local = tokio::task::LocalSet::new();
        local.run_until(entries_wait()).await;
    }

    async fn entries_wait() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("t.ipynb")).unwrap();
        let log = Rc::new(Log::open(&project, "human".to_owned()));
        log.follow(1, "t.ipynb", 1, "t.ipynb");
        let holder = std::fs::File::open(project.journal_file()).unwrap();
        holder.lock().unwrap();
        let most = u64::try_from(UNWRITTEN).unwrap();
        log.interrupted(1, 0);
        let patience = tokio::time::timeout(2 * TRY, log.written());
        assert!(patience.await.is_err(), "it is held");
        for number in 1..=UNWRITTEN {
            log.interrupted(1, number);
        }
        holder.unlock().unwrap();
        log.written().await;
        assert_eq!((log.waiting(), log.lost.get()), (0, 0));
        let events = project.all_events().into_iter();
        let withdrawn = events.map(|event| match event.kind {
            EventKind::Withdrew { cells } => cells as u64,
            _ => 0,
        });
        let withdrawn: Vec<u64> = withdrawn.collect();
        // Whether the first was let go depends on who had it when the others came.
        let from = u64::from(withdrawn.len() == UNWRITTEN);
        assert!(withdrawn.iter().copied().eq(from..=most), "{withdrawn:?}");
    }
}
