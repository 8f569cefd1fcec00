//! A notebook in Jupyter's own style, with its real kernelspec named.

use super::edit::{self, Done, EditError, Editor};
use super::history::Deed;
use super::notebook_file::NotebookFile;
use crate::kernel::spec;
use crate::notebook::{
    CellChange, ChangeKind, Document, EditError as CellError, KernelspecMetadata, OperationFailure,
};
use crate::project::RealSpec;

/// What keeps a notebook from being as Jupyter writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Differences {
    /// Whether any byte would change.
    pub differs: bool,
    /// How many cells have no id in the file, or another cell's.
    pub ids: usize,
    /// The kernelspec that front ends share, where the notebook names it, and the real one, where
    /// that is known.
    pub kernelspec: Option<Renamed>,
}

/// A kernelspec that the notebook names and should not.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Renamed {
    /// The name in the file.
    pub from: String,
    /// The name of the real kernel's; none where nobody knows it, and the file keeps its own.
    pub to: Option<String>,
}

/// Returns in what a notebook differs from how Jupyter writes it.
///
/// # Errors
/// It cannot be read, or its format is only read.
pub fn check(page: &NotebookFile) -> Result<Differences, EditError> {
    let document = page.read()?;
    let after = formatted(page, &document)?;
    Ok(differences(page, &document, &after))
}

/// Writes a notebook as Jupyter does; returns in what it differed, and what its writer should know.
///
/// What somebody saves meanwhile is put into that style too: nothing of it is lost.
///
/// # Errors
/// It cannot be read or written, or its format is only read.
pub fn write(page: &NotebookFile, editor: &Editor) -> Result<(Differences, Done), EditError> {
    // No text is changed that anybody would have to know, and of what they save none is lost.
    let editor = Editor {
        force: true,
        ..editor.clone()
    };
    let deed = Deed {
        op: "fmt".to_owned(),
        forced: false,
        undoes: None,
    };
    let mut found = Differences::default();
    let done = edit::change(page, &editor, &deed, &[], |document| {
        let after = formatted(page, document)?;
        found = differences(page, document, &after);
        let changes = changes(document, &after);
        Ok((after, changes))
    })?;
    Ok((found, done))
}

/// Returns the cells whose metadata Jupyter keeps in no file.
fn changes(before: &Document, after: &Document) -> Vec<CellChange> {
    let cells = before.cells().iter().zip(after.cells()).enumerate();
    let changed = cells.filter_map(|(index, (before, after))| {
        let (old, new) = (before.revision(), after.revision());
        (old != new).then(|| CellChange {
            cell: after.id().to_owned(),
            index,
            what: ChangeKind::Edited,
            before: Some(old),
            after: Some(new),
        })
    });
    changed.collect()
}

fn formatted(page: &NotebookFile, document: &Document) -> Result<Document, EditError> {
    let mut named = document.clone();
    let done = match shared(document).and_then(|_| real(page)) {
        None => Ok(false),
        Some(real) => named.set_kernelspec(&KernelspecMetadata {
            name: &real.name,
            display_name: &real.display_name,
            language: &real.language,
        }),
    };
    let done = done.and_then(|_| named.formatted());
    let not_applied = |error: CellError| OperationFailure {
        number: 0,
        source: error.into(),
    };
    Ok(done.map_err(not_applied)?)
}

fn differences(page: &NotebookFile, before: &Document, after: &Document) -> Differences {
    Differences {
        differs: !before.chunks().flatten().eq(after.chunks().flatten()),
        ids: before
            .cells()
            .iter()
            .filter(|cell| !cell.has_own_id())
            .count(),
        kernelspec: shared(before).map(|from| Renamed {
            from,
            to: real(page).map(|spec| spec.name),
        }),
    }
}

/// Returns the name of the kernelspec that front ends share, where the notebook has that.
fn shared(document: &Document) -> Option<String> {
    let name = document.metadata_string(&["kernelspec", "name"])?;
    spec::is_shared_name(&name).then_some(name)
}

/// Returns the real kernel's spec, which the notebook's session keeps.
fn real(page: &NotebookFile) -> Option<RealSpec> {
    let session = page.project.state().ok()?.session(&page.key)?;
    session.kernelspec.filter(|spec| !spec.name.is_empty())
}
