//! The fields that every answer carries beside its own: what happened to the notebook and its kernel, and
//! what others did there.

use serde::Serialize;

use super::caller::{Caller, TargetNotebook};
use super::problem::Problem;
use super::waiting::WaitingRequest;
use crate::activity::actor::Actor;
use crate::activity::notification::Notifications;
use crate::execution::lost::{self, KilledRecorder};
use crate::hint::Hint;
use crate::lifecycle::death;
use crate::lifecycle::status::present;
use crate::project::{Ended, Project, Status};

/// An answer's own fields.
pub trait Answer: Serialize {
    /// Says whether the answer itself has a `kernel_generation`, which is then that of its job and not of
    /// the present kernel.
    fn has_own_generation(&self) -> bool {
        false
    }
}

/// The answer to a request that was not done.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProblemAnswer<'a> {
    /// Why.
    pub error: &'a Problem,
}

impl Answer for ProblemAnswer<'_> {}

/// An answer with what happened meanwhile: the JSON object that `--json` prints.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Envelope<'a, A: Answer> {
    #[serde(flatten)]
    answer: &'a A,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel_generation: Option<Option<u64>>,
    #[serde(flatten)]
    meanwhile: &'a Meanwhile,
}

impl<'a, A: Answer> Envelope<'a, A> {
    /// Puts an answer together with what happened meanwhile.
    pub fn of(answer: &'a A, meanwhile: &'a Meanwhile) -> Self {
        let notebook = meanwhile.notebook.as_ref();
        let generation = notebook.map(|it| it.kernel_generation);
        Self {
            answer,
            meanwhile,
            kernel_generation: generation.filter(|_| !answer.has_own_generation()),
        }
    }
}

/// What happened beside a request. A name gets each part once: see [`Caller::delivered`].
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Meanwhile {
    /// Recorders that were killed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<KilledRecorder>,
    /// What happened on the notebook that the request acts on.
    #[serde(flatten)]
    pub notebook: Option<NotebookEvents>,
}

/// What happened to a notebook and its kernel.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NotebookEvents {
    /// Which of the session's kernels is the present one; none where the notebook never had one.
    #[serde(skip)]
    pub kernel_generation: Option<u64>,
    /// How the kernel ended, if it did and no other was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_ended: Option<KernelEnded>,
    /// The cells of people that wait for the kernel while it runs a cell of the caller, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits_behind_you: Vec<WaitingRequest>,
    /// What others did since the caller's last notifications, and which of its edits they overwrote.
    #[serde(flatten)]
    pub notifications: Notifications,
}

/// How a kernel ended.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KernelEnded {
    /// All of it, as one line for a reader.
    pub text: String,
    /// The command that starts another.
    pub next: Hint,
    /// The record of it.
    pub how: Ended,
}

impl Caller {
    /// Returns what happened beside the request, until now. It reads files, so a thread that must not block
    /// should not call it.
    pub fn meanwhile(&self) -> Meanwhile {
        Meanwhile {
            lost: self.state.lost.get().cloned().unwrap_or_default(),
            notebook: self.target_notebook().map(|it| self.notebook_events(it)),
        }
    }

    fn notebook_events(&self, target: &TargetNotebook) -> NotebookEvents {
        let TargetNotebook { project, key } = target;
        let Ok(state) = project.state() else {
            return NotebookEvents::default();
        };
        let session = state.session(key);
        let dead = session.as_ref().filter(|it| it.status == Status::Died);
        let ended = dead.and_then(|session| session.ended.clone());
        NotebookEvents {
            waits_behind_you: session
                .as_ref()
                .filter(|session| session.status == Status::Live)
                .map(|session| {
                    self.waits_behind(project, &state.owner_key(key), session.generation)
                })
                .unwrap_or_default(),
            kernel_generation: session.map(|session| session.generation),
            kernel_ended: ended.map(|how| KernelEnded {
                text: death::description(key, &how),
                next: death::fix_command(&project.notebook(key)),
                how,
            }),
            notifications: Notifications::of(project, &state, key, self.by()),
        }
    }

    fn waits_behind(&self, project: &Project, key: &str, generation: u64) -> Vec<WaitingRequest> {
        let present = present(project, key, generation);
        let runs = present.running.filter(|_| !present.waiting.is_empty());
        let by = runs.map(|it| Actor::parse(it.by.as_deref()));
        match by.is_some_and(|by| by == Actor::parse(Some(self.by()))) {
            true => WaitingRequest::all(project, present.waiting),
            false => Vec::new(),
        }
    }

    /// Begins the notifications of an actor that never used the notebook: it gets what others do from now on. It may wait for locks,
    /// as [`Caller::delivered`] does.
    pub fn begin_notifications(&self) {
        let Some(target) = self.target_notebook() else {
            return;
        };
        let notifications = self.notebook_events(target).notifications;
        if notifications.since.is_empty() && notifications.overwritten.is_empty() {
            notifications.delivered(&target.project, self.by());
        }
    }

    /// Records that the caller has received its answer and what happened meanwhile. This actor does not get
    /// these notifications again, and has seen the cells and outputs in the answer. It may wait for each
    /// lock for up to two seconds, so a thread that must not block should not call it.
    pub fn delivered(&self, meanwhile: &Meanwhile) {
        self.remember_seen();
        if let (Some(target), Some(notebook)) = (self.target_notebook(), &meanwhile.notebook) {
            notebook.notifications.delivered(&target.project, self.by());
        }
        if let Some(project) = &self.project {
            lost::delivered(project, self.by(), &meanwhile.lost);
        }
        self.notices.delivered(self.by());
    }
}
