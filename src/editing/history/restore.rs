//! An earlier version of a cell, or a deleted cell, brought back.

use super::deed::Deed;
use super::past::manifest_at;
use super::versions::{
    CellVersion, Deleted, LEAST, NotSelected, Selected, deleted, json_of, select, versions,
};
use crate::editing::edit::{self, Done, EditError, Editor};
use crate::editing::notebook_file::{NotebookFile, NotebookFileError};
use crate::editing::view;
use crate::notebook::{
    CellChange, CellSelector, Document, Json, Revision, SelectError, position_beside,
};

/// So many deleted cells are suggested.
const MOST_NEAR: usize = 5;

/// What came of a restore.
#[derive(Debug)]
pub struct Restored {
    /// The cell's id.
    pub cell: String,
    /// The revision that it is again.
    pub revision: Revision,
    /// Where that comes from.
    pub version: CellVersion,
    /// Whether the cell was deleted and is there again.
    pub was_deleted: bool,
    /// What was done.
    pub done: Done,
}

/// Why nothing was brought back; the notebook is as it was.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The notebook could not be read.
    #[error(transparent)]
    NotebookFile(#[from] NotebookFileError),
    /// No cell is meant, of those that are there and of those that were.
    #[error("{source}")]
    NoSuchCell {
        /// What is there.
        source: SelectError,
        /// What was deleted last.
        deleted: Vec<Deleted>,
    },
    /// Several deleted cells have ids that begin so.
    #[error("{given:?} is more than one deleted cell")]
    Ambiguous {
        /// What was asked for.
        given: String,
        /// All of them.
        candidates: Vec<Deleted>,
    },
    /// The cell never had that revision, or several that begin so.
    #[error("{}", if *several { format!("cell {cell} has had several revisions that begin with {given:?}") } else { format!("cell {cell} has had no revision {given:?}") })]
    NoSuchVersion {
        /// The cell.
        cell: String,
        /// What was asked for.
        given: String,
        /// Whether more than one begin so.
        several: bool,
        /// Those that it has had, oldest first.
        versions: Vec<CellVersion>,
    },
    /// There is nothing before the present version.
    #[error("cell {cell} is as it has always been, as far as nb knows")]
    NoEarlier {
        /// The cell.
        cell: String,
    },
    /// The version is not kept any more.
    #[error("what cell {cell} was as revision {revision} is not remembered any more")]
    Forgotten {
        /// The cell.
        cell: String,
        /// The revision.
        revision: Revision,
        /// Those that it has had, oldest first.
        versions: Vec<CellVersion>,
    },
    /// The notebook could not be edited.
    #[error(transparent)]
    Edit(#[from] EditError),
}

/// What is to be brought back.
struct VersionToRestore {
    cell: String,
    revision: Revision,
    version: CellVersion,
    json: Json,
    /// Where a deleted cell goes: the ids of all cells when it was there, and its place.
    gone: Option<(Vec<String>, usize)>,
}

/// Makes a cell what it was: as `revision`, of which a beginning is enough, else as it was before
/// the present version. A deleted cell is named by its id or a beginning of it, and comes back with
/// its outputs, beside the cell that it stood beside.
///
/// # Errors
/// No such cell or version; it is not kept any more; the cell is not what the editor saw last; the
/// notebook cannot be written.
pub fn restore(
    page: &NotebookFile,
    cell: &CellSelector,
    revision: Option<&str>,
    editor: &Editor,
) -> Result<Restored, RestoreError> {
    let document = view::open(page, &editor.by)?.document;
    let wanted = wanted(page, &document, cell, revision)?;
    let deed = Deed {
        op: "restore".to_owned(),
        forced: editor.force,
        undoes: None,
    };
    let done = edit::change(page, editor, &deed, &[], |document| {
        let mut after = document.clone();
        let changed = put(&mut after, &wanted).map_err(|error| EditError::Other(error.into()))?;
        Ok((after, vec![changed]))
    })?;
    Ok(Restored {
        was_deleted: wanted.gone.is_some(),
        cell: wanted.cell,
        revision: wanted.revision,
        version: wanted.version,
        done,
    })
}

fn put(
    document: &mut Document,
    wanted: &VersionToRestore,
) -> Result<CellChange, crate::notebook::EditError> {
    let mut cells = document.cells().iter();
    if let Some(at) = cells.position(|cell| cell.id() == wanted.cell) {
        return document.restore_version(at, &wanted.json);
    }
    let at = match &wanted.gone {
        Some((order, _)) if !order.is_empty() => position_beside(document, order, &wanted.cell),
        Some((_, index)) => (*index).min(document.cells().len()),
        None => document.cells().len(),
    };
    document.restore_cell(at, &wanted.cell, &wanted.json)
}

fn wanted(
    page: &NotebookFile,
    document: &Document,
    cell: &CellSelector,
    revision: Option<&str>,
) -> Result<VersionToRestore, RestoreError> {
    let gone = deleted(page, document);
    match (select(document, &gone, cell), cell) {
        (Ok(Selected::Present(index)), _) => of_present(page, document, index, revision),
        (Ok(Selected::Deleted(gone)), _) => of_deleted(page, document, gone, revision),
        (Err(NotSelected { candidates, .. }), CellSelector::Id(given))
            if !candidates.is_empty() =>
        {
            Err(RestoreError::Ambiguous {
                given: given.clone(),
                candidates: candidates.into_iter().cloned().collect(),
            })
        }
        (Err(NotSelected { source, .. }), CellSelector::Id(_)) => Err(RestoreError::NoSuchCell {
            source,
            deleted: gone.into_iter().take(MOST_NEAR).collect(),
        }),
        (Err(NotSelected { source, .. }), _) => Err(RestoreError::NoSuchCell {
            source,
            deleted: Vec::new(),
        }),
    }
}

fn of_present(
    page: &NotebookFile,
    document: &Document,
    index: usize,
    revision: Option<&str>,
) -> Result<VersionToRestore, RestoreError> {
    let cell = document.cells().get(index).expect("it was found just now");
    let id = cell.id().to_owned();
    let versions = versions(page, document, &id);
    let now = cell.revision();
    let meant = match revision {
        Some(given) => named(&id, given, &versions)?,
        None => {
            let mut earlier = versions.iter().rev();
            let earlier = earlier.find(|version| version.revision.is_some_and(|it| it != now));
            earlier.ok_or_else(|| RestoreError::NoEarlier { cell: id.clone() })?
        }
    };
    wanted_version(page, id, meant.clone(), &versions, None)
}

fn of_deleted(
    page: &NotebookFile,
    document: &Document,
    gone: &Deleted,
    revision: Option<&str>,
) -> Result<VersionToRestore, RestoreError> {
    let versions = versions(page, document, &gone.cell);
    let meant = match revision {
        Some(given) => named(&gone.cell, given, &versions)?.clone(),
        None => {
            let mut last = versions.iter().rev();
            let last = last.find(|version| version.revision == Some(gone.revision));
            last.cloned().ok_or_else(|| RestoreError::NoEarlier {
                cell: gone.cell.clone(),
            })?
        }
    };
    let order = manifest_at(page, gone.notebook).unwrap_or_default();
    let order = order.into_iter().map(|(id, _)| id).collect();
    let place = Some((order, gone.index));
    let mut wanted = wanted_version(page, gone.cell.clone(), meant, &versions, place)?;
    if wanted.revision == gone.revision
        && let Some(whole) = gone.json(page)
    {
        wanted.json = whole;
    }
    Ok(wanted)
}

fn wanted_version(
    page: &NotebookFile,
    cell: String,
    version: CellVersion,
    versions: &[CellVersion],
    gone: Option<(Vec<String>, usize)>,
) -> Result<VersionToRestore, RestoreError> {
    let revision = version.revision.expect("only versions are meant");
    // What a later change took away of it, outputs among it.
    let mut later = versions.iter().rev();
    let begins = |kept: &str| kept.starts_with(&revision.to_string());
    let kept = later.find_map(|it| it.kept.as_deref().filter(|kept| begins(kept)));
    let Some(json) = json_of(page, revision, kept) else {
        return Err(RestoreError::Forgotten {
            cell,
            revision,
            versions: versions.to_vec(),
        });
    };
    Ok(VersionToRestore {
        cell,
        revision,
        version,
        json,
        gone,
    })
}

/// Returns the version of a revision, of which a beginning is given: the last one of it.
fn named<'a>(
    cell: &str,
    given: &str,
    versions: &'a [CellVersion],
) -> Result<&'a CellVersion, RestoreError> {
    let given = given.to_lowercase();
    let is_meant = |version: &&CellVersion| {
        let revision = version.revision.map(|it| it.to_string());
        given.len() >= LEAST && revision.is_some_and(|it| it.starts_with(&given))
    };
    let meant: Vec<_> = versions.iter().rev().filter(is_meant).collect();
    let several = meant.iter().any(|it| it.revision != meant[0].revision);
    match meant.first() {
        Some(version) if !several => Ok(version),
        _ => Err(RestoreError::NoSuchVersion {
            cell: cell.to_owned(),
            given,
            several,
            versions: versions.to_vec(),
        }),
    }
}
