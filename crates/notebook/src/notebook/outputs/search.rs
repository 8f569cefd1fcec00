//! Finds text in sources and outputs.

use crate::notebook::document::{Cell, Document, one_line};
use regex::Regex;

/// A line in which a pattern was found.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SearchMatch {
    /// The cell's position, from 0.
    pub index: usize,
    /// The cell's id.
    pub cell: String,
    /// The output's position, from 0; none is the source.
    pub output: Option<usize>,
    /// The line within the source or the output's text, from 1.
    pub line: usize,
    /// The line's text.
    pub text: String,
}

/// The text that is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchScope {
    /// Sources.
    Source,
    /// Outputs, as text for readers.
    Outputs,
    /// Both.
    All,
}

impl Document {
    /// Returns the lines in which a match begins, in order, each cut to `limit` characters.
    pub fn search<'a>(
        &'a self,
        pattern: &'a Regex,
        within: SearchScope,
        limit: usize,
    ) -> impl Iterator<Item = SearchMatch> + 'a {
        let cells = self.cells().iter().enumerate();
        cells.flat_map(move |(index, cell)| hits(index, cell, pattern, within, limit))
    }
}

fn hits(
    index: usize,
    cell: &Cell,
    pattern: &Regex,
    within: SearchScope,
    limit: usize,
) -> Vec<SearchMatch> {
    let mut hits = Vec::new();
    let mut search_text = |output, text: &str| {
        let mut line = 1;
        let mut start = 0;
        let mut known = 0;
        for found in pattern.find_iter(text) {
            let between = text.get(start..found.start()).unwrap_or_default();
            line += between.matches('\n').count();
            start = found.start();
            // One hit for each line.
            if line == known {
                continue;
            }
            known = line;
            let first = text.get(..start).and_then(|before| before.rfind('\n'));
            let rest = text.get(first.map_or(0, |newline| newline + 1)..);
            let whole = rest.and_then(|rest| rest.split('\n').next());
            hits.push(SearchMatch {
                index,
                cell: cell.id().to_owned(),
                output,
                line,
                text: one_line(whole.unwrap_or_default(), limit),
            });
        }
    };
    if within != SearchScope::Outputs {
        search_text(None, &cell.source());
    }
    if within != SearchScope::Source {
        for (number, output) in cell.read_outputs().enumerate() {
            search_text(Some(number), &output.text);
        }
    }
    hits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_found_once() {
        let text = r#"{"cells":[
            {"cell_type":"code","id":"aaaa","source":["x = 1\n","xx\n","y\n","x"],
             "outputs":[{"output_type":"stream","name":"stdout","text":"\u001b[1mx\u001b[0m\n"}]},
            {"cell_type":"markdown","id":"bbbb","source":"a\n\nx"}]}"#;
        let document = Document::parse(text).unwrap();
        let found = |pattern: &str, within| {
            let pattern = Regex::new(pattern).unwrap();
            let hits = document.search(&pattern, within, 80);
            hits.map(|hit| (hit.index, hit.output, hit.line, hit.text))
                .collect::<Vec<_>>()
        };
        let hit = |index, output, line, text: &str| (index, output, line, text.to_owned());
        assert_eq!(
            found("x", SearchScope::All),
            [
                hit(0, None, 1, "x = 1"),
                hit(0, None, 2, "xx"),
                hit(0, None, 4, "x"),
                hit(0, Some(0), 1, "x"),
                hit(1, None, 3, "x"),
            ]
        );
        assert_eq!(found("(?m)^$", SearchScope::Source), [hit(1, None, 2, "")]);
        assert_eq!(
            found("1\nx", SearchScope::Source),
            [hit(0, None, 1, "x = 1")]
        );
        assert_eq!(found("z", SearchScope::All), []);
        assert_eq!(found("x", SearchScope::Outputs), [hit(0, Some(0), 1, "x")]);
    }
}
