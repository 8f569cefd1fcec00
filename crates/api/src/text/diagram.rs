//! A notebook's graph as a Mermaid flowchart.

use std::collections::BTreeMap;

use crate::api::{GraphAnswer, GraphRow};
use crate::notebook::visible_line;

/// How many characters of a cell's first line are in a diagram.
const FIRST_LINE: usize = 32;

/// How many characters the names beside an arrow take.
const NAMES: usize = 40;

/// An arrow: the cell that gives names a value, the cell that reads them, and the names.
type Arrows = BTreeMap<(usize, usize), Vec<String>>;

/// Returns a Mermaid flowchart, which GitHub and JupyterLab show in Markdown.
pub fn mermaid(answer: &GraphAnswer) -> String {
    let mut text = String::from("flowchart TD\n");
    for (at, cell) in answer.cells.iter().enumerate() {
        let [head, line] = label(cell);
        text.push_str(&format!(
            "  c{at}[\"{}<br>{}\"]\n",
            mermaid_text(&head),
            mermaid_text(&line)
        ));
    }
    for ((from, to), names) in arrows(answer) {
        let names = mermaid_text(&short(&names.join(", "), NAMES));
        text.push_str(&format!("  c{from} -- \"{names}\" --> c{to}\n"));
    }
    let stale = answer.cells.iter().enumerate();
    let stale = stale.filter(|(_, cell)| is_stale(cell, answer));
    let stale: Vec<_> = stale.map(|(at, _)| format!("c{at}")).collect();
    if !stale.is_empty() {
        text.push_str("  classDef stale stroke-dasharray: 5 5\n");
        text.push_str(&format!("  class {} stale\n", stale.join(",")));
    }
    text
}

fn is_stale(cell: &GraphRow, answer: &GraphAnswer) -> bool {
    answer.kernel_has_run && cell.stale.is_some()
}

/// Returns the arrows between the cells, by their places in the answer.
fn arrows(answer: &GraphAnswer) -> Arrows {
    let places = answer.cells.iter().enumerate();
    let places: BTreeMap<_, _> = places.map(|(at, cell)| (cell.id.as_str(), at)).collect();
    let mut arrows = Arrows::new();
    for (to, cell) in answer.cells.iter().enumerate() {
        for read in &cell.reads {
            let from = read.from.iter().filter_map(|id| places.get(id.as_str()));
            for from in from {
                arrows
                    .entry((*from, to))
                    .or_default()
                    .push(read.name.clone());
            }
        }
    }
    arrows
}

/// Returns the two lines of a cell.
fn label(cell: &GraphRow) -> [String; 2] {
    let head = format!("{} · {}", cell.index, cell.short_id);
    [
        short(&head, FIRST_LINE),
        short(cell.first_line.trim(), FIRST_LINE),
    ]
}

/// Returns a text of at most this many characters, all of them visible.
fn short(text: &str, most: usize) -> String {
    let visible = visible_line(text);
    let mut characters = visible.chars();
    let mut short: String = characters.by_ref().take(most).collect();
    if characters.next().is_some() {
        short.pop();
        short.push('…');
    }
    short
}

/// Escapes a text for a quoted label: Mermaid reads HTML and Markdown in it.
fn mermaid_text(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '"' | '&' | '<' | '>' | '#' | '`' | '\\' | '*' | '_' | ';' => {
                escaped.push_str(&format!("#{};", u32::from(c)));
            }
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{NameRead, NotebookSummary, StaleCell, StaleReason};
    use crate::notebook::Document;

    /// What a text does to a page or a graph that it is put into.
    const HOSTILE: &str =
        "\"]; click c0 href \"javascript:x\" <script>&amp;</script> `a` \u{1b}[31m\\";

    fn answer() -> GraphAnswer {
        let cell = |index: usize, from: Option<&str>| GraphRow {
            index,
            id: format!("id-{index}"),
            first_line: HOSTILE.to_owned(),
            stale: from.map(|_| StaleCell {
                why: StaleReason::Edited,
                name: None,
                cell: None,
                text: String::new(),
            }),
            reads: from
                .map(|id| NameRead {
                    name: HOSTILE.to_owned(),
                    from: vec![id.to_owned()],
                    short_from: vec![HOSTILE.to_owned()],
                })
                .into_iter()
                .collect(),
            writes: Vec::new(),
            changes: Vec::new(),
            deletes: Vec::new(),
            undefined: Vec::new(),
            unused: Vec::new(),
            unknown: Vec::new(),
            problem: None,
            short_id: HOSTILE.to_owned(),
        };
        let document = Document::parse(r#"{"cells": []}"#).unwrap();
        GraphAnswer {
            notebook: NotebookSummary {
                notebook: "a.ipynb".to_owned(),
                path: "a.ipynb".into(),
                revision: document.revision(),
                nbformat: [4, 5],
                read_only: false,
                kernelspec: None,
                cell_count: 2,
            },
            kernel_has_run: true,
            cells: vec![cell(0, None), cell(1, Some("id-0"))],
            advice: Vec::new(),
        }
    }

    #[test]
    fn a_cells_text_stays_a_label() {
        let mermaid = mermaid(&answer());
        assert_eq!(mermaid.lines().count(), 6, "{mermaid}");
        assert_eq!(mermaid.matches('"').count(), 6, "{mermaid}");
        assert!(!mermaid.contains("<script"), "{mermaid}");
        assert!(!mermaid.contains('\u{1b}'), "{mermaid}");
    }
}
