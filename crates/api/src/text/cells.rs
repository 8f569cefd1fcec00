//! A notebook's cells as text, one line each.

use std::fmt::Write as _;

use crate::api::columns::{self, Widths};
use crate::api::{CellRow, CellsAnswer, RemovedCell};
use crate::notebook::{CellType, ChangeKind, Revision};

/// Returns the list as lines.
pub fn lines(answer: &CellsAnswer, since: Option<Revision>) -> Vec<String> {
    let mut lines = vec![head(answer, since)];
    write_rows(&answer.cells, None, |line| lines.push(line.to_owned()));
    lines.extend(answer.removed.iter().flatten().map(removed_text));
    lines
}

/// Returns the line of a removed cell.
pub fn removed_text(removed: &RemovedCell) -> String {
    let first_line = removed.first_line.as_deref().unwrap_or_default();
    format!("-  {}  removed  {first_line}", removed.id)
}

/// Writes the rows, a line of at most `width` columns each.
pub fn write_rows(rows: &[CellRow], width: Option<usize>, mut print: impl FnMut(&str)) {
    let widths: Widths<5> = Widths::of(rows, column_width);
    let mut line = String::new();
    for row in rows {
        line.clear();
        widths.line(row, write_column, &mut line);
        let room = width.map(|width| width.saturating_sub(columns::width(&line)));
        write_texts(row, room, &mut line);
        let line = line.trim_end();
        match width {
            Some(width) => print(&columns::cut(line, width)),
            None => print(line),
        }
    }
}

/// Appends the content of one of the columns before a row's text.
fn write_column(row: &CellRow, column: usize, out: &mut String) {
    match (column, row.execution_count) {
        (0, _) => number(row.index as u64, out),
        (1, _) => out.push_str(&row.short_id),
        (2, _) => {
            for (at, change) in row.changes.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                out.push_str(verb(*change));
            }
        }
        (3, Some(count)) => {
            out.push_str("In[");
            number(count, out);
            out.push(']');
        }
        (3, None) if row.cell_type == CellType::Code => out.push_str("In[ ]"),
        (3, None) => out.push_str(row.cell_type.name()),
        (4, _) => out.push_str(row.state.unwrap_or_default()),
        _ => {}
    }
}

/// Returns the width of a column's content; for columns that every row has, without formatting it.
fn column_width(row: &CellRow, column: usize) -> usize {
    match (column, row.execution_count) {
        (0, _) => digits(row.index as u64),
        (1, _) => columns::width(&row.short_id),
        (3, Some(count)) => digits(count) + 4,
        _ => {
            let mut text = String::new();
            write_column(row, column, &mut text);
            columns::width(&text)
        }
    }
}

/// Appends what there is to know of a cell, the first line of its source and the summary of its outputs. If there is too little room
/// for both, the outputs get a third of it.
fn write_texts(row: &CellRow, room: Option<usize>, out: &mut String) {
    let (first_line, outputs_in_short) = (&row.first_line, &row.outputs_in_short);
    let lines = match row.lines {
        0 | 1 => String::new(),
        lines => format!(" ({lines} lines)"),
    };
    let arrow = if outputs_in_short.is_empty() {
        ""
    } else {
        " → "
    };
    if !row.note.is_empty() {
        out.push_str(&format!("({}) ", row.note));
    }
    let room = room.map(|room| match columns::width(&row.note) {
        0 => room,
        width => room.saturating_sub(width + 3),
    });
    match room {
        Some(room) => {
            let outputs = columns::width(arrow) + columns::width(outputs_in_short);
            let others = columns::width(&lines) + outputs.min(room / 3);
            out.push_str(&columns::cut(first_line, room.saturating_sub(others)));
        }
        None => out.push_str(first_line),
    }
    for part in [&lines, arrow, outputs_in_short] {
        out.push_str(part);
    }
}

/// Returns how many decimal digits a number has.
fn digits(number: u64) -> usize {
    number.checked_ilog10().unwrap_or_default() as usize + 1
}

/// Appends a number.
fn number(number: u64, out: &mut String) {
    // Writing to a string cannot fail.
    let _ = write!(out, "{number}");
}

