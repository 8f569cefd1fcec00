//! `replace`: replaces a text wherever it is in a notebook's cells.

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::edit::{EditAnswer, EditPolicy};
use super::envelope::Answer;
use super::problem::{Problem, ProblemKind};
use super::search::pattern;
use crate::editing::edit;
use crate::hint;
use crate::hint::{Verb, nb};
use crate::notebook::{CellSelector, DocumentEditError, Replacement};

/// What is replaced, and where.
#[derive(Clone, Debug, Default)]
pub struct ReplaceRequest {
    /// The text to replace, or a regular expression.
    pub old: String,
    /// The new text; `$1` is the first group of a regular expression.
    pub new: String,
    /// The cells; an empty list is all cells.
    pub cells: Vec<CellSelector>,
    /// Whether `old` is a regular expression.
    pub is_regex: bool,
    /// Whether only whole words are replaced.
    pub is_word: bool,
    /// The write policy.
    pub policy: EditPolicy,
}

/// What was replaced.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplaceAnswer {
    /// What was written.
    #[serde(flatten)]
    pub edit: EditAnswer,
    /// How many occurrences were replaced.
    pub replaced: usize,
}

impl Answer for ReplaceAnswer {}

/// Replaces a text in the sources of cells, in all of them or in none. The caller need not have seen the cells:
/// the request names the text that it replaces.
///
/// # Errors
/// The text is nowhere in the cells, or the notebook cannot be written.
pub async fn replace(caller: &Caller, request: ReplaceRequest) -> Result<ReplaceAnswer, Problem> {
    if request.old.is_empty() {
        let message = DocumentEditError::Empty.to_string();
        return Err(Problem::new(ProblemKind::Failed, message));
    }
    let replacement = Replacement {
        pattern: pattern(&request.old, !request.is_regex, false, request.is_word)?,
        with: request.new,
        expands: request.is_regex,
    };
    let file = caller.notebook_file().await?;
    let editor = caller.editor(request.policy);
    blocking(caller, move |_| {
        let (outcome, replaced) = edit::replace(&file, &request.cells, &replacement, &editor)?;
        if replaced == 0 {
            let where_it_is_not = match request.cells.is_empty() {
                true => "no cell has",
                false => "these cells do not have",
            };
            let message = format!("{where_it_is_not} {:?}", request.old);
            let problem = Problem::new(ProblemKind::Failed, message);
            return Err(problem.hint(hint![
                nb(Verb::Search).word("PATTERN"),
                " finds text in sources and outputs"
            ]));
        }
        Ok(ReplaceAnswer {
            edit: EditAnswer::of(&file, outcome),
            replaced,
        })
    })
    .await
}
