//! A notebook in Jupyter's own style, with its real kernelspec named.

use super::edit::{EditError, Editor};
use super::manners;
use super::page::Page;
use super::transaction::{self, WriteError};
use super::unsaved;
use crate::kernel::spec;
use crate::notebook::{Document, EditError as CellError, Kernelspec, NotApplied};
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
pub fn check(page: &Page) -> Result<Differences, EditError> {
    let document = page.read()?;
    let after = formatted(page, &document)?;
    Ok(differences(page, &document, &after))
}

/// Writes a notebook as Jupyter does; returns in what it differed.
///
/// What somebody saves meanwhile is put into that style too: nothing of it is lost.
///
/// # Errors
/// It cannot be read or written, or its format is only read.
pub fn write(page: &Page, editor: &Editor) -> Result<(Differences, Vec<String>), EditError> {
    manners::wait_for_front_end(page, editor.now, &editor.tell);
    let unsaved = unsaved::look(page);
    let written = transaction::write(page, true, |document| formatted(page, document));
    let written = written.map_err(|error| match error {
        WriteError::Change(error) => error,
        WriteError::Page(error) => error.into(),
        error => EditError::Write(Box::new(error)),
    })?;
    let mut notes = written.notes;
    if written.wrote {
        notes.extend(unsaved.note(page, &written.before, &editor.by));
    }
    Ok((differences(page, &written.before, &written.after), notes))
}

fn formatted(page: &Page, document: &Document) -> Result<Document, EditError> {
    let mut named = document.clone();
    let done = match shared(document).and_then(|_| real(page)) {
        None => Ok(false),
        Some(real) => named.set_kernelspec(&Kernelspec {
            name: &real.name,
            display_name: &real.display_name,
            language: &real.language,
        }),
    };
    let done = done.and_then(|_| named.formatted());
    let not_applied = |error: CellError| NotApplied {
        number: 0,
        source: error.into(),
    };
    Ok(done.map_err(not_applied)?)
}

fn differences(page: &Page, before: &Document, after: &Document) -> Differences {
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
fn real(page: &Page) -> Option<RealSpec> {
    let session = page.project.state().ok()?.session(&page.key)?;
    session.kernelspec.filter(|spec| !spec.name.is_empty())
}
