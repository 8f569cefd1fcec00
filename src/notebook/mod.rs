//! `.ipynb` files as data. Nothing here reads or writes files, or asks the time.

mod align;
mod bound;
mod cell;
mod diff;
mod document;
mod edit;
mod exact;
mod execution;
mod fault;
mod folded;
mod format;
mod ids;
mod json;
mod kernelspec;
mod legacy;
mod lines;
mod merge;
mod merge_cell;
mod merge_fields;
mod merge_reshaped;
mod metadata;
mod mime;
mod new;
mod operation;
mod output;
mod place;
mod put_back;
mod recall;
mod reshape;
mod revision;
mod screen;
mod search;
mod select;
mod short;
mod size;
mod source;
mod spaced;
mod stale;
mod take_back;
mod version;
mod widgets;

#[cfg(test)]
mod laws;
#[cfg(test)]
mod merge_laws;
#[cfg(test)]
pub(crate) mod words;

pub use align::moved;
pub use bound::LeftOut;
pub use cell::{Cell, CellType, NoCellType};
pub use diff::{
    CellDiff, CellSide, FieldDiff, Hunk, Line, OutputsDiff, changes, diff, diff_metadata,
};
pub use document::Document;
pub use edit::{Change, Changed, EditError, NewCell};
pub use exact::Exact;
pub use execution::Execution;
pub use fault::NotANotebook;
pub use folded::{Bundle, Fold, Folded, pages};
pub use json::{Json, NotJson};
pub use kernelspec::{Kernelspec, with_kernelspec};
pub use merge::{Conflict, Merged, merge};
pub use metadata::Named;
pub use mime::Form;
pub use new::new_notebook;
pub use operation::{NotApplied, NotOperations, Operation, OperationError};
pub use output::{Glance, MimeData, Output, OutputKind, first_line, shortened};
pub use revision::{NotARevision, Revision};
pub use search::{Hit, Within};
pub use select::{Near, SelectError, Selector};
pub use size::size;
pub use stale::stale_note;
pub use take_back::{TakeBack, TakeBackError, TakenBack, Touched, Version, place_beside};
pub use widgets::Widgets;
