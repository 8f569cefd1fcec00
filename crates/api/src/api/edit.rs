//! Edits of a notebook's cells, all or none: `insert`, `edit`, `rm`, `move`, `clear` and `apply`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::diff::{DiffAnswer, diff_documents};
use super::envelope::Answer;
use super::problem::editing::of_operation;
use super::problem::{Problem, ProblemKind};
pub use crate::editing::edit::Rewrite;
use crate::editing::edit::{self, EditError, EditOutcome, Editor};
use crate::editing::notebook_file::NotebookFile;
use crate::hint;
use crate::hint::{Hint, Verb, nb};
use crate::notebook::{Cell, CellChange, ChangeKind, Conflict, Document, Operation, Revision};
use crate::stale::notebook_graph::NotebookGraph;

/// The policy by which a notebook is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct EditPolicy {
    /// Whether to write even where a cell is not what the caller saw last: the last writer wins.
    pub force: bool,
    /// Whether to write at once even while a front end's own cell runs in the notebook.
    pub now: bool,
}

/// The edits to make to a notebook's cells.
#[derive(Clone, Debug)]
pub struct EditRequest {
    /// The operations, each applied to the result of the one before.
    pub operations: Vec<Operation>,
    /// Whether the caller gave a list of operations: a problem then names the one that failed.
    pub is_list: bool,
    /// The write policy.
    pub policy: EditPolicy,
}

impl EditRequest {
    /// Makes the request from a JSON list of operations.
    ///
    /// # Errors
    /// No notebook can be chosen, or the text is not such a list.
    pub async fn of_list(caller: &Caller, list: &str, policy: EditPolicy) -> Result<Self, Problem> {
        // An error about the notebook comes before errors in the list.
        caller.notebook_file().await?;
        let operations = Operation::read_list(list).map_err(|error| {
            let help = nb(Verb::Apply).without_notebook().option("--help");
            Problem::new(ProblemKind::Usage, error.to_string())
                .hint(hint![help, " tells what may be in the list"])
        })?;
        Ok(Self {
            operations,
            is_list: true,
            policy,
        })
    }
}

/// What came of an edit.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EditAnswer {
    /// The notebook's key in its project.
    pub notebook: String,
    /// Its file.
    pub path: PathBuf,
    /// Its revision now.
    pub revision: Revision,
    /// The edit's id, for `undo`; none if nothing was changed.
    pub op: Option<String>,
    /// What was done to which cells.
    pub changes: Vec<CellChange>,
    /// What did not go into the file, since another program saved the same lines in between.
    pub conflicts: Vec<Conflict>,
    /// What the writer should know.
    pub notes: Vec<Hint>,
    /// The names that the written cells read, and that certainly no cell of the notebook gives a value.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub undefined: BTreeSet<String>,
    /// The problem that the conflicts are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
    /// The notebook as it is now.
    #[serde(skip)]
    pub document: Document,
}

impl Answer for EditAnswer {}

impl EditAnswer {
    /// Returns the ids of the notebook's cells as they are now, in order.
    pub fn ids(&self) -> impl Iterator<Item = String> + '_ {
        ids(&self.document)
    }

    /// Returns the answer for an edit of a notebook, with what was lost to another program's change.
    pub fn of(file: &NotebookFile, outcome: EditOutcome) -> Self {
        let error = (!outcome.conflicts.is_empty()).then(|| {
            let message = "another program saved the same lines during this edit, and they stay";
            Problem::new(ProblemKind::Conflict, message).with_lost(&outcome.conflicts)
        });
        let changes = final_changes(&outcome);
        let is_written =
            |it: &&CellChange| matches!(it.kind, ChangeKind::Inserted | ChangeKind::Edited);
        let written: BTreeSet<_> = changes
            .iter()
            .filter(is_written)
            .map(|it| it.index)
            .collect();
        Self {
            notebook: file.key.clone(),
            path: file.real.clone(),
            revision: outcome.document.revision(),
            undefined: match written.is_empty() {
                true => BTreeSet::new(),
                false => NotebookGraph::defined_nowhere(file, &outcome.document, &written),
            },
            changes,
            op: outcome.op,
            conflicts: outcome.conflicts,
            notes: outcome.notes,
            error,
            document: outcome.document,
        }
    }
}

