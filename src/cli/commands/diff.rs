//! `nb diff`: compares two versions of a notebook, cell by cell.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use owo_colors::OwoColorize as _;

use crate::api::problem::{Problem, ProblemKind};
use crate::api::{self, DiffAnswer, DiffBase, DiffRequest};
use crate::cli::Context;
use crate::cli::args::take_notebook;
use crate::cli::commands::Command;
use crate::cli::render::print;
use crate::notebook::visible_line;
use crate::text::diff::{DiffPart, lines, note};

/// Show what differs, cell by cell
///
/// With a revision: from what the notebook was as that revision (nb cells and nb log print them) to
/// what it is. With another notebook: from the first to the second. With --git: from what git has.
/// Without any of these: from what you saw of it last, if you are an agent that has seen cells of it,
/// else from git's HEAD. Cells are the same by their ids, wherever they stand; outputs are told in
/// short, where they are known.
#[derive(Args, Debug)]
#[command(override_usage = "nb diff [OPTIONS] [NOTEBOOK] [REVISION | OTHER.ipynb]", after_help = EXAMPLES)]
pub(crate) struct Diff {
    /// [NOTEBOOK] [REVISION | OTHER.ipynb]
    #[arg(num_args = 0..=2, value_name = "WORDS", hide = true)]
    pub(crate) words: Vec<String>,
    /// From what git has: in HEAD, or in this commit, branch or tag
    #[arg(long, value_name = "REF", num_args = 0..=1, default_missing_value = "HEAD")]
    git: Option<String>,
    /// From what you saw last
    #[arg(long, conflicts_with = "git")]
    seen: bool,
}

const EXAMPLES: &str = "\
Examples:
  nb diff train.ipynb                  what others changed since you saw it
  nb diff train.ipynb 9f8e7d6c5b       since that revision of the notebook
  nb diff train.ipynb --git            since the last commit
  nb diff train.ipynb --git main~2
  nb diff old.ipynb new.ipynb";

impl Command for Diff {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        take_notebook(&mut self.words)
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let request = DiffRequest {
            before: self.before()?,
        };
        let answer = api::diff_notebooks(&context.caller, request).await?;
        context.print(&answer, show)
    }
}

impl Diff {
    /// Returns what the notebook is compared with, once its own name is taken from the words.
    fn before(self) -> Result<DiffBase, Problem> {
        let mut words = self.words.into_iter();
        let (word, more) = (words.next(), words.next());
        if more.is_some() {
            return Err(Problem::new(
                ProblemKind::Usage,
                "two versions are compared",
            ));
        }
        if word.is_some() && (self.git.is_some() || self.seen) {
            let message = "a revision or a notebook, or --git, or --seen: one of them";
            return Err(Problem::new(ProblemKind::Usage, message));
        }
        Ok(match (word, self.git) {
            (Some(word), _) if word.ends_with(".ipynb") => DiffBase::Until(word.into()),
            (Some(word), _) => DiffBase::Revision(word),
            (None, Some(reference)) => DiffBase::Git(reference),
            (None, None) if self.seen => DiffBase::Seen,
            (None, None) => DiffBase::Unnamed,
        })
    }
}

/// Shows what differs.
pub(crate) fn show(answer: &DiffAnswer) -> std::io::Result<()> {
    print::notes(note(answer));
    let colours = colours();
    let paint = |part: DiffPart, text: String| match (colours, part) {
        (false, _) | (_, DiffPart::Plain) => visible_line(&text).into_owned(),
        (_, DiffPart::Title) => visible_line(&text).bold().to_string(),
        (_, DiffPart::Cell) => visible_line(&text).cyan().to_string(),
        (_, DiffPart::Place) => visible_line(&text).magenta().to_string(),
        (_, DiffPart::Removed) => visible_line(&text).red().to_string(),
        (_, DiffPart::Added) => visible_line(&text).green().to_string(),
    };
    let mut lines = lines(answer, paint);
    if lines.is_empty() {
        return Ok(());
    }
    lines.push(String::new());
    print::exact(lines.join("\n").as_bytes())
}

/// Says whether stdout is a terminal that can show colours, and colours are wanted.
fn colours() -> bool {
    let stdout = std::io::stdout();
    stdout.is_terminal() && anstream::AutoStream::choice(&stdout) != anstream::ColorChoice::Never
}
