//! What a request would write or run, cell by cell, for a person who has to allow it. Nothing is done.

use super::caller::{Caller, blocking};
use super::edit::{EditRequest, problem as edit_problem};
use super::problem::Problem;
use super::restore::{RestoreRequest, problem as restore_problem};
use super::selection::CellsToRun;
use super::undo::{UndoRequest, in_words, problem as undo_problem};
use crate::editing::{edit, history, view};
use crate::execution::exec::job_cell;
use crate::notebook::{CellDiff, CellSide, Document, diff};

/// A cell that a request would write or run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedChange {
    /// What would be done to which cell: `change cell 3 · 23a3`.
    pub action: String,
    /// Its text before, if the request changes that.
    pub before: Option<String>,
    /// Its text after. It is empty for a removed cell.
    pub after: String,
    /// Whether the cell would be removed.
    pub is_removed: bool,
}

/// Returns what an edit would do.
///
/// # Errors
/// An operation cannot be done, or the notebook cannot be read.
pub async fn planned_edit(
    caller: &Caller,
    request: EditRequest,
) -> Result<Vec<PlannedChange>, Problem> {
    let file = caller.notebook_file().await?;
    blocking(caller, move |_| {
        let (before, after) = edit::preview(&file, &request.operations)
            .map_err(|error| edit_problem(error, request.is_list))?;
        Ok(changed_cells(&before, &after))
    })
    .await
}

/// Returns which edit would be undone, in words, and what that would do.
///
/// # Errors
/// Those of [`undo`](super::undo()), but for the writing.
pub async fn planned_undo(
    caller: &Caller,
    request: UndoRequest,
) -> Result<(String, Vec<PlannedChange>), Problem> {
    let file = caller.notebook_file().await?;
    let editor = caller.editor(request.policy);
    blocking(caller, move |_| {
        let preview = history::preview_undo(&file, request.op.as_deref(), &editor);
        let (op, before, after) = preview.map_err(|error| undo_problem(error, &file))?;
        Ok((in_words(&op), changed_cells(&before, &after)))
    })
    .await
}

/// Returns what a restore would do.
///
/// # Errors
/// Those of [`restore`](super::restore()), but for the writing.
pub async fn planned_restore(
    caller: &Caller,
    request: RestoreRequest,
) -> Result<Vec<PlannedChange>, Problem> {
    let file = caller.notebook_file().await?;
    let editor = caller.editor(request.policy);
    blocking(caller, move |_| {
        let revision = request.revision.as_deref();
        let preview = history::preview_restore(&file, &request.cell, revision, &editor);
        let (before, after) = preview.map_err(|error| restore_problem(error, &editor.by, &file))?;
        Ok(changed_cells(&before, &after))
    })
    .await
}

/// Returns the cells that would be run, in order.
///
/// # Errors
/// The notebook or the project's state cannot be read, or a cell does not exist.
pub async fn planned_run(
    caller: &Caller,
    cells: CellsToRun,
) -> Result<Vec<PlannedChange>, Problem> {
    let file = caller.notebook_file().await?;
    blocking(caller, move |caller| {
        let document = view::open(&file, caller.by())?.document;
        let places = cells.places(&document)?;
        let cells = match cells.witnessed(&file, &document, places.clone())? {
            Some((_, witnessed)) => {
                let planned = witnessed.planned().into_iter();
                let cell = |(index, _)| Some(job_cell(index, document.cells().get(index)?));
                planned.filter_map(cell).collect()
            }
            None => cells.job(&file, &document, places, &caller.cancel)?.cells,
        };
        let cells = cells.into_iter().map(|cell| PlannedChange {
            action: format!("run cell {}", name(&document, cell.index.unwrap_or(0))),
            before: None,
            after: cell.code,
            is_removed: false,
        });
        Ok(cells.collect())
    })
    .await
}

fn changed_cells(before: &Document, after: &Document) -> Vec<PlannedChange> {
    let source = |document: &Document, side: &CellSide| {
        let cell = document.cells().get(side.index);
        cell.map(|cell| cell.source().into_owned())
            .unwrap_or_default()
    };
    let cells = diff(before, after, true).into_iter();
    let cells = cells.map(|cell| {
        let old = cell.before.as_ref().map(|side| source(before, side));
        let new = cell.after.as_ref().map(|side| source(after, side));
        PlannedChange {
            action: action(&cell, before, old != new),
            before: old.filter(|old| new.as_ref() != Some(old)),
            is_removed: new.is_none(),
            after: new.unwrap_or_default(),
        }
    });
    cells.collect()
}

fn action(cell: &CellDiff, before: &Document, has_other_text: bool) -> String {
    let (old, new) = match (&cell.before, &cell.after) {
        (Some(old), Some(new)) => (old, new),
        (Some(old), None) => return format!("remove cell {}", name(before, old.index)),
        (None, Some(new)) => {
            return format!("insert a {} cell at {}", new.cell_type, new.index);
        }
        (None, None) => return "change nothing".to_owned(),
    };
    let mut parts = Vec::new();
    if has_other_text {
        parts.push("text".to_owned());
    }
    if old.cell_type != new.cell_type {
        parts.push(format!("type ({} to {})", old.cell_type, new.cell_type));
    }
    if cell.moved {
        parts.push(format!("position ({} to {})", old.index, new.index));
    }
    if !cell.metadata.is_empty() {
        parts.push("metadata".to_owned());
    }
    if cell.outputs.is_some() {
        parts.push("outputs".to_owned());
    }
    let name = name(before, old.index);
    format!("change cell {name}: {}", parts.join(", "))
}

/// Returns the name of a cell: its index and its short id.
fn name(document: &Document, index: usize) -> String {
    let short = document.short_ids();
    match short.get(index) {
        Some(id) => format!("{index} · {id}"),
        None => index.to_string(),
    }
}
