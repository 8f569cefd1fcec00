//! The versions of a cell, and deleted cells: `log` lists them, and `restore` brings them back.

use std::path::PathBuf;

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::columns;
use super::envelope::Answer;
use super::problem::editing::of_selection;
use super::problem::{Problem, ProblemKind};
use super::time::moment;
use crate::activity::actor::Actor;
use crate::editing::history::{self, CellVersion, Deleted, NotSelected, Selected};
use crate::editing::notebook_file::NotebookFile;
use crate::editing::view;
use crate::hint;
use crate::hint::{Hint, Verb, nb};
use crate::notebook::{
    Cell, CellSelector, CellType, ChangeKind, DiffHunk, Document, Revision, diff_sources,
};

/// How many characters of a version's first line are shown.
const FIRST_LINE: usize = 80;

/// Which cell's versions are listed.
#[derive(Clone, Debug)]
pub struct VersionsRequest {
    /// The cell; a deleted one by its id.
    pub cell: CellSelector,
    /// The largest number of versions, counted from the newest; 0 is all.
    pub count: usize,
}

/// The versions of a cell.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VersionsAnswer {
    /// The notebook's key in its project.
    pub notebook: String,
    /// Its file.
    pub path: PathBuf,
    /// Its revision.
    pub revision: Revision,
    /// The cell's id.
    pub cell: String,
    /// Whether the cell was deleted.
    pub deleted: bool,
    /// Its versions, the oldest first.
    pub versions: Vec<ListedVersion>,
    /// The path as it was named.
    #[serde(skip)]
    pub named: PathBuf,
}

impl Answer for VersionsAnswer {}

/// A version of a cell, and how it begins.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListedVersion {
    /// The version.
    #[serde(flatten)]
    pub version: CellVersion,
    /// Its first line; none where it is not kept any more.
    pub first_line: Option<String>,
}

/// Which deleted cells are listed.
#[derive(Clone, Debug, Default)]
pub struct DeletedCellsRequest {
    /// Only cells that this actor deleted.
    pub by: Option<String>,
    /// The largest number of cells, counted from the newest; 0 is all.
    pub count: usize,
}

/// The cells that were deleted and can be brought back.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeletedCellsAnswer {
    /// The notebook's key in its project.
    pub notebook: String,
    /// Its file.
    pub path: PathBuf,
    /// Its revision.
    pub revision: Revision,
    /// The cells, the oldest deletion first.
    pub deleted: Vec<DeletedCell>,
}

impl Answer for DeletedCellsAnswer {}

/// A deleted cell, and how it began.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeletedCell {
    /// The cell.
    #[serde(flatten)]
    pub cell: Deleted,
    /// Its first line; none where it is not kept any more.
    pub first_line: Option<String>,
}

/// Which two texts of a cell are compared.
#[derive(Clone, Debug)]
pub struct SourceDiffRequest {
    /// The cell's id; it may be deleted.
    pub cell: String,
    /// The earlier version; none where the cell was not there.
    pub before: Option<Revision>,
    /// The later text.
    pub after: DiffedSource,
}

/// The later text of a comparison.
#[derive(Clone, Debug)]
pub enum DiffedSource {
    /// None: the cell was deleted.
    Nothing,
    /// That of a version.
    Version(Revision),
    /// One that the notebook does not have.
    Text(String),
}

/// The lines in which two texts of a cell differ.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SourceDiffAnswer {
    /// The cell's id.
    pub cell: String,
    /// The lines that differ, and a few around them.
    pub source: Vec<DiffHunk>,
}

impl Answer for SourceDiffAnswer {}

/// Compares two texts of a cell by lines.
///
/// # Errors
/// The notebook cannot be read, or a version is not kept any more.
pub async fn source_diff(
    caller: &Caller,
    request: SourceDiffRequest,
) -> Result<SourceDiffAnswer, Problem> {
    let file = caller.notebook_file().await?;
    blocking(caller, move |caller| {
        let document = view::open(&file, caller.by())?.document;
        let stored = |revision: Revision| {
            let now = of_revision(&document, revision).map(|cell| cell.source().into_owned());
            let source = now.or_else(|| history::version_source(&file, revision));
            source.ok_or_else(|| {
                let text = format!("version {revision} of the cell is not kept any more");
                Problem::new(ProblemKind::Failed, text)
            })
        };
        let before = request.before.map(stored).transpose()?;
        let after = match request.after {
            DiffedSource::Nothing => None,
            DiffedSource::Version(revision) => Some(stored(revision)?),
            DiffedSource::Text(text) => Some(text),
        };
        Ok(SourceDiffAnswer {
            cell: request.cell,
            source: diff_sources(before.as_deref(), after.as_deref()),
        })
    })
    .await
}

/// Lists the versions of one cell.
///
/// # Errors
/// The notebook cannot be read, or such a cell never existed.
pub async fn cell_versions(
    caller: &Caller,
    request: VersionsRequest,
) -> Result<VersionsAnswer, Problem> {
    let file = caller.notebook_file().await?;
    let (selector, count) = (request.cell, request.count);
    blocking(caller, move |caller| {
        let document = view::open(&file, caller.by())?.document;
        let deleted = history::deleted(&file, &document);
        let (cell, deleted) = match history::select(&document, &deleted, &selector) {
            Ok(Selected::Present(index)) => (document.cells()[index].id().to_owned(), false),
            Ok(Selected::Deleted(deleted)) => (deleted.cell.clone(), true),
            Err(NotSelected { source, .. }) => {
                let problem = of_selection(&source, &source.to_string());
                return Err(problem.more_lines(&deleted_lines(&file, &document, &deleted)));
            }
        };
        let mut versions = history::versions(&file, &document, &cell);
        if count > 0 {
            versions.drain(..versions.len().saturating_sub(count));
        }
        Ok(VersionsAnswer {
            versions: listed(&file, &document, versions),
            revision: document.revision(),
            cell,
            deleted,
            notebook: file.key,
            path: file.real,
            named: file.path,
        })
    })
    .await
}

