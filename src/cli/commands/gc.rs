//! `nb gc`: clearing up after what was killed.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::api::problem::Problem;
use crate::cli::Context;
use crate::cli::commands::{Command, Group};
use crate::cli::render::print;
use crate::lifecycle::gc::{self, Cleared, Deed, Found, Options};
use crate::notebook::size;
use crate::project::Project;

/// End and remove what nobody uses: what crashes, kills and deleted projects left behind
///
/// Kernels of deleted projects, kernels that were never ready because whoever started them was
/// killed, sockets and connection files of kernels that have ended, records of front ends that were
/// killed, half-written files, scratch folders of sandboxes that no session needs, jobs beyond the bound; a kernelspec "nb shared kernel" that is out
/// of date is mended. Of this project and what belongs to none; with --all of all your projects.
///
/// A kernel that is ready is never ended, since it may hold somebody's variables: `nb shutdown --idle
/// AGE --all` ends those that nobody has used for so long.
#[derive(Args, Debug)]
pub(crate) struct Gc {
    /// Clear up in all your projects
    #[arg(long)]
    all: bool,
    /// Only tell what would be ended and removed
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl Command for Gc {
    const NAME: &'static str = "gc";
    const GROUP: Group = Group::Kernel;

    fn json(&self) -> bool {
        self.json
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let projects = if self.all {
            gc::all_projects()
        } else {
            Project::find(&context.caller.here).into_iter().collect()
        };
        let options = Options {
            projects,
            dry_run: self.dry_run,
        };
        let cleared = gc::clear(&options).await;
        let _ = if self.json {
            print::json(&self.object(&cleared))
        } else {
            print::line(&self.text(&cleared))
        };
        if !self.json {
            cleared
                .notes
                .iter()
                .for_each(|note| print::note(&format!("note: {note}")));
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Gc {
    fn object(&self, cleared: &Cleared) -> serde_json::Value {
        let found = cleared.found.iter().map(|it| {
            json!({
                "deed": match it.deed {
                    Deed::End => "end",
                    Deed::Remove => "remove",
                    Deed::Mend => "mend",
                },
                "what": it.what,
                "memory_bytes": it.memory_bytes,
                "disk_bytes": it.disk_bytes,
            })
        });
        json!({
            "dry_run": self.dry_run,
            "found": found.collect::<Vec<_>>(),
            "memory_bytes": sum(cleared, |it| it.memory_bytes),
            "disk_bytes": sum(cleared, |it| it.disk_bytes),
            "notes": cleared.notes,
        })
    }

    fn text(&self, cleared: &Cleared) -> String {
        if cleared.found.is_empty() {
            return "nothing to clear up".to_owned();
        }
        let mut lines: Vec<_> = cleared.found.iter().map(|it| self.line(it)).collect();
        let memory = sum(cleared, |it| it.memory_bytes);
        let disk = sum(cleared, |it| it.disk_bytes);
        let frees = if self.dry_run { "would free" } else { "freed" };
        lines.push(format!(
            "{frees} {} of memory, {} on disk",
            size(memory),
            size(disk)
        ));
        lines.join("\n")
    }

    fn line(&self, found: &Found) -> String {
        let verb = match (found.deed, self.dry_run) {
            (Deed::End, false) => "ended",
            (Deed::End, true) => "would end",
            (Deed::Remove, false) => "removed",
            (Deed::Remove, true) => "would remove",
            (Deed::Mend, false) => "mended",
            (Deed::Mend, true) => "would mend",
        };
        format!("{verb} {}", found.what)
    }
}

fn sum(cleared: &Cleared, bytes: impl Fn(&Found) -> u64) -> u64 {
    cleared.found.iter().map(bytes).sum()
}
