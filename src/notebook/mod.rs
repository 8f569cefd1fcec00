//! `.ipynb` files as data. Nothing here reads or writes files, or asks the time.
//!
//! | folder | holds |
//! |---|---|
//! | `json` | JSON as bytes: where its values are, and how a file writes them |
//! | `document` | the lossless notebook: cells, ids, revisions, selectors |
//! | `outputs` | outputs as people read them, and gathered from a kernel's messages |
//! | `edit` | edits of cells, and lists of operations |
//! | `merge` | alignment of cells, three-way merge, differences |
//! | `undo` | earlier versions restored, operations undone |
//!
//! A folder imports only from those above it.

mod document;
mod edit;
mod json;
mod merge;
mod outputs;
mod undo;

#[cfg(test)]
pub(crate) mod tests;

pub use document::{
    Cell, CellType, Document, Kernelspec, Named, Near, NoCellType, NotANotebook, NotARevision,
    Revision, SelectError, Selector, first_line, new_notebook, with_kernelspec,
};
pub use edit::{
    Change, Changed, Conflict, EditError, Execution, NewCell, NotApplied, NotOperations, Operation,
    OperationError,
};
pub use json::{Json, NotJson};
pub use merge::{
    CellDiff, CellSide, FieldDiff, Hunk, Line, Merged, OutputsDiff, changes, diff, diff_metadata,
    merge, moved,
};
pub use outputs::{
    Bundle, Fold, Folded, Form, Glance, Hit, LeftOut, MimeData, Output, OutputKind, Widgets,
    Within, pages, size, stale_note,
};
pub use undo::{Exact, TakeBack, TakeBackError, TakenBack, Touched, Version, place_beside};
