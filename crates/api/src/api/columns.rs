//! Text in columns, measured by its width in a terminal.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Returns one line of text, cut to at most this many terminal columns.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut used = 0;
    let kept = text.chars().take_while(|c| {
        used += c.width().unwrap_or(0);
        used < columns
    });
    kept.chain("…".chars()).collect()
}

/// Returns how many terminal columns a text takes.
pub fn width(text: &str) -> usize {
    let is_plain = |byte: u8| (b' '..0x7f).contains(&byte);
    match text.bytes().all(is_plain) {
        true => text.len(),
        false => text.width(),
    }
}

/// Returns rows as lines: each column is as wide as its widest cell plus a gap; empty columns and trailing
/// spaces are left out.
pub fn lines<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let cell = |row: &[String; N], column: usize, out: &mut String| {
        out.push_str(row.get(column).map_or("", String::as_str));
    };
    let of_cell = |row: &[String; N], column: usize| row.get(column).map_or(0, |text| width(text));
    let widths: Widths<N> = Widths::of(rows, of_cell);
    let lines = rows.iter().map(|row| {
        let mut line = String::new();
        widths.line(row, cell, &mut line);
        line.truncate(line.trim_end().len());
        line
    });
    lines.collect()
}

/// The spaces from which gaps are cut.
const SPACES: &str = "                                ";

/// The widths of a table's columns.
pub(crate) struct Widths<const N: usize>([usize; N]);

impl<const N: usize> Widths<N> {
    /// Measures rows with `width`, which returns the width of a row's column. A long table need not also be
    /// in memory as texts.
    pub(crate) fn of<T>(rows: &[T], width: impl Fn(&T, usize) -> usize) -> Self {
        let mut widths = [0; N];
        for row in rows {
            for (column, most) in widths.iter_mut().enumerate() {
                *most = width(row, column).max(*most);
            }
        }
        Self(widths)
    }

    /// Appends a row. `cell` appends the content of a column, which is padded to its widest cell plus a
    /// gap; empty columns are left out.
    pub(crate) fn line<T>(&self, row: &T, cell: impl Fn(&T, usize, &mut String), out: &mut String) {
        let columns = self.0.iter().enumerate();
        for (column, most) in columns.filter(|(_, most)| **most > 0) {
            let start = out.len();
            cell(row, column, out);
            let mut gap = most + 2 - width(out.get(start..).unwrap_or_default());
            while gap > 0 {
                let part = SPACES.get(..gap).unwrap_or(SPACES);
                out.push_str(part);
                gap -= part.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_are_two_columns() {
        assert_eq!(cut("日本語", 6), "日本語");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("abc", 2), "a…");
        let rows = [["日", "", "x"], ["abc", "", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(lines(&rows), ["日   x", "abc"]);
    }
}
