//! `vars`: lists the variables of a kernel.

use serde::Serialize;

use super::caller::Caller;
use super::envelope::Answer;
use super::problem::{Problem, ProblemKind};
use crate::execution::vars::{self, Variable, VariablesRequest};
use crate::hint::{Verb, nb};
use crate::project::Status;

/// How many characters of each value are in a list.
const SHORT: usize = 80;

/// How many characters of the value of one variable are in the answer.
const LONG: usize = 4000;

/// Which variables are in the answer.
#[derive(Clone, Debug)]
pub struct VarsRequest {
    /// The variable to show in detail; `None` lists all variables.
    pub name: Option<String>,
    /// Whether modules, functions, classes and IPython's own names are listed too.
    pub all: bool,
    /// How many variables are listed at most; `None` is no limit.
    pub most: Option<usize>,
}

/// The variables of a kernel.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VarsAnswer {
    /// The notebook's key in its project.
    pub notebook: String,
    /// The variables, by name.
    pub variables: Vec<Variable>,
    /// How many were left out.
    pub more: u64,
}

impl Answer for VarsAnswer {}

/// Returns the variables of a notebook's kernel. This runs no user code, and leaves nothing behind in the
/// kernel.
///
/// # Errors
/// There is no kernel, or its variables cannot be read now.
pub async fn vars(caller: &Caller, request: VarsRequest) -> Result<VarsAnswer, Problem> {
    let target = caller.target_or_last_used().await?;
    let session = &target.session;
    if matches!(session.status, Status::Stopped | Status::Died) {
        let text = format!("{} has no kernel now", target.notebook_key);
        let open = nb(Verb::Open).notebook(&session.notebook);
        return Err(Problem::new(ProblemKind::NoKernel, text).hint(open));
    }
    let options = VariablesRequest {
        all: request.all,
        most: request.most.unwrap_or(usize::MAX >> 1),
        limit: if request.name.is_some() { LONG } else { SHORT },
        name: request.name,
    };
    let inspected =
        vars::list_variables(&target.project, &target.key, session, caller.by(), &options).await?;
    Ok(VarsAnswer {
        notebook: target.notebook_key,
        variables: inspected.variables,
        more: inspected.more,
    })
}
