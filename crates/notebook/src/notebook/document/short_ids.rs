//! Short names for a notebook's cells: the shortest prefixes of their ids that are unambiguous.

use super::lossless::Document;
use super::selector::CellSelector;

/// The shortest length of a prefix: with fewer characters, a new id would soon share it.
const FEWEST: usize = 4;

impl Document {
    /// Returns for each cell the shortest unambiguous prefix of its id, of 4 characters or more.
    pub fn short_ids(&self) -> Vec<&str> {
        let mut sorted: Vec<_> = self.cells.iter().map(|cell| cell.id()).zip(0..).collect();
        sorted.sort_unstable();
        let mut short: Vec<&str> = self.cells.iter().map(|cell| cell.id()).collect();
        for (at, (id, index)) in sorted.iter().enumerate() {
            let before = at.checked_sub(1).and_then(|at| sorted.get(at));
            let neighbours = [before, sorted.get(at + 1)];
            let neighbours = neighbours.iter().flatten();
            let shared = neighbours.map(|(other, _)| common(id, other));
            let fewest = shared.max().map_or(FEWEST, |shared| FEWEST.max(shared + 1));
            let ends = id.char_indices().map(|(at, _)| at).skip(fewest);
            // A prefix that reads as an index, like 1234, would select another cell.
            let named = ends
                .filter_map(|end| id.get(..end))
                .find(|part| matches!(part.parse(), Ok(CellSelector::Id(_))));
            if let (Some(named), Some(short)) = (named, short.get_mut(*index)) {
                *short = named;
            }
        }
        short
    }
}

/// Returns the length in characters of the common prefix of two ids.
fn common(one: &str, other: &str) -> usize {
    let pairs = one.chars().zip(other.chars());
    pairs.take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_id_names_its_cell() {
        let ids = [
            "3f2c9a1e",
            "3f2c9b00",
            "77de0000",
            "12345678",
            "1234",
            "ab",
            "abcd",
            "abcde",
            "é1é2é3",
        ];
        let cells =
            ids.map(|id| format!("{{\"cell_type\":\"raw\",\"id\":\"{id}\",\"source\":\"\"}}"));
        let text = format!("{{\"cells\":[{}]}}", cells.join(","));
        let document = Document::parse(text).unwrap();
        let short = document.short_ids();
        assert_eq!(
            short,
            [
                "3f2c9a", "3f2c9b", "77de", "12345", "1234", "ab", "abcd", "abcde", "é1é2"
            ]
        );
        for (index, short) in short.iter().enumerate() {
            // An id that looks like an index as a whole needs `-c`.
            assert_eq!(
                document.find(&CellSelector::Id((*short).to_owned())),
                Ok(index),
                "{short}"
            );
        }
    }
}
