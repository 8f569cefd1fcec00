//! `undo`: an edit taken back.

use std::path::PathBuf;

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::edit::{EditAnswer, EditPolicy};
use super::envelope::Answer;
use super::problem::{Problem, ProblemKind, causes};
use super::time::moment;
use super::versions;
use crate::editing::history::{self, Op, UndoError};
use crate::editing::notebook_file::NotebookFile;
use crate::kernel::shell::quote;

/// Which edit is taken back.
#[derive(Clone, Debug, Default)]
pub struct UndoRequest {
    /// The notebook, where not the one that the caller means.
    pub notebook: Option<PathBuf>,
    /// The edit, by its name or the beginning of it; none is the caller's last.
    pub op: Option<String>,
    /// How it is written.
    pub policy: EditPolicy,
}

/// What was taken back.
#[derive(Clone, Debug, Serialize)]
pub struct UndoAnswer {
    /// What was written.
    #[serde(flatten)]
    pub edit: EditAnswer,
    /// The edit that was taken back.
    pub undone: Op,
    /// Cells in which others' later changes stay.
    pub merged: Vec<MergedCell>,
}

impl Answer for UndoAnswer {}

/// A cell that nobody wrote as it is now.
#[derive(Clone, Debug, Serialize)]
pub struct MergedCell {
    /// The cell's id.
    pub cell: String,
    /// Its source.
    pub source: String,
}

/// Takes an edit back.
///
/// # Errors
/// There is no such edit, what it did was changed since, or the notebook cannot be written.
pub async fn undo(caller: &Caller, request: UndoRequest) -> Result<UndoAnswer, Problem> {
    let page = caller.page(request.notebook).await?;
    let editor = caller.editor(request.policy);
    let op = request.op;
    blocking(move || {
        let undone = history::undo(&page, op.as_deref(), &editor);
        let undone = undone.map_err(|error| problem(error, &page))?;
        let cells = undone.done.document.cells().iter();
        let merged = cells.filter(|cell| undone.merged.iter().any(|id| id == cell.id()));
        let merged = merged.map(|cell| MergedCell {
            cell: cell.id().to_owned(),
            source: cell.source().into_owned(),
        });
        Ok(UndoAnswer {
            merged: merged.collect(),
            undone: undone.op,
            edit: EditAnswer::of(&page, undone.done),
        })
    })
    .await
}

/// Returns an edit in a few words.
pub(crate) fn in_words(op: &Op) -> String {
    let cells = match op.cells.as_slice() {
        [cell] => format!(" of {cell}"),
        [] => String::new(),
        cells => format!(" of {} cells", cells.len()),
    };
    let by = op.by.as_deref().map(|by| format!(" by {by}"));
    let at = moment(op.at);
    format!(
        "{} ({}{cells}{}, {at})",
        op.op,
        op.deed,
        by.unwrap_or_default()
    )
}

/// Makes a problem of what kept an edit from being taken back; its kind depends on why.
fn problem(error: UndoError, page: &NotebookFile) -> Problem {
    match error {
        UndoError::NotebookFile(error) => error.into(),
        UndoError::Edit(error) => error.into(),
        error => described(&error, page),
    }
}

fn described(error: &UndoError, page: &NotebookFile) -> Problem {
    let listed = |ops: &[Op]| ops.iter().map(in_words).collect::<Vec<_>>();
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
                .map(|op| format!("nothing is left to take back of {}", in_words(op)));
            // Without an earlier one there is nothing that it was kept from.
            let kind = match next {
                Some(_) => ProblemKind::Conflict,
                None => ProblemKind::Failed,
            };
            let problem = problem(kind).lines(&lines.collect::<Vec<_>>());
            match next {
                Some(op) => problem.hint(format!(
                    "to take back the one before, {}: nb undo {notebook} {}",
                    in_words(op),
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
