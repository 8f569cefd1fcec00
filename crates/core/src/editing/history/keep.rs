//! Stores versions of cells and names them.
//!
//! A version without outputs is named by the cell's revision: two cells with one revision differ in
//! nothing that is restored. A cell is stored with its outputs only if these would be lost otherwise,
//! under its revision and a hash of its bytes.

use sha2::{Digest, Sha256};

use crate::editing::notebook_file::NotebookFile;
use crate::notebook::{Cell, ExactBytes, Json, Revision};
use crate::project::Project;

/// The largest cell, in bytes, that is stored with its outputs.
const LARGEST: usize = 128 << 20;

/// Versions to store: names and bytes.
#[derive(Default)]
pub(super) struct Versions(Vec<(String, String)>);

impl Versions {
    /// Adds a cell without its outputs.
    pub(super) fn bare(&mut self, cell: &Cell, revision: Revision) {
        let text = cell.version().text().into_owned();
        self.0.push((revision.to_string(), text));
    }

    /// Adds a cell with its outputs and returns the version's name.
    pub(super) fn whole(&mut self, cell: &Cell, revision: Revision) -> Option<String> {
        let text = cell.json().text().into_owned();
        self.add(text, |hash| Some(format!("{revision}-{}", hash.get(..16)?)))
    }

    /// Adds the bytes that an operation changes and returns their name.
    pub(super) fn exact(&mut self, exact: &ExactBytes) -> Option<String> {
        let text = serde_json::to_string(exact).ok()?;
        self.add(text, |hash| Some(format!("{}-bytes", hash.get(..32)?)))
    }

    /// Adds a text under the name that `name` makes of its hash; `None` if the text is too large.
    fn add(&mut self, text: String, name: impl Fn(&str) -> Option<String>) -> Option<String> {
        if text.len() > LARGEST {
            return None;
        }
        let name = name(&hex::encode(Sha256::digest(text.as_bytes())))?;
        self.0.push((name.clone(), text));
        Some(name)
    }

    /// Stores the versions, unless the user wants none stored. A failure is logged and fails no edit: these
    /// versions cannot be restored then.
    pub(super) fn keep(self, project: &Project) {
        if self.0.is_empty() {
            return;
        }
        if let Some(Err(error)) = project.objects().map(|objects| objects.keep(&self.0)) {
            tracing::warn!(%error, "earlier versions of cells cannot be stored");
        }
    }
}

/// Stores a version of a cell, without outputs. A failure is only logged.
pub(in crate::editing) fn keep_version(notebook: &NotebookFile, cell: &Cell) {
    let mut versions = Versions::default();
    versions.bare(cell, cell.revision());
    versions.keep(&notebook.project);
}

/// Returns a stored version of a cell, without outputs; `None` if it was never stored or was
/// removed.
pub fn version(notebook: &NotebookFile, revision: Revision) -> Option<Json> {
    kept(notebook, &revision.to_string())
}

/// Returns the bytes that an operation changed, by their name in the journal.
pub(super) fn exact(notebook: &NotebookFile, name: &str) -> Option<ExactBytes> {
    serde_json::from_slice(&notebook.stored_versions()?.get(name)?).ok()
}

/// Returns the source of a stored version.
pub fn version_source(notebook: &NotebookFile, revision: Revision) -> Option<String> {
    version(notebook, revision)?.cell_source()
}

/// Returns a stored version by its name in the journal.
pub fn kept(notebook: &NotebookFile, name: &str) -> Option<Json> {
    let bytes = notebook.stored_versions()?.get(name)?;
    Json::parse(&String::from_utf8(bytes).ok()?).ok()
}
