//! `nb packages`: lists, adds and removes packages of the kernel's environment.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::{Problem, ProblemKind};
use crate::api::{self, PackageChange, PackagesRequest};
use crate::cli::Context;
use crate::cli::args::take_notebook;
use crate::cli::commands::Command;
use crate::cli::render::print;
use crate::text;

/// List the packages of the kernel's Python environment, add some or remove some
///
/// uv or pip does it, as the files of the environment say; in a project of uv's also in its
/// pyproject.toml and uv.lock. Of conda, pixi and Poetry the command is printed, and exit 2. A NAME may
/// have extras and versions; options, paths and URLs are refused. The running kernel can import what was
/// added; what it has imported stays until nb restart. Kernels in a sandbox or on a server: exit 5.
#[derive(Args, Debug)]
#[command(override_usage = "nb packages [OPTIONS] [NOTEBOOK] [list | add NAME... | remove NAME...]", after_help = EXAMPLES)]
pub(crate) struct Packages {
    /// [NOTEBOOK] [list | add NAME... | remove NAME...]
    #[arg(value_name = "WORDS", hide = true)]
    pub(crate) words: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  nb packages
  nb packages add 'pandas>=2' rich
  nb packages train.ipynb remove rich --json";

impl Command for Packages {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        take_notebook(&mut self.words)
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let mut words = self.words.into_iter();
        let change = match words.next().as_deref() {
            None | Some("list" | "ls") => None,
            Some("add" | "install") => Some(PackageChange::Add),
            Some("remove" | "rm" | "uninstall") => Some(PackageChange::Remove),
            Some(other) => {
                let text = format!("list, add or remove is expected, not {other:?}");
                return Err(Problem::new(ProblemKind::Usage, text));
            }
        };
        let request = PackagesRequest {
            change,
            names: words.collect(),
        };
        let answer = api::packages(&context.caller, request).await?;
        context.print(&answer, |answer| {
            print::lines(text::packages::lines(answer))?;
            print::notes(&answer.notes);
            Ok(())
        })
    }
}
