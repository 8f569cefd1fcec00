//! The versions of a cell, and deleted cells, as lines.

use serde::Serialize;

use super::columns;
use super::time::moment;
use crate::editing::history::{self, CellVersion, Deleted};
use crate::editing::notebook_file::NotebookFile;
use crate::kernel::shell::quote;
use crate::notebook::{CellType, Document, Revision};

/// How much of a version's first line is shown.
const FIRST_LINE: usize = 80;

/// Returns a line for each version of a cell, oldest first: when, who, what, its revision, how it
/// begins.
pub(crate) fn lines(
    page: &NotebookFile,
    document: &Document,
    versions: &[CellVersion],
) -> Vec<String> {
    let rows: Vec<_> = versions
        .iter()
        .map(|version| {
            let revision = version.revision.map(|it| it.to_string());
            let op = version.op.as_deref().map(|op| format!("op {op}"));
            [
                version.at.map_or_else(|| "before".to_owned(), moment),
                version.by.clone().unwrap_or_default(),
                what(version),
                revision.unwrap_or_default(),
                op.unwrap_or_default(),
                begins(page, document, version).unwrap_or_default(),
            ]
        })
        .collect();
    let lines = columns::lines(&rows).into_iter();
    lines.map(|line| line.trim_end().to_owned()).collect()
}

/// A version of a cell, and how it begins.
#[derive(Clone, Debug, Serialize)]
pub struct ListedVersion {
    /// The version.
    #[serde(flatten)]
    pub version: CellVersion,
    /// Its first line; none where it is not kept any more.
    pub first_line: Option<String>,
}

/// Returns the versions of a cell, each with its first line.
pub(crate) fn listed(
    page: &NotebookFile,
    document: &Document,
    versions: Vec<CellVersion>,
) -> Vec<ListedVersion> {
    let versions = versions.into_iter().map(|version| ListedVersion {
        first_line: begins(page, document, &version),
        version,
    });
    versions.collect()
}

/// Returns a line for each deleted cell: its id, its last revision, when and by whom it went.
pub(crate) fn deleted(
    page: &NotebookFile,
    document: &Document,
    deleted: &[Deleted],
) -> Vec<String> {
    let lines = deleted.iter().map(|it| {
        let by = it.by.as_deref().map(|by| format!(" by {by}"));
        let line = first_line(page, document, &it.cell, it.revision);
        let line = line.filter(|line| !line.is_empty());
        format!(
            "{}@{} (deleted{} {}){}",
            it.cell,
            it.revision,
            by.unwrap_or_default(),
            moment(it.at),
            line.map(|line| format!(": {line}")).unwrap_or_default()
        )
    });
    lines.collect()
}

/// Returns what helps where a version is needed that is not kept.
pub(crate) fn not_kept(page: &NotebookFile) -> String {
    match page.project.objects() {
        None => {
            "no versions of cells are kept here: journal.code = false in .nb/config.toml".to_owned()
        }
        Some(_) => {
            let notebook = quote(&page.path);
            format!(
                "nb log {notebook} CELL lists what is kept of a cell; nb restore brings it back"
            )
        }
    }
}

fn what(version: &CellVersion) -> String {
    use crate::notebook::ChangeKind;
    let word = match version.what {
        None => "was there",
        Some(ChangeKind::Inserted) => "inserted",
        Some(ChangeKind::Edited) => "edited",
        Some(ChangeKind::Removed) => "removed",
        Some(ChangeKind::Moved) => "moved",
        Some(ChangeKind::Outputs) => "outputs",
        Some(ChangeKind::Nothing) => "nothing",
    };
    match (version.deed.as_deref(), &version.op) {
        (Some(deed @ ("undo" | "restore")), _) => format!("{word} by {deed}"),
        (_, None) if version.at.is_some() => format!("{word} by a save"),
        _ => word.to_owned(),
    }
}

fn begins(page: &NotebookFile, document: &Document, version: &CellVersion) -> Option<String> {
    first_line(page, document, "", version.revision?)
}

/// Returns how a version of a cell begins; none where it is not kept any more.
fn first_line(
    page: &NotebookFile,
    document: &Document,
    cell: &str,
    revision: Revision,
) -> Option<String> {
    let now = document.cells().iter().find(|it| it.revision() == revision);
    if let Some(now) = now {
        return Some(now.first_line(FIRST_LINE));
    }
    let json = history::version(page, revision)?;
    let version = Document::of_cells([(cell, &json)]).ok()?;
    let cell = version.cells().first()?;
    let line = cell.first_line(FIRST_LINE);
    Some(match cell.cell_type() {
        CellType::Code => line,
        other => format!("{other}: {line}"),
    })
}
