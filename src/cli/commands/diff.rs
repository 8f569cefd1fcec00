//! `nb diff`: compares two versions of a notebook, cell by cell.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use owo_colors::{OwoColorize as _, Style};

use crate::api::problem::{Problem, ProblemKind};
use crate::api::{self, DiffAnswer, DiffBase, DiffRequest};
use crate::cli::Context;
use crate::cli::args::take_notebook;
use crate::cli::commands::Command;
use crate::cli::render::print;
use crate::notebook::{CellDiff, DiffHunk, DiffLine, FieldDiff};

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
    text(answer, colours())
}

/// Says whether stdout is a terminal that can show colours, and colours are wanted.
fn colours() -> bool {
    let stdout = std::io::stdout();
    stdout.is_terminal() && anstream::AutoStream::choice(&stdout) != anstream::ColorChoice::Never
}

fn text(answer: &DiffAnswer, colours: bool) -> std::io::Result<()> {
    let key = &answer.notebook;
    if !answer.before.unknown.is_empty() {
        print::note(&format!(
            "not compared: {} ({})",
            listed(&answer.before.unknown),
            answer.before.why_unknown
        ));
    }
    if answer.cells.is_empty() && answer.metadata.is_empty() {
        print::note(&format!(
            "{key}: no cell differs from {}",
            answer.before.name
        ));
        return Ok(());
    }
    let paint = |text: &str, style: Style| match colours {
        true => text.style(style).to_string(),
        false => text.to_owned(),
    };
    let bold = Style::new().bold();
    let mut lines = vec![
        paint(&format!("--- {key} · {}", answer.before.name), bold),
        paint(&format!("+++ {key} · revision {}", answer.revision), bold),
    ];
    lines.extend(
        answer
            .metadata
            .iter()
            .map(|it| format!("notebook {}", field(it))),
    );
    for cell in &answer.cells {
        lines.push(paint(&head(cell), Style::new().cyan()));
        lines.extend(details(cell));
        for hunk in &cell.source {
            // If one side lacks the cell, the line numbers would say nothing.
            if cell.before.is_some() && cell.after.is_some() {
                lines.push(paint(&place(hunk), Style::new().magenta()));
            }
            for line in &hunk.lines {
                lines.push(match line {
                    DiffLine::Same(text) => format!(" {text}"),
                    DiffLine::Removed(text) => paint(&format!("-{text}"), Style::new().red()),
                    DiffLine::Added(text) => paint(&format!("+{text}"), Style::new().green()),
                });
            }
        }
    }
    lines.push(String::new());
    print::exact(lines.join("\n").as_bytes())
}

/// Returns a line for each difference other than the source.
fn details(cell: &CellDiff) -> Vec<String> {
    let mut lines = Vec::new();
    if let (Some(before), Some(after)) = (&cell.before, &cell.after)
        && before.cell_type != after.cell_type
    {
        let (before, after) = (before.cell_type, after.cell_type);
        lines.push(format!("  type: {before} → {after}"));
    }
    if cell.before.is_some() && cell.after.is_some() {
        lines.extend(cell.metadata.iter().map(|it| format!("  {}", field(it))));
    }
    if let Some(outputs) = &cell.outputs {
        let short = |text: &str| match text {
            "" => "none".to_owned(),
            text => text.to_owned(),
        };
        let (before, after) = (short(&outputs.before), short(&outputs.after));
        lines.push(match (&cell.before, &cell.after) {
            (None, _) => format!("  outputs: {after}"),
            (_, None) => format!("  outputs: {before}"),
            _ => format!("  outputs: {before} → {after}"),
        });
    }
    lines
}

/// Returns the line above a cell's differences.
fn head(cell: &CellDiff) -> String {
    let mut what = Vec::new();
    match (&cell.before, &cell.after) {
        (None, _) => what.push("new".to_owned()),
        (_, None) => what.push("gone".to_owned()),
        (Some(before), Some(after)) => {
            if before.revision != after.revision {
                what.push(format!("{} → {}", before.revision, after.revision));
            }
            if cell.moved {
                what.push(format!("moved from {}", before.index));
            }
            if before.revision == after.revision && cell.outputs.is_some() {
                what.push("outputs".to_owned());
            }
        }
    }
    let side = cell.after.as_ref().or(cell.before.as_ref());
    let (index, line) = side.map_or((0, ""), |side| (side.index, side.first_line.as_str()));
    let index = match cell.after {
        Some(_) => format!("cell {index}"),
        None => format!("was cell {index}"),
    };
    let line = match line {
        "" => String::new(),
        line => format!(" · {line}"),
    };
    format!("{} ({index}) · {}{line}", cell.cell, what.join(", "))
}

fn place(hunk: &DiffHunk) -> String {
    let (before, after) = hunk.lengths();
    // In a patch, an empty range has the number of the line before it.
    let start = |at: usize, length: usize| if length == 0 { at - 1 } else { at };
    format!(
        "@@ -{},{before} +{},{after} @@",
        start(hunk.before, before),
        start(hunk.after, after)
    )
}

fn field(it: &FieldDiff) -> String {
    const MOST: usize = 200;
    let text = |value: &Option<String>| match value {
        None => "none".to_owned(),
        Some(text) if text.chars().count() > MOST => {
            text.chars().take(MOST).chain("…".chars()).collect()
        }
        Some(text) => text.clone(),
    };
    format!("{}: {} → {}", it.field, text(&it.before), text(&it.after))
}

fn listed(ids: &[String]) -> String {
    const MOST: usize = 5;
    let shown = ids.iter().take(MOST).map(String::as_str);
    let shown = shown.collect::<Vec<_>>().join(", ");
    match ids.len() {
        1 => format!("cell {shown}"),
        count if count > MOST => format!("{count} cells ({shown}, …)"),
        count => format!("{count} cells ({shown})"),
    }
}
