//! `nb shutdown`: ends kernels for good.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgGroup, Args};

use crate::api::problem::Problem;
use crate::api::{self, ShutdownIdleRequest, ShutdownRequest};
use crate::cli::Context;
use crate::cli::commands::Command;
use crate::cli::render::print;
use crate::lifecycle::idle::{IdleKernel, IdleResult};
use crate::notebook::size;
use crate::text::kernel::shut_down;

/// End the kernel for good; `nb open` starts another
///
/// Asks the kernel, interrupts its cell after 0.3 s and gives it 3 s; then SIGTERM and 2 s; then
/// SIGKILL. The signals go to its whole process group. A kernel that another program started is only
/// let go. Where it would end somebody else's cell, or take the variables
/// of a person who uses it, it needs --force; at a terminal the question is put.
///
/// With --idle it ends those kernels that have run nothing for some time, as in `nb shutdown --idle
/// 3d --all`; --all without --idle is the same with --idle 0s. One that is busy goes on, and one that
/// a front end has joined, unless --force is given.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("several").args(["idle", "all"]).multiple(true))]
pub(crate) struct Shutdown {
    /// The notebook; without it, the only open one
    pub(crate) notebook: Option<PathBuf>,
    /// End the kernels that nobody has used for this long: 3d, 12h, 30m, 0s
    #[arg(long, value_name = "AGE", value_parser = age, conflicts_with_all = ["notebook", "global notebook"])]
    idle: Option<Duration>,
    /// Those of all your projects, not only of this one
    #[arg(long, conflicts_with_all = ["notebook", "global notebook"])]
    all: bool,
    /// With --idle or --all: only tell what would be ended
    #[arg(long, requires = "several")]
    dry_run: bool,
    /// End it even when that ends others' work; with --idle or --all: also where a front end is joined
    #[arg(long)]
    force: bool,
    /// Let a kernel on a server go on running there; `nb open` finds it again
    #[arg(long, conflicts_with = "several")]
    detach: bool,
}

impl Command for Shutdown {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        self.notebook.take()
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        if self.all || self.idle.is_some() {
            let age = self.idle.unwrap_or_default();
            return self.end_idle(context, age).await;
        }
        let detach = self.detach;
        let request =
            async |force| api::shutdown(&context.caller, ShutdownRequest { force, detach }).await;
        let answer = context.with_confirmation(self.force, request).await?;
        context.print(&answer, |answer| {
            print::line(&shut_down(answer))?;
            print::notes(&answer.notes);
            Ok(())
        })
    }
}

impl Shutdown {
    /// Ends the kernels that have been unused for at least `age`.
    async fn end_idle(&self, context: &Context, age: Duration) -> Result<ExitCode, Problem> {
        let request = ShutdownIdleRequest {
            age,
            all: self.all,
            dry_run: self.dry_run,
            force: self.force,
        };
        let answer = api::shutdown_idle(&context.caller, request).await?;
        context.print(&answer, |answer| {
            let kernels = answer.kernels.iter();
            let lines: Vec<_> = kernels.map(|kernel| self.line(kernel)).collect();
            match lines.is_empty() {
                true => print::line("no kernel runs")?,
                false => print::lines(&lines)?,
            }
            print::notes(&answer.unreadable);
            Ok(())
        })?;
        let failed = answer
            .kernels
            .iter()
            .any(|kernel| kernel.done == IdleResult::Failed);
        Ok(ExitCode::from(u8::from(failed)))
    }

    fn line(&self, kernel: &IdleKernel) -> String {
        let name = match self.all {
            true => kernel.project.join(&kernel.notebook).display().to_string(),
            false => kernel.notebook.clone(),
        };
        let idle = kernel.idle_since;
        let idle = idle.map(|since| format!("idle for {}", print::age(since)));
        let facts: Vec<_> = idle
            .into_iter()
            .chain(kernel.memory_bytes.map(size))
            .collect();
        let facts = facts.join(", ");
        let why = kernel.why.as_deref().unwrap_or_default();
        match kernel.done {
            IdleResult::Ended if self.dry_run => format!("{name}: would be ended ({facts})"),
            IdleResult::Ended => format!("{name}: ended ({facts})"),
            IdleResult::Kept => format!("{name}: goes on: {why} ({facts})"),
            IdleResult::Failed => format!("{name}: not ended: {why}"),
        }
    }
}

/// Parses a duration: `3d`, `12h`, `1h 30m`, `0s`.
pub(crate) fn age(text: &str) -> Result<Duration, String> {
    let invalid = || "wanted is an age such as 3d, 12h, 30m or 0s".to_owned();
    let span: jiff::Span = text.parse().map_err(|_| invalid())?;
    let time = span
        .to_duration(jiff::SpanRelativeTo::days_are_24_hours())
        .map_err(|_| invalid())?;
    Duration::try_from(time).map_err(|_| invalid())
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
        for invalid in ["", "3", "soon", "-3d", "1mo"] {
            assert!(age(invalid).is_err(), "{invalid}");
        }
    }
}
