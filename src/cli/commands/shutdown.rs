//! `nb shutdown`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::api::problem::{Problem, ProblemKind, causes};
use crate::cli::Context;
use crate::cli::commands::{Command, Group};
use crate::cli::render::print;
use crate::lifecycle;
use crate::lifecycle::consent::KernelAction;
use crate::lifecycle::everywhere::{self, Kernels};
use crate::lifecycle::idle::{self, Done, IdleOutcome};
use crate::notebook::size;
use crate::project::Project;

/// End the kernel for good; `nb open` starts another
///
/// Asks the kernel, interrupts its cell after 0.3 s and gives it 3 s; then SIGTERM and 2 s; then
/// SIGKILL. The signals go to its whole process group. A kernel that another program started is only
/// let go. Where it would end somebody else's cell, or take the variables
/// of a person who is joined, it needs --force; at a terminal the question is put.
///
/// With --idle it ends those kernels that have run nothing for some time, as in `nb shutdown --idle
/// 3d --all`. One that is busy goes on, and one that a front end has joined, unless --force is
/// given.
#[derive(Args, Debug)]
pub(crate) struct Shutdown {
    /// The notebook; without it, the only open one
    pub(crate) notebook: Option<PathBuf>,
    /// End the kernels that nobody has used for this long: 3d, 12h, 30m, 0s
    #[arg(long, value_name = "AGE", value_parser = age, conflicts_with_all = ["notebook", "global notebook"])]
    idle: Option<Duration>,
    /// With --idle: those of all your projects, not only of this one
    #[arg(long, requires = "idle")]
    all: bool,
    /// With --idle: only tell what would be ended
    #[arg(long, requires = "idle")]
    dry_run: bool,
    /// End it even when that ends others' work; with --idle: also where a front end is joined
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// How long another `nb` may hold the session's lock.
const PATIENCE: Duration = Duration::from_secs(30);

impl Command for Shutdown {
    const NAME: &'static str = "shutdown";
    const GROUP: Group = Group::Kernel;
    const IS_FIRST: bool = true;

    fn notebook(&self) -> Option<PathBuf> {
        self.notebook.clone()
    }

