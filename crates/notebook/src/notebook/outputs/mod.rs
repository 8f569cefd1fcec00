//! Outputs of cells: as text for readers, and accumulated from a kernel's messages.

mod accumulator;
mod limit;
mod mime;
mod output;
mod readable;
mod scale;
mod search;
mod size;
mod stale;
mod terminal_text;
mod widgets;

pub use accumulator::{MimeBundle, OutputAccumulator, OutputChange, pager_pages};
pub use limit::OmittedOutput;
pub use mime::{MimeBytes, MimeData, is_media};
pub use output::{Output, OutputKind, OutputsSummary};
pub use readable::{ShortTraceback, joined, plain_form, readable, without_similar_lines};
pub use scale::{image_within, scaled};
pub use search::{SearchMatch, SearchScope};
pub use size::size;
pub use stale::stale_note;
pub use widgets::Widgets;

pub(in crate::notebook) use widgets::WIDGET_STATE;

pub(in crate::notebook) use mime::is_json;
