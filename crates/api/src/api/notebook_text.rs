//! A whole notebook as the text of its file, for programs that know only files.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::caller::{Caller, blocking};
use super::edit::{self, EditAnswer, EditPolicy, EditRequest};
use super::problem::{Problem, ProblemKind, causes};
use crate::editing::view;
use crate::notebook::Document;

/// What each notebook has.
#[derive(Deserialize)]
struct NotebookFields {
    #[serde(rename = "cells")]
    _cells: Vec<IgnoredAny>,
    #[serde(rename = "nbformat")]
    _nbformat: u32,
}

/// Returns the text of a notebook's file. Its cells count as seen once the answer is delivered.
///
/// # Errors
/// The file cannot be read, or is not a notebook.
pub async fn notebook_text(caller: &Caller) -> Result<String, Problem> {
    let file = caller.notebook_file().await?;
    blocking(caller, move |caller| {
        let view = view::open(&file, caller.by())?;
        view.document.cells().iter().for_each(|it| view.shown(it));
        let text = String::from_utf8_lossy(&view.document.to_bytes()).into_owned();
        caller.has_shown(view);
        Ok(text)
    })
    .await
}

/// Edits a notebook so that its cells are those of a text, which the caller has made from the text that it
/// was given last. Others' changes since then are merged or refused, as in every edit. Outputs and the
/// notebook's own metadata stay as they are in the file.
///
/// # Errors
/// The text is not a notebook, cells are not what the caller saw last, or the file cannot be written.
pub async fn set_notebook_text(caller: &Caller, text: String) -> Result<EditAnswer, Problem> {
    let no_notebook = |why: &dyn std::error::Error| {
        let message = format!("the new text is not a notebook: {}", causes(why));
        Problem::new(ProblemKind::Failed, message)
    };
    // A document without cells would delete all that are there.
    serde_json::from_str::<NotebookFields>(&text).map_err(|error| no_notebook(&error))?;
    let new = Document::parse(text).map_err(|error| no_notebook(&error))?;
    let file = caller.notebook_file().await?;
    let operations = blocking(caller, move |_| Ok(file.read()?.operations_to(&new))).await?;
    let request = EditRequest {
        operations,
        is_list: true,
        policy: EditPolicy::default(),
    };
    edit::edit(caller, request).await
}
