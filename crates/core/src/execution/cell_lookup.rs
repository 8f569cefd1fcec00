//! Finds the cell of a notebook that an execution ran.
//!
//! `nb` and JupyterLab send a cell's id. VS Code sends a URI of its own
//! (`vscode-notebook-cell:/a.ipynb#W2sZmlsZQ==`), which stays the same for as long as the notebook
//! is open there: the code that ran under a URI shows which cell it is.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::notebook::{CellType, Document};

/// The cells of a notebook by the names that clients send: ids and VS Code's URIs.
pub struct CellLookup<'a> {
    by_id: HashMap<&'a str, usize>,
    /// The positions of the cells with each source, in ascending order.
    by_source: HashMap<Cow<'a, str>, Vec<usize>>,
    by_uri: HashMap<&'a str, usize>,
}

impl<'a> CellLookup<'a> {
    /// Makes the lookup from a notebook and its earlier executions, latest first: pairs of the name of the cell
    /// that the client sent, and the code.
    pub fn of(document: &'a Document, ran: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut lookup = Self {
            by_id: HashMap::new(),
            by_source: HashMap::new(),
            by_uri: HashMap::new(),
        };
        for (position, cell) in document.cells().iter().enumerate() {
            if cell.cell_type() == CellType::Code {
                lookup.by_id.insert(cell.id(), position);
                let same_source = lookup.by_source.entry(cell.source()).or_default();
                same_source.push(position);
            }
        }
        // If several cells have the text that ran under a URI, the URI means one that no other URI means.
        let (mut taken, mut unsure) = (Vec::new(), Vec::new());
        for (uri, code) in ran.filter(|(name, _)| is_uri(name)) {
            if lookup.by_uri.contains_key(uri) {
                continue;
            }
            match lookup.by_source.get(code).map(Vec::as_slice) {
                Some([position]) => {
                    lookup.by_uri.insert(uri, *position);
                    taken.push(*position);
                }
                Some(_) => unsure.push((uri, code)),
                None => {}
            }
        }
        // The URI that was run first comes last in this list.
        for (uri, code) in unsure.into_iter().rev() {
            let positions = lookup.by_source.get(code).map_or(&[][..], Vec::as_slice);
            let free = positions.iter().find(|position| !taken.contains(position));
            if let Some(position) = free.or(positions.first())
                && !lookup.by_uri.contains_key(uri)
            {
                lookup.by_uri.insert(uri, *position);
                taken.push(*position);
            }
        }
        lookup
    }

    /// Returns the position of the cell that a client sent as `name`; `None` if there is no such cell.
    pub fn position(&self, name: &str) -> Option<usize> {
        let known = if is_uri(name) {
            &self.by_uri
        } else {
            &self.by_id
        };
        known.get(name).copied()
    }

    /// Returns the position of the cell with this source, if there is only one.
    pub(crate) fn with_only_source(&self, source: &str) -> Option<usize> {
        match self.by_source.get(source)?.as_slice() {
            [position] => Some(*position),
            _ => None,
        }
    }
}

/// Says whether a cell's name is a URI of VS Code's and not an id.
pub fn is_uri(name: &str) -> bool {
    name.contains([':', '/', '#'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_is_the_cell_whose_text_ran_under_it() {
        let cell = |(id, source)| {
            format!(
                r#"{{"cell_type":"code","id":"{id}","source":"{source}","metadata":{{}},"outputs":[]}}"#
            )
        };
        let all = [
            ("aaaa", "new"),
            ("bbbb", "2"),
            ("cccc", "same"),
            ("dddd", "same"),
        ]
        .map(cell);
        let text = format!(
            r##"{{"cells":[{},{{"cell_type":"markdown","id":"eeee","source":"# 1","metadata":{{}}}}],"metadata":{{}},"nbformat":4,"nbformat_minor":5}}"##,
            all.join(",")
        );
        let document = Document::parse(text).unwrap();
        let ran = [
            ("v:/a#W4", "nobody has it"),
            ("v:/a#W3", "same"),
            ("v:/a#W0", "new"),
            ("v:/a#W2", "same"),
            ("v:/a#W0", "old"),
            ("bbbb", "same"),
        ];
        let lookup = CellLookup::of(&document, ran.into_iter());
        let positions = [
            "v:/a#W0", "v:/a#W2", "v:/a#W3", "v:/a#W4", "bbbb", "eeee", "no",
        ];
        let positions = positions.map(|name| lookup.position(name));
        assert_eq!(
            positions,
            [Some(0), Some(2), Some(3), None, Some(1), None, None]
        );
        assert_eq!(
            (
                lookup.with_only_source("2"),
                lookup.with_only_source("same")
            ),
            (Some(1), None)
        );
    }
}
