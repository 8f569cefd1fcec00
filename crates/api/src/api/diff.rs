//! `diff`: compares two versions of a notebook, cell by cell.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::envelope::Answer;
use super::problem::{Problem, ProblemKind, causes};
use super::time::moment;
use crate::editing::earlier_notebook::{self, EarlierError, EarlierNotebook, PastRevision};
use crate::editing::git::GitError;
use crate::editing::notebook_file::NotebookFile;
use crate::editing::seen::SeenCells;
use crate::editing::view::{self, View};
use crate::hint;
use crate::hint::{Verb, nb};
use crate::notebook::{CellDiff, CellSide, Document, FieldDiff, Revision, diff, diff_metadata};

/// Which versions are compared.
#[derive(Clone, Debug, Default)]
pub struct DiffRequest {
    /// The earlier version.
    pub before: DiffBase,
}

/// What a notebook is compared with.
#[derive(Clone, Debug, Default)]
pub enum DiffBase {
    /// The version that the caller saw last, if it is an agent that has seen cells of the notebook; else
    /// git's HEAD.
    #[default]
    Unnamed,
    /// The version that the caller saw last.
    Seen,
    /// The version in this git commit, branch or tag.
    Git(String),
    /// The notebook at this revision.
    Revision(String),
    /// Another notebook, which is the later one.
    Until(PathBuf),
}

/// What differs.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiffAnswer {
    /// The later notebook's key in its project.
    pub notebook: String,
    /// Its file.
    pub path: PathBuf,
    /// Its revision.
    pub revision: Revision,
    /// What it is compared with.
    pub before: DiffBefore,
    /// The cells that differ.
    pub cells: Vec<CellDiff>,
    /// What differs of the notebook's metadata.
    pub metadata: Vec<FieldDiff>,
}

impl Answer for DiffAnswer {}

/// What a notebook was compared with.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiffBefore {
    /// The words for it: `revision 9f8e7d6c5b`, `git HEAD (3f2c1a9)`.
    pub name: String,
    /// Its revision.
    pub revision: Revision,
    /// Whether its outputs are known.
    pub outputs: bool,
    /// The cells whose earlier version is not known.
    pub unknown: Vec<String>,
    /// Why it is not known.
    pub why_unknown: &'static str,
}

/// Compares a notebook with an earlier version, or with another notebook. Cells that are shown whole count
/// as seen by the caller.
///
/// # Errors
/// A notebook cannot be read, or the earlier version is not known.
pub async fn diff_notebooks(caller: &Caller, request: DiffRequest) -> Result<DiffAnswer, Problem> {
    let file = caller.notebook_file().await?;
    blocking(caller, move |caller| {
        // When another notebook is given, this one is the earlier side.
        let (file, first) = match &request.before {
            DiffBase::Until(other) => (NotebookFile::of(other)?, Some(file)),
            _ => (file, None),
        };
        let view = view::open(&file, caller.by())?;
        let earlier = match &first {
            Some(first) => EarlierNotebook::whole(view::open(first, caller.by())?.document),
            None => earlier_version(caller, &file, &view.document, &request.before)?,
        };
        let answer = answer(&file, earlier, &view.document);
        mark_seen(caller, &file, view, &answer.cells);
        Ok(answer)
    })
    .await
}

/// Compares a notebook with the result of an edit that was not written.
pub(crate) fn diff_documents(
    file: &NotebookFile,
    before: Document,
    after: &Document,
) -> DiffAnswer {
    answer(file, EarlierNotebook::whole(before), after)
}

fn answer(file: &NotebookFile, earlier: EarlierNotebook, now: &Document) -> DiffAnswer {
    let metadata = match earlier.has_outputs {
        true => diff_metadata(&earlier.document, now),
        false => Vec::new(),
    };
    DiffAnswer {
        notebook: file.key.clone(),
        path: file.real.clone(),
        revision: now.revision(),
        cells: diff(&earlier.document, now, earlier.has_outputs),
        metadata,
        before: DiffBefore {
            name: earlier.name,
            revision: earlier.document.revision(),
            outputs: earlier.has_outputs,
            unknown: earlier.unknown,
            why_unknown: earlier.why_unknown,
        },
    }
}

