//! Short names for a notebook's cells: as much of each id as is needed.

use super::lossless::Document;
use super::selector::CellSelector;

/// Fewer characters are nobody's habit, and soon begin another id too.
const FEWEST: usize = 4;

impl Document {
    /// Returns for each cell the shortest beginning of its id that names it, of 4 characters or more.
    pub fn short_ids(&self) -> Vec<&str> {
        // Compared by their first bytes, as a number, most ids differ.
        let first = |id: &str| {
            let mut bytes = [0; 8];
            let pairs = bytes.iter_mut().zip(id.bytes());
            pairs.for_each(|(byte, its)| *byte = its);
            u64::from_be_bytes(bytes)
        };
        let ids = self.cells.iter().map(|cell| cell.id());
        let mut sorted: Vec<_> = ids.map(|id| (first(id), id)).zip(0..).collect();
        sorted.sort_unstable();
        let mut short: Vec<&str> = self.cells.iter().map(|cell| cell.id()).collect();
        for (at, ((_, id), index)) in sorted.iter().enumerate() {
            let before = at.checked_sub(1).and_then(|at| sorted.get(at));
            let neighbours = [before, sorted.get(at + 1)];
            let shared = neighbours
                .iter()
                .flatten()
                .map(|((_, other), _)| common(id, other));
            let fewest = shared.max().map_or(FEWEST, |shared| FEWEST.max(shared + 1));
            let ends = id.char_indices().map(|(at, _)| at).skip(fewest);
            // A beginning that reads as an index, like 1234, names another cell.
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

/// How many characters two ids begin with alike.
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
            // An id that is an index as a whole needs `-c`.
            assert_eq!(
                document.find(&CellSelector::id(*short)),
                Ok(index),
                "{short}"
            );
        }
    }
}
