//! `adopt`: lists what a stranger's `.nb` holds, or takes over its history.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::envelope::Answer;
use super::problem::{Problem, ProblemKind};
use crate::kernel::shell::quote;
use crate::project::adopt;
pub use crate::project::adopt::{Adopted, FolderEntry};
use crate::project::{Project, Status};

/// The `.nb` folder that the request is about, and what to do with it.
#[derive(Clone, Debug, Default)]
pub struct AdoptRequest {
    /// The folder that holds the `.nb`, or a notebook below it; the working directory if left out.
    pub folder: Option<PathBuf>,
    /// Whether the `.nb` is set aside and its history taken over.
    pub take: bool,
}

/// What a stranger's `.nb` holds, or what was taken over of it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum AdoptAnswer {
    /// It was only looked at.
    Holds {
        /// The `.nb`.
        dir: PathBuf,
        /// What is in it.
        holds: Vec<FolderEntry>,
    },
    /// Its history was taken over.
    Adopted(Adopted),
}

impl Answer for AdoptAnswer {}

/// Lists what a stranger's `.nb` holds, or takes over its history.
///
/// # Errors
/// No `.nb` here is a stranger's, notebooks are open in the folder, or files cannot be moved.
pub async fn adopt(caller: &Caller, request: AdoptRequest) -> Result<AdoptAnswer, Problem> {
    let from = request.folder.unwrap_or_else(|| caller.working_dir.clone());
    blocking(caller, move |_| {
        let Some(dir) = Project::ignored_folder(&from) else {
            let text = format!(
                "there is nothing to adopt: no .nb at or above {} is a stranger's",
                from.display()
            );
            return Err(Problem::new(ProblemKind::Failed, text));
        };
        let failed = |action: &str, error: &io::Error| {
            Problem::failed(&format!("{action} {}", dir.display()), error)
        };
        if !request.take {
            let holds = adopt::entries(&dir).map_err(|error| failed("list", &error))?;
            return Ok(AdoptAnswer::Holds { dir, holds });
        }
        refuse_while_open(&from, &dir)?;
        let adopted = adopt::adopt(&dir).map_err(|error| failed("adopt", &error))?;
        Ok(AdoptAnswer::Adopted(adopted))
    })
    .await
}

/// Refuses while notebooks are open here: their kernels are recorded in a `.nb` that `nb` no longer finds
/// once the stranger's folder is adopted.
fn refuse_while_open(from: &Path, dir: &Path) -> Result<(), Problem> {
    let project = Project::find(from).filter(|it| it.foreign() == Some(dir));
    let sessions = project.and_then(|project| Some(project.state().ok()?.sessions));
    let open: Vec<_> = sessions
        .into_iter()
        .flatten()
        .filter(|(_, it)| !matches!(it.status, Status::Stopped | Status::Died))
        .collect();
    if open.is_empty() {
        return Ok(());
    }
    let text = format!(
        "{} notebooks are open here: end their kernels first",
        open.len()
    );
    let hints = open
        .iter()
        .map(|(_, it)| format!("nb shutdown {}", quote(&it.notebook)));
    Err(Problem::new(ProblemKind::Refused, text).all_hints(hints))
}