fn earlier_version(
    caller: &Caller,
    file: &NotebookFile,
    now: &Document,
    before: &DiffBase,
) -> Result<EarlierNotebook, Problem> {
    let seen = || earlier_notebook::as_seen(file, now, caller.by());
    let found = match before {
        DiffBase::Revision(revision) => earlier_notebook::at_revision(file, now, revision),
        DiffBase::Git(reference) => earlier_notebook::in_git(file, reference),
        DiffBase::Seen => {
            let unseen = || {
                let name = caller.actor.name();
                let message = format!("{name} has seen no cell of {} yet", file.key);
                Problem::new(ProblemKind::Failed, message).hint(hint![
                    nb(Verb::Cell),
                    " shows cells; ",
                    nb(Verb::Diff).option("--git"),
                    " compares with git"
                ])
            };
            return seen().ok_or_else(unseen);
        }
        DiffBase::Unnamed | DiffBase::Until(_) => {
            // A person sees the notebook in an editor, which `nb` cannot observe.
            let is_person = caller.is_person || caller.actor.is_human();
            if let Some(earlier) = (!is_person).then(seen).flatten() {
                return Ok(earlier);
            }
            return earlier_notebook::in_git(file, "HEAD").map_err(|error| {
                problem(&error, file).hint(hint![
                    nb(Verb::Diff).notebook(&file.path).word("REVISION"),
                    " compares with an earlier one; ",
                    nb(Verb::Log).notebook(&file.path),
                    " lists them"
                ])
            });
        }
    };
    found.map_err(|error| problem(&error, file))
}

/// Marks cells of the later side as seen: those that are shown whole, and those whose earlier version the
/// caller had seen.
fn mark_seen(caller: &Caller, file: &NotebookFile, view: View<'_>, cells: &[CellDiff]) {
    let seen = SeenCells::of(file, caller.by());
    for diff in cells {
        let Some(after) = &diff.after else { continue };
        let Some(cell) = view.document.cells().get(after.index) else {
            continue;
        };
        let lines = cell.source().split('\n').count();
        let shown: usize = diff.source.iter().map(|hunk| hunk.lengths().1).sum();
        let had_seen = |before: &CellSide| seen.has(&diff.cell, before.revision);
        if shown >= lines || diff.before.as_ref().is_some_and(had_seen) {
            view.shown(cell);
        }
    }
    caller.has_shown(view);
}

fn revision_lines(list: &[PastRevision]) -> Vec<String> {
    let lines = list.iter().map(|past| {
        let by = past.by.as_deref().map(|by| format!(" by {by}"));
        match past.at {
            Some(at) => {
                let at = moment(at);
                format!("{} (since {at}{})", past.revision, by.unwrap_or_default())
            }
            None => past.revision.to_string(),
        }
    });
    lines.collect()
}

fn problem(error: &EarlierError, file: &NotebookFile) -> Problem {
    let problem = Problem::new(ProblemKind::Failed, causes(error));
    let git = nb(Verb::Diff).notebook(&file.path).option("--git");
    match error {
        EarlierError::NoSuchRevision { prefix, last } => problem
            .lines(&revision_lines(last))
            .hint(hint![git.word(&**prefix), " compares with git's"]),
        EarlierError::Ambiguous { candidates, .. } => problem
            .lines(&revision_lines(candidates))
            .hint("give more of it"),
        EarlierError::Unknown(_) => problem.hint(hint![git, " compares with git's HEAD"]),
        EarlierError::Git(GitError::NotThere { path, .. }) => {
            problem.hint(hint!["git add ", Path::new(path)])
        }
        EarlierError::Git(_) | EarlierError::NotANotebook { .. } => problem,
    }
}
