//! Edits of a notebook, each a splice of the bytes that it touches, and lists of them.

mod cells;
mod conflict;
mod error;
mod execution;
mod format;
mod operation;
mod split_join;
mod widget_state;

pub use cells::{Change, Changed, NewCell};
pub use conflict::Conflict;
pub use error::EditError;
pub use execution::Execution;
pub use operation::{NotApplied, NotOperations, Operation, OperationError};
