//! `nb diff`: what differs between two versions, cell by cell.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use owo_colors::{OwoColorize as _, Style};
use serde_json::json;

use crate::activity::company;
use crate::api::problem::{Problem, ProblemKind, causes};
use crate::cli::Context;
use crate::cli::args::first_notebook;
use crate::cli::commands::{Command, Group};
use crate::cli::render::print;
use crate::editing::earlier::{self, Earlier, EarlierError, Had};
use crate::editing::git::GitError;
use crate::editing::page::Page;
use crate::editing::seen::Seen;
use crate::editing::view::{self, View};
use crate::kernel::shell::quote;
use crate::notebook::{
    CellDiff, CellSide, DiffHunk, DiffLine, Document, FieldDiff, diff, diff_metadata,
};

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
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  nb diff train.ipynb                  what others changed since you saw it
  nb diff train.ipynb 9f8e7d6c5b       since that revision of the notebook
  nb diff train.ipynb --git            since the last commit
  nb diff train.ipynb --git main~2
  nb diff old.ipynb new.ipynb";

impl Command for Diff {
    const NAME: &'static str = "diff";
    const GROUP: Group = Group::Notebook;

    fn notebook(&self) -> Option<PathBuf> {
        first_notebook(&self.words)
    }

    fn json(&self) -> bool {
        self.json
    }

    async fn run(mut self, context: &Context) -> Result<ExitCode, Problem> {
        let page = context.page(&mut self.words).await?;
        let word = match self.words.as_slice() {
            [] => None,
            [word] => Some(word.as_str()),
            _ => {
                return Err(Problem::new(
                    ProblemKind::Usage,
                    "two versions are compared",
                ));
            }
        };
        if word.is_some() && (self.git.is_some() || self.seen) {
            let message = "a revision or a notebook, or --git, or --seen: one of them";
            return Err(Problem::new(ProblemKind::Usage, message));
        }
        // With another notebook this one is what was.
        let other = match word {
            Some(word) if word.ends_with(".ipynb") => Some(Page::of(Path::new(word))?),
            _ => None,
        };
        let (page, first) = match other {
            Some(other) => (other, Some(page)),
            None => (page, None),
        };
        let view = view::open(&page, context.by())?;
        let earlier = match (&first, word) {
            (Some(first), _) => whole(first, context.by())?,
            (None, Some(revision)) => earlier::at_revision(&page, &view.document, revision)
                .map_err(|error| problem(&error, &page))?,
            (None, None) => self.unnamed(context, &page, &view.document)?,
        };
        let cells = diff(&earlier.document, &view.document, earlier.has_outputs);
        let metadata = match earlier.has_outputs {
            true => diff_metadata(&earlier.document, &view.document),
            false => Vec::new(),
        };
        let shown = Shown {
            page: &page,
            earlier: &earlier,
            now: &view.document,
            cells: &cells,
            metadata: &metadata,
        };
        let _ = match self.json {
            true => shown.json(context),
            false => shown.text(colours()),
        };
        see(&page, context.by(), &view, &cells);
        Ok(ExitCode::SUCCESS)
    }
}

impl Diff {
    /// Returns what to compare with where no word says it.
    fn unnamed(&self, context: &Context, page: &Page, now: &Document) -> Result<Earlier, Problem> {
        if let Some(reference) = &self.git {
            return earlier::in_git(page, reference).map_err(|error| problem(&error, page));
        }
        // A person sees the notebook in an editor, of which nothing is known here.
        let is_person = context.caller.actor.is_person || company::is_human(context.by());
        if self.seen || !is_person {
            if let Some(earlier) = earlier::as_seen(page, now, context.by()) {
                return Ok(earlier);
            }
            if self.seen {
                let message = format!("{} has seen no cell of {} yet", context.by(), page.key);
                return Err(Problem::new(ProblemKind::Failed, message)
                    .hint("nb cell shows cells; nb diff --git compares with git"));
            }
        }
        earlier::in_git(page, "HEAD").map_err(|error| {
            let notebook = quote(&page.path);
            problem(&error, page).hint(format!(
                "nb diff {notebook} REVISION compares with an earlier one; nb log {notebook} lists them"
            ))
        })
    }
}

/// Returns another notebook as what was.
fn whole(page: &Page, by: &str) -> Result<Earlier, Problem> {
    Ok(Earlier::whole(view::open(page, by)?.document))
}

/// Shows what differs between a notebook as it is and as an edit would leave it.
pub(crate) fn show(
    context: &Context,
    page: &Page,
    before: Document,
    after: &Document,
    json: bool,
) -> std::io::Result<()> {
    let cells = diff(&before, after, true);
    let metadata = diff_metadata(&before, after);
    let earlier = Earlier::whole(before);
    let shown = Shown {
        page,
        earlier: &earlier,
        now: after,
        cells: &cells,
        metadata: &metadata,
    };
    match json {
        true => shown.json(context),
        false => shown.text(colours()),
    }
}

