//! `nb adopt`: lists what a stranger's `.nb` holds, or takes over its history.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::Problem;
use crate::api::{self, AdoptAnswer, AdoptRequest, FolderEntry};
use crate::cli::Context;
use crate::cli::commands::Command;
use crate::cli::render::print;
use crate::kernel::shell::quote;
use crate::notebook::size;

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
}

impl Command for Adopt {
    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let request = AdoptRequest {
            folder: self.folder,
            take: self.take,
        };
        let answer = api::adopt(&context.caller, request).await?;
        context.print(&answer, |answer| print::lines(lines(answer)))
    }
}

fn lines(answer: &AdoptAnswer) -> Vec<String> {
    match answer {
        AdoptAnswer::Holds { dir, holds } => list(dir, holds),
        AdoptAnswer::Adopted(adopted) => vec![format!(
            "made {}; {} entries of the journal and {} earlier versions were taken over; the rest is in {}",
            adopted.dir.display(),
            adopted.entries,
            adopted.versions,
            adopted.set_aside.display()
        )],
    }
}

fn list(dir: &Path, holds: &[FolderEntry]) -> Vec<String> {
    let mut lines = vec![format!(
        "{} was not made by your nb on this machine. It holds:",
        dir.display()
    )];
    for it in holds {
        let bytes = match it.kind {
            "file" => format!(" · {}", size(it.bytes)),
            _ => String::new(),
        };
        let note = if it.taken_over {
            " · would be taken over"
        } else {
            ""
        };
        lines.push(format!("  {} · {}{bytes}{note}", it.name, it.kind));
    }
    let folder = dir.parent().unwrap_or(dir);
    lines.push(format!(
        "to set it aside and take over its history: nb adopt {} --take",
        quote(folder)
    ));
    lines
}
