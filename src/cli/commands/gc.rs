//! `nb gc`: cleans up after what was killed.

use std::process::ExitCode;

use clap::Args;

use crate::api::problem::Problem;
use crate::api::{self, Cleanup, CleanupAction, GcAnswer, GcRequest};
use crate::cli::Context;
use crate::cli::commands::Command;
use crate::cli::render::print;
use crate::notebook::size;

/// End and remove what nobody uses: what crashes, kills and deleted projects left behind
///
/// Kernels of deleted projects, kernels that were never ready because whoever started them was
/// killed, sockets and connection files of kernels that have ended, records of front ends that were
/// killed, half-written files, scratch folders of sandboxes that no session needs, jobs beyond the bound; a kernelspec "nb shared kernel" that is out
/// of date is mended. Of this project and what belongs to none; with --all of all your projects.
///
/// A kernel that is ready is never ended, since it may hold somebody's variables: `nb shutdown --idle
/// AGE --all` ends those that were not used for so long. Where a project's folder is still there and
/// only its .nb is not, the kernels go on and are named.
#[derive(Args, Debug)]
pub(crate) struct Gc {
    /// Clear up in all your projects
    #[arg(long)]
    all: bool,
    /// Only tell what would be ended and removed
    #[arg(long)]
    dry_run: bool,
}

impl Command for Gc {
    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let request = GcRequest {
            all: self.all,
            dry_run: self.dry_run,
        };
        let answer = api::gc(&context.caller, request).await?;
        context.print(&answer, |answer| {
            print::lines(lines(answer))?;
            print::notes(&answer.notes);
            Ok(())
        })
    }
}

fn lines(answer: &GcAnswer) -> Vec<String> {
    if answer.found.is_empty() {
        return vec!["nothing to clear up".to_owned()];
    }
    let found = answer.found.iter();
    let mut lines: Vec<_> = found.map(|it| line(it, answer.dry_run)).collect();
    let frees = if answer.dry_run {
        "would free"
    } else {
        "freed"
    };
    lines.push(format!(
        "{frees} {} of memory, {} on disk",
        size(answer.memory_bytes),
        size(answer.disk_bytes)
    ));
    lines
}

fn line(cleanup: &Cleanup, dry_run: bool) -> String {
    let description = &cleanup.description;
    let (verb, past) = match cleanup.action {
        CleanupAction::End => ("end", "ended"),
        CleanupAction::Remove => ("remove", "removed"),
        CleanupAction::Mend => ("mend", "mended"),
    };
    match dry_run {
        true => format!("would {verb} {description}"),
        false => format!("{past} {description}"),
    }
}
