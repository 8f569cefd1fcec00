//! `nb vars`: lists the kernel's variables.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::{Problem, ProblemKind};
use crate::api::{self, VarsAnswer, VarsRequest};
use crate::cli::Context;
use crate::cli::args::take_notebook;
use crate::cli::commands::Command;
use crate::cli::render::{columns, print};
use crate::text::vars::{lines, note};

/// List the kernel's variables, or show one: type, shape, size, value
///
/// Looks without running anybody's code: nothing is printed, counted or left behind in the kernel,
/// and nothing lazy is computed. Sizes are without what a container refers to. Modules, functions,
/// classes and names that begin with _ are left out. For Python kernels; while a cell runs it needs
/// ipykernel 7, with others it ends with 4 and says whose cell it is.
#[derive(Args, Debug)]
#[command(override_usage = "nb vars [OPTIONS] [NOTEBOOK] [NAME]", after_help = EXAMPLES)]
pub(crate) struct Vars {
    /// [NOTEBOOK] [NAME]
    #[arg(num_args = 0..=2, value_name = "WORDS", hide = true)]
    pub(crate) words: Vec<String>,
    /// Modules, functions, classes and IPython's own names too
    #[arg(short, long)]
    all: bool,
    /// List at most this many; 0 is all
    #[arg(long, value_name = "N", default_value_t = 200)]
    limit: usize,
}

const EXAMPLES: &str = "\
Examples:
  nb vars
  nb vars train.ipynb df               one of them: its columns, more of its value
  nb vars --all --json";

impl Command for Vars {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        take_notebook(&mut self.words)
    }

    async fn run(mut self, context: &Context) -> Result<ExitCode, Problem> {
        let name = self.words.pop();
        if !self.words.is_empty() {
            let text = "one name is wanted, or none; a notebook may stand before it";
            return Err(Problem::new(ProblemKind::Usage, text));
        }
        let is_one = name.is_some();
        let request = VarsRequest {
            name,
            all: self.all,
            most: (self.limit > 0).then_some(self.limit),
        };
        let answer = api::vars(&context.caller, request).await?;
        context.print(&answer, |answer| show(answer, is_one))
    }
}

fn show(found: &VarsAnswer, is_one: bool) -> io::Result<()> {
    let wide = columns::of_terminal().filter(|_| !is_one);
    for line in lines(found, is_one) {
        print::line(&wide.map_or_else(|| line.clone(), |wide| columns::cut(&line, wide)))?;
    }
    if let Some((note, otherwise)) = note(found) {
        print::note(&format!("{note}; {otherwise}"));
    }
    Ok(())
}
