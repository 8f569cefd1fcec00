//! Why a request was not done, in a form that every adapter can show: what failed, on what, why, and how to
//! fix it.

pub mod editing;
mod execution;
mod lifecycle;

use std::error::Error;

use serde::Serialize;

use crate::editing::conflict_summary::{ConflictSide, ConflictSummary, summaries};
use crate::hint;
use crate::hint::{Hint, Verb, nb};
use crate::notebook::Conflict;
pub use crate::task::causes::with_causes as causes;

/// Why a request failed or was refused.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Problem {
    /// Whose fault it was.
    pub kind: ProblemKind,
    /// What failed, on what, and why.
    pub message: String,
    /// What the kernel or another program wrote about it.
    pub lines: Vec<String>,
    /// What to do about it: commands of `nb`, or of others.
    pub hints: Vec<Hint>,
    /// What of an edit stands against what is there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<RefusedEdit>,
    /// What a person may be asked, to make the request once more.
    #[serde(skip)]
    pub question: Option<Box<ConfirmationQuestion>>,
}

/// A question to a person. The answer is the same request again, with what the person chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfirmationQuestion {
    /// Whether to end others' work: a yes repeats the request with `force`.
    Force {
        /// The question.
        text: String,
        /// The message if the answer is no.
        declined: String,
    },
    /// Which of these kernels is meant: for each, the option of `nb open` that chooses it and the option's
    /// value. The problem's lines describe them.
    Kernel(Vec<(&'static str, String)>),
}

/// A part of an edit that was refused.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RefusedEdit {
    /// The texts that stand against each other.
    #[serde(flatten)]
    pub conflict: Conflict,
    /// Whether `theirs` is text in an editor that is not saved yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unsaved: bool,
    /// The lines that others changed.
    pub changed: ConflictSummary,
    /// The lines of the writer that are not in the notebook, if the rest of the edit was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<ConflictSummary>,
}

/// Whose fault a problem was. It picks the exit code, the HTTP status, and the like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ProblemKind {
    /// It could not be done.
    Failed,
    /// The request makes no sense.
    Usage,
    /// It goes on; nothing failed.
    StillRunning,
    /// It would end others' work, or is not allowed.
    Refused,
    /// What is there is not what the writer has seen.
    Conflict,
    /// There is no kernel, or it died.
    NoKernel,
}

impl ProblemKind {
    /// Returns the kind's word, as in JSON.
    pub fn word(self) -> String {
        let word = serde_json::to_value(self).unwrap_or_default();
        word.as_str().unwrap_or_default().to_owned()
    }
}

impl Problem {
    /// Makes a problem from a message.
    pub fn new(kind: ProblemKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            lines: Vec::new(),
            hints: Vec::new(),
            conflicts: Vec::new(),
            question: None,
        }
    }

    /// Makes a problem from what could not be done and its cause.
    pub fn failed(action: &str, error: &dyn Error) -> Self {
        let message = format!("cannot {action}: {}", causes(error));
        Self::new(ProblemKind::Failed, message)
    }

    /// Adds a hint.
    pub fn hint(mut self, hint: impl Into<Hint>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Adds hints.
    pub fn all_hints(mut self, hints: impl IntoIterator<Item = impl Into<Hint>>) -> Self {
        self.hints.extend(hints.into_iter().map(Into::into));
        self
    }

    /// Returns the problem with its hints as a front door words them.
    pub fn worded(mut self, word: impl Fn(&Hint) -> String) -> Self {
        self.hints = self.hints.iter().map(|it| word(it).into()).collect();
        self
    }

    /// Sets the lines below the message.
    pub fn lines(mut self, lines: &[String]) -> Self {
        self.lines = lines.to_vec();
        self
    }

    /// Adds lines below the message.
    pub(crate) fn more_lines(mut self, lines: &[String]) -> Self {
        self.lines.extend_from_slice(lines);
        self
    }

    /// Sets the conflicts; `unsaved` says that the other side is not saved in a file yet.
    pub fn with_conflicts(mut self, conflicts: &[Conflict], unsaved: bool) -> Self {
        let refused = conflicts
            .iter()
            .zip(summaries(conflicts, ConflictSide::Theirs));
        let refused = refused.map(|(conflict, changed)| RefusedEdit {
            conflict: conflict.clone(),
            unsaved,
            changed,
            lost: None,
        });
        self.conflicts = refused.collect();
        self
    }

    /// Sets the conflicts of an edit that was written without these parts.
    pub(crate) fn with_lost(self, conflicts: &[Conflict]) -> Self {
        let mut problem = self.with_conflicts(conflicts, false);
        let lost = summaries(conflicts, ConflictSide::Yours).into_iter();
        for (refused, lost) in problem.conflicts.iter_mut().zip(lost) {
            refused.lost = Some(lost);
        }
        problem
    }
}

/// Returns the hint at how the ids of jobs are found.
pub fn lists_jobs() -> Hint {
    hint![nb(Verb::Jobs), " lists them"]
}
