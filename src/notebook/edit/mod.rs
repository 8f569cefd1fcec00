//! Edits of a notebook, each a splice of the bytes that it touches, and lists of them.

mod cells;
mod conflict;
mod error;
mod execution;
mod format;
mod jupyter_style;
mod operation;
mod split_join;
mod widget_state;

pub use cells::{CellChange, ChangeKind, NewCell};
pub use conflict::Conflict;
pub use error::EditError;
pub use execution::CellExecution;
pub use operation::{Operation, OperationError, OperationFailure, OperationListError};
