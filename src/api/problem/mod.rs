//! Why a request was not done, in a form that every adapter can show: what failed, on what, why,
//! and what to do about it.

pub(crate) mod editing;
mod execution;
mod lifecycle;

use std::error::Error;

use serde::{Serialize, Serializer};

use crate::notebook::Conflict;
pub(crate) use crate::task::causes::with_causes as causes;

/// A request that was not done as it was meant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Problem {
    /// Whose fault it was.
    pub kind: ProblemKind,
    /// What failed, on what, and why.
    pub message: String,
    /// What the kernel or another program wrote about it.
    pub lines: Vec<String>,
    /// What to do about it: commands of `nb`, or of others.
    pub hints: Vec<String>,
    /// What of an edit stands against what is there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<RefusedEdit>,
    /// What a person may be asked: whoever says yes repeats the request with `force`.
    #[serde(skip)]
    pub question: Option<Box<Question>>,
}

/// A question to a person, before others' work is ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The question.
    pub text: String,
    /// What is said where the answer is no.
    pub declined: String,
}

/// A part of an edit that was refused.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RefusedEdit {
    /// The texts that stand against each other.
    #[serde(flatten)]
    pub conflict: Conflict,
    /// Whether `theirs` is text in an editor that nobody has saved yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unsaved: bool,
}

/// Whose fault a problem was. It picks the exit code, the HTTP status, and the like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// It could not be done.
    Failed,
    /// The request makes no sense.
    Usage,
    /// It goes on; nothing failed.
    StillRunning,
    /// It would harm somebody, or is not allowed.
    Refused,
    /// What is there is not what the writer has seen.
    Conflict,
    /// There is no kernel, or it died.
    NoKernel,
}

impl ProblemKind {
    /// Returns the kind as programs know it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::StillRunning => "still-running",
            Self::Refused => "refused",
            Self::Conflict => "conflict",
            Self::NoKernel => "no-kernel",
        }
    }
}

impl Serialize for ProblemKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Problem {
    /// Makes a problem from a message.
    pub(crate) fn new(kind: ProblemKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            lines: Vec::new(),
            hints: Vec::new(),
            conflicts: Vec::new(),
            question: None,
        }
    }

    /// Makes a problem from what could not be done and why.
    pub(crate) fn failed(what: &str, error: &dyn Error) -> Self {
        let message = format!("cannot {what}: {}", causes(error));
        Self::new(ProblemKind::Failed, message)
    }

    /// Adds what to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Sets what was written about it.
    pub(crate) fn lines(mut self, lines: &[String]) -> Self {
        self.lines = lines.to_vec();
        self
    }

    /// Adds lines to what was written about it.
    pub(crate) fn more_lines(mut self, lines: &[String]) -> Self {
        self.lines.extend_from_slice(lines);
        self
    }

    /// Sets what stands against what; `unsaved` says that theirs is in no file yet.
    pub(crate) fn with_conflicts(mut self, conflicts: &[Conflict], unsaved: bool) -> Self {
        let refused = conflicts.iter().cloned();
        let refused = refused.map(|conflict| RefusedEdit { conflict, unsaved });
        self.conflicts = refused.collect();
        self
    }
}
