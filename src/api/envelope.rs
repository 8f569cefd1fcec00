//! What every answer carries beside its own fields: what became of the notebook and its kernel
//! meanwhile, and what others did there.

use serde::Serialize;
use serde_json::Value;

use super::caller::Caller;
use super::problem::Problem;
use crate::activity::notification::Notifications;
use crate::execution::lost::{self, Lost};
use crate::lifecycle::death;
use crate::project::{Ended, Status};

/// An answer's own fields.
pub trait Answer: Serialize {
    /// Says whether the answer itself tells a `kernel_generation`: the one that it is about, not the
    /// present one.
    fn tells_generation(&self) -> bool {
        false
    }
}

impl Answer for Value {
    fn tells_generation(&self) -> bool {
        self.get("kernel_generation").is_some()
    }
}

/// The answer to a request that was not done.
#[derive(Clone, Debug, Serialize)]
pub struct ProblemAnswer<'a> {
    /// Why.
    pub error: &'a Problem,
}

impl Answer for ProblemAnswer<'_> {}

/// An answer with what happened meanwhile: the JSON object that `--json` prints.
#[derive(Clone, Debug, Serialize)]
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
        let concerned = meanwhile.notebook.as_ref();
        let generation = concerned.map(|it| it.kernel_generation);
        Self {
            answer,
            meanwhile,
            kernel_generation: generation.filter(|_| !answer.tells_generation()),
        }
    }
}

/// What happened beside a request. Its parts are told to each name once: see [`Caller::delivered`].
#[derive(Clone, Debug, Default, Serialize)]
pub struct Meanwhile {
    /// Recorders that were killed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<Lost>,
    /// What happened on the notebook that the request acts on.
    #[serde(flatten)]
    pub notebook: Option<NotebookNews>,
}

/// What happened to a notebook and its kernel.
#[derive(Clone, Debug, Serialize)]
pub struct NotebookNews {
    /// Which of the session's kernels is the present one; none where the notebook never had one.
    #[serde(skip)]
    pub kernel_generation: Option<u64>,
    /// How the kernel ended, if it did and no other was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_ended: Option<KernelEnded>,
    /// What others did since the caller was last told, and which of its edits they wiped out.
    #[serde(flatten)]
    pub notifications: Notifications,
}

/// How a kernel ended.
#[derive(Clone, Debug, Serialize)]
pub struct KernelEnded {
    /// All of it, as one line for a reader.
    pub text: String,
    /// The command that starts another.
    pub next: String,
    /// The record of it.
    pub how: Ended,
}

impl Caller {
    /// Returns what happened beside the request, until now.
    pub fn meanwhile(&self) -> Meanwhile {
        let notebook = self.concerned().map(|it| {
            let state = it.project.state().ok();
            let session = state.and_then(|state| state.session(&state.owner_key(&it.key)));
            NotebookNews {
                kernel_generation: session.map(|session| session.generation),
                kernel_ended: self.kernel_ended(),
                notifications: Notifications::of(&it.project, &it.key, self.by()),
            }
        });
        Meanwhile {
            lost: self.lost.get().cloned().unwrap_or_default(),
            notebook,
        }
    }

    /// Remembers that the caller has got its answer, with what happened meanwhile: none of that is told
    /// to this name again.
    pub fn delivered(&self, meanwhile: &Meanwhile) {
        if let (Some(concerned), Some(news)) = (self.concerned(), &meanwhile.notebook) {
            news.notifications.delivered(&concerned.project, self.by());
        }
        if let Some(project) = &self.project {
            lost::delivered(project, self.by(), &meanwhile.lost);
        }
    }

    /// Returns how the kernel of the request's notebook ended, if it did and no other was started.
    pub fn kernel_ended(&self) -> Option<KernelEnded> {
        let concerned = self.concerned()?;
        let (project, key) = (&concerned.project, &concerned.key);
        let session = project.state().ok()?.session(key)?;
        let ended = session.ended.filter(|_| session.status == Status::Died)?;
        Some(KernelEnded {
            text: death::words(key, &ended),
            next: death::mend(&project.notebook(key)),
            how: ended,
        })
    }
}
