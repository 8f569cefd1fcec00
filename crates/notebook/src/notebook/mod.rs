//! `.ipynb` files as data. Nothing here reads or writes files, or asks the time.
//!
//! | folder | holds |
//! |---|---|
//! | `visible` | texts of others as readers see them, and the mark of `nb`'s own lines |
//! | `json` | JSON as bytes: where its values are, and how a file writes them |
//! | `document` | the lossless notebook: cells, ids, revisions, selectors |
//! | `outputs` | outputs read, searched, limited, and accumulated from a kernel's messages |
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
mod visible;

#[cfg(any(test, feature = "fixtures"))]
pub mod tests;

pub use document::{
    Cell, CellCandidate, CellSelector, CellType, Document, KernelspecMetadata, NamedKernel,
    NotANotebook, PlainCell, PlainTextError, Revision, RevisionParseError, SelectError,
    UnknownCellType, first_line, new_notebook, read_percent, write_percent,
};
pub use edit::{
    CellChange, CellExecution, ChangeKind, Conflict, DocumentEditError, NewCell, Operation,
    OperationError, OperationFailure, OperationListError, Replacement,
};
pub use json::{Json, JsonError};
pub use merge::{
    CellDiff, CellSide, DiffHunk, DiffLine, FieldDiff, MergedNotebook, OutputsDiff, changed_lines,
    changes, diff, diff_metadata, diff_sources, merge, merge_keeping_both, merge_texts,
    out_of_order, unite_texts,
};
pub use outputs::{
    ComparableOutputs, MimeBundle, MimeBytes, MimeData, OmittedOutput, Output, OutputAccumulator,
    OutputChange, OutputKind, OutputsDifference, OutputsSummary, SearchMatch, SearchScope, Widgets,
    is_media, pager_pages, size, stale_note,
};
pub use undo::{
    ExactBytes, OperationUndo, OperationUndoError, RememberedCell, TouchedCell, position_beside,
};
pub use visible::{OWN, is_hidden, own_line, visible, visible_line, visible_output};
