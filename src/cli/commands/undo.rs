//! `nb undo`: an edit taken back.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::api::problem::{Problem, ProblemKind, causes};
use crate::cli::Context;
use crate::cli::render::conflict::with_repeat;

use crate::cli::args::first_notebook;
use crate::cli::commands::change::Manner;
use crate::cli::commands::{Command, Group};
use crate::cli::render::conflict::indented;
use crate::cli::render::{print, versions};
use crate::editing::history::{self, Op, UndoError};
use crate::editing::notebook_file::NotebookFile;
use crate::kernel::shell::quote;
use crate::notebook::Document;

/// Take an edit back: your last one, or the one that OP names
///
/// Every command that changes cells prints its OP (eight hexadecimal digits, of which a beginning is
/// enough); nb log lists them. Cells become what they were before it, removed ones come back with
/// their outputs, moved ones go back. What others did since stays: where it is in other lines, both
/// are kept; where it is in the same ones, nothing is done (exit code 5). An undo has an OP of its
/// own: nb undo OP of that one does the edit again. Said several times without OP, it goes further
/// back; where somebody's save has dropped your last edits, it names them and touches nothing else.
#[derive(Args, Debug)]
#[command(override_usage = "nb undo [OPTIONS] [NOTEBOOK] [OP]", after_help = EXAMPLES)]
pub(crate) struct Undo {
    /// [NOTEBOOK] [OP]
    #[arg(num_args = 0..=2, value_name = "WORDS", hide = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) manner: Manner,
}

const EXAMPLES: &str = "\
Examples:
  nb undo                      the last thing you did in the only open notebook
  nb undo train.ipynb 8a7b     that one
  nb log train.ipynb           which there are";

impl Command for Undo {
    const NAME: &'static str = "undo";
    const GROUP: Group = Group::Notebook;
    const IS_FIRST: bool = true;

    fn notebook(&self) -> Option<PathBuf> {
        first_notebook(&self.words)
    }

    fn json(&self) -> bool {
        self.manner.json
    }

    async fn run(mut self, context: &Context) -> Result<ExitCode, Problem> {
        let page = context.page(&mut self.words).await?;
        let op = match self.words.as_slice() {
            [] => None,
            [op] => Some(op.as_str()),
            _ => {
                return Err(Problem::new(
                    ProblemKind::Usage,
                    "one edit is taken back at a time",
                ));
            }
        };
        let editor = context.editor(&self.manner);
        let undone = history::undo(&page, op, &editor).map_err(|error| of_undo(error, &page))?;
        let merged = sources(&undone.done.document, &undone.merged);
        if self.manner.json {
            let merged = merged.iter();
            let merged: Vec<_> = merged
                .map(|(cell, source)| json!({ "cell": cell, "source": source }))
                .collect();
            let more = json!({ "undone": undone.op, "merged": merged });
            return Ok(context.tell_with(&page, &undone.done, Some(more), "undo"));
        }
        let _ = print::line(&match undone.done.changes.is_empty() {
            true => format!("nothing is left to take back of {}", words(&undone.op)),
            false => format!("took back {}", words(&undone.op)),
        });
        let code = context.tell(&page, &undone.done, false, "undo");
        for (cell, source) in merged {
            let head = format!("cell {cell} keeps what others changed since; it is now:");
            let text = [vec![head], indented(&source)].concat().join("\n");
            let _ = print::exact(format!("{text}\n").as_bytes());
        }
        Ok(code)
    }
}

/// Returns cells with what is in them now.
fn sources(document: &Document, ids: &[String]) -> Vec<(String, String)> {
    let cells = document.cells().iter();
    let cells = cells.filter(|cell| ids.iter().any(|id| id == cell.id()));
    cells
        .map(|cell| (cell.id().to_owned(), cell.source().into_owned()))
        .collect()
}

/// Returns an operation in a few words.
fn words(op: &Op) -> String {
    let cells = match op.cells.as_slice() {
        [cell] => format!(" of {cell}"),
        [] => String::new(),
        cells => format!(" of {} cells", cells.len()),
    };
    let by = op.by.as_deref().map(|by| format!(" by {by}"));
    let at = print::moment(op.at);
    format!(
        "{} ({}{cells}{}, {at})",
        op.op,
        op.deed,
        by.unwrap_or_default()
    )
}

fn problem(error: &UndoError, page: &NotebookFile) -> Problem {
    let listed = |ops: &[Op]| ops.iter().map(words).collect::<Vec<_>>();
    let problem = |kind| Problem::new(kind, causes(error));
    let notebook = quote(&page.path);
    match error {
        UndoError::Nothing { undo, others, .. } => {
            let mut problem = problem(ProblemKind::Failed).lines(&listed(others));
            if let Some(op) = others.first() {
                problem = problem.hint(format!(
                    "these are others' edits; to take one back: nb undo {notebook} {}",
                    op.op
                ));
            }
            match undo {
                Some(op) => problem.hint(format!(
                    "to do again what you took back last: nb undo {notebook} {}",
                    op.op
                )),
                None => problem,
            }
        }
        UndoError::Gone { gone, next, .. } => {
            let lines = gone
                .iter()
                .map(|op| format!("nothing is left to take back of {}", words(op)));
            // Without an earlier one there is nothing that it was kept from.
            let kind = match next {
                Some(_) => ProblemKind::Conflict,
                None => ProblemKind::Failed,
            };
            let problem = problem(kind).lines(&lines.collect::<Vec<_>>());
            match next {
                Some(op) => problem.hint(format!(
                    "to take back the one before, {}: nb undo {notebook} {}",
                    words(op),
                    op.op
                )),
                None => problem.hint(format!(
                    "nb log {notebook} lists what was done; nb restore {notebook} CELL@REVISION brings a version back"
                )),
            }
        }
        UndoError::NoSuchOp { last, .. } => problem(ProblemKind::Failed)
            .lines(&listed(last))
            .hint(format!("nb log {notebook} lists what was done")),
        UndoError::Ambiguous { candidates, .. } => problem(ProblemKind::Failed)
            .lines(&listed(candidates))
            .hint("give more of it"),
        UndoError::Already { by, .. } => problem(ProblemKind::Failed).hint(format!(
            "to do it again, take that back: nb undo {notebook} {by}"
        )),
        UndoError::Conflicts { op, conflicts } => problem(ProblemKind::Conflict)
            .with_conflicts(conflicts, false)
            .hint(format!(
                "to take it back over that: nb undo {notebook} {} --force",
                op.op
            )),
        UndoError::Unknown { .. } | UndoError::Operation { .. } => {
            problem(ProblemKind::Failed).hint(versions::not_kept(page))
        }
        UndoError::NotebookFile(_) | UndoError::Edit(_) => problem(ProblemKind::Failed),
    }
}

/// Makes a problem of what kept an operation from being taken back; whose problem it is depends on why.
fn of_undo(error: UndoError, page: &NotebookFile) -> Problem {
    match error {
        UndoError::NotebookFile(error) => error.into(),
        UndoError::Edit(error) => with_repeat(error.into(), "undo"),
        error => problem(&error, page),
    }
}
