//! Edits of a notebook, which replace only the bytes that they touch, and lists of edits.

mod between;
mod cells;
mod conflict;
mod error;
mod execution;
mod format;
mod jupyter_style;
mod operation;
mod replace;
mod split_join;
mod widget_state;

pub use cells::{CellChange, ChangeKind, NewCell};
pub use conflict::Conflict;
pub use error::DocumentEditError;
pub use execution::CellExecution;
pub use operation::{Operation, OperationError, OperationFailure, OperationListError};
pub use replace::Replacement;
