//! `adopt`: what a `.nb` holds that this user's `nb` did not make, and taking over its history.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::envelope::Answer;
use super::problem::{Problem, ProblemKind};
use crate::kernel::shell::quote;
use crate::project::adopt::{self, Held};
use crate::project::{Project, Status};

/// Which `.nb` is meant, and what to do with it.
#[derive(Clone, Debug, Default)]
pub struct AdoptRequest {
    /// The folder that holds it, or a notebook below; the working directory if left out.
    pub folder: Option<PathBuf>,
    /// Set it aside, and take over its history.
    pub take: bool,
}

/// What a stranger's `.nb` holds, or what was taken over of it.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum AdoptAnswer {
    /// It was only looked at.
    Holds {
        /// The `.nb`.
        dir: PathBuf,
        /// What is in it.
        holds: Vec<HeldEntry>,
    },
    /// Its history was taken over.
    Adopted {
        /// The `.nb` that was made.
        dir: PathBuf,
        /// Where the stranger's is now.
        set_aside: PathBuf,
        /// How many entries of the journal were taken over.
        entries: usize,
        /// How many files of earlier versions.
        versions: usize,
    },
}

impl Answer for AdoptAnswer {}

/// One thing in a stranger's `.nb`.
#[derive(Clone, Debug, Serialize)]
pub struct HeldEntry {
    /// Its name.
    pub name: String,
    /// What it is: `file`, `folder`, `link`, `other`.
    pub kind: &'static str,
    /// How many bytes a file has.
    pub bytes: u64,
    /// Whether it would be taken over.
    pub taken_over: bool,
}

impl From<Held> for HeldEntry {
    fn from(held: Held) -> Self {
        Self {
            name: held.name,
            kind: held.kind,
            bytes: held.bytes,
            taken_over: held.is_taken_over,
        }
    }
}

/// Tells what a stranger's `.nb` holds, or takes over its history.
///
/// # Errors
/// There is none, notebooks are open in the folder, or files cannot be moved.
pub async fn adopt(caller: &Caller, request: AdoptRequest) -> Result<AdoptAnswer, Problem> {
    let from = request.folder.unwrap_or_else(|| caller.here.clone());
    blocking(move || {
        let Some(dir) = Project::passed_over(&from) else {
            let text = format!(
                "there is nothing to adopt: no .nb at or above {} is a stranger's",
                from.display()
            );
            return Err(Problem::new(ProblemKind::Failed, text));
        };
        let failed = |what: &str, error: &io::Error| {
            Problem::failed(&format!("{what} {}", dir.display()), error)
        };
        if !request.take {
            let held = adopt::held(&dir).map_err(|error| failed("list", &error))?;
            let holds = held.into_iter().map(HeldEntry::from).collect();
            return Ok(AdoptAnswer::Holds { dir, holds });
        }
        refuse_while_open(&from, &dir)?;
        let done = adopt::adopt(&dir).map_err(|error| failed("adopt", &error))?;
        Ok(AdoptAnswer::Adopted {
            dir: done.dir,
            set_aside: done.set_aside,
            entries: done.entries,
            versions: done.versions,
        })
    })
    .await
}

/// The kernels that were started meanwhile are recorded elsewhere, where nobody would look any more.
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
    let problem = Problem::new(ProblemKind::Refused, text);
    Err(hints.fold(problem, Problem::hint))
}
