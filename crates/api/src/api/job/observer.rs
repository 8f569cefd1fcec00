//! The events of a job that is followed, and the observer that receives them.

use std::cell::OnceCell;
use std::path::Path;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::api::envelope::Answer;
use crate::api::output_fields::Timing;
use crate::api::outputs::OutputText;
use crate::execution::fold;
use crate::execution::replay::Replay;
use crate::execution::run::OutputMessage;
use crate::notebook::Document;
use crate::project::ErrorCategory;
use crate::project::event::CellEnd;
use crate::project::jobs::{Job, JobCell, JobMessage, JobPrompt, JobState};

/// What happened to a job that is followed: a line of `--events`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(clippy::large_enum_variant, reason = "it is handled where it is made")]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum JobEvent<'a> {
    /// The job waits, runs or asks something.
    State(StateEvent),
    /// A cell of the job is over.
    Cell(CellEvent),
    /// The kernel sent an output of one of the job's cells.
    Output(OutputEvent<'a>),
}

/// How far a job is that is not over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StateEvent {
    /// The job's id.
    pub job: String,
    /// How far it is.
    pub state: JobState,
    /// Whose cell it waits for.
    pub behind: Option<String>,
    /// What its code asks.
    pub prompt: Option<JobPrompt>,
}

impl StateEvent {
    pub(super) fn of(job: &Job) -> Self {
        Self {
            job: job.id.clone(),
            state: job.state,
            behind: job.behind.clone(),
            prompt: job.prompt.clone(),
        }
    }

    /// Says whether the job is still in this state.
    pub(super) fn is_of(&self, job: &Job) -> bool {
        self.state == job.state && self.behind == job.behind && self.prompt == job.prompt
    }
}

/// How a cell of a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CellEvent {
    /// Its place among the job's cells, from 0.
    pub at: usize,
    /// Its id; none for code outside the notebook.
    pub cell: Option<String>,
    /// How it ended.
    pub status: Option<CellEnd>,
    /// The kind of error that ended it; none if none did.
    pub category: Option<ErrorCategory>,
    /// The number that the kernel gave it.
    pub execution_count: Option<u64>,
    /// When the kernel ran it; none if it is not known to have begun.
    pub timing: Option<Timing>,
}

impl CellEvent {
    pub(super) fn of(at: usize, cell: &JobCell) -> Self {
        Self {
            at,
            cell: cell.cell.clone(),
            status: cell.status,
            category: cell.category,
            execution_count: cell.execution_count,
            timing: Timing::of(cell),
        }
    }
}

/// A message of the kernel about a cell of a job.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutputEvent<'a> {
    /// The cell's place among the job's cells, from 0.
    pub at: usize,
    /// The cell's id; none for code outside the notebook.
    pub cell: Option<&'a str>,
    /// The message's type.
    pub msg_type: &'a str,
    /// The message's content, as the kernel wrote it.
    pub content: &'a RawValue,
    #[serde(skip)]
    pub(super) message: &'a JobMessage,
    #[serde(skip)]
    pub(super) read: OnceCell<Option<OutputMessage>>,
}

impl<'a> OutputEvent<'a> {
    pub(super) fn of(job: &'a Job, message: &'a JobMessage) -> Self {
        let cell = job.cells.get(message.cell);
        Self {
            at: message.cell,
            cell: cell.and_then(|cell| cell.cell.as_deref()),
            msg_type: &message.msg_type,
            content: &message.content,
            message,
            read: OnceCell::new(),
        }
    }

    /// Reads the output; `None` if the message is something else.
    pub fn output(&self) -> Option<&OutputMessage> {
        let read = self.read.get_or_init(|| fold::output(self.message));
        read.as_ref()
    }
}

/// The last line of `--events`: the answer.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobEnd<'a, A: Answer> {
    /// What came of the job.
    #[serde(flatten)]
    pub answer: &'a A,
    event: &'static str,
}

impl<'a, A: Answer> JobEnd<'a, A> {
    /// Wraps an answer as the last event.
    pub fn of(answer: &'a A) -> Self {
        Self {
            answer,
            event: "end",
        }
    }
}

impl<A: Answer> Answer for JobEnd<'_, A> {
    fn has_own_generation(&self) -> bool {
        self.answer.has_own_generation()
    }
}

/// What an observer says to a question of the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptAnswer {
    /// The answer.
    Text(String),
    /// The end of the input.
    EndOfInput,
    /// Nothing: following stops at the question.
    None,
}

/// Receives the events of a job that is followed.
pub trait JobObserver {
    /// Receives the replay, before it begins.
    fn on_replay(&self, _replay: &Replay, _document: &Document, _notebook: &Path) {}

    /// Receives the next event.
    fn on_event(&self, _event: &JobEvent<'_>) {}

    /// Receives the job's record each time it was read; `last_line` is the last line that the job printed.
    fn on_record(&self, _job: &Job, _last_line: &str) {}

    /// Says whether a question of the code can be answered. If not, following stops at it.
    fn can_answer(&self, _prompt: &JobPrompt) -> bool {
        false
    }

    /// Says whether the observer shows outputs itself. If so, it receives those collected so far in front of
    /// the first question, and the final answer has none: later outputs are only events.
    fn shows_outputs(&self) -> bool {
        false
    }

    /// Returns the answer to a question of the code. `so_far` is the output collected so far, if the observer
    /// shows outputs. May be dropped halfway.
    fn answer(
        &self,
        _prompt: &JobPrompt,
        _so_far: &[OutputText],
    ) -> impl Future<Output = PromptAnswer> {
        std::future::pending()
    }

    /// Is called when a question was answered elsewhere, and [`JobObserver::answer`] was dropped.
    fn on_answered(&self) {}

    /// Completes when the job is to be interrupted. May be dropped halfway.
    fn interrupted(&self) -> impl Future<Output = ()> {
        std::future::pending()
    }
}

/// An observer that ignores all events, for callers that need only the answer.
#[derive(Clone, Copy, Debug)]
pub struct Unobserved;

impl JobObserver for Unobserved {}
