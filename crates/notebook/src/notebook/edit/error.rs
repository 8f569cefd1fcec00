//! Why an edit cannot be made.

/// Why an edit was not made; the document is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentEditError {
    /// The format is read-only.
    #[error("the notebook is of format {0}, which is only read{hint}", hint = read_only_hint(*.0))]
    ReadOnly(u64),
    /// There is no cell at this index.
    #[error("there is no cell {index}: the notebook has {cells}")]
    OutOfRange {
        /// The given index, from 0.
        index: usize,
        /// How many cells there are.
        cells: usize,
    },
    /// The text to replace is not in the cell.
    #[error("the text to replace is not in cell {0}")]
    NotFound(String),
    /// The text to replace is in the cell more than once.
    #[error(
        "the text to replace is {} times in cell {cell}, on lines {}: give more of it, or replace all",
        lines.len(), named(lines)
    )]
    Several {
        /// The cell's id.
        cell: String,
        /// The line, from 1, on which each of them begins.
        lines: Vec<usize>,
    },
    /// The text to replace is empty.
    #[error("the text to replace is empty")]
    Empty,
    /// An id that the format does not allow.
    #[error("{0:?} is not an id: an id has up to 64 letters, digits, - and _")]
    BadId(String),
    /// An id that another cell has.
    #[error("there is a cell {0} already")]
    TakenId(String),
    /// Outputs for a cell that is not code.
    #[error("cell {0} is no code: it has no outputs")]
    NotCode(String),
    /// Metadata that is not an object, or a path without keys.
    #[error("metadata is a JSON object, and is set by its keys")]
    NotAnObject,
    /// Tags that are no list of strings.
    #[error("tags are a list of strings, such as [\"draft\"]")]
    BadTags,
    /// A type that no version of the format has.
    #[error("a cell is code, markdown or raw")]
    NoType,
    /// A cell cannot be split there.
    #[error(
        "cell {cell} cannot be split before its line {}, counted from 1: it has {lines}", line + 1
    )]
    NoSuchLine {
        /// The cell's id.
        cell: String,
        /// The given line, from 0.
        line: usize,
        /// How many lines there are.
        lines: usize,
    },
    /// A value that is not a cell.
    #[error("that is not a cell: expected an object")]
    NotACell,
    /// Fewer than two cells to join.
    #[error("joining takes two cells or more")]
    NothingToJoin,
}

/// Says how a notebook of an earlier format becomes one that is written.
fn read_only_hint(format: u64) -> &'static str {
    match format {
        ..4 => ": `jupyter nbconvert --to notebook` makes it one of format 4",
        _ => "",
    }
}

/// Returns the first numbers of lines as text.
fn named(lines: &[usize]) -> String {
    const MOST: usize = 8;
    let mut lines = lines.to_vec();
    lines.dedup();
    let named: Vec<_> = lines.iter().take(MOST).map(usize::to_string).collect();
    let more = if lines.len() > MOST { " …" } else { "" };
    format!("{}{more}", named.join(", "))
}
