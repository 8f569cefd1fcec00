//! `nb doctor`: what stands in the way, and what mends it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::fault::Fault;
use super::{Context, columns, print};
use crate::kernel::shell::quote;
use crate::kernel::variables::ProcessVariables;
use crate::lifecycle::doctor::{Check, Verdict, examine};
use crate::lifecycle::target;

/// Check everything between nb open and a cell that runs in VS Code, and say what mends it
///
/// Nothing is started or changed. It ends with 0 where all is well and with 1 where something
/// would not work. A line with "!" is such a thing, one with "-" is only to be known.
#[derive(Args, Debug)]
pub(super) struct Doctor {
    /// The notebook; without it, a new one in the working directory
    pub(super) notebook: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl Doctor {
    /// Runs the command.
    pub(super) fn run(self, context: &Context) -> Result<ExitCode, Fault> {
        let given = self.notebook.clone().or_else(|| context.notebook.clone());
        let named = target::named(given.as_deref(), &ProcessVariables);
        let notebook = named.clone();
        let notebook = notebook.unwrap_or_else(|| context.here.join("new.ipynb"));
        let notebook = std::path::absolute(&notebook).unwrap_or(notebook);
        let mut checks = examine(&notebook, &ProcessVariables);
        let name = named.map_or("NOTEBOOK".to_owned(), |it| quote(&it));
        for mend in checks.iter_mut().filter_map(|check| check.mend.as_mut()) {
            *mend = mend.replace("NOTEBOOK", &name);
        }
        let bad = checks
            .iter()
            .filter(|it| it.verdict == Verdict::Bad)
            .count();
        let _ = if self.json {
            let all: Vec<_> = checks
                .iter()
                .map(|check| {
                    json!({
                        "about": check.about,
                        "verdict": check.verdict.as_str(),
                        "text": check.text,
                        "mend": check.mend,
                    })
                })
                .collect();
            print::json(&json!({ "well": bad == 0, "checks": all }))
        } else {
            print::line(&lines(&checks, bad).join("\n"))
        };
        Ok(ExitCode::from(u8::from(bad > 0)))
    }
}

fn lines(checks: &[Check], bad: usize) -> Vec<String> {
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
    for (row, check) in rows.iter().zip(checks) {
        lines.push(row.trim_end().to_owned());
        lines.extend(
            check
                .mend
                .as_ref()
                .map(|mend| format!("      next: {mend}")),
        );
    }
    lines.push(match bad {
        0 => "all is well".to_owned(),
        1 => "1 problem".to_owned(),
        count => format!("{count} problems"),
    });
    lines
}
