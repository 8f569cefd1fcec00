//! Problems as people read them, and their exit codes.

use std::process::ExitCode;

use crate::api::envelope::ProblemAnswer;
use crate::api::problem::{Problem, ProblemKind};
use crate::cli::render::hints::Commands;
use crate::cli::render::print;
use crate::text::problem::lines;

/// Returns the exit code of a kind of problems.
pub(crate) fn code(kind: ProblemKind) -> ExitCode {
    ExitCode::from(match kind {
        ProblemKind::Failed => 1,
        ProblemKind::Usage => 2,
        ProblemKind::StillRunning => 4,
        ProblemKind::Refused | ProblemKind::Conflict => 5,
        ProblemKind::NoKernel => 6,
    })
}

/// Completes the commands in a problem's hints with the notebook.
pub(crate) fn completed(problem: Problem, commands: &Commands) -> Problem {
    problem.worded(|hint| commands.complete(hint))
}

/// Prints a problem, and returns its exit code.
pub(crate) fn report(problem: &Problem, json: bool) -> ExitCode {
    if json {
        let _ = print::json(&ProblemAnswer { error: problem });
    } else {
        let lines = lines(problem);
        let mut lines: Vec<_> = lines.iter().map(ToString::to_string).collect();
        if let Some(first) = lines.first_mut() {
            first.insert_str(0, "nb: ");
        }
        lines.iter().for_each(|line| print::note(line));
    }
    code(problem.kind)
}
