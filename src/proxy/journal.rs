//! Writes executions and interrupts into the project's journal.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::failure_log::FailureLog;
use super::storage::FileWork;
use crate::activity::actor::Actor;
use crate::project::event::{CellEnd, Event, EventKind, ExecutionEnd, ExecutionStart, Journal};
use crate::project::{FACTS_BYTES, FollowedProject};
use crate::route::{ExecutionProgress, Phase};

/// One generation of a session's kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KernelGeneration {
    session: String,
    generation: u64,
    /// The notebook that is served, if it shares another notebook's kernel.
    notebook: Option<String>,
}

/// What a kernel says that an execution changed.
struct Facts {
    kernel: KernelGeneration,
    msg_id: String,
    content: Bytes,
}

/// The journal of the project, as this proxy writes it.
///
/// Entries are collected, and another thread writes them together: a file lock must not delay a cell's round
/// trip.
pub(super) struct Log {
    project: Arc<FollowedProject>,
    by: String,
    journal: Option<Arc<Mutex<Journal>>>,
    /// The kernel's generations, by the bridge's numbers for them.
    generations: RefCell<HashMap<u64, KernelGeneration>>,
    started: RefCell<HashMap<(u64, String), Instant>>,
    unwritten: RefCell<Vec<Event>>,
    /// What the kernel says that executions changed. It is written before their ends are.
    unwritten_facts: RefCell<Vec<Facts>>,
    /// How many entries were dropped since the last write.
    dropped: Cell<usize>,
    /// How many entries the other thread is writing.
    in_flight: Cell<usize>,
    work: FileWork,
    /// When the journal's lock was first found held by another process.
    lock_held_since: Cell<Option<Instant>>,
    failures: FailureLog,
}

/// How many entries may wait for a journal that cannot be written; the oldest are dropped first.
const UNWRITTEN_MAX: usize = 1000;

/// How many executions' facts may wait; of what comes then, nothing is stored.
const FACTS_MAX: usize = 100;

/// How long one attempt waits for another process that holds the journal's lock, and how long the pause
/// before the next attempt is.
const LOCK_TIMEOUT: Duration = Duration::from_millis(50);

/// A lock that is held for longer is logged with its holder.
const LONG_HELD: Duration = Duration::from_secs(1);

impl Log {
    /// Opens the journal. If it cannot be written, that is logged once, and the proxy works without it.
    pub(super) fn open(project: Arc<FollowedProject>, by: String) -> Self {
        let journal = project
            .now()
            .journal()
            .inspect_err(|error| tracing::warn!("the journal cannot be written: {error}"))
            .ok()
            .map(|journal| Arc::new(Mutex::new(journal)));
        Self {
            project,
            by,
            journal,
            generations: RefCell::default(),
            started: RefCell::default(),
            unwritten: RefCell::default(),
            unwritten_facts: RefCell::default(),
            dropped: Cell::new(0),
            in_flight: Cell::new(0),
            work: FileWork::default(),
            lock_held_since: Cell::new(None),
            failures: FailureLog::default(),
        }
    }

