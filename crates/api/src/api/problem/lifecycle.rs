//! Problems with kernels: with opening, interrupting, serving and naming them.

use super::{Problem, ProblemKind, causes};
use crate::execution::run::RunError;
use crate::hint;
use crate::hint::shell::quote;
use crate::hint::{Hint, Verb, nb, option};
use crate::kernel::confine::sandbox::SandboxError;
use crate::kernel::process::connection::ConnectionError;
use crate::kernel::spec::selection::SelectionError;
use crate::lifecycle::interrupt::InterruptError;
use crate::lifecycle::open_error::{AttachError, OpenError, ShareError};
use crate::lifecycle::target::TargetError;
use crate::notebook::size;
use crate::project::StateError;
use crate::server::{ServerError, ServerErrorKind};
use crate::setup::serve::ServeError;
use crate::setup::vscode_extension::VscodeExtensionError;

impl Problem {
    /// Makes a problem of a command for which no notebook is found; `command` is what was typed.
    pub(crate) fn of_target(error: &TargetError, command: &str) -> Self {
        let kind = match error {
            TargetError::NotOpen { .. } | TargetError::NoneOpen { .. } => ProblemKind::NoKernel,
            TargetError::Several { .. } => ProblemKind::Usage,
            TargetError::State(_) | TargetError::Project(_) => ProblemKind::Failed,
        };
        Self::new(kind, causes(error)).all_hints(error.hints(command))
    }
}

/// Returns the hint for a connection file that cannot be used.
fn new_file() -> Hint {
    let text = " makes a new one, with a new kernel: its variables are gone";
    hint![nb(Verb::Restart), text]
}

impl From<OpenError> for Problem {
    fn from(error: OpenError) -> Self {
        let problem = |kind| Self::new(kind, causes(&error));
        match &error {
            OpenError::Choose(choose) => {
                let kind = match choose {
                    SelectionError::Ambiguous { .. } => ProblemKind::Usage,
                    _ => ProblemKind::Failed,
                };
                problem(kind).all_hints(choose.hints())
            }
            OpenError::Untrusted(untrusted) => {
                problem(ProblemKind::Refused).all_hints(untrusted.hints())
            }
            OpenError::SandboxedStart { reason, lines } => {
                let kind = match reason {
                    SandboxError::Folders(_) => ProblemKind::Failed,
                    SandboxError::Tcp => ProblemKind::Usage,
                    _ => ProblemKind::Refused,
                };
                problem(kind).lines(lines).all_hints(reason.hints())
            }
            OpenError::Died {
                log, lines, limit, ..
            } => {
                let mut died = problem(ProblemKind::NoKernel).lines(lines);
                // The log of a kernel in a temporary folder went with that.
                if log.exists() {
                    died = died.hint(format!("its whole log is {}", log.display()));
                }
                let died = died.hint(hint![
                    "another kernel can be named with ",
                    option(Verb::Open, "--kernel").value("NAME"),
                    " or ",
                    option(Verb::Open, "--python").value("PATH")
                ]);
                match limit {
                    Some(bytes) => died.hint(format!(
                        "it was allowed {} of memory: --memory SIZE allows more, --memory none all",
                        size(*bytes)
                    )),
                    None => died,
                }
            }
            OpenError::Slow { .. } => problem(ProblemKind::StillRunning).hint(hint![
                "it goes on starting; ",
                nb(Verb::Open),
                " waits again, ",
                nb(Verb::Log).option("--kernel"),
                " shows what it says, ",
                nb(Verb::Shutdown),
                " ends it"
            ]),
            OpenError::Unreachable { .. } => problem(ProblemKind::NoKernel)
                .hint("if this shell is sandboxed, allow nb outside the sandbox"),
            OpenError::ProcessStopped { .. } => problem(ProblemKind::NoKernel),
            OpenError::Unchecked { .. } => problem(ProblemKind::Refused),
            OpenError::Sandboxed { .. } => {
                problem(ProblemKind::Refused).hint("allow nb outside the sandbox")
            }
            OpenError::OtherHost {
                notebook, outside, ..
            } => {
                let place = if *outside {
                    "allow nb outside the sandbox, or in a container"
                } else {
                    "use it there, or"
                };
                problem(ProblemKind::Refused).hint(hint![
                    place,
                    " start one here in its place: ",
                    nb(Verb::Open).option("--force").notebook(notebook)
                ])
            }
            OpenError::LaterKind { .. } => {
                problem(ProblemKind::Refused).hint("use the nb that recorded it, or a later one")
            }
            OpenError::NotOwned { .. } => problem(ProblemKind::Refused)
                .hint("end or restart it in the program that started it"),
            OpenError::Attach(attach) => {
                let kind = match attach {
                    AttachError::NoFile { .. }
                    | AttachError::NotListening { .. }
                    | AttachError::Gone { .. } => ProblemKind::NoKernel,
                    AttachError::NoReply { .. } => ProblemKind::StillRunning,
                    AttachError::Sandboxed { .. }
                    | AttachError::Proxy { .. }
                    | AttachError::OfNotebook { .. } => ProblemKind::Refused,
                    AttachError::File(_) | AttachError::NoHome(_) => ProblemKind::Failed,
                };
                problem(kind).all_hints(attach.hints())
            }
            OpenError::Share(share) => {
                let kind = match share {
                    ShareError::Unknown { .. } => ProblemKind::NoKernel,
                    _ => ProblemKind::Refused,
                };
                problem(kind).hint(share.hint())
            }
            OpenError::NoKernel { notebook } => {
                problem(ProblemKind::NoKernel).hint(nb(Verb::Open).notebook(notebook))
            }
            OpenError::Connection(
                ConnectionError::Read { .. } | ConnectionError::Content { .. },
            ) => problem(ProblemKind::Failed).hint(new_file()),
            OpenError::Server(error) => match error.downcast_ref() {
                Some(server) => Self::of_server(server),
                None => problem(ProblemKind::Failed),
            },
            OpenError::NoServers { .. } => problem(ProblemKind::Failed),
            OpenError::NoServerKernel { server, .. } => problem(ProblemKind::NoKernel)
                .hint(hint![
                    nb(Verb::Kernels).option("--server").word(&**server),
                    " lists those that run there"
                ])
                .hint(hint![
                    "to start one there: ",
                    nb(Verb::Open).this().option("--server").word(&**server)
                ]),
            OpenError::ServerLimit { server, open, .. } => {
                let lines: Vec<_> = open
                    .iter()
                    .map(|it| {
                        let state = if it.is_idle { "idle" } else { "busy" };
                        format!("{}: {state}", it.notebook.display())
                    })
                    .collect();
                problem(ProblemKind::Refused)
                    .lines(&lines)
                    .hint(hint![
                        "end one that is not needed: ",
                        nb(Verb::Shutdown).without_notebook().word("NOTEBOOK")
                    ])
                    .hint(format!(
                        "to allow more: nb server add {server} … --max-kernels N --replace"
                    ))
            }
            OpenError::RunsElsewhere { notebook, .. } => {
                problem(ProblemKind::Refused).hint(nb(Verb::Shutdown).notebook(notebook))
            }
            OpenError::OnlyHere {
                is_as_before,
                ran_there,
                ..
            } => {
                let refused = problem(ProblemKind::Refused);
                let refused = match ran_there {
                    true => refused.hint("for a kernel of this machine add --own"),
                    false => refused.hint("for a kernel of this machine leave out --server"),
                };
                match is_as_before {
                    true => refused.hint("to run it there without that add --no-sandbox"),
                    false => refused,
                }
            }
            OpenError::FreshOnServer { .. } => problem(ProblemKind::Refused).hint(
                "to run it on this machine name a kernel of this machine: --kernel NAME or --python PATH",
            ),
            OpenError::Copy { .. } => {
                problem(ProblemKind::Failed).hint("--in-place runs it in its own folder")
            }
            OpenError::Busy { .. } => {
                problem(ProblemKind::Refused).hint(hint![nb(Verb::Status), " tells what it does"])
            }
            OpenError::NotebookFile(file) => {
                problem(ProblemKind::Failed).all_hints(super::editing::hint(file))
            }
            OpenError::Notebook { .. }
            | OpenError::NotANotebook { .. }
            | OpenError::Lock { .. }
            | OpenError::Project(_)
            | OpenError::State(_)
            | OpenError::Config(_)
            | OpenError::Connection(_)
            | OpenError::Detach(_)
            | OpenError::Internal(_) => problem(ProblemKind::Failed),
        }
    }
}

