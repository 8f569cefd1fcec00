//! Formats a notebook as Jupyter writes it, and replaces the name of the shared kernelspec by the
//! real one.

use super::edit::{self, EditError, EditOutcome, Editor};
use super::history::EditCommand;
use super::named_kernelspec::{metadata_of, names_shared, real_spec};
use super::notebook_file::NotebookFile;
use super::unseen::EditBasis;
use crate::notebook::{
    CellChange, ChangeKind, Document, DocumentEditError as CellError, OperationFailure,
};

/// The differences between a notebook and how Jupyter writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Differences {
    /// Whether any byte would change.
    pub differs: bool,
    /// The number of cells with no id in the file, or with the id of another cell.
    #[serde(rename = "ids_missing")]
    pub ids: usize,
    /// The shared kernelspec, if the notebook names it, and the real one, if that is known.
    pub kernelspec: Option<Renamed>,
}

/// A kernelspec that the notebook names and should not.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Renamed {
    /// The name in the file.
    pub from: String,
    /// The name of the real kernelspec; none if it is not known and the file stays as it is.
    pub to: Option<String>,
}

/// Returns the differences between a notebook and how Jupyter writes it.
///
/// # Errors
/// The notebook cannot be read, or it has a format that `nb` does not write.
pub fn check(notebook: &NotebookFile) -> Result<Differences, EditError> {
    let document = notebook.read()?;
    let after = formatted(notebook, &document)?;
    Ok(differences(notebook, &document, &after))
}

/// Formats a notebook as Jupyter writes it; returns the differences that it had, and the edit.
///
/// If another program saves in the meantime, its save is formatted too and nothing of it is lost.
///
/// # Errors
/// The notebook cannot be read or written, or it has a format that `nb` does not write.
pub fn write(
    notebook: &NotebookFile,
    editor: &Editor,
) -> Result<(Differences, EditOutcome), EditError> {
    // The edit changes no text, so the actor need not have seen the cells; and nothing of others' saves is
    // lost. Only in a room of JupyterLab it may be.
    let command = EditCommand {
        name: "fmt".to_owned(),
        forced: editor.force,
        ..EditCommand::default()
    };
    let editor = Editor {
        force: true,
        ..editor.clone()
    };
    let mut found = Differences::default();
    let done = edit::change(
        notebook,
        &editor,
        &command,
        &EditBasis::default(),
        |document| {
            let after = formatted(notebook, document)?;
            found = differences(notebook, document, &after);
            let changes = changes(document, &after);
            Ok((after, changes))
        },
    )?;
    Ok((found, done))
}

/// Returns the cells with metadata that Jupyter does not write to files.
fn changes(before: &Document, after: &Document) -> Vec<CellChange> {
    let cells = before.cells().iter().zip(after.cells()).enumerate();
    let changed = cells.filter_map(|(index, (before, after))| {
        let (old, new) = (before.revision(), after.revision());
        (old != new).then(|| CellChange {
            cell: after.id().to_owned(),
            index,
            kind: ChangeKind::Edited,
            before: Some(old),
            after: Some(new),
        })
    });
    changed.collect()
}

fn formatted(notebook: &NotebookFile, document: &Document) -> Result<Document, EditError> {
    let mut named = document.clone();
    let done = match names_shared(document).and_then(|_| real_spec(notebook)) {
        None => Ok(false),
        Some(real) => named.set_kernelspec(&metadata_of(&real)),
    };
    let done = done.and_then(|_| named.formatted());
    let not_applied = |error: CellError| OperationFailure {
        number: 0,
        source: error.into(),
    };
    Ok(done.map_err(not_applied)?)
}

fn differences(notebook: &NotebookFile, before: &Document, after: &Document) -> Differences {
    Differences {
        differs: !before.has_same_bytes(after),
        ids: before
            .cells()
            .iter()
            .filter(|cell| !cell.has_own_id())
            .count(),
        kernelspec: names_shared(before).map(|from| Renamed {
            from,
            to: real_spec(notebook).map(|spec| spec.name),
        }),
    }
}
