//! Checks everything that is needed from `nb open` to a running cell in VS Code, without changing
//! anything; each problem names its fix.

mod installed;
mod jupyterlab;
mod machine;
mod notebooks;
mod server;
mod vscode;

use std::path::Path;

use serde::Serialize;

use crate::hint::Hint;
use crate::kernel::variables::Variables;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is as it should be.
    Good,
    /// Something to know: it stops nothing here and now.
    Note,
    /// Something that will not work.
    Bad,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Check {
    /// What it is about, in a word or two; the same whatever comes out.
    pub about: &'static str,
    /// How it came out.
    pub verdict: Verdict,
    /// What was found.
    pub text: String,
    /// The fix, a command where there is one.
    pub fix: Option<Hint>,
}

impl Check {
    fn good(about: &'static str, text: impl Into<String>) -> Self {
        Self {
            about,
            verdict: Verdict::Good,
            text: text.into(),
            fix: None,
        }
    }

    fn note(about: &'static str, text: impl Into<String>, fix: impl Into<Hint>) -> Self {
        Self {
            verdict: Verdict::Note,
            fix: Some(fix.into()),
            ..Self::good(about, text)
        }
    }

    fn bad(about: &'static str, text: impl Into<String>, fix: impl Into<Hint>) -> Self {
        Self {
            verdict: Verdict::Bad,
            fix: Some(fix.into()),
            ..Self::good(about, text)
        }
    }
}

/// Runs all checks for a notebook, which need not exist yet, in the order in which their subjects
/// are needed.
///
/// Starts no kernel, but runs interpreters, the program of the kernelspec and git. `on_server` has the checks of the
/// server of the notebook's kernel, if it runs on one.
pub fn examine(
    notebook: &Path,
    variables: &dyn Variables,
    on_server: Option<Vec<Check>>,
) -> Vec<Check> {
    let mut checks = vec![machine::shell(), installed::own_program(variables)];
    checks.extend(machine::processes());
    checks.push(machine::sockets(variables));
    checks.extend(machine::folders(notebook, variables));
    checks.push(notebooks::project(notebook));
    match on_server {
        Some(on_server) => checks.extend(on_server),
        None => {
            checks.extend(notebooks::kernel(notebook, variables));
            checks.extend(notebooks::sql(notebook, variables));
        }
    }
    checks.extend(installed::spec(variables));
    checks.extend(machine::logout());
    checks.push(machine::sandbox());
    checks.extend(machine::written(variables));
    checks.extend(notebooks::tracked(notebook));
    checks.extend(machine::editors(variables));
    checks.extend(vscode::extension(notebook, variables));
    checks.extend(jupyterlab::extension(variables));
    checks.extend(machine::rooms(notebook, variables));
    checks
}

/// Checks the server of a notebook's kernel; `None` if the kernel runs on this machine.
pub async fn examine_server(notebook: &Path) -> Option<Vec<Check>> {
    server::checks(notebook).await
}
