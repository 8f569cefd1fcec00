//! The session that this process is attached to: what the proxy knows about it and writes for it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Notify;

use super::LOCK_TIMEOUT;
use super::failure_log::FailureLog;
use super::front_end::DetectedFrontEnd;
use super::journal;
use super::presence::Presence;
use super::snapshot::{KernelState, Snapshot};
use super::storage::{FileWork, FileWorkPermit};
use super::stored_outputs::StoredOutputs;
use super::target::Target;
use super::watch::Watch;
use crate::lifecycle::death::note_death;
use crate::project::FollowedProject;
use crate::route::Ending;

/// The session that this process is attached to.
pub(super) struct Attachment {
    project: Arc<FollowedProject>,
    key: String,
    pub(super) journal: Rc<journal::Log>,
    pub(super) outputs: Rc<StoredOutputs>,
    pub(super) presence: Rc<Presence>,
    /// Failures to read the session's state.
    pub(super) read_failures: FailureLog,
    /// Failures to record the kernel's end.
    record_failures: FailureLog,
    is_recorded: Cell<bool>,
    may_start: Cell<bool>,
    /// Whether the kernel's sockets do not answer although its process may live.
    pub(super) is_unreachable: Cell<bool>,
    /// What this proxy is doing to the kernel.
    pub(super) pending: Cell<Pending>,
    /// Why the kernel could not be started; `None` if no start has failed.
    pub(super) failure: RefCell<Option<Ending>>,
    /// Whether the front end's user may have variables in a kernel that this proxy never reached.
    pub(super) has_missed_kernel: Cell<bool>,
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
        let actor = front_end.actor();
        let Target { project, key } = target;
        let watch = Watch::begin(project.dir(), changed);
        let project = Arc::new(FollowedProject::new(project));
        Self {
            journal: Rc::new(journal::Log::open(Arc::clone(&project), actor.clone())),
            outputs: Rc::new(StoredOutputs::new(actor, &front_end.name, rearm)),
            presence: Rc::new(Presence::new(
                Arc::clone(&project),
                key.clone(),
                front_end.name.clone(),
                Rc::clone(presence_work),
            )),
            read_failures: FailureLog::default(),
            record_failures: FailureLog::default(),
            is_recorded: Cell::new(false),
            may_start: Cell::new(false),
            is_unreachable: Cell::new(false),
            pending: Cell::new(Pending::Nothing),
            failure: RefCell::new(None),
            has_missed_kernel: Cell::new(false),
            _watch: watch,
            project,
            key,
        }
    }

    /// Returns the notebook, whose project may have been moved.
    pub(super) fn target(&self) -> Target {
        Target {
            project: self.project.now(),
            key: self.key.clone(),
        }
    }

    /// Stores the flags of a snapshot.
    pub(super) fn store_flags(&self, snapshot: &Snapshot) {
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
    pub(super) fn accepts(&self, kernel: &KernelState) -> bool {
        match (self.pending.get(), kernel) {
            (Pending::Nothing, _)
            | (Pending::Start, KernelState::Live(_))
            | (Pending::Start | Pending::Restart(_), KernelState::Awaited(_)) => true,
            (Pending::Restart(old), KernelState::Live(kernel)) => kernel.generation > old,
            (Pending::Start | Pending::Restart(_), KernelState::Died(_) | KernelState::None(_)) => {
                false
            }
        }
    }

    /// Reads the state of the kernel; records that it has exited unexpectedly, if that is not recorded yet.
    pub(super) async fn read(&self, permit: &FileWorkPermit<'_>) -> anyhow::Result<Snapshot> {
        let read = async || {
            let target = self.target();
            permit.run(move || target.snapshot()).await?
        };
        let mut snapshot = read().await?;
        if self.pending.get() == Pending::Nothing
            && let Some((owner, session)) = snapshot.unrecorded_end.take()
        {
            // The record of the death names the cell in which it happened, from the journal.
            let _ = tokio::time::timeout(LOCK_TIMEOUT, self.journal.written()).await;
            let project = self.project.now();
            let recorded = permit.run(move || note_death(&project, &owner, session));
            match recorded.await.map_err(Into::into).and_then(|it| Ok(it?)) {
                Ok(_) => self
                    .record_failures
                    .recovered("the kernel's end is recorded"),
                Err::<_, anyhow::Error>(error) => {
                    let text = format!("the kernel's end could not be recorded: {error:#}");
                    self.record_failures.report("the end", &text);
                }
            }
            snapshot = read().await?;
        }
        Ok(snapshot)
    }
}
