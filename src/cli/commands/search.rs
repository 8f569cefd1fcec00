//! `nb search`: finds text in sources and outputs, of one notebook or many.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::Problem;
use crate::api::{self, SearchAnswer, SearchRequest, SearchScope};
use crate::cli::Context;
use crate::cli::args::first_notebook;
use crate::cli::commands::Command;
use crate::cli::render::print;

/// How many lines are printed by default.
const LINES: usize = 200;

/// Find text in the cells of notebooks
///
/// Prints each line in which a match begins: NOTEBOOK CELL:LINE: TEXT, or NOTEBOOK CELL:outN:LINE: TEXT
/// where it is in the cell's output N. Sources and outputs are searched, as people read them (without colours). What could not
/// be read is told on stderr, and the rest searched. Nothing found is no failure: the exit code is 0,
/// and stderr says so.
#[derive(Args, Debug)]
#[command(override_usage = "nb search [OPTIONS] PATTERN [NOTEBOOK|FOLDER]...", after_help = EXAMPLES)]
pub(crate) struct Search {
    /// A regular expression, and the notebooks; a folder stands for all below it
    #[arg(required = true, value_name = "PATTERN")]
    pub(crate) words: Vec<String>,
    /// Take the pattern as plain text
    #[arg(short = 'F', long = "fixed-strings")]
    fixed: bool,
    /// Take capital and small letters as equal
    #[arg(short = 'i', long)]
    ignore_case: bool,
    /// Search sources only
    #[arg(long, conflicts_with = "outputs")]
    source: bool,
    /// Search outputs only
    #[arg(long)]
    outputs: bool,
    /// Print at most this many lines; 0 is no limit
    #[arg(long, value_name = "LINES", default_value_t = LINES)]
    limit: usize,
}

const EXAMPLES: &str = "\
Examples:
  nb search 'read_csv\\(' train.ipynb
  nb search -i warning . --outputs
  nb search -F 'df[\"a\"]' a.ipynb b.ipynb --json";

impl Command for Search {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        // The notebook stays among those to search; a single word is the pattern.
        (self.words.len() > 1).then(|| first_notebook(&self.words))?
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let answer = api::search(&context.caller, self.request()).await?;
        context.print(&answer, show)
    }
}

impl Search {
    fn request(&self) -> SearchRequest {
        // As in other commands, notebooks may come first; a single word is the pattern.
        let is_notebook = |word: &&String| word.ends_with(".ipynb");
        let first = self.words.iter().take_while(is_notebook).count();
        let at = if first == self.words.len() { 0 } else { first };
        let mut paths: Vec<PathBuf> = self.words.iter().map(PathBuf::from).collect();
        paths.remove(at);
        SearchRequest {
            pattern: self.words.get(at).cloned().unwrap_or_default(),
            is_text: self.fixed,
            ignores_case: self.ignore_case,
            within: match (self.source, self.outputs) {
                (true, _) => SearchScope::Source,
                (_, true) => SearchScope::Outputs,
                _ => SearchScope::All,
            },
            paths,
            limit: (self.limit > 0).then_some(self.limit),
        }
    }
}

fn show(answer: &SearchAnswer) -> std::io::Result<()> {
    print::lines(answer.matches.iter().map(|found| {
        let hit = &found.hit;
        let output = hit.output.map(|output| format!("out{output}:"));
        format!(
            "{} {}:{}{}: {}",
            found.notebook,
            found.short_id,
            output.unwrap_or_default(),
            hit.line,
            hit.text
        )
    }))?;
    print::notes(&answer.faults);
    let count = answer.count;
    let left_out = count - answer.matches.len();
    if count == 0 {
        let notebooks = print::count(answer.searched, "notebook");
        print::note(&format!("nothing found in {notebooks}"));
    } else if left_out > 0 {
        print::note(&format!(
            "{left_out} more lines; --limit 0 prints all {count}"
        ));
    }
    Ok(())
}
