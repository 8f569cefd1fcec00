//! The state of widgets that a front end has saved in a notebook.

use serde::Serialize;
use serde_json::Value;

use super::caller::{Caller, blocking};
use super::cells::NotebookSummary;
use super::envelope::Answer;
use super::problem::Problem;
use crate::editing::view;

/// The widgets of a notebook.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WidgetsAnswer {
    /// The notebook.
    #[serde(flatten)]
    pub notebook: NotebookSummary,
    /// Their state, as the notebook has it: `version_major`, `version_minor`, and `state` with each model.
    pub widgets: Option<Value>,
}

impl Answer for WidgetsAnswer {}

/// Reads the saved state of a notebook's widgets.
///
/// # Errors
/// The notebook cannot be read.
pub async fn widgets(caller: &Caller) -> Result<WidgetsAnswer, Problem> {
    let file = caller.notebook_file().await?;
    blocking(caller, move |caller| {
        let document = view::open(&file, caller.by())?.document;
        let state = document.widget_state();
        Ok(WidgetsAnswer {
            widgets: state.and_then(|state| serde_json::from_str(&state.text()).ok()),
            notebook: NotebookSummary::of(&file, &document),
        })
    })
    .await
}