fn verb(change: ChangeKind) -> &'static str {
    match change {
        ChangeKind::Nothing => "",
        ChangeKind::Inserted => "new",
        ChangeKind::Edited => "edited",
        ChangeKind::Moved => "moved",
        ChangeKind::Outputs => "cleared",
        ChangeKind::Removed => "removed",
    }
}

/// Returns the line about the notebook above its cells.
pub fn head(answer: &CellsAnswer, since: Option<Revision>) -> String {
    let notebook = &answer.notebook;
    let cells = match (notebook.cell_count, answer.cells.len(), since) {
        (count, shown, Some(since)) => {
            format!("{shown} of {count} cells new, edited or moved since {since}")
        }
        (1, 1, _) => "1 cell".to_owned(),
        (count, shown, _) if shown < count => format!("{shown} of {count} cells"),
        (count, ..) => format!("{count} cells"),
    };
    let mut parts = vec![cells, format!("revision {}", notebook.revision)];
    parts.extend(notebook.kernelspec.clone());
    if notebook.read_only {
        parts.push(format!("format {}, read only", notebook.nbformat[0]));
    }
    format!("{}: {}", notebook.notebook, parts.join(" · "))
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr as _;

    use super::*;
    use crate::notebook::Document;

    fn row(first_line: &str, outputs: &str, lines: usize) -> CellRow {
        let text = r#"{"cells": [{"cell_type": "code", "id": "3f2c9a1e", "execution_count": 3}]}"#;
        let document = Document::parse(text).unwrap();
        CellRow {
            index: 0,
            id: "3f2c9a1e".to_owned(),
            cell_type: CellType::Code,
            execution_count: Some(3),
            state: None,
            stale: None,
            reads: Vec::new(),
            writes: Vec::new(),
            unused: Vec::new(),
            undefined: Vec::new(),
            note: String::new(),
            first_line: first_line.to_owned(),
            lines,
            outputs: 1,
            outputs_in_short: outputs.to_owned(),
            revision: document.cells()[0].revision(),
            changes: Vec::new(),
            short_id: "3f2c".to_owned(),
        }
    }

    fn texts(rows: &[CellRow], width: usize) -> Vec<String> {
        let mut lines = Vec::new();
        write_rows(rows, Some(width), |line| lines.push(line.to_owned()));
        lines
    }

    #[test]
    fn a_row_knows_how_wide_its_columns_are() {
        let mut rows = Vec::new();
        for count in [None, Some(0), Some(9), Some(10), Some(u64::MAX)] {
            let mut row = row("x", "", 1);
            row.execution_count = count;
            row.index = count.unwrap_or_default() as usize;
            rows.push(row);
        }
        rows[1].short_id = "日本".to_owned();
        rows[2].state = Some("stale");
        rows[4].cell_type = CellType::Markdown;
        for row in &mut rows {
            for changes in [&[][..], &[ChangeKind::Edited, ChangeKind::Moved]] {
                row.changes = changes.to_vec();
                for column in 0..5 {
                    let mut text = String::new();
                    write_column(row, column, &mut text);
                    assert_eq!(column_width(row, column), text.width(), "{text:?}");
                }
            }
        }
    }

    #[test]
    fn a_line_fits_the_terminal_and_shows_some_of_everything() {
        let long = "x = '".to_owned() + &"日".repeat(100);
        let mut rows = [
            row(&long, &"out ".repeat(30), 3),
            row("y", "", 1),
            row("z", "1", 1),
            row(&long, "", 1),
        ];
        rows[3].note = "3f2c ran after it: データ".to_owned();
        for width in [40, 60, 80, 200] {
            let texts = texts(&rows, width);
            assert!(
                texts.iter().all(|text| text.width() <= width),
                "{width}: {texts:#?}"
            );
        }
        let texts = texts(&rows, 80);
        assert!(
            texts[0].contains("x = '日") && texts[0].contains("(3 lines) → out "),
            "{texts:#?}"
        );
        assert!(
            texts[1].ends_with("In[3]  y") && texts[2].ends_with("z → 1"),
            "{texts:#?}"
        );
        assert!(
            texts[3].contains("(3f2c ran after it: データ) x = '日"),
            "{texts:#?}"
        );
    }
}
