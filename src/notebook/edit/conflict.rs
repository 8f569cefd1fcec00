//! A change that was refused because somebody else has changed the same thing.

use crate::notebook::document::Revision;

/// Something of the writer's that did not go into the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Conflict {
    /// The cell's id; none is the notebook's own metadata.
    pub cell: Option<String>,
    /// The field: `source`, `cell_type`, `deleted`, or a path like `metadata.tags`.
    pub field: String,
    /// The field's value before both changes; none if it was missing.
    pub base: Option<String>,
    /// The writer's value; none if the writer deleted it.
    pub yours: Option<String>,
    /// The value in the file, which stays; none if it was deleted there.
    pub theirs: Option<String>,
    /// The cell's revision in the merged notebook.
    pub revision: Option<Revision>,
}
