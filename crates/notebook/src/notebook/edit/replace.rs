//! Replacing a pattern in many cells.

use regex::{NoExpand, Regex};

use super::cells::{CellChange, ChangeKind};
use super::operation::OperationError;
use crate::notebook::document::{CellSelector, Document};

/// A pattern, and the text that replaces each of its matches.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// The pattern.
    pub pattern: Regex,
    /// The new text.
    pub with: String,
    /// Whether `$1` and `${name}` in the new text mean groups of the pattern.
    pub expands: bool,
}

impl Document {
    /// Replaces a pattern in the sources of cells; an empty list is all cells. Returns the resulting document,
    /// the changed cells, and how many matches there were.
    ///
    /// # Errors
    /// A cell was not found, or cannot be edited.
    pub fn replaced(
        &self,
        cells: &[CellSelector],
        replacement: &Replacement,
    ) -> Result<(Self, Vec<CellChange>, usize), OperationError> {
        let places = match cells.is_empty() {
            true => (0..self.cells().len()).collect(),
            false => self.places(cells)?,
        };
        let Replacement { pattern, with, .. } = replacement;
        let mut document = self.clone();
        let (mut changes, mut count) = (Vec::new(), 0);
        for at in places {
            let Some(cell) = self.cells().get(at) else {
                continue;
            };
            let source = cell.source();
            let found = pattern.find_iter(&source).count();
            if found == 0 {
                continue;
            }
            count += found;
            let new = match replacement.expands {
                true => pattern.replace_all(&source, with),
                false => pattern.replace_all(&source, NoExpand(with)),
            };
            let change = document.set_source(at, &new)?;
            changes.extend(Some(change).filter(|it| it.kind != ChangeKind::Nothing));
        }
        Ok((document, changes, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notebook::tests::fixtures::cells;

    #[test]
    fn matches_in_the_named_cells_are_replaced_and_other_cells_stay() {
        let notebook = cells("a:lr=1|plr=2 b:lr c:x");
        let replaced = |pattern: &str, with: &str, expands: bool, names: &[&str]| {
            let replacement = Replacement {
                pattern: Regex::new(pattern).unwrap(),
                with: with.to_owned(),
                expands,
            };
            let names: Vec<_> = names.iter().map(|name| name.parse().unwrap()).collect();
            let (after, changes, count) = notebook.replaced(&names, &replacement).unwrap();
            let sources = after.cells().iter().map(|cell| cell.source().into_owned());
            let sources: Vec<_> = sources.collect();
            (sources.join(" "), changes.len(), count)
        };
        let want = |text: &str, cells, count| (text.to_owned(), cells, count);
        assert_eq!(
            replaced(r"\blr\b", "$1", false, &[]),
            want("$1=1\nplr=2 $1 x", 2, 2)
        );
        assert_eq!(
            replaced("lr", "r", false, &["1"]),
            want("lr=1\nplr=2 r x", 1, 1)
        );
        assert_eq!(
            replaced(r"lr=(\d)", "a[$1]", true, &[]),
            want("a[1]\npa[2] lr x", 1, 2)
        );
        assert_eq!(
            replaced("lr", "lr", false, &["1"]),
            want("lr=1\nplr=2 lr x", 0, 1)
        );
        assert_eq!(
            replaced("z", "", false, &[]),
            want("lr=1\nplr=2 lr x", 0, 0)
        );
    }
}