/// What is seen of the present side: cells that are shown whole, and those whose earlier version
/// was seen.
fn see(page: &Page, by: &str, view: &View<'_>, cells: &[CellDiff]) {
    let seen = Seen::of(page, by);
    for diff in cells {
        let Some(after) = &diff.after else { continue };
        let Some(cell) = view.document.cells().get(after.index) else {
            continue;
        };
        let lines = cell.source().split('\n').count();
        let shown: usize = diff.source.iter().map(|hunk| hunk.lengths().1).sum();
        let knew = |before: &CellSide| seen.has(&diff.cell, before.revision);
        if shown >= lines || diff.before.as_ref().is_some_and(knew) {
            view.shown(cell);
        }
    }
    view.remember();
}

/// Whether stdout shows colours, and is asked to.
fn colours() -> bool {
    let stdout = std::io::stdout();
    stdout.is_terminal() && anstream::AutoStream::choice(&stdout) != anstream::ColorChoice::Never
}

struct Shown<'a> {
    page: &'a Page,
    earlier: &'a Earlier,
    now: &'a Document,
    cells: &'a [CellDiff],
    metadata: &'a [FieldDiff],
}

impl Shown<'_> {
    fn json(&self, context: &Context) -> std::io::Result<()> {
        context.answer(&json!({
            "notebook": self.page.key,
            "path": self.page.real,
            "revision": self.now.revision(),
            "before": {
                "name": self.earlier.name,
                "revision": self.earlier.document.revision(),
                "outputs": self.earlier.has_outputs,
                "unknown": self.earlier.unknown,
            },
            "cells": self.cells,
            "metadata": self.metadata,
        }))
    }

    fn text(&self, colours: bool) -> std::io::Result<()> {
        let key = &self.page.key;
        if !self.earlier.unknown.is_empty() {
            print::note(&format!(
                "not compared: {} ({})",
                listed(&self.earlier.unknown),
                self.earlier.why_unknown
            ));
        }
        if self.cells.is_empty() && self.metadata.is_empty() {
            print::note(&format!(
                "{key}: no cell differs from {}",
                self.earlier.name
            ));
            return Ok(());
        }
        let paint = |text: &str, style: Style| match colours {
            true => text.style(style).to_string(),
            false => text.to_owned(),
        };
        let bold = Style::new().bold();
        let mut lines = vec![
            paint(&format!("--- {key} · {}", self.earlier.name), bold),
            paint(
                &format!("+++ {key} · revision {}", self.now.revision()),
                bold,
            ),
        ];
        lines.extend(
            self.metadata
                .iter()
                .map(|it| format!("notebook {}", field(it))),
        );
        for cell in self.cells {
            lines.push(paint(&head(cell), Style::new().cyan()));
            lines.extend(self.details(cell));
            for hunk in &cell.source {
                // Of a cell that one side lacks it would say nothing.
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

    /// Returns what differs beside the source, a line each.
    fn details(&self, cell: &CellDiff) -> Vec<String> {
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
}

/// Returns the line that a cell's differences stand under.
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
    // A patch names the line before where there is none of its own.
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

fn had(list: &[Had]) -> Vec<String> {
    let lines = list.iter().map(|had| {
        let by = had.by.as_deref().map(|by| format!(" by {by}"));
        match had.at {
            Some(at) => {
                let at = print::moment(at);
                format!("{} (since {at}{})", had.revision, by.unwrap_or_default())
            }
            None => had.revision.to_string(),
        }
    });
    lines.collect()
}

fn problem(error: &EarlierError, page: &Page) -> Problem {
    let problem = Problem::new(ProblemKind::Failed, causes(error));
    let notebook = quote(&page.path);
    match error {
        EarlierError::NoSuchRevision { given, last } => problem.lines(&had(last)).hint(format!(
            "nb diff {notebook} --git {} compares with git's",
            quote(Path::new(given))
        )),
        EarlierError::Ambiguous { candidates, .. } => {
            problem.lines(&had(candidates)).hint("give more of it")
        }
        EarlierError::Unknown(_) => {
            problem.hint(format!("nb diff {notebook} --git compares with git's HEAD"))
        }
        EarlierError::Git(GitError::NotThere { path, .. }) => {
            problem.hint(format!("git add {}", quote(&PathBuf::from(path))))
        }
        EarlierError::Git(_) | EarlierError::NotANotebook { .. } => problem,
    }
}
