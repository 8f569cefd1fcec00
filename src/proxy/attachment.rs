//! The session that this process is attached to: what the proxy knows about it and writes for it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Notify;

use super::LOCKS_WITHIN;
use super::front_end::DetectedFrontEnd;
use super::journal;
use super::presence::Presence;
use super::snapshot::{KernelState, Snapshot};
use super::storage::{FileWork, Turn};
use super::stored_outputs::StoredOutputs;
use super::target::Target;
use super::trouble::Trouble;
use super::watch::Watch;
use crate::lifecycle::death::note_death;
use crate::route::Ending;

/// The session that this process is attached to.
pub(super) struct Attachment {
    pub(super) target: Target,
    pub(super) journal: Rc<journal::Log>,
    pub(super) outputs: Rc<StoredOutputs>,
    pub(super) presence: Rc<Presence>,
    /// Problems with reading the session's state.
    pub(super) unread: Trouble,
    /// Problems with recording the kernel's end.
    unwritten: Trouble,
    is_recorded: Cell<bool>,
    may_start: Cell<bool>,
    /// Whether the kernel's sockets do not answer although its process may live.
    pub(super) is_unreachable: Cell<bool>,
    /// What this proxy is doing to the kernel.
    pub(super) pending: Cell<Pending>,
    /// Why the kernel could not be started; `None` if no start has failed.
    pub(super) failure: RefCell<Option<Ending>>,
    /// Whether the front end's user may have variables in a kernel that this proxy never reached.
    pub(super) missed: Cell<bool>,
    _watch: Watch,
}

/// Whether this proxy is starting or restarting the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    /// The proxy only follows what others do to the kernel.
    Nothing,
    /// A kernel is being started.
    Start,
    /// The kernel is being restarted: generations up to this number are old.
    Restart(u64),
}

impl Attachment {
    /// Attaches to a session. `changed` is notified when its state may have changed, `rearm` when outputs may
    /// have to be stored sooner; `presence_work` is the file work for this process's records.
    pub(super) fn new(
        target: Target,
        front_end: &DetectedFrontEnd,
        presence_work: &Rc<FileWork>,
        rearm: Rc<Notify>,
        changed: &Arc<Notify>,
    ) -> Self {
        let by = front_end.by();
        Self {
            journal: Rc::new(journal::Log::open(&target.project, by.clone())),
            outputs: Rc::new(StoredOutputs::new(by, &front_end.name, rearm)),
            presence: Rc::new(Presence::new(
                target.project.clone(),
                target.key.clone(),
                front_end.name.clone(),
                Rc::clone(presence_work),
            )),
            unread: Trouble::default(),
            unwritten: Trouble::default(),
            is_recorded: Cell::new(false),
            may_start: Cell::new(false),
            is_unreachable: Cell::new(false),
            pending: Cell::new(Pending::Nothing),
            failure: RefCell::new(None),
            missed: Cell::new(false),
            _watch: Watch::begin(target.project.dir(), changed),
            target,
        }
    }

    /// Stores the flags of a snapshot.
    pub(super) fn note(&self, snapshot: &Snapshot) {
        self.is_recorded.set(snapshot.is_recorded);
        self.may_start.set(snapshot.may_start);
    }

    /// Returns whether the last snapshot found the session in `state.json`.
    pub(super) fn is_recorded(&self) -> bool {
        self.is_recorded.get()
    }

    /// Returns whether a kernel may be started here for the session, according to the last snapshot.
    pub(super) fn may_start(&self) -> bool {
        self.may_start.get()
    }

    /// Returns whether a state is newer than the start or restart that is pending.
    pub(super) fn admits(&self, kernel: &KernelState) -> bool {
        match (self.pending.get(), kernel) {
            (Pending::Nothing, _)
            | (Pending::Start, KernelState::Live(_))
            | (Pending::Start | Pending::Restart(_), KernelState::Awaited) => true,
            (Pending::Restart(past), KernelState::Live(kernel)) => kernel.generation > past,
            (Pending::Start | Pending::Restart(_), KernelState::Died(_) | KernelState::None(_)) => {
                false
            }
        }
    }

    /// Reads the state of the kernel; records that it has exited unexpectedly, if that is not recorded yet.
    pub(super) async fn read(&self, turn: &Turn<'_>) -> anyhow::Result<Snapshot> {
        let read = async || {
            let target = self.target.clone();
            turn.run(move || target.snapshot()).await?
        };
        let mut snapshot = read().await?;
        if self.pending.get() == Pending::Nothing
            && let Some((owner, session)) = snapshot.unrecorded_end.take()
        {
            // The record of the death names the cell in which it happened, from the journal.
            let _ = tokio::time::timeout(LOCKS_WITHIN, self.journal.written()).await;
            let project = self.target.project.clone();
            let noted = turn.run(move || note_death(&project, &owner, session));
            match noted.await.map_err(Into::into).and_then(|it| Ok(it?)) {
                Ok(_) => self.unwritten.is_over("the kernel's end is recorded"),
                Err::<_, anyhow::Error>(error) => {
                    let text = format!("the kernel's end could not be recorded: {error:#}");
                    self.unwritten.is("the end", &text);
                }
            }
            snapshot = read().await?;
        }
        Ok(snapshot)
    }
}
