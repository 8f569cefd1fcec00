//! The conflict of a change that was left out because another writer has changed the same lines or field.

use crate::notebook::document::Revision;

/// A change of the writer's that is not in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
