//! `mv`: moves a notebook with its kernel and its history.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::caller::Caller;
use super::envelope::Answer;
use super::problem::{Problem, ProblemKind, causes};
use crate::editing::transaction::RenameError;
use crate::hint;
use crate::hint::{Joint, Verb, nb};
use crate::lifecycle::move_notebook::{MoveError, move_notebook};

/// Which notebook is moved, and where to.
#[derive(Clone, Debug)]
pub struct MoveRequest {
    /// The notebook.
    pub from: PathBuf,
    /// Its new path, or the folder that it is moved into.
    pub to: PathBuf,
}

/// A notebook that was moved.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MoveAnswer {
    /// The notebook's key in its project now.
    pub notebook: String,
    /// Its key before.
    pub from: String,
    /// Its file now.
    pub path: PathBuf,
    /// Whether another program had renamed the file before, so that only its kernel and history were moved.
    pub was_renamed: bool,
    /// The process of its kernel, if one runs.
    pub kernel_pid: Option<u32>,
    /// Whether its kernel runs.
    pub kernel_runs: bool,
    /// What front ends show of it.
    pub notes: Vec<String>,
}

impl Answer for MoveAnswer {}

/// Moves a notebook with its kernel and its history, within its project.
///
/// # Errors
/// There is no such notebook, the new path is taken or in another project, or a file cannot be written.
pub async fn move_to(caller: &Caller, request: MoveRequest) -> Result<MoveAnswer, Problem> {
    let timeout = caller.kernel_timeout(None)?;
    let (from, to) = (
        caller.working_dir.join(&request.from),
        caller.working_dir.join(&request.to),
    );
    let moved = move_notebook(&from, &to, caller.by(), timeout)
        .await
        .map_err(|error| problem(error, &request, &caller.working_dir))?;
    caller.set_target_notebook(&moved.project, &moved.to);
    Ok(MoveAnswer {
        path: moved.project.notebook(&moved.to),
        notebook: moved.to,
        from: moved.from,
        was_renamed: moved.was_renamed,
        kernel_pid: moved.kernel_pid,
        kernel_runs: moved.kernel_runs,
        notes: moved.notes,
    })
}

fn problem(error: MoveError, request: &MoveRequest, working_dir: &Path) -> Problem {
    let (from, to) = (&*request.from, &*request.to);
    let mv = || nb(Verb::Mv).word(from);
    // As the paths were typed.
    let message = causes(&error).replace(&format!("{}/", working_dir.display()), "");
    let is = |kind| Problem::new(kind, message.clone());
    match &error {
        MoveError::Name(_) | MoveError::Same(_) | MoveError::NoFolder(_) => {
            is(ProblemKind::Usage).hint("nb mv FROM.ipynb TO.ipynb | nb mv FROM.ipynb FOLDER")
        }
        MoveError::Missing(_) => {
            is(ProblemKind::Failed).hint(hint![nb(Verb::Status), " lists the notebooks"])
        }
        MoveError::Link { to: real, .. } => {
            is(ProblemKind::Refused).hint(nb(Verb::Mv).word(&**real).word(to))
        }
        MoveError::OtherProject { .. } => is(ProblemKind::Refused).hint(hint![
            "without them: ",
            nb(Verb::Shutdown).notebook(from),
            Joint::And,
            "mv ",
            from,
            " ",
            to,
            ", then ",
            nb(Verb::Open).notebook(to)
        ]),
        MoveError::HasKernel(path) => {
            let new = path.strip_prefix(working_dir).unwrap_or(path);
            let end = nb(Verb::Shutdown).notebook(new);
            is(ProblemKind::Refused).hint(hint![end, Joint::And, mv().word(new)])
        }
        MoveError::Another { .. } => is(ProblemKind::Refused).hint(hint![
            "its kernel alone: ",
            nb(Verb::Open).notebook(to).option("--kernel-of").word(from)
        ]),
        MoveError::Rename(RenameError::Exists(_)) => is(ProblemKind::Refused).hint(hint![
            mv().word("ANOTHER.ipynb"),
            ", or move that file away first"
        ]),
        MoveError::Rename(RenameError::Record(_)) => {
            is(ProblemKind::Failed).hint(hint!["again, for the history: ", mv().word(to)])
        }
        MoveError::Rename(_) | MoveError::Project(_) | MoveError::Path { .. } => {
            is(ProblemKind::Failed)
        }
        MoveError::File(_) | MoveError::Open(_) => match error {
            MoveError::File(error) => error.into(),
            MoveError::Open(error) => error.into(),
            _ => is(ProblemKind::Failed),
        },
    }
}
