//! Outputs of cells: read as people see them, and gathered from a kernel's messages.

mod accumulator;
mod limit;
mod mime;
mod output;
mod search;
mod size;
mod stale;
mod terminal_text;
mod widgets;

pub use accumulator::{Bundle, Fold, Folded, pages};
pub use limit::LeftOut;
pub use mime::{Form, MimeData};
pub use output::{Glance, Output, OutputKind};
pub use search::{Hit, Within};
pub use size::size;
pub use stale::stale_note;
pub use widgets::Widgets;

pub(in crate::notebook) use widgets::WIDGET_STATE;

pub(in crate::notebook) use mime::is_json;
