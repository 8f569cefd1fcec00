//! `doctor`: checks everything that a front end needs to run a cell of a notebook.

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::envelope::Answer;
use super::problem::Problem;
use crate::kernel::shell::quote;
use crate::kernel::variables::ProcessVariables;
use crate::lifecycle::doctor::{Check, Verdict, examine, examine_server};

/// What was found.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
        let name = named.map_or("NOTEBOOK".to_owned(), |it| quote(&it));
        for fix in checks.iter_mut().filter_map(|check| check.fix.as_mut()) {
            *fix = fix.replace("NOTEBOOK", &name);
        }
        let well = checks.iter().all(|it| it.verdict != Verdict::Bad);
        Ok(DoctorAnswer { well, checks })
    })
    .await
}
