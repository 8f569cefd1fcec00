//! Finds the cell of a notebook that an execution ran.
//!
//! `nb` and JupyterLab send a cell's id. VS Code sends a URI of its own
//! (`vscode-notebook-cell:/a.ipynb#W2sZmlsZQ==`), which stays the same for as long as the notebook
//! is open there: the code that ran under a URI shows which cell it is.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::notebook::{CellType, Document};

/// The cells of a notebook, as executions name them.
pub(crate) struct Meant<'a> {
    by_id: HashMap<&'a str, usize>,
    /// The positions of the cells with each source, in ascending order.
    by_source: HashMap<Cow<'a, str>, Vec<usize>>,
    by_address: HashMap<&'a str, usize>,
}

impl<'a> Meant<'a> {
    /// Finds out which cells the URIs mean, from earlier executions, latest first: pairs of the
    /// cell that the client sent, and the code.
    pub(crate) fn of(
        document: &'a Document,
        ran: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let mut meant = Self {
            by_id: HashMap::new(),
            by_source: HashMap::new(),
            by_address: HashMap::new(),
        };
        for (place, cell) in document.cells().iter().enumerate() {
            if cell.cell_type() == CellType::Code {
                meant.by_id.insert(cell.id(), place);
                let of_source = meant.by_source.entry(cell.source()).or_default();
                of_source.push(place);
            }
        }
        // A URI whose text several cells have gets one of the cells that no other URI has.
        let (mut taken, mut unsure) = (Vec::new(), Vec::new());
        for (address, code) in ran.filter(|(name, _)| is_address(name)) {
            if meant.by_address.contains_key(address) {
                continue;
            }
            match meant.by_source.get(code).map(Vec::as_slice) {
                Some([place]) => {
                    meant.by_address.insert(address, *place);
                    taken.push(*place);
                }
                Some(_) => unsure.push((address, code)),
                None => {}
            }
        }
        // The URI that was run first comes last in this list.
        for (address, code) in unsure.into_iter().rev() {
            let places = meant.by_source.get(code).map_or(&[][..], Vec::as_slice);
            let free = places.iter().find(|place| !taken.contains(place));
            if let Some(place) = free.or(places.first())
                && !meant.by_address.contains_key(address)
            {
                meant.by_address.insert(address, *place);
                taken.push(*place);
            }
        }
        meant
    }

    /// Returns the position of the cell that a client sent as `name`; `None` if there is no such cell.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        let known = if is_address(name) {
            &self.by_address
        } else {
            &self.by_id
        };
        known.get(name).copied()
    }

    /// Returns the position of the cell with this source, if there is only one.
    pub(crate) fn only(&self, source: &str) -> Option<usize> {
        match self.by_source.get(source)?.as_slice() {
            [place] => Some(*place),
            _ => None,
        }
    }
}

/// Says whether a name is a URI of VS Code's and not a cell's id.
pub(crate) fn is_address(name: &str) -> bool {
    name.contains([':', '/', '#'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_the_cell_whose_text_ran_under_it() {
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
        let meant = Meant::of(&document, ran.into_iter());
        let places = [
            "v:/a#W0", "v:/a#W2", "v:/a#W3", "v:/a#W4", "bbbb", "eeee", "no",
        ];
        let places = places.map(|name| meant.place(name));
        assert_eq!(
            places,
            [Some(0), Some(2), Some(3), None, Some(1), None, None]
        );
        assert_eq!((meant.only("2"), meant.only("same")), (Some(1), None));
    }
}
