//! `doctor`: what stands between opening a notebook and a cell that runs in a front end.

use std::path::PathBuf;

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::envelope::Answer;
use super::problem::Problem;
use crate::kernel::shell::quote;
use crate::kernel::variables::ProcessVariables;
use crate::lifecycle::doctor::{Check, Verdict, examine};
use crate::lifecycle::target;

/// Which notebook is to be looked at.
#[derive(Clone, Debug, Default)]
pub struct DoctorRequest {
    /// The notebook; none is a new one in the working directory, where the caller means no other.
    pub notebook: Option<PathBuf>,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct DoctorAnswer {
    /// Whether nothing stands in the way.
    pub well: bool,
    /// All that was looked at.
    pub checks: Vec<Check>,
}

impl Answer for DoctorAnswer {}

/// Checks everything between opening a notebook and a cell that runs in a front end. Nothing is started
/// or changed.
///
/// # Errors
/// The checks were given up.
pub async fn doctor(caller: &Caller, request: DoctorRequest) -> Result<DoctorAnswer, Problem> {
    let given = request.notebook.or_else(|| caller.notebook.clone());
    let named = target::named(given.as_deref(), &ProcessVariables);
    let new = caller.here.join("new.ipynb");
    blocking(move || {
        let notebook = named.clone().unwrap_or(new);
        let notebook = std::path::absolute(&notebook).unwrap_or(notebook);
        let mut checks = examine(&notebook, &ProcessVariables);
        let name = named.map_or("NOTEBOOK".to_owned(), |it| quote(&it));
        for mend in checks.iter_mut().filter_map(|check| check.mend.as_mut()) {
            *mend = mend.replace("NOTEBOOK", &name);
        }
        let well = checks.iter().all(|it| it.verdict != Verdict::Bad);
        Ok(DoctorAnswer { well, checks })
    })
    .await
}
