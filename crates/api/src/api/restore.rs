//! `restore`: brings back an earlier version of a cell, or a deleted cell.

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::edit::{EditAnswer, EditPolicy};
use super::envelope::Answer;
use super::problem::editing::of_selection;
use super::problem::{Problem, ProblemKind, causes};
use super::versions::{self, listed, version_lines};
use crate::editing::history::{self, CellVersion, RestoreError};
use crate::editing::notebook_file::NotebookFile;
use crate::editing::view;
use crate::hint;
use crate::hint::{Verb, nb};
use crate::notebook::{CellSelector, Revision};

/// Which version of which cell is brought back.
#[derive(Clone, Debug)]
pub struct RestoreRequest {
    /// The cell; a deleted one by its id.
    pub cell: CellSelector,
    /// The revision, or a prefix of it; `None` is the one before the present one.
    pub revision: Option<String>,
    /// The write policy.
    pub policy: EditPolicy,
}

/// What was brought back.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RestoreAnswer {
    /// What was written.
    #[serde(flatten)]
    pub edit: EditAnswer,
    /// The cell's id.
    pub cell: String,
    /// The version that it is again.
    pub restored: CellVersion,
    /// Whether the cell was deleted and is there again.
    pub was_deleted: bool,
    /// The revision that the cell has again.
    #[serde(skip)]
    pub cell_revision: Revision,
}

impl Answer for RestoreAnswer {}

/// Brings back an earlier version of a cell, or a deleted cell.
///
/// # Errors
/// There is no such cell or version, or the notebook cannot be written.
pub async fn restore(caller: &Caller, request: RestoreRequest) -> Result<RestoreAnswer, Problem> {
    let file = caller.notebook_file().await?;
    let editor = caller.editor(request.policy);
    blocking(caller, move |_| {
        let revision = request.revision.as_deref();
        let restored = history::restore(&file, &request.cell, revision, &editor);
        let restored = restored.map_err(|error| problem(error, &editor.by, &file))?;
        Ok(RestoreAnswer {
            edit: EditAnswer::of(&file, restored.done),
            cell: restored.cell,
            restored: restored.version,
            was_deleted: restored.was_deleted,
            cell_revision: restored.revision,
        })
    })
    .await
}

pub(super) fn problem(error: RestoreError, by: &str, file: &NotebookFile) -> Problem {
    let message = causes(&error);
    let problem = |kind| Problem::new(kind, message.clone());
    let document = || view::open(file, by).map(|view| view.document);
    let lines = |list: &Vec<CellVersion>| match document() {
        Ok(document) => version_lines(&listed(file, &document, list.clone())),
        Err(_) => Vec::new(),
    };
    match error {
        RestoreError::NotebookFile(error) => error.into(),
        RestoreError::Edit(error) => error.into(),
        RestoreError::NoSuchCell {
            ref source,
            ref deleted,
        } => {
            let problem = of_selection(source, &message);
            match document() {
                Ok(document) if !deleted.is_empty() => {
                    problem.more_lines(&versions::deleted_lines(file, &document, deleted))
                }
                _ => problem,
            }
        }
        RestoreError::Ambiguous { ref candidates, .. } => {
            let lines = document().map(|it| versions::deleted_lines(file, &it, candidates));
            problem(ProblemKind::Failed)
                .lines(&lines.unwrap_or_default())
                .hint("give more of the id")
        }
        RestoreError::NoSuchVersion { ref versions, .. } => {
            problem(ProblemKind::Failed).lines(&lines(versions))
        }
        RestoreError::Forgotten { ref versions, .. } => problem(ProblemKind::Failed)
            .lines(&lines(versions))
            .hint(versions::not_kept(file)),
        RestoreError::NoEarlier { ref cell } => problem(ProblemKind::Failed)
            .hint(hint![
                nb(Verb::Log).notebook(&file.path).word(&**cell),
                " lists its versions"
            ])
            .hint(hint![
                nb(Verb::Diff).notebook(&file.path).option("--git"),
                " shows what git has"
            ]),
    }
}
