//! Restores an earlier version of a cell, or a deleted cell.

use super::past::manifest_at;
use super::record::EditCommand;
use super::versions::{
    CellVersion, Deleted, NotSelected, PREFIX_CHARS_MIN, Selected, deleted, json_of, select,
    versions,
};
use crate::editing::edit::{self, EditError, EditOutcome, Editor};
use crate::editing::notebook_file::{NotebookFile, NotebookFileError};
use crate::editing::unseen::EditBasis;
use crate::editing::view;
use crate::notebook::{
    Cell, CellChange, CellSelector, Document, Json, Revision, SelectError, position_beside,
};

/// The number of deleted cells in an error message.
const MOST_NEAR: usize = 5;

/// The result of a restore.
#[derive(Debug)]
pub struct Restored {
    /// The cell's id.
    pub cell: String,
    /// The cell's revision, which is an earlier one again.
    pub revision: Revision,
    /// The earlier version.
    pub version: CellVersion,
    /// Whether the cell was deleted and is there again.
    pub was_deleted: bool,
    /// The edit that restored it.
    pub done: EditOutcome,
}

/// Why nothing was restored; the notebook is as it was.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The notebook could not be read.
    #[error(transparent)]
    NotebookFile(#[from] NotebookFileError),
    /// The selector matches no cell, neither in the notebook nor among the deleted ones.
    #[error("{source}")]
    NoSuchCell {
        /// Why it names none of the notebook's cells.
        source: SelectError,
        /// The cells that were deleted last.
        deleted: Vec<Deleted>,
    },
    /// Several deleted cells have ids that begin so.
    #[error("{prefix:?} is more than one deleted cell")]
    Ambiguous {
        /// The id asked for.
        prefix: String,
        /// All of them.
        candidates: Vec<Deleted>,
    },
    /// The cell has had no revision, or several, that begin so.
    #[error("{}", if *several { format!("cell {cell} has had several revisions that begin with {prefix:?}") } else { format!("cell {cell} has had no revision {prefix:?}") })]
    NoSuchVersion {
        /// The cell.
        cell: String,
        /// The revision asked for.
        prefix: String,
        /// Whether several begin so.
        several: bool,
        /// The cell's versions, oldest first.
        versions: Vec<CellVersion>,
    },
    /// The cell has no earlier version.
    #[error("cell {cell} is as it has always been, as far as nb knows")]
    NoEarlier {
        /// The cell.
        cell: String,
    },
    /// The version is not stored any more.
    #[error("what cell {cell} was as revision {revision} is not remembered any more")]
    Forgotten {
        /// The cell.
        cell: String,
        /// The revision.
        revision: Revision,
        /// The cell's versions, oldest first.
        versions: Vec<CellVersion>,
    },
    /// The notebook could not be edited.
    #[error(transparent)]
    Edit(#[from] EditError),
}

/// The version to restore, and its position.
struct VersionToRestore {
    cell: String,
    revision: Revision,
    version: CellVersion,
    json: Json,
    /// For a deleted cell: the ids of all cells before its deletion, and its position among them.
    deletion: Option<(Vec<String>, usize)>,
}

/// Restores a version of a cell: that of `revision`, which may be a prefix, or the one before the
/// present version. A deleted cell is selected by its id or a prefix of it; it gets its outputs back,
/// and its place beside its former neighbour.
///
/// # Errors
/// There is no such cell or version; the version is not stored any more; the cell is not what the
/// editor saw last; the notebook cannot be written.
pub fn restore(
    notebook: &NotebookFile,
    cell: &CellSelector,
    revision: Option<&str>,
    editor: &Editor,
) -> Result<Restored, RestoreError> {
    let document = view::open(notebook, &editor.by)?.document;
    let target = find_version(notebook, &document, cell, revision)?;
    let command = EditCommand {
        name: "restore".to_owned(),
        forced: editor.force,
        undoes: None,
    };
    let done = edit::change(
        notebook,
        editor,
        &command,
        &EditBasis::default(),
        |document| {
            let mut after = document.clone();
            let changed =
                put(&mut after, &target).map_err(|error| EditError::Other(error.into()))?;
            Ok((after, vec![changed]))
        },
    )?;
    Ok(Restored {
        was_deleted: target.deletion.is_some(),
        cell: target.cell,
        revision: target.revision,
        version: target.version,
        done,
    })
}

/// Returns the notebook before and after a [`restore`]. Nothing is written.
///
/// # Errors
/// Those of [`restore`], but for the writing.
pub fn preview_restore(
    notebook: &NotebookFile,
    cell: &CellSelector,
    revision: Option<&str>,
    editor: &Editor,
) -> Result<(Document, Document), RestoreError> {
    let document = view::open(notebook, &editor.by)?.document;
    let target = find_version(notebook, &document, cell, revision)?;
    let mut after = document.clone();
    put(&mut after, &target).map_err(|error| EditError::Other(error.into()))?;
    Ok((document, after))
}

fn put(
    document: &mut Document,
    target: &VersionToRestore,
) -> Result<CellChange, crate::notebook::DocumentEditError> {
    if let Some(at) = document.position_by_id(&target.cell) {
        return document.restore_version(at, &target.json);
    }
    let at = match &target.deletion {
        Some((order, _)) if !order.is_empty() => position_beside(document, order, &target.cell),
        Some((_, index)) => (*index).min(document.cells().len()),
        None => document.cells().len(),
    };
    document.restore_cell(at, &target.cell, &target.json)
}

/// Finds the version to restore.
fn find_version(
    notebook: &NotebookFile,
    document: &Document,
    cell: &CellSelector,
    revision: Option<&str>,
) -> Result<VersionToRestore, RestoreError> {
    let deleted = deleted(notebook, document);
    let (id, deletion) = match (select(document, &deleted, cell), cell) {
        (Ok(Selected::Present(index)), _) => {
            let cell = document.cells().get(index).expect("it was found just now");
            (cell.id().to_owned(), None)
        }
        (Ok(Selected::Deleted(deletion)), _) => (deletion.cell.clone(), Some(deletion)),
        (Err(NotSelected { candidates, .. }), CellSelector::Id(prefix))
            if !candidates.is_empty() =>
        {
            return Err(RestoreError::Ambiguous {
                prefix: prefix.clone(),
                candidates: candidates.into_iter().cloned().collect(),
            });
        }
        (Err(NotSelected { source, .. }), cell) => {
            let is_id = matches!(cell, CellSelector::Id(_));
            let deleted = deleted.iter().take(MOST_NEAR).filter(|_| is_id);
            return Err(RestoreError::NoSuchCell {
                source,
                deleted: deleted.cloned().collect(),
            });
        }
    };
    let versions = versions(notebook, document, &id);
    let now = document.cell_by_id(&id).map(Cell::revision);
    let is_candidate = |version: &CellVersion| match deletion {
        Some(deletion) => version.revision == Some(deletion.revision),
        None => version.revision.is_some() && version.revision != now,
    };
    let version = chosen(&id, &versions, revision, &is_candidate)?.clone();
    let revision = version.revision.expect("a chosen version has a revision");
    // If a later change removed its outputs, the version is stored with them.
    let mut later = versions.iter().rev();
    let prefix = revision.to_string();
    let kept = later.find_map(|it| it.kept.as_deref().filter(|kept| kept.starts_with(&prefix)));
    let Some(json) = json_of(notebook, revision, kept) else {
        return Err(RestoreError::Forgotten {
            cell: id,
            revision,
            versions,
        });
    };
    let deletion = deletion.map(|deletion| {
        let order = manifest_at(notebook, deletion.notebook).unwrap_or_default();
        let order = order.into_iter().map(|(id, _)| id);
        (order.collect(), deletion.index)
    });
    Ok(VersionToRestore {
        cell: id,
        revision,
        version,
        json,
        deletion,
    })
}

/// Returns the version of the given revision, or the last one for which `is_meant` is true.
fn chosen<'a>(
    cell: &str,
    versions: &'a [CellVersion],
    revision: Option<&str>,
    is_candidate: &dyn Fn(&CellVersion) -> bool,
) -> Result<&'a CellVersion, RestoreError> {
    let Some(prefix) = revision else {
        let last = versions.iter().rev().find(|version| is_candidate(version));
        let cell = cell.to_owned();
        return last.ok_or(RestoreError::NoEarlier { cell });
    };
    let prefix = prefix.to_lowercase();
    let matches = |version: &&CellVersion| {
        let revision = version.revision.map(|it| it.to_string());
        prefix.len() >= PREFIX_CHARS_MIN && revision.is_some_and(|it| it.starts_with(&prefix))
    };
    let found: Vec<_> = versions.iter().rev().filter(matches).collect();
    let several = found.iter().any(|it| it.revision != found[0].revision);
    match found.first() {
        Some(version) if !several => Ok(version),
        _ => Err(RestoreError::NoSuchVersion {
            cell: cell.to_owned(),
            prefix,
            several,
            versions: versions.to_vec(),
        }),
    }
}
