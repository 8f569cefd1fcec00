//! A change that was not made, as somebody else has changed the same thing.

use crate::notebook::document::Revision;

/// Something of the writer's that did not go into the file.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Conflict {
    /// The cell's id; none is the notebook's own metadata.
    pub cell: Option<String>,
    /// What of it: `source`, `cell_type`, `deleted`, or a path like `metadata.tags`.
    pub field: String,
    /// What it was; none where it was not.
    pub base: Option<String>,
    /// What the writer made of it; none is its deletion.
    pub yours: Option<String>,
    /// What is in the file, and stays; none is its deletion.
    pub theirs: Option<String>,
    /// The cell's revision in the merged notebook.
    pub revision: Option<Revision>,
}
