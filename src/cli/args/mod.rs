//! Arguments that several commands take.

pub(crate) mod cells;
pub(crate) mod metadata;
pub(crate) mod sandbox;
pub(crate) mod source;
pub(crate) mod time;

use std::path::PathBuf;

/// Returns the first of a command's words, if it names a notebook.
pub(crate) fn first_notebook(words: &[String]) -> Option<PathBuf> {
    let first = words.first().filter(|word| word.ends_with(".ipynb"));
    first.map(PathBuf::from)
}

/// Removes and returns the first of a command's words, if it names a notebook.
pub(crate) fn take_notebook(words: &mut Vec<String>) -> Option<PathBuf> {
    let notebook = first_notebook(words)?;
    words.remove(0);
    Some(notebook)
}
