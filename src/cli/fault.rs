//! What went wrong, as a person and a program read it.

use std::error::Error;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::commands::Commands;
use super::{conflict, print};
use crate::execution::run::RunError;
use crate::kernel::confine::sandbox::SandboxError;
use crate::kernel::process::connection::ConnectionError;
use crate::kernel::shell::quote;
use crate::kernel::spec::selection::SelectionError;
use crate::lifecycle::attach::AttachError;
use crate::lifecycle::interrupt::InterruptError;
use crate::lifecycle::open_error::OpenError;
use crate::lifecycle::serve::ServeError;
use crate::lifecycle::share::ShareError;
use crate::lifecycle::target::TargetError;
use crate::notebook::{Conflict, size};
use crate::project::StateError;
pub(super) use crate::task::causes::with_causes as causes;

/// A command that did not do what it should.
#[derive(Debug)]
pub(super) struct Fault {
    kind: Kind,
    message: String,
    /// What the kernel or another program wrote about it.
    lines: Vec<String>,
    hints: Vec<String>,
    /// What of an edit stands against what is there.
    conflicts: Vec<Conflict>,
    /// Whether that is text which nobody has saved yet.
    unsaved: bool,
}

/// Whose fault it was; it picks the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Failed,
    Usage,
    StillRunning,
    Refused,
    Conflict,
    NoKernel,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::StillRunning => 4,
            Self::Refused | Self::Conflict => 5,
            Self::NoKernel => 6,
        }
    }

    fn name(self) -> &'static str {
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

impl Fault {
    /// Makes a fault from a message.
    pub(super) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            lines: Vec::new(),
            hints: Vec::new(),
            conflicts: Vec::new(),
            unsaved: false,
        }
    }

    /// Makes a fault from what could not be done and why.
    pub(super) fn failed(what: &str, error: &dyn Error) -> Self {
        Self::new(Kind::Failed, format!("cannot {what}: {}", causes(error)))
    }

    /// Adds what mends it.
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Names the notebook in the commands of its hints.
    pub(super) fn completed(mut self, commands: &Commands) -> Self {
        for hint in &mut self.hints {
            *hint = commands.complete(hint);
        }
        self
    }

    /// Adds what was written about it.
    pub(super) fn lines(mut self, lines: &[String]) -> Self {
        self.lines = lines.to_vec();
        self
    }

    /// Adds more of it.
    pub(super) fn more_lines(mut self, lines: &[String]) -> Self {
        self.lines.extend_from_slice(lines);
        self
    }

    /// Adds what stands against what; `unsaved` says that theirs is in no file yet.
    pub(super) fn with_conflicts(mut self, conflicts: &[Conflict], unsaved: bool) -> Self {
        self.conflicts = conflicts.to_vec();
        self.unsaved = unsaved;
        self
    }

    /// Says whether this is part of what it tells.
    pub(super) fn says(&self, text: &str) -> bool {
        self.message.contains(text)
    }

    /// Returns what stands against what.
    pub(super) fn conflicts(&self) -> &[Conflict] {
        &self.conflicts
    }

    /// Returns whether that is text which nobody has saved yet.
    pub(super) fn is_unsaved(&self) -> bool {
        self.unsaved
    }

    /// Makes a fault of a command that means no notebook; `command` is what was typed.
    pub(super) fn of_target(error: &TargetError, command: &str) -> Self {
        let kind = match error {
            TargetError::NotOpen { .. } | TargetError::NoneOpen { .. } => Kind::NoKernel,
            TargetError::Several { .. } => Kind::Usage,
            TargetError::State(_) | TargetError::Project(_) => Kind::Failed,
        };
        let mut fault = Self::new(kind, causes(error));
        fault.hints = error.hints(command);
        fault
    }

    /// Returns it as a program reads it.
    pub(super) fn object(&self) -> Value {
        let mut error = json!({
            "kind": self.kind.name(), "message": self.message, "lines": self.lines, "hints": self.hints
        });
        if !self.conflicts.is_empty() {
            let conflicts = self.conflicts.iter();
            error["conflicts"] = conflicts
                .map(|it| conflict::object(it, self.unsaved))
                .collect();
        }
        json!({ "error": error })
    }

    /// Returns the exit code.
    pub(super) fn code(&self) -> ExitCode {
        ExitCode::from(self.kind.code())
    }

    /// Tells it, and returns the exit code.
    pub(super) fn report(&self, json: bool) -> ExitCode {
        if json {
            let _ = print::json(&self.object());
        } else {
            print::note(&format!("nb: {}", self.message));
            self.lines
                .iter()
                .for_each(|line| print::note(&format!("  | {line}")));
            self.conflicts
                .iter()
                .flat_map(|it| conflict::blocks(it, self.unsaved))
                .for_each(|line| print::note(&line));
            self.hints
                .iter()
                .for_each(|hint| print::note(&format!("hint: {hint}")));
        }
        self.code()
    }
}

/// What mends a connection file that cannot be used.
const NEW_FILE: &str = "nb restart makes a new one, with a new kernel: its variables are gone";