impl Problem {
    /// Makes a problem of what went wrong with a server.
    pub fn of_server(error: &ServerError) -> Self {
        let kind = match &error.kind {
            ServerErrorKind::Unauthorized { .. }
            | ServerErrorKind::UserRefused { .. }
            | ServerErrorKind::Conflict { .. } => ProblemKind::Refused,
            ServerErrorKind::Name(_) => ProblemKind::Usage,
            _ => ProblemKind::Failed,
        };
        Self::new(kind, causes(error))
    }
}

impl From<InterruptError> for Problem {
    fn from(error: InterruptError) -> Self {
        match error {
            InterruptError::Open(open) => open.into(),
            InterruptError::Refused(_) => Self::new(ProblemKind::Failed, causes(&error))
                .hint(hint![nb(Verb::Status), " shows how it is"]),
            InterruptError::Signal(_) | InterruptError::Client(_) => {
                Self::new(ProblemKind::NoKernel, causes(&error)).hint(hint![
                    nb(Verb::Status),
                    " shows whether it is alive; ",
                    nb(Verb::Restart),
                    " replaces it"
                ])
            }
        }
    }
}

impl From<StateError> for Problem {
    fn from(error: StateError) -> Self {
        Self::new(ProblemKind::Failed, causes(&error))
    }
}

impl From<VscodeExtensionError> for Problem {
    fn from(error: VscodeExtensionError) -> Self {
        Self::new(ProblemKind::Failed, causes(&error))
    }
}

impl From<ServeError> for Problem {
    fn from(error: ServeError) -> Self {
        let kind = if matches!(error, ServeError::NotOurs { .. }) {
            ProblemKind::Refused
        } else {
            ProblemKind::Failed
        };
        let problem = Self::new(kind, causes(&error));
        match &error {
            ServeError::NotOurs { folder } => {
                problem.hint(format!("move it away: mv {0} {0}.other", quote(folder)))
            }
            ServeError::Install { .. } => problem.hint("nb doctor shows the fix"),
            _ => problem,
        }
    }
}

impl From<RunError> for Problem {
    fn from(error: RunError) -> Self {
        if let RunError::Unseen(error) = error {
            return (*error).into();
        }
        let problem = |kind| Self::new(kind, causes(&error));
        match &error {
            RunError::State(_) => problem(ProblemKind::Failed),
            RunError::ConnectionFile(_) => problem(ProblemKind::NoKernel).hint(new_file()),
            RunError::NotReady(_) => problem(ProblemKind::StillRunning)
                .hint(hint![nb(Verb::Status), " tells when it is ready"]),
            RunError::Ended { fix, .. } => problem(ProblemKind::NoKernel).hint(fix.clone()),
            RunError::Client(_) | RunError::Unseen(_) => {
                problem(ProblemKind::NoKernel).hint(hint![
                    nb(Verb::Status),
                    " tells its state; ",
                    nb(Verb::Open),
                    " starts it"
                ])
            }
        }
    }
}
