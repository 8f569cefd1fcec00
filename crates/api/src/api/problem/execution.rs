//! Problems with jobs, and with reading a kernel's variables.

use jiff::Timestamp;

use super::{Problem, ProblemKind, causes, lists_jobs};
use crate::activity::labels::cell_with_actor;
use crate::execution::exec::ExecError;
use crate::execution::follow::FollowError;
use crate::execution::inspect::InspectError;
use crate::execution::peek::PeekError;
use crate::execution::salvage::SalvageError;
use crate::execution::vars::VarsError;
use crate::graph::Cancelled;
use crate::hint;
use crate::hint::{Verb, nb};
use crate::project::jobs::NoJob;
use crate::stale::notebook_graph::GraphError;

impl From<ExecError> for Problem {
    fn from(error: ExecError) -> Self {
        match error {
            ExecError::Open(open) => open.into(),
            ExecError::Kernel(error) => error.into(),
            ExecError::NoKernel { .. } => Self::new(ProblemKind::NoKernel, error.to_string())
                .hint(hint![nb(Verb::Open).this(), " starts one"]),
            ExecError::Job { .. } => Self::new(ProblemKind::Failed, causes(&error)),
        }
    }
}

impl From<Cancelled> for Problem {
    fn from(error: Cancelled) -> Self {
        Self::new(ProblemKind::StillRunning, error.to_string())
    }
}

impl From<GraphError> for Problem {
    fn from(error: GraphError) -> Self {
        match error {
            GraphError::State(error) => error.into(),
            GraphError::Cancelled(error) => error.into(),
        }
    }
}

impl From<NoJob> for Problem {
    fn from(error: NoJob) -> Self {
        Self::new(ProblemKind::Usage, causes(&error)).hint(lists_jobs())
    }
}

impl From<FollowError> for Problem {
    fn from(error: FollowError) -> Self {
        Self::new(ProblemKind::Failed, causes(&error))
    }
}

impl From<SalvageError> for Problem {
    fn from(error: SalvageError) -> Self {
        match &error {
            SalvageError::Job(_) => {
                Self::new(ProblemKind::Usage, causes(&error)).hint(lists_jobs())
            }
            SalvageError::Kept { .. } => Self::new(ProblemKind::Failed, causes(&error)),
            SalvageError::NoCells(id) | SalvageError::Nothing(id) | SalvageError::NoCode(id) => {
                let hint = hint![nb(Verb::Wait).job(id), " shows what it keeps"];
                Self::new(ProblemKind::Refused, error.to_string()).hint(hint)
            }
            SalvageError::Unwritable { id, .. } => {
                let write = || nb(Verb::Jobs).job(id).option("--write");
                let hint = hint![
                    write(),
                    " again once that is mended; ",
                    write().word("OTHER.ipynb").without_notebook(),
                    " writes into another file"
                ];
                Self::new(ProblemKind::Failed, error.to_string()).hint(hint)
            }
        }
    }
}

impl From<PeekError> for Problem {
    fn from(error: PeekError) -> Self {
        match error {
            PeekError::Inspect(error) => error.into(),
            PeekError::Refused(_) => Self::new(ProblemKind::Failed, causes(&error))
                .hint(hint![nb(Verb::Run), " runs it once the kernel is idle"]),
        }
    }
}

impl From<InspectError> for Problem {
    fn from(error: InspectError) -> Self {
        let text = match &error {
            InspectError::Run(_) => String::new(),
            InspectError::Busy { behind: Some(cell) } => {
                format!("busy: {} for {}", cell_with_actor(cell), clock(cell.since))
            }
            InspectError::Busy { behind: None } => {
                "busy: the kernel does not answer, whatever it runs".to_owned()
            }
            InspectError::Lost(_) | InspectError::Late { .. } | InspectError::Stopped { .. } => {
                causes(&error)
            }
        };
        let problem = Self::new(ProblemKind::StillRunning, text);
        match error {
            InspectError::Run(error) => error.into(),
            InspectError::Busy { .. } => {
                problem.hint("it answers once that is over; with ipykernel 7 also meanwhile")
            }
            InspectError::Lost(_) => problem.hint(hint![nb(Verb::Open), " connects again at once"]),
            InspectError::Late { beside: true, .. } => problem.hint(hint![
                "the code goes on beside the cell, where nothing interrupts it; ",
                nb(Verb::Restart),
                " ends it"
            ]),
            InspectError::Late { beside: false, .. } => {
                problem.hint(hint!["the code goes on; ", nb(Verb::Interrupt), " ends it"])
            }
            InspectError::Stopped { .. } => problem,
        }
    }
}

impl From<VarsError> for Problem {
    fn from(error: VarsError) -> Self {
        match error {
            VarsError::Inspector(error) => error.into(),
            VarsError::Language { ref language } => {
                let code = match language.to_ascii_lowercase().as_str() {
                    "r" => "ls.str()",
                    "julia" => "varinfo()",
                    _ => "CODE",
                };
                Self::new(ProblemKind::Failed, causes(&error)).hint(hint![
                    "names, types and sizes as the kernel shows them: ",
                    nb(Verb::Run).word(code)
                ])
            }
            VarsError::Refused(_) => Self::new(ProblemKind::Failed, causes(&error)),
            VarsError::Unknown { ref near, .. } => {
                let hints = near.iter().map(|name| nb(Verb::Vars).word(&**name));
                Self::new(ProblemKind::Failed, causes(&error))
                    .all_hints(hints)
                    .hint(hint![nb(Verb::Vars).option("--all"), " lists the names"])
            }
        }
    }
}

/// Returns how long a cell has run, as a clock shows it: `3:12`, `1:03:12`.
fn clock(since: Timestamp) -> String {
    let seconds = (Timestamp::now().as_second() - since.as_second()).max(0);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_shows_minutes_and_seconds() {
        let ago = |seconds| clock(Timestamp::now() - std::time::Duration::from_secs(seconds));
        assert_eq!(ago(192), "3:12");
        assert_eq!(ago(3792), "1:03:12");
    }
}
