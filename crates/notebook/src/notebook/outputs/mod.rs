//! Outputs of cells: read, searched, limited, and accumulated from a kernel's messages.

mod accumulator;
mod compare;
mod limit;
mod mime;
mod output;
mod search;
mod size;
mod stale;
mod terminal_text;
mod widgets;

pub use accumulator::{MimeBundle, OutputAccumulator, OutputChange, pager_pages};
pub use compare::{ComparableOutputs, OutputsDifference};
pub use limit::OmittedOutput;
pub use mime::{MimeBytes, MimeData, is_media};
pub use output::{Output, OutputKind, OutputsSummary};
pub use search::{SearchMatch, SearchScope};
pub use size::size;
pub use stale::stale_note;
pub use widgets::Widgets;

pub(in crate::notebook) use widgets::{WIDGET_STATE, stored_models};

pub(in crate::notebook) use mime::is_json;
