//! `nb doctor`: lists what keeps a notebook from running in a front end, and the fixes.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api;
use crate::api::problem::Problem;
use crate::cli::Context;
use crate::cli::commands::Command;
use crate::cli::render::{columns, print};
use crate::setup::doctor::{Check, Verdict};

/// Check everything between nb open and a cell that runs in VS Code, and say how to fix what fails
///
/// Nothing is started or changed. It ends with 0 where all is well and with 1 where something
/// would not work. A line with "!" is such a thing, one with "-" is only to be known.
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// The notebook; without it, a new one in the working directory
    pub(crate) notebook: Option<PathBuf>,
}

impl Command for Doctor {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        self.notebook.take()
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let answer = api::doctor(&context.caller).await?;
        context.print(&answer, |answer| print::lines(lines(&answer.checks)))?;
        Ok(ExitCode::from(u8::from(!answer.well)))
    }
}

fn lines(checks: &[Check]) -> Vec<String> {
    let rows = checks.iter().map(|check| {
        let mark = match check.verdict {
            Verdict::Good => " ",
            Verdict::Note => "-",
            Verdict::Bad => "!",
        };
        [format!("{mark} {}", check.about), check.text.clone()]
    });
    let rows = columns::lines(&rows.collect::<Vec<_>>());
    let mut lines = Vec::new();
    for (row, check) in rows.into_iter().zip(checks) {
        lines.push(row);
        let fix = check.fix.as_ref();
        lines.extend(fix.map(|fix| format!("      next: {fix}")));
    }
    let bad = checks.iter().filter(|it| it.verdict == Verdict::Bad);
    lines.push(match bad.count() {
        0 => "all is well".to_owned(),
        1 => "1 problem".to_owned(),
        count => format!("{count} problems"),
    });
    lines
}
