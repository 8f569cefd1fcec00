//! A notebook as the bytes of its file: its cells, their ids and revisions, and selectors of cells.
//!
//! Edits touch only `Cell`s and the `Frame` round them; everything else keeps the bytes that were read. The
//! edits themselves are in `edit`.

mod cell;
mod cell_list;
mod dialect;
pub(in crate::notebook) mod ids;
mod kernelspec;
mod legacy;
mod lossless;
mod new;
mod not_a_notebook;
mod one_line;
mod percent;
mod revision;
mod selector;
mod short_ids;
mod source;

pub use cell::{Cell, CellType, UnknownCellType};
pub use kernelspec::{KernelspecMetadata, NamedKernel};
pub use lossless::Document;
pub use new::new_notebook;
pub use not_a_notebook::NotANotebook;
pub use one_line::first_line;
pub use percent::{PlainCell, PlainTextError, read_percent, write_percent};
pub use revision::{Revision, RevisionParseError};
pub use selector::{CellCandidate, CellSelector, SelectError};

pub(in crate::notebook) use ids::{record_id, write_id};
pub(in crate::notebook) use lossless::Style;
pub(in crate::notebook) use one_line::{one_line, one_line_of};
pub(in crate::notebook) use revision::{EXECUTION_KEYS, metadata_digest};
pub(in crate::notebook) use source::{joined_strings, source_json, split_lines};