impl Caller {
    /// Returns the editor: who edits, and by which policy.
    pub(super) fn editor(&self, policy: EditPolicy) -> Editor {
        Editor {
            by: self.by().to_owned(),
            force: policy.force,
            now: policy.now,
            // A person sees the notebook in an editor, which `nb` cannot observe.
            must_have_seen: !self.is_person,
            progress: self.progress,
            notices: self.notices.clone(),
            shown: self.shown.clone(),
            shows_whole: self.gets_json,
        }
    }
}

/// Applies operations to a notebook, all or none. Changes that conflict with what another program saved
/// meanwhile are among the answer's conflicts.
///
/// # Errors
/// An operation cannot be done, cells are not what the caller saw last, or the file cannot be written.
pub async fn edit(caller: &Caller, request: EditRequest) -> Result<EditAnswer, Problem> {
    let file = caller.notebook_file().await?;
    let editor = caller.editor(request.policy);
    blocking(caller, move |_| {
        let outcome = edit::apply(&file, &request.operations, &editor);
        let outcome = outcome.map_err(|error| problem(error, request.is_list))?;
        Ok(EditAnswer::of(&file, outcome))
    })
    .await
}

/// Writes a person's text of a cell, merged by lines with what others have written since.
///
/// # Errors
/// There is no such cell, others have changed the same lines, or the file cannot be written.
pub async fn rewrite(
    caller: &Caller,
    rewrite: Rewrite,
    policy: EditPolicy,
) -> Result<EditAnswer, Problem> {
    let file = caller.notebook_file().await?;
    let editor = caller.editor(policy);
    blocking(caller, move |_| {
        let outcome = edit::rewrite(&file, &rewrite, &editor);
        let outcome = outcome.map_err(|error| problem(error, false))?;
        Ok(EditAnswer::of(&file, outcome))
    })
    .await
}

/// Returns the ids of a notebook's cells, in order.
///
/// # Errors
/// No notebook can be chosen, or it cannot be read.
pub async fn cell_ids(caller: &Caller) -> Result<Vec<String>, Problem> {
    let file = caller.notebook_file().await?;
    blocking(caller, move |_| {
        let document = file.read()?;
        Ok(ids(&document).collect())
    })
    .await
}

fn ids(document: &Document) -> impl Iterator<Item = String> + '_ {
    document.cells().iter().map(|cell| cell.id().to_owned())
}

/// Returns what an edit would change. Nothing is written.
///
/// # Errors
/// An operation cannot be done, or the notebook cannot be read.
pub async fn preview_edit(caller: &Caller, request: EditRequest) -> Result<DiffAnswer, Problem> {
    let file = caller.notebook_file().await?;
    blocking(caller, move |_| {
        let (before, after) = edit::preview(&file, &request.operations)
            .map_err(|error| problem(error, request.is_list))?;
        Ok(diff_documents(&file, before, &after))
    })
    .await
}

pub(super) fn problem(error: EditError, is_list: bool) -> Problem {
    match error {
        EditError::Operation(error) if is_list => {
            of_operation(&error.source, &error.to_string()).hint("nothing was done: all or none")
        }
        error => error.into(),
    }
}

/// Returns the changes as they are in the notebook now, merged with what another program saved in between.
fn final_changes(outcome: &EditOutcome) -> Vec<CellChange> {
    let mut changes = outcome.changes.clone();
    let cells = outcome.document.cells();
    for at in 0..changes.len() {
        let (before, rest) = changes.split_at_mut(at + 1);
        let Some(change) = before.last_mut() else {
            continue;
        };
        // A later change of the same edit describes this cell.
        if rest.iter().any(|other| other.cell == change.cell) {
            continue;
        }
        let Some(index) = cells.iter().position(|cell| cell.id() == change.cell) else {
            continue;
        };
        change.index = index;
        change.after = cells.get(index).map(Cell::revision);
        if change.kind == ChangeKind::Removed {
            // Another program edited the cell in between, so the merge kept it.
            change.kind = ChangeKind::Nothing;
        }
    }
    changes
}