/// Lists the deleted cells that can be restored.
///
/// # Errors
/// The notebook cannot be read.
pub async fn deleted_cells(
    caller: &Caller,
    request: DeletedCellsRequest,
) -> Result<DeletedCellsAnswer, Problem> {
    let file = caller.notebook_file().await?;
    let (by, count) = (request.by, request.count);
    blocking(caller, move |caller| {
        let document = view::open(&file, caller.by())?.document;
        let mut cells = history::deleted(&file, &document);
        if let Some(name) = &by {
            let actor = Actor::from(&**name);
            let is_meant = |by: &str| actor.is_same(&by.into());
            cells.retain(|it| it.by.as_deref().is_some_and(is_meant));
        }
        if count > 0 {
            cells.truncate(count);
        }
        cells.reverse();
        let deleted = cells.into_iter().map(|cell| DeletedCell {
            first_line: first_line(&file, &document, &cell.cell, cell.revision),
            cell,
        });
        Ok(DeletedCellsAnswer {
            deleted: deleted.collect(),
            revision: document.revision(),
            notebook: file.key,
            path: file.real,
        })
    })
    .await
}

/// Returns versions of a cell, each with its first line.
pub(super) fn listed(
    file: &NotebookFile,
    document: &Document,
    versions: Vec<CellVersion>,
) -> Vec<ListedVersion> {
    let versions = versions.into_iter().map(|version| ListedVersion {
        first_line: version
            .revision
            .and_then(|revision| first_line(file, document, "", revision)),
        version,
    });
    versions.collect()
}

/// Returns a line for each version of a cell: its time, its author, the change, its revision and its first
/// line.
pub fn version_lines(versions: &[ListedVersion]) -> Vec<String> {
    let rows = versions.iter().map(|listed| {
        let version = &listed.version;
        let revision = version.revision.map(|it| it.to_string());
        let op = version.op.as_deref().map(|op| format!("op {op}"));
        [
            version.at.map_or_else(|| "before".to_owned(), moment),
            version.by.clone().unwrap_or_default(),
            description(version),
            revision.unwrap_or_default(),
            op.unwrap_or_default(),
            listed.first_line.clone().unwrap_or_default(),
        ]
    });
    columns::lines(&rows.collect::<Vec<_>>())
}

/// Returns a line for a deleted cell: its id, its last revision, when it was deleted and by whom.
pub fn deleted_line(cell: &Deleted, first_line: Option<&str>) -> String {
    let by = cell.by.as_deref().map(|by| format!(" by {by}"));
    let line = first_line.filter(|line| !line.is_empty());
    format!(
        "{}@{} (deleted{} {}){}",
        cell.cell,
        cell.revision,
        by.unwrap_or_default(),
        moment(cell.at),
        line.map(|line| format!(": {line}")).unwrap_or_default()
    )
}

/// Returns a line for each deleted cell.
pub(super) fn deleted_lines(
    file: &NotebookFile,
    document: &Document,
    cells: &[Deleted],
) -> Vec<String> {
    let lines = cells.iter().map(|cell| {
        let line = first_line(file, document, &cell.cell, cell.revision);
        deleted_line(cell, line.as_deref())
    });
    lines.collect()
}

/// Returns the hint for a version that is needed but not stored.
pub(super) fn not_kept(file: &NotebookFile) -> Hint {
    match file.project.objects() {
        None => {
            "no versions of cells are kept here: journal.code = false in .nb/config.toml".into()
        }
        Some(_) => hint![
            nb(Verb::Log).notebook(&file.path).word("CELL"),
            " lists what is kept of a cell; ",
            nb(Verb::Restore),
            " brings it back"
        ],
    }
}

fn description(version: &CellVersion) -> String {
    let verb = match version.kind {
        None => "was there",
        Some(ChangeKind::Inserted) => "inserted",
        Some(ChangeKind::Edited) => "edited",
        Some(ChangeKind::Removed) => "removed",
        Some(ChangeKind::Moved) => "moved",
        Some(ChangeKind::Outputs) => "outputs",
        Some(ChangeKind::Nothing) => "nothing",
    };
    match (version.command.as_deref(), &version.op) {
        (Some(command @ ("undo" | "restore")), _) => format!("{verb} by {command}"),
        (_, None) if version.at.is_some() => format!("{verb} by a save"),
        _ => verb.to_owned(),
    }
}

/// Returns the cell that has this revision now.
fn of_revision(document: &Document, revision: Revision) -> Option<&Cell> {
    document.cells().iter().find(|it| it.revision() == revision)
}

/// Returns the first line of a version of a cell; `None` if the version is no longer stored.
fn first_line(
    file: &NotebookFile,
    document: &Document,
    cell: &str,
    revision: Revision,
) -> Option<String> {
    if let Some(now) = of_revision(document, revision) {
        return Some(now.first_line(FIRST_LINE));
    }
    let json = history::version(file, revision)?;
    let version = Document::of_cells([(cell, &json)]).ok()?;
    let cell = version.cells().first()?;
    let line = cell.first_line(FIRST_LINE);
    Some(match cell.cell_type() {
        CellType::Code => line,
        other => format!("{other}: {line}"),
    })
}
