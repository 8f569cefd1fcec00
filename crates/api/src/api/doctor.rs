//! `doctor`: checks everything that a front end needs to run a cell of a notebook.

use std::path::Path;

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::envelope::Answer;
use super::open::check_name;
use super::problem::Problem;
use crate::editing::notebook_file::refuse_no_notebook;
use crate::kernel::variables::ProcessVariables;
use crate::setup::doctor::{Check, Verdict, examine, examine_server};

/// What was found.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DoctorAnswer {
    /// Whether no check found a problem.
    pub well: bool,
    /// The results of all checks.
    pub checks: Vec<Check>,
}

impl Answer for DoctorAnswer {}

/// Checks everything that a front end needs to run a cell of the named notebook, else of a new one. Nothing
/// is started or changed.
///
/// # Errors
/// The checks were cancelled.
pub async fn doctor(caller: &Caller) -> Result<DoctorAnswer, Problem> {
    let named = caller.named();
    let new = caller.working_dir.join("new.ipynb");
    let notebook = named.clone().unwrap_or(new);
    let notebook = std::path::absolute(&notebook).unwrap_or(notebook);
    let on_server = examine_server(&notebook).await;
    blocking(caller, move |_| {
        let mut checks = examine(&notebook, &ProcessVariables, on_server);
        checks.splice(0..0, named.as_deref().and_then(no_notebook));
        if let Some(notebook) = &named {
            for check in &mut checks {
                check.fix = check.fix.take().map(|fix| fix.named(notebook));
            }
        }
        let well = checks.iter().all(|it| it.verdict != Verdict::Bad);
        Ok(DoctorAnswer { well, checks })
    })
    .await
}

/// Checks that `nb open` would take the named file for a notebook, or make it.
fn no_notebook(notebook: &Path) -> Option<Check> {
    let is_new = !notebook.exists() && !notebook.is_symlink();
    let checked = check_name(notebook).and_then(|()| match is_new {
        true => Ok(()),
        false => Ok(refuse_no_notebook(notebook)?),
    });
    let problem = checked.err()?;
    let elsewhere = || "name another notebook".into();
    Some(Check {
        about: "notebook",
        verdict: Verdict::Bad,
        text: problem.message,
        fix: Some(problem.hints.into_iter().next().unwrap_or_else(elsewhere)),
    })
}
