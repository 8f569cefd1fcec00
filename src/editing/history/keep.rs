//! Which versions of cells are kept, and under what names.
//!
//! A version without outputs has the cell's revision for a name: two cells of one revision differ
//! in nothing that is put back. With its outputs a cell is kept only where they would be lost, under
//! its revision and a hash of the rest.

use sha2::{Digest, Sha256};

use crate::editing::notebook_file::NotebookFile;
use crate::notebook::{Cell, ExactBytes, Json, Revision};
use crate::project::Project;

/// More than this is kept without the outputs.
const LARGEST: usize = 128 << 20;

/// Versions to keep: names and bytes.
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
        let json = cell.json();
        let text = json.text();
        if text.len() > LARGEST {
            return None;
        }
        let hash = hex::encode(Sha256::digest(text.as_bytes()));
        let name = format!("{revision}-{}", hash.get(..16)?);
        self.0.push((name.clone(), text.into_owned()));
        Some(name)
    }

    /// Adds the bytes that an operation changes and returns their name.
    pub(super) fn exact(&mut self, exact: &ExactBytes) -> Option<String> {
        let text = serde_json::to_string(exact).ok()?;
        if text.len() > LARGEST {
            return None;
        }
        let hash = hex::encode(Sha256::digest(text.as_bytes()));
        let name = format!("{}-bytes", hash.get(..32)?);
        self.0.push((name.clone(), text));
        Some(name)
    }

    /// Keeps them, where versions are kept. That they cannot be is no reason to keep anybody from
    /// editing: then they cannot be brought back.
    pub(super) fn keep(self, project: &Project) {
        if self.0.is_empty() {
            return;
        }
        if let Some(Err(error)) = project.objects().map(|objects| objects.keep(&self.0)) {
            tracing::warn!(%error, "earlier versions of cells cannot be kept");
        }
    }
}

/// Returns a kept version of a cell, without outputs; none where it is not kept (any more).
pub fn version(page: &NotebookFile, revision: Revision) -> Option<Json> {
    kept(page, &revision.to_string())
}

/// Returns the bytes that an operation changed, by the name that the journal has for them.
pub(super) fn exact(page: &NotebookFile, name: &str) -> Option<ExactBytes> {
    serde_json::from_slice(&page.kept()?.get(name)?).ok()
}

/// Returns the source of a kept version.
pub fn version_source(page: &NotebookFile, revision: Revision) -> Option<String> {
    version(page, revision)?.cell_source()
}

/// Returns a kept version by the name that the journal has for it.
pub fn kept(page: &NotebookFile, name: &str) -> Option<Json> {
    let bytes = page.kept()?.get(name)?;
    Json::parse(&String::from_utf8(bytes).ok()?).ok()
}