    /// Sets the bridge's number for a generation of a session's kernel, and the notebook that uses it.
    pub(super) fn set_generation(
        &self,
        number: u64,
        session: &str,
        generation: u64,
        notebook: &str,
    ) {
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
    pub(super) fn add_interrupt(&self, number: u64, withdrawn: Vec<String>) {
        let Some(kernel) = self.kernel(number) else {
            return;
        };
        let kind = match withdrawn.len() {
            0 => EventKind::Interrupted,
            cells => EventKind::Withdrew {
                cells,
                msg_ids: withdrawn,
            },
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
    pub(super) fn add_execution(&self, execution: ExecutionProgress) {
        let Some(kernel) = self.kernel(execution.generation) else {
            return;
        };
        let key = (execution.generation, execution.msg_id.clone());
        let is_from_outside = matches!(
            execution.phase,
            Phase::BegunOutside | Phase::EndedOutside { .. }
        );
        let mut started = self.started.borrow_mut();
        let store_history = execution.store_history;
        let start = || ExecutionStart {
            cell: execution.cell,
            // The code that a front end runs for itself is long, and no reader needs it.
            code: execution.code.filter(|_| store_history),
            store_history,
            ..ExecutionStart::new(&execution.msg_id)
        };
        let mut end = |status| {
            let duration = started.remove(&key).map(|start| start.elapsed());
            EventKind::Done(ExecutionEnd {
                store_history,
                ..ExecutionEnd::new(&execution.msg_id, status, duration)
            })
        };
        let kind = match execution.phase {
            Phase::EndedOutside { raised: true } => end(CellEnd::ObservedError),
            Phase::EndedOutside { raised: false } => end(CellEnd::ObservedOk),
            Phase::Ended(status) => end(CellEnd::of_word(&status)),
            Phase::Prompted(prompt) => EventKind::Prompted {
                msg_id: execution.msg_id,
                prompt,
            },
            Phase::Answered => EventKind::Answered {
                msg_id: execution.msg_id,
            },
            Phase::Queued => EventKind::Queued(start()),
            Phase::Sent => EventKind::Requested(start()),
            Phase::BegunOutside => EventKind::BegunOutside(start()),
        };
        if matches!(kind, EventKind::Requested(_) | EventKind::BegunOutside(_)) {
            started.insert(key, Instant::now());
        }
        // An execution from outside this front end is attributed to the user name in its header.
        let by = match is_from_outside {
            true => Some(execution.username).filter(|name| Actor::from(&**name) != Actor::Unknown),
            false => Some(self.by.clone()),
        };
        self.add(Event {
            generation: Some(kernel.generation),
            by,
            notebook: kernel.notebook.filter(|_| !is_from_outside),
            ..Event::now(&kernel.session, kind)
        });
    }

    /// Adds what the kernel says that an execution changed; [`Log::write`] writes it.
    pub(super) fn add_facts(&self, number: u64, msg_id: String, content: Bytes) {
        let mut unwritten = self.unwritten_facts.borrow_mut();
        let has_room = unwritten.len() < FACTS_MAX && content.len() <= FACTS_BYTES;
        if let Some(kernel) = self.kernel(number).filter(|_| has_room) {
            unwritten.push(Facts {
                kernel,
                msg_id,
                content,
            });
        }
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
            let log = Rc::clone(self);
            tokio::task::spawn_local(async move { log.write().await });
        }
    }

    /// Waits until all entries are written, or cannot be written; waits for another process that holds the
    /// lock. If the future is dropped, the entries are written all the same.
    pub(super) async fn written(self: &Rc<Self>) {
        let log = Rc::clone(self);
        let _ = tokio::task::spawn_local(async move { log.write().await }).await;
    }

    async fn write(&self) {
        let Some(journal) = &self.journal else { return };
        let permit = self.work.acquire().await;
        loop {
            let (entries, facts) = (self.unwritten.take(), self.unwritten_facts.take());
            if entries.is_empty() && facts.is_empty() {
                return;
            }
            let project = Arc::clone(&self.project);
            let journal = Arc::clone(journal);
            self.in_flight.set(entries.len());
            let appended = permit.run(move || {
                let project = project.now();
                for it in facts {
                    let KernelGeneration {
                        session,
                        generation,
                        ..
                    } = &it.kernel;
                    project.record_facts(session, *generation, &it.msg_id, &it.content);
                }
                let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
                let appended = journal
                    .follow(&project)
                    .and_then(|()| journal.append_within(&entries, LOCK_TIMEOUT));
                let held = matches!(appended, Ok(false)).then(|| journal.held(LOCK_TIMEOUT));
                (entries, appended, held)
            });
            let appended = appended.await;
            self.in_flight.set(0);
            let (entries, appended, held) = match appended {
                Ok(result) => result,
                Err(error) => return self.log_failure(&error),
            };
            match appended {
                Ok(true) => {
                    self.lock_held_since.set(None);
                    self.failures.recovered("the journal is written again");
                    let dropped = self.dropped.take();
                    if dropped > 0 {
                        tracing::warn!("{dropped} entries of the journal are lost");
                    }
                }
                Ok(false) => {
                    self.restore(entries);
                    self.log_held_lock(held);
                    tokio::time::sleep(LOCK_TIMEOUT).await;
                }
                Err(error) => {
                    // They are written with the next entries. If some were written already, readers ignore
                    // the second copy.
                    self.restore(entries);
                    return self.log_failure(&error);
                }
            }
        }
    }

    /// Records that another process holds the lock, and logs it once.
    fn log_held_lock(&self, holder: Option<std::io::Error>) {
        let since = self.lock_held_since.get().unwrap_or_else(Instant::now);
        self.lock_held_since.set(Some(since));
        if since.elapsed() > LONG_HELD {
            let holder = holder.map(|holder| holder.to_string()).unwrap_or_default();
            let text = format!("the journal waits, {UNWRITTEN_MAX} entries at most: {holder}");
            self.failures.report("held", &text);
        }
    }

    fn log_failure(&self, error: &std::io::Error) {
        let text = format!("the journal cannot be written: {error}");
        self.failures.report(error.kind(), &text);
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
        let oldest = unwritten.len().saturating_sub(UNWRITTEN_MAX);
        if oldest > 0 {
            unwritten.drain(..oldest);
            if self.dropped.replace(self.dropped.get() + oldest) == 0 {
                tracing::warn!("the oldest entries of the journal are lost: it cannot be written");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::Project;

    #[tokio::test]
    async fn entries_wait_for_a_lock_that_is_held_and_the_oldest_are_dropped() {
        let local = tokio::task::LocalSet::new();
        local.run_until(entries_wait()).await;
    }

    async fn entries_wait() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("t.ipynb")).unwrap();
        let followed = Arc::new(FollowedProject::new(project.clone()));
        let log = Rc::new(Log::open(followed, "human".to_owned()));
        log.set_generation(1, "t.ipynb", 1, "t.ipynb");
        let holder = std::fs::File::open(project.journal_file()).unwrap();
        holder.lock().unwrap();
        let last = u64::try_from(UNWRITTEN_MAX).unwrap();
        log.add_interrupt(1, Vec::new());
        let written = tokio::time::timeout(2 * LOCK_TIMEOUT, log.written());
        assert!(written.await.is_err(), "it is held");
        for number in 1..=UNWRITTEN_MAX {
            log.add_interrupt(1, vec!["m".to_owned(); number]);
        }
        holder.unlock().unwrap();
        log.written().await;
        assert_eq!((log.waiting(), log.dropped.get()), (0, 0));
        let events = project.all_events().into_iter();
        let withdrawn = events.map(|event| match event.kind {
            EventKind::Withdrew { cells, .. } => cells as u64,
            _ => 0,
        });
        let withdrawn: Vec<u64> = withdrawn.collect();
        // Entry 0 was dropped only if it was not in flight when the queue was full.
        let first = u64::from(withdrawn.len() == UNWRITTEN_MAX);
        assert!(withdrawn.iter().copied().eq(first..=last), "{withdrawn:?}");
    }
}
