//! JSON as bytes: the positions of its values, and the style in which a file writes them.
//!
//! The accepted language is that of Python's `json.loads(strict=False)`, which reads most notebooks: RFC
//! 8259 plus `NaN`, `Infinity`, `-Infinity`, control characters and lone surrogates in strings, and
//! duplicate keys in an object (the last one counts). No function here is recursive, so depth uses memory
//! but never the stack.

mod digest;
mod layout;
mod object;
mod path;
mod scan;
mod sorted;
mod string;
mod value;

pub(super) use digest::digest;
pub(super) use layout::Layout;
pub(super) use object::{Field, Object, items, list, spliced, without_padding};
pub(super) use path::{remove_value_at, set_value_at, string_at, value_at};
pub(super) use scan::Scanner;
pub(super) use sorted::sorted;
pub(super) use string::{
    append, decode, encode, find_all, in_parts, is, lossy, quote_or_backslash,
};
pub use value::Json;

/// A range of bytes in a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub start: usize,
    pub end: usize,
}

/// The error for a text that is not one JSON value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not JSON: at byte {at}, expected {expected}")]
pub struct JsonError {
    /// The position of the first invalid byte.
    pub at: usize,
    /// The text that would be valid at that position.
    pub expected: &'static str,
}

/// The largest size of a text, in bytes.
pub(super) const TEXT_BYTES_MAX: usize = u32::MAX as usize;

impl Span {
    /// Returns the range from one byte up to another.
    #[inline]
    pub(super) fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }

    /// Returns the bytes of the range; nothing if the text ends before it.
    pub(super) fn of(self, text: &[u8]) -> &[u8] {
        text.get(self.start..self.end).unwrap_or_default()
    }
}
