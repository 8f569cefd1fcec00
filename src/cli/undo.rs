//! `nb undo`: an edit taken back.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::change::Manner;
use super::conflict::indented;
use super::fault::{Fault, Kind, causes};
use super::{Context, print, versions};
use crate::editing::history::{self, Op, UndoError};
use crate::editing::page::Page;
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
pub(super) struct Undo {
    /// [NOTEBOOK] [OP]
    #[arg(num_args = 0..=2, value_name = "WORDS", hide = true)]
    pub(super) words: Vec<String>,
    #[command(flatten)]
    pub(super) manner: Manner,
}

const EXAMPLES: &str = "\
Examples:
  nb undo                      the last thing you did in the only open notebook
  nb undo train.ipynb 8a7b     that one
  nb log train.ipynb           which there are";

impl Undo {
    /// Runs the command.
    pub(super) async fn run(mut self, context: &Context) -> Result<ExitCode, Fault> {
        let page = context.page(&mut self.words, "nb undo").await?;
        let op = match self.words.as_slice() {
            [] => None,
            [op] => Some(op.as_str()),
            _ => return Err(Fault::new(Kind::Usage, "one edit is taken back at a time")),
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

fn fault(error: &UndoError, page: &Page) -> Fault {
    let listed = |ops: &[Op]| ops.iter().map(words).collect::<Vec<_>>();
    let fault = |kind| Fault::new(kind, causes(error));
    let notebook = quote(&page.path);
    match error {
        UndoError::Nothing { undo, others, .. } => {
            let mut fault = fault(Kind::Failed).lines(&listed(others));
            if let Some(op) = others.first() {
                fault = fault.hint(format!(
                    "these are others' edits; to take one back: nb undo {notebook} {}",
                    op.op
                ));
            }
            match undo {
                Some(op) => fault.hint(format!(
                    "to do again what you took back last: nb undo {notebook} {}",
                    op.op
                )),
                None => fault,
            }
        }
        UndoError::Gone { gone, next, .. } => {
            let lines = gone
                .iter()
                .map(|op| format!("nothing is left to take back of {}", words(op)));
            // Without an earlier one there is nothing that it was kept from.
            let kind = match next {
                Some(_) => Kind::Conflict,
                None => Kind::Failed,
            };
            let fault = fault(kind).lines(&lines.collect::<Vec<_>>());
            match next {
                Some(op) => fault.hint(format!(
                    "to take back the one before, {}: nb undo {notebook} {}",
                    words(op),
                    op.op
                )),
                None => fault.hint(format!(
                    "nb log {notebook} lists what was done; nb restore {notebook} CELL@REVISION brings a version back"
                )),
            }
        }
        UndoError::NoSuchOp { last, .. } => fault(Kind::Failed)
            .lines(&listed(last))
            .hint(format!("nb log {notebook} lists what was done")),
        UndoError::Ambiguous { candidates, .. } => fault(Kind::Failed)
            .lines(&listed(candidates))
            .hint("give more of it"),
        UndoError::Already { by, .. } => fault(Kind::Failed).hint(format!(
            "to do it again, take that back: nb undo {notebook} {by}"
        )),
        UndoError::Conflicts { op, conflicts } => fault(Kind::Conflict)
            .with_conflicts(conflicts, false)
            .hint(format!(
                "to take it back over that: nb undo {notebook} {} --force",
                op.op
            )),
        UndoError::Unknown { .. } | UndoError::TakeBack { .. } => {
            fault(Kind::Failed).hint(versions::not_kept(page))
        }
        UndoError::Page(_) | UndoError::Edit(_) => fault(Kind::Failed),
    }
}

/// Makes a fault of what kept an operation from being taken back; whose fault it is depends on why.
fn of_undo(error: UndoError, page: &Page) -> Fault {
    match error {
        UndoError::Page(error) => error.into(),
        UndoError::Edit(error) => Fault::from(error).again("undo"),
        error => fault(&error, page),
    }
}
