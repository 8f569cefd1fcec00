//! Earlier versions of cells put back, and operations undone in a notebook that was changed since.

mod exact_bytes;
mod operation_undo;
mod restore;

pub use exact_bytes::Exact;
pub use operation_undo::{TakeBack, TakeBackError, TakenBack, Touched, Version, place_beside};
