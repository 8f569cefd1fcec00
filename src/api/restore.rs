//! `restore`: an earlier version of a cell, or a deleted cell.

use std::path::PathBuf;

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::edit::{EditAnswer, EditPolicy};
use super::envelope::Answer;
use super::problem::editing::of_selection;
use super::problem::{Problem, ProblemKind, causes};
use super::versions;
use crate::editing::history::{self, CellVersion, RestoreError};
use crate::editing::notebook_file::NotebookFile;
use crate::editing::view;
use crate::kernel::shell::quote;
use crate::notebook::{CellSelector, Revision};

/// Which version of which cell is brought back.
#[derive(Clone, Debug)]
pub struct RestoreRequest {
    /// The notebook, where not the one that the caller means.
    pub notebook: Option<PathBuf>,
    /// The cell, also a deleted one by its id.
    pub cell: CellSelector,
    /// The revision, or the beginning of it; none is the one before the present one.
    pub revision: Option<String>,
    /// How it is written.
    pub policy: EditPolicy,
}

/// What was brought back.
#[derive(Clone, Debug, Serialize)]
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
    let page = caller.page(request.notebook.clone()).await?;
    let editor = caller.editor(request.policy);
    blocking(move || {
        let revision = request.revision.as_deref();
        let restored = history::restore(&page, &request.cell, revision, &editor);
        let restored = restored.map_err(|error| problem(error, &editor.by, &page))?;
        Ok(RestoreAnswer {
            edit: EditAnswer::of(&page, restored.done),
            cell: restored.cell,
            restored: restored.version,
            was_deleted: restored.was_deleted,
            cell_revision: restored.revision,
        })
    })
    .await
}

fn problem(error: RestoreError, by: &str, page: &NotebookFile) -> Problem {
    let message = causes(&error);
    let problem = |kind| Problem::new(kind, message.clone());
    let document = || view::open(page, by).map(|view| view.document);
    let notebook = quote(&page.path);
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
                    problem.more_lines(&versions::deleted(page, &document, deleted))
                }
                _ => problem,
            }
        }
        RestoreError::Ambiguous { ref candidates, .. } => {
            let lines = document().map(|it| versions::deleted(page, &it, candidates));
            problem(ProblemKind::Failed)
                .lines(&lines.unwrap_or_default())
                .hint("give more of the id")
        }
        RestoreError::NoSuchVersion {
            versions: ref list, ..
        } => {
            let lines = document().map(|it| versions::lines(page, &it, list));
            problem(ProblemKind::Failed).lines(&lines.unwrap_or_default())
        }
        RestoreError::Forgotten {
            versions: ref list, ..
        } => {
            let lines = document().map(|it| versions::lines(page, &it, list));
            problem(ProblemKind::Failed)
                .lines(&lines.unwrap_or_default())
                .hint(versions::not_kept(page))
        }
        RestoreError::NoEarlier { ref cell } => problem(ProblemKind::Failed)
            .hint(format!("nb log {notebook} {cell} lists its versions"))
            .hint(format!("nb diff {notebook} --git shows what git has")),
    }
}
