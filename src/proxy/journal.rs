//! Writes executions and interrupts into the project's journal.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::storage::FileWork;
use super::trouble::Trouble;
use crate::project::Project;
use crate::project::event::{Event, EventKind, ExecutionEnd, ExecutionStart, Journal, Outcome};
use crate::route::{ExecutionProgress, Phase};

/// One generation of a session's kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KernelGeneration {
    session: String,
    generation: u64,
    /// The notebook that is served, if it shares another notebook's kernel.
    notebook: Option<String>,
}

/// The journal of the project, as this proxy writes it.
///
/// Entries are collected, and another thread writes them together: a file lock must not delay a cell's round
/// trip.
pub(super) struct Log {
    by: String,
    journal: Option<Arc<Mutex<Journal>>>,
    /// The kernel's generations, by the bridge's numbers for them.
    generations: RefCell<HashMap<u64, KernelGeneration>>,
    started: RefCell<HashMap<(u64, String), Instant>>,
    unwritten: RefCell<Vec<Event>>,
    /// How many entries were dropped since the last write.
    lost: Cell<usize>,
    /// How many entries the other thread is writing.
    in_flight: Cell<usize>,
    work: FileWork,
    /// When the journal's lock was first found held by another process.
    held: Cell<Option<Instant>>,
    trouble: Trouble,
}

/// How many entries may wait for a journal that cannot be written; the oldest are dropped first.
const UNWRITTEN: usize = 1000;

/// How long one attempt waits for another process that holds the journal's lock, and how long the pause
/// before the next attempt is.
const TRY: Duration = Duration::from_millis(50);

/// A lock that is held for longer is logged with its holder.
const LONG: Duration = Duration::from_secs(1);

impl Log {
    /// Opens the journal. If it cannot be written, that is logged once, and the proxy works without it.
    pub(super) fn open(project: &Project, by: String) -> Self {
        let journal = project
            .journal()
            .inspect_err(|error| tracing::warn!("the journal cannot be written: {error}"))
            .ok()
            .map(|journal| Arc::new(Mutex::new(journal)));
        Self {
            by,
            journal,
            generations: RefCell::default(),
            started: RefCell::default(),
            unwritten: RefCell::default(),
            lost: Cell::new(0),
            in_flight: Cell::new(0),
            work: FileWork::default(),
            held: Cell::new(None),
            trouble: Trouble::default(),
        }
    }

    /// Sets the bridge's number for a generation of a session's kernel, and the notebook that uses it.
    pub(super) fn follow(&self, number: u64, session: &str, generation: u64, notebook: &str) {
        let kernel = KernelGeneration {
            session: session.to_owned(),
            generation,
            notebook: (notebook != session).then(|| notebook.to_owned()),
        };
        self.generations.borrow_mut().insert(number, kernel);
    }

    /// Adds an interrupt by this front end's user; [`Log::write`] writes it.
    ///
    /// `number` is the bridge's number for the kernel's present generation.
    pub(super) fn interrupted(&self, number: u64, withdrawn: usize) {
        let Some(kernel) = self.kernel(number) else {
            return;
        };
        let kind = match withdrawn {
            0 => EventKind::Interrupted,
            cells => EventKind::Withdrew { cells },
        };
        self.add(Event {
            generation: Some(kernel.generation),
            by: Some(self.by.clone()),
            ..Event::now(&kernel.session, kind)
        });
    }

    fn kernel(&self, number: u64) -> Option<KernelGeneration> {
        self.generations.borrow().get(&number).cloned()
    }

    /// Adds one step of an execution; [`Log::write`] writes it.
    pub(super) fn take(&self, execution: ExecutionProgress) {
        let Some(kernel) = self.kernel(execution.generation) else {
            return;
        };
        let key = (execution.generation, execution.msg_id.clone());
        let is_others = matches!(
            execution.phase,
            Phase::BegunOutside | Phase::EndedOutside { .. }
        );
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
            Phase::EndedOutside { raised: true } => end(Outcome::SeenError),
            Phase::EndedOutside { raised: false } => end(Outcome::Seen),
            Phase::Ended(status) => end(Outcome::of_word(&status)),
            Phase::Prompted(prompt) => EventKind::Prompted {
                msg_id: execution.msg_id,
                prompt,
            },
            Phase::Answered => EventKind::Answered {
                msg_id: execution.msg_id,
            },
            Phase::Sent => EventKind::Asked(start()),
            Phase::BegunOutside => EventKind::Seen(start()),
        };
        if matches!(kind, EventKind::Asked(_) | EventKind::Seen(_)) {
            started.insert(key, Instant::now());
        }
        // An execution from outside this front end is attributed to the user name in its header.
        let by = match is_others {
            true => execution.username,
            false => self.by.clone(),
        };
        self.add(Event {
            generation: Some(kernel.generation),
            by: Some(by),
            notebook: kernel.notebook.filter(|_| !is_others),
            ..Event::now(&kernel.session, kind)
        });
    }

    fn add(&self, event: Event) {
        if self.journal.is_some() {
            self.unwritten.borrow_mut().push(event);
            self.drop_oldest();
        }
    }

    /// Returns how many entries are not yet in the journal.
    pub(super) fn waiting(&self) -> usize {
        self.unwritten.borrow().len() + self.in_flight.get()
    }

    /// Starts to write the collected entries, unless a write is under way.
    pub(super) fn write_soon(self: &Rc<Self>) {
        if self.work.is_idle() {
            let me = Rc::clone(self);
            tokio::task::spawn_local(async move { me.write().await });
        }
    }

    /// Waits until all entries are written, or cannot be written; waits for another process that holds the
    /// lock. If the future is dropped, the entries are written all the same.
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
                    self.restore(entries);
                    self.waits(held);
                    tokio::time::sleep(TRY).await;
                }
                Err(error) => {
                    // They are written with the next entries. If some were written already, readers ignore
                    // the second copy.
                    self.restore(entries);
                    return self.failed(&error);
                }
            }
        }
    }

    /// Records that another process holds the lock, and logs it once.
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

    fn restore(&self, mut entries: Vec<Event>) {
        let mut unwritten = self.unwritten.borrow_mut();
        entries.append(&mut unwritten);
        *unwritten = entries;
        drop(unwritten);
        self.drop_oldest();
    }

    fn drop_oldest(&self) {
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
    async fn entries_wait_for_a_lock_that_is_held_and_the_oldest_are_dropped() {
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
        // Entry 0 was dropped only if it was not in flight when the queue was full.
        let from = u64::from(withdrawn.len() == UNWRITTEN);
        assert!(withdrawn.iter().copied().eq(from..=most), "{withdrawn:?}");
    }
}
