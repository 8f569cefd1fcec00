//! `nb adopt`: what a `.nb` holds that this user's `nb` did not make, and taking it over.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::api::problem::{Problem, ProblemKind};
use crate::cli::Context;
use crate::cli::commands::{Command, Group};
use crate::cli::render::print;
use crate::kernel::shell::quote;
use crate::notebook::size;
use crate::project::adopt::{self, Adopted, Held};
use crate::project::{Project, Status};

/// Show what a .nb holds that your nb did not make here; with --take, take over its history
///
/// A cloned repository or an unpacked archive may hold a `.nb`. It may name any file and any command,
/// so that nothing in it is used: `nb` keeps what it remembers in your state folder instead. With
/// --take the stranger's folder is renamed to `.nb.set-aside-1`, a new one is made in its place, and
/// the journal and earlier versions of cells are taken over as plain data; settings, kernels, jobs
/// and all paths are not. A `.nb` of your own from another machine is taken over in the same way.
#[derive(Args, Debug)]
pub(crate) struct Adopt {
    /// The folder that holds it, or a notebook below; the working directory if left out
    folder: Option<PathBuf>,
    /// Set it aside, and take over its history
    #[arg(long)]
    take: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl Command for Adopt {
    const NAME: &'static str = "adopt";
    const GROUP: Group = Group::Kernel;

    fn json(&self) -> bool {
        self.json
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let from = self.folder.as_ref().unwrap_or(&context.caller.here);
        let Some(dir) = Project::passed_over(from) else {
            let text = format!(
                "there is nothing to adopt: no .nb at or above {} is a stranger's",
                from.display()
            );
            return Err(Problem::new(ProblemKind::Failed, text));
        };
        let failed = |what: &str, error: &std::io::Error| {
            Problem::failed(&format!("{what} {}", dir.display()), error)
        };
        if !self.take {
            let held = adopt::held(&dir).map_err(|error| failed("list", &error))?;
            let _ = match self.json {
                true => print::json(&object(&dir, &held)),
                false => print::line(&text(&dir, &held)),
            };
            return Ok(ExitCode::SUCCESS);
        }
        refuse_while_open(from, &dir)?;
        let done = adopt::adopt(&dir).map_err(|error| failed("adopt", &error))?;
        let _ = match self.json {
            true => print::json(&json!({
                "dir": done.dir, "set_aside": done.set_aside,
                "entries": done.entries, "versions": done.versions,
            })),
            false => print::line(&told(&done)),
        };
        Ok(ExitCode::SUCCESS)
    }
}

/// The kernels that were started meanwhile are recorded elsewhere, where nobody would look any more.
fn refuse_while_open(from: &std::path::Path, dir: &std::path::Path) -> Result<(), Problem> {
    let project = Project::find(from).filter(|it| it.foreign() == Some(dir));
    let sessions = project.and_then(|project| Some(project.state().ok()?.sessions));
    let open: Vec<_> = sessions
        .into_iter()
        .flatten()
        .filter(|(_, it)| !matches!(it.status, Status::Stopped | Status::Died))
        .collect();
    if open.is_empty() {
        return Ok(());
    }
    let text = format!(
        "{} notebooks are open here: end their kernels first",
        open.len()
    );
    let problem = open.iter().fold(
        Problem::new(ProblemKind::Refused, text),
        |problem, (_, it)| problem.hint(format!("nb shutdown {}", quote(&it.notebook))),
    );
    Err(problem)
}

fn object(dir: &std::path::Path, held: &[Held]) -> serde_json::Value {
    let all = held.iter().map(|it| {
        json!({
            "name": it.name, "kind": it.kind, "bytes": it.bytes,
            "taken_over": it.is_taken_over,
        })
    });
    json!({ "dir": dir, "holds": all.collect::<Vec<_>>() })
}

fn text(dir: &std::path::Path, held: &[Held]) -> String {
    let mut lines = vec![format!(
        "{} was not made by your nb on this machine. It holds:",
        dir.display()
    )];
    for it in held {
        let bytes = match it.kind {
            "file" => format!(" · {}", size(it.bytes)),
            _ => String::new(),
        };
        let taken = if it.is_taken_over {
            " · would be taken over"
        } else {
            ""
        };
        lines.push(format!("  {} · {}{bytes}{taken}", it.name, it.kind));
    }
    let folder = dir.parent().unwrap_or(dir);
    lines.push(format!(
        "to set it aside and take over its history: nb adopt {} --take",
        quote(folder)
    ));
    lines.join("\n")
}

fn told(done: &Adopted) -> String {
    format!(
        "made {}; {} entries of the journal and {} earlier versions were taken over; the rest is in {}",
        done.dir.display(),
        done.entries,
        done.versions,
        done.set_aside.display()
    )
}