    fn json(&self) -> bool {
        self.json
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        if let Some(age) = self.idle {
            return self.end_idle(context, age).await;
        }
        let target = context.target(self.notebook).await?;
        // A kernel of another program or notebook is only let go.
        if target.session.is_owned() && !target.is_shared() {
            context
                .consent(KernelAction::Shutdown, &target, self.force, self.json)
                .await?;
        }
        let stopped = lifecycle::shutdown::shutdown(
            &target.project,
            &target.notebook_key,
            context.by(),
            PATIENCE,
        )
        .await?;
        let _ = if self.json {
            context.answer(&json!({
                "notebook": target.notebook_key,
                "status": stopped.session.status.as_str(),
                "was_running": stopped.was_running,
                "let_go_of": stopped.let_go_of,
                "shared_with": stopped.shared_with,
                "notes": stopped.notes,
                "kernel_generation": stopped.session.generation,
                "took_ms": u64::try_from(stopped.took.as_millis()).unwrap_or(u64::MAX),
            }))
        } else if let Some(owner) = &stopped.let_go_of {
            let goes_on = if stopped.was_running {
                ", which goes on"
            } else {
                ""
            };
            print::line(&format!(
                "{}: let go of the kernel of {owner}{goes_on}",
                target.notebook_key
            ))
        } else if stopped.was_running {
            let shared = match stopped.shared_with.as_slice() {
                [] => String::new(),
                others => format!("; it was shared with {}", others.join(", ")),
            };
            print::line(&format!(
                "{}: its kernel was shut down in {}{shared}",
                target.notebook_key,
                print::took(stopped.took)
            ))
        } else if stopped.session.is_owned() {
            print::line(&format!("{}: no kernel was running", target.notebook_key))
        } else {
            print::line(&format!(
                "{}: let go; its kernel was started by another program and goes on",
                target.notebook_key
            ))
        };
        if !self.json {
            stopped
                .notes
                .iter()
                .for_each(|note| print::note(&format!("note: {note}")));
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Shutdown {
    /// Ends what nobody has used for so long.
    async fn end_idle(&self, context: &Context, age: Duration) -> Result<ExitCode, Problem> {
        let kernels = if self.all {
            everywhere::everywhere().await
        } else {
            let project = Project::find(&context.caller.here).ok_or_else(|| {
                let here = context.caller.here.display();
                Problem::new(
                    ProblemKind::NoKernel,
                    format!("no notebook is open in {here}"),
                )
                .hint("for all your projects: nb shutdown --idle AGE --all")
            })?;
            let found = everywhere::of_project(&project).await?;
            let found = found.into_iter().map(|status| (project.clone(), status));
            Kernels {
                found: found.collect(),
                ..Kernels::default()
            }
        };
        let unreadable: Vec<_> = kernels
            .unreadable
            .iter()
            .map(|(_, error)| causes(error))
            .collect();
        let options = idle::IdleOptions {
            age,
            force: self.force,
            dry_run: self.dry_run,
            by: context.by().to_owned(),
        };
        let outcomes = idle::end_idle(kernels, &options).await;
        let _ = if self.json {
            let objects: Vec<_> = outcomes.iter().map(object).collect();
            print::json(
                &json!({ "kernels": objects, "dry_run": self.dry_run, "unreadable": unreadable }),
            )
        } else if outcomes.is_empty() {
            print::line("no kernel runs")
        } else {
            let lines: Vec<_> = outcomes.iter().map(|outcome| self.line(outcome)).collect();
            print::line(&lines.join("\n"))
        };
        if !self.json {
            unreadable
                .iter()
                .for_each(|why| print::note(&format!("note: {why}")));
        }
        let failed = outcomes
            .iter()
            .any(|outcome| matches!(outcome.done, Done::Failed(_)));
        Ok(ExitCode::from(u8::from(failed)))
    }

    fn line(&self, outcome: &IdleOutcome) -> String {
        let name = if self.all {
            outcome.root.join(&outcome.notebook).display().to_string()
        } else {
            outcome.notebook.clone()
        };
        let mut facts = Vec::new();
        facts.extend(
            outcome
                .idle_since
                .map(|since| format!("idle for {}", print::age(since))),
        );
        facts.extend(outcome.memory_bytes.map(size));
        let facts = facts.join(", ");
        match &outcome.done {
            Done::Ended if self.dry_run => format!("{name}: would be ended ({facts})"),
            Done::Ended => format!("{name}: ended ({facts})"),
            Done::Kept(why) => format!("{name}: goes on: {why} ({facts})"),
            Done::Failed(error) => format!("{name}: not ended: {}", causes(error)),
        }
    }
}

fn object(outcome: &IdleOutcome) -> Value {
    let (done, why) = match &outcome.done {
        Done::Ended => ("ended", None),
        Done::Kept(why) => ("kept", Some(why.clone())),
        Done::Failed(error) => ("failed", Some(causes(error))),
    };
    json!({
        "project": outcome.root,
        "notebook": outcome.notebook,
        "kernel_pid": outcome.pid,
        "kernel_generation": outcome.generation,
        "idle_since": outcome.idle_since,
        "memory_bytes": outcome.memory_bytes,
        "done": done,
        "why": why,
    })
}

/// Reads an age: `3d`, `12h`, `1h 30m`, `0s`.
pub(crate) fn age(text: &str) -> Result<Duration, String> {
    let wrong = || "wanted is an age such as 3d, 12h, 30m or 0s".to_owned();
    let span: jiff::Span = text.parse().map_err(|_| wrong())?;
    let time = span
        .to_duration(jiff::SpanRelativeTo::days_are_24_hours())
        .map_err(|_| wrong())?;
    Duration::try_from(time).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_written_as_people_do() {
        let hours = |count: u64| Ok(Duration::from_secs(count * 3600));
        assert_eq!(age("3d"), hours(72));
        assert_eq!(age("12h"), hours(12));
        assert_eq!(age("30m"), Ok(Duration::from_secs(1800)));
        assert_eq!(age("1w"), hours(168));
        assert_eq!(age("1h 30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(age("0s"), Ok(Duration::ZERO));
        for wrong in ["", "3", "soon", "-3d", "1mo"] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
    }
}
