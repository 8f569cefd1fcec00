//! Small notebooks as one line of text, for tests: `a:1 b:x|y` has a cell `a` and a cell `b` of two lines.

use crate::notebook::Document;

/// Returns a notebook of code cells that were not run.
pub fn cells(words: &str) -> Document {
    let cell = |word: &str| {
        let (id, source) = word.split_once(':').unwrap();
        let source = source.replace('|', "\\n");
        format!(
            "\n  {{\"cell_type\": \"code\", \"id\": \"{id}\", \"metadata\": {{}}, \"source\": \"{source}\", \"outputs\": [], \"execution_count\": null}}"
        )
    };
    let cells: Vec<_> = words.split_whitespace().map(cell).collect();
    let text = format!(
        "{{\n \"cells\": [{}\n ],\n \"metadata\": {{}},\n \"nbformat\": 4,\n \"nbformat_minor\": 5\n}}\n",
        cells.join(",")
    );
    Document::parse(text).unwrap()
}

/// Returns a notebook's cells as such a line.
#[cfg(test)]
pub(in crate::notebook) fn in_words(document: &Document) -> String {
    let cells = document.cells().iter();
    let cells = cells.map(|cell| format!("{}:{}", cell.id(), cell.source().replace('\n', "|")));
    cells.collect::<Vec<_>>().join(" ")
}
