//! `complete`: what the kernel knows about code that is being written.

use serde::Serialize;

use super::caller::Caller;
use super::envelope::Answer;
use super::problem::Problem;
use crate::execution::complete::{self, Completions};

/// Code that is being written, and the cursor's place in it.
#[derive(Clone, Debug)]
pub struct CodeAtCursor {
    /// The code.
    pub code: String,
    /// How many Unicode characters stand before the cursor.
    pub at: usize,
}

/// What code may go on with.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CompleteAnswer {
    /// The completions.
    #[serde(flatten)]
    pub completions: Completions,
}

impl Answer for CompleteAnswer {}

/// The documentation of what stands at a cursor.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DocumentationAnswer {
    /// The text, which may have ANSI colours; none if the kernel has none.
    pub text: Option<String>,
}

impl Answer for DocumentationAnswer {}

/// Returns what the kernel would complete code with. It also answers beside a running cell if it has subshells.
///
/// # Errors
/// There is no kernel, or it is busy.
pub async fn complete(caller: &Caller, code: &CodeAtCursor) -> Result<CompleteAnswer, Problem> {
    let target = caller.target().await?;
    let completions = complete::completions(
        (&target.project, &target.key, &target.session),
        caller.by(),
        &code.code,
        code.at,
    )
    .await?;
    Ok(CompleteAnswer { completions })
}

/// Returns the documentation of what stands at a cursor.
///
/// # Errors
/// There is no kernel, or it is busy.
pub async fn documentation(
    caller: &Caller,
    code: &CodeAtCursor,
) -> Result<DocumentationAnswer, Problem> {
    let target = caller.target().await?;
    let text = complete::documentation(
        (&target.project, &target.key, &target.session),
        caller.by(),
        &code.code,
        code.at,
    )
    .await?;
    Ok(DocumentationAnswer { text })
}