impl From<OpenError> for Fault {
    fn from(error: OpenError) -> Self {
        let fault = |kind| Self::new(kind, causes(&error));
        match &error {
            OpenError::Choose(choose) => {
                let kind = match choose {
                    SelectionError::Ambiguous { .. } => Kind::Usage,
                    _ => Kind::Failed,
                };
                choose.hints().into_iter().fold(fault(kind), Self::hint)
            }
            OpenError::Untrusted(untrusted) => {
                let hints = untrusted.hints().into_iter();
                hints.fold(fault(Kind::Refused), Self::hint)
            }
            OpenError::SandboxedStart { reason, lines } => {
                let kind = match reason {
                    SandboxError::Folders(_) => Kind::Failed,
                    SandboxError::Tcp => Kind::Usage,
                    _ => Kind::Refused,
                };
                let hints = reason.hints().into_iter();
                hints.fold(fault(kind).lines(lines), Self::hint)
            }
            OpenError::Died {
                log, lines, limit, ..
            } => {
                let died = fault(Kind::NoKernel)
                    .lines(lines)
                    .hint(format!("its whole log is {}", log.display()))
                    .hint("another kernel can be named with --kernel NAME or --python PATH");
                match limit {
                    Some(bytes) => died.hint(format!(
                        "it was allowed {} of memory: --memory SIZE allows more, --memory none all",
                        size(*bytes)
                    )),
                    None => died,
                }
            }
            OpenError::Slow { .. } => fault(Kind::StillRunning).hint(
                "it goes on starting; nb open waits again, nb log --kernel shows what it says, nb shutdown ends it",
            ),
            OpenError::Unreachable { .. } => fault(Kind::NoKernel)
                .hint("if this shell is sandboxed, allow nb outside the sandbox"),
            OpenError::Unchecked { .. } => fault(Kind::Refused),
            OpenError::Sandboxed { .. } => {
                fault(Kind::Refused).hint("allow nb outside the sandbox")
            }
            OpenError::Elsewhere {
                notebook, outside, ..
            } => {
                let there = if *outside {
                    "allow nb outside the sandbox, or in a container"
                } else {
                    "use it there, or"
                };
                fault(Kind::Refused).hint(format!(
                    "{there} start one here in its place: nb open --force {}",
                    quote(notebook)
                ))
            }
            OpenError::NotOwned { .. } => {
                fault(Kind::Refused).hint("end or restart it in the program that started it")
            }
            OpenError::Attach(attach) => {
                let kind = match attach {
                    AttachError::NoFile { .. }
                    | AttachError::Nobody { .. }
                    | AttachError::Gone { .. } => Kind::NoKernel,
                    AttachError::Mute { .. } => Kind::StillRunning,
                    AttachError::Sandboxed { .. }
                    | AttachError::Proxy { .. }
                    | AttachError::OfNotebook { .. } => Kind::Refused,
                    AttachError::File(_) | AttachError::NoHome(_) => Kind::Failed,
                };
                attach.hints().into_iter().fold(fault(kind), Self::hint)
            }
            OpenError::Share(share) => {
                let kind = match share {
                    ShareError::Unknown { .. } => Kind::NoKernel,
                    _ => Kind::Refused,
                };
                fault(kind).hint(share.hint())
            }
            OpenError::NoKernel { notebook } => {
                fault(Kind::NoKernel).hint(format!("nb open {}", quote(notebook)))
            }
            OpenError::Connection(
                ConnectionError::Read { .. } | ConnectionError::Content { .. },
            ) => fault(Kind::Failed).hint(NEW_FILE),
            OpenError::Busy { .. } => fault(Kind::Refused).hint("nb status tells what it does"),
            OpenError::Page(page) => super::page::hint(page)
                .into_iter()
                .fold(fault(Kind::Failed), Self::hint),
            OpenError::Notebook { .. }
            | OpenError::NotANotebook { .. }
            | OpenError::Lock { .. }
            | OpenError::Project(_)
            | OpenError::State(_)
            | OpenError::Config(_)
            | OpenError::Connection(_)
            | OpenError::Detach(_)
            | OpenError::Internal(_) => fault(Kind::Failed),
        }
    }
}

impl From<InterruptError> for Fault {
    fn from(error: InterruptError) -> Self {
        match error {
            InterruptError::Open(open) => open.into(),
            InterruptError::Signal(_) | InterruptError::Client(_) => {
                Self::new(Kind::NoKernel, causes(&error))
                    .hint("nb status tells whether it lives; nb restart replaces it")
            }
        }
    }
}

impl From<StateError> for Fault {
    fn from(error: StateError) -> Self {
        Self::new(Kind::Failed, causes(&error))
    }
}

impl From<ServeError> for Fault {
    fn from(error: ServeError) -> Self {
        let kind = if matches!(error, ServeError::NotOurs { .. }) {
            Kind::Refused
        } else {
            Kind::Failed
        };
        let fault = Self::new(kind, causes(&error));
        match &error {
            ServeError::NotOurs { folder } => {
                fault.hint(format!("move it away: mv {0} {0}.other", quote(folder)))
            }
            ServeError::Install { .. } => fault.hint("nb doctor tells what mends it"),
            _ => fault,
        }
    }
}

impl From<RunError> for Fault {
    fn from(error: RunError) -> Self {
        if let RunError::Unseen(error) = error {
            return (*error).into();
        }
        let fault = |kind| Self::new(kind, causes(&error));
        match &error {
            RunError::State(_) => fault(Kind::Failed),
            RunError::ConnectionFile(_) => fault(Kind::NoKernel).hint(NEW_FILE),
            RunError::NotReady(_) => {
                fault(Kind::StillRunning).hint("nb status tells when it is ready")
            }
            RunError::Ended { mend, .. } => fault(Kind::NoKernel).hint(mend.clone()),
            RunError::Client(_) | RunError::Unseen(_) => {
                fault(Kind::NoKernel).hint("nb status tells its state; nb open starts it")
            }
        }
    }
}
