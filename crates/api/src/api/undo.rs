//! `undo`: undoes an edit.

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::edit::{EditAnswer, EditPolicy};
use super::envelope::Answer;
use super::problem::{Problem, ProblemKind, causes};
use super::time::moment;
use super::versions;
use crate::editing::history::{self, OperationEntry, UndoError};
use crate::editing::notebook_file::NotebookFile;
use crate::hint;
use crate::hint::{Verb, nb};

/// The edit to undo, and the write policy.
#[derive(Clone, Debug, Default)]
pub struct UndoRequest {
    /// The operation's id, or a prefix of it; `None` is the caller's last edit.
    pub op: Option<String>,
    /// The write policy.
    pub policy: EditPolicy,
}

/// What was taken back.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UndoAnswer {
    /// What was written.
    #[serde(flatten)]
    pub edit: EditAnswer,
    /// The edit that was taken back.
    pub undone: OperationEntry,
    /// Cells in which others' later changes stay.
    pub merged: Vec<MergedCell>,
}

impl Answer for UndoAnswer {}

/// A cell with the changes of several actors.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MergedCell {
    /// The cell's id.
    pub cell: String,
    /// Its source.
    pub source: String,
}

/// Undoes an edit.
///
/// # Errors
/// There is no such edit, its changes were changed again since, or the notebook cannot be written.
pub async fn undo(caller: &Caller, request: UndoRequest) -> Result<UndoAnswer, Problem> {
    let file = caller.notebook_file().await?;
    let editor = caller.editor(request.policy);
    let op = request.op;
    blocking(caller, move |_| {
        let undone = history::undo(&file, op.as_deref(), &editor);
        let undone = undone.map_err(|error| problem(error, &file))?;
        let cells = undone.done.document.cells().iter();
        let merged = cells.filter(|cell| undone.merged.iter().any(|id| id == cell.id()));
        let merged = merged.map(|cell| MergedCell {
            cell: cell.id().to_owned(),
            source: cell.source().into_owned(),
        });
        Ok(UndoAnswer {
            merged: merged.collect(),
            undone: undone.op,
            edit: EditAnswer::of(&file, undone.done),
        })
    })
    .await
}

/// Describes an operation in a few words.
pub fn in_words(op: &OperationEntry) -> String {
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
        op.command,
        by.unwrap_or_default()
    )
}

/// Makes a problem of the error that kept an edit from being undone.
pub(super) fn problem(error: UndoError, file: &NotebookFile) -> Problem {
    match error {
        UndoError::NotebookFile(error) => error.into(),
        UndoError::Edit(error) => error.into(),
        error => described(&error, file),
    }
}

fn described(error: &UndoError, file: &NotebookFile) -> Problem {
    let listed = |ops: &[OperationEntry]| ops.iter().map(in_words).collect::<Vec<_>>();
    let problem = |kind| Problem::new(kind, causes(error));
    let undo_op = |op: &str| nb(Verb::Undo).notebook(&file.path).word(op);
    let log = || nb(Verb::Log).notebook(&file.path);
    match error {
        UndoError::Nothing { undo, others, .. } => {
            let mut problem = problem(ProblemKind::Failed).lines(&listed(others));
            if let Some(op) = others.first() {
                problem = problem.hint(hint![
                    "these are others' edits; to take one back: ",
                    undo_op(&op.op)
                ]);
            }
            match undo {
                Some(op) => problem.hint(hint![
                    "to do again what you took back last: ",
                    undo_op(&op.op)
                ]),
                None => problem,
            }
        }
        UndoError::Gone {
            operations, next, ..
        } => {
            let lines = operations
                .iter()
                .map(|op| format!("nothing is left to take back of {}", in_words(op)));
            // With no earlier edit to undo, nothing is in conflict.
            let kind = match next {
                Some(_) => ProblemKind::Conflict,
                None => ProblemKind::Failed,
            };
            let problem = problem(kind).lines(&lines.collect::<Vec<_>>());
            match next {
                Some(op) => problem.hint(hint![
                    format!("to take back the one before, {}: ", in_words(op)),
                    undo_op(&op.op)
                ]),
                None => problem.hint(hint![
                    log(),
                    " lists what was done; ",
                    nb(Verb::Restore).notebook(&file.path).word("CELL@REVISION"),
                    " brings a version back"
                ]),
            }
        }
        UndoError::NoSuchOp { last, .. } => problem(ProblemKind::Failed)
            .lines(&listed(last))
            .hint(hint![log(), " lists what was done"]),
        UndoError::Ambiguous { candidates, .. } => problem(ProblemKind::Failed)
            .lines(&listed(candidates))
            .hint("give more of it"),
        UndoError::Already { by, .. } => problem(ProblemKind::Failed)
            .hint(hint!["to do it again, take that back: ", undo_op(by)]),
        UndoError::Conflicts { op, conflicts } => problem(ProblemKind::Conflict)
            .with_conflicts(conflicts, false)
            .hint(hint![
                "to take it back over that: ",
                undo_op(&op.op).option("--force")
            ]),
        UndoError::Unknown { .. } | UndoError::Operation { .. } => {
            problem(ProblemKind::Failed).hint(versions::not_kept(file))
        }
        UndoError::NotebookFile(_) | UndoError::Edit(_) => problem(ProblemKind::Failed),
    }
}
