//! Restores earlier versions of cells, and undoes operations in a notebook that was changed since.

mod exact_bytes;
mod operation_undo;
mod restore;

pub use exact_bytes::ExactBytes;
pub use operation_undo::{
    OperationUndo, OperationUndoError, RememberedCell, TouchedCell, position_beside,
};
