//! Text in columns, as wide as a terminal shows it.

use std::io::{self, IsTerminal};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Returns how many columns the terminal has that stdout is; none where it is none.
pub(super) fn of_terminal() -> Option<usize> {
    let stdout = io::stdout();
    let size = stdout
        .is_terminal()
        .then(|| rustix::termios::tcgetwinsize(&stdout))?;
    // Some terminals do not know, and say 0.
    size.ok()
        .map(|size| size.ws_col.into())
        .filter(|columns| *columns > 0)
}

/// Returns one line of text cut to at most so many columns.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut width = 0;
    let kept = text.chars().take_while(|c| {
        width += c.width().unwrap_or(0);
        width < columns
    });
    kept.chain("…".chars()).collect()
}

/// Returns rows as lines: each column as wide as its widest cell and a gap, empty columns left out.
pub(super) fn lines<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.width().max(*width);
        }
    }
    let lines = rows.iter().map(|row| {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths).filter(|(_, width)| *width > 0) {
            line.push_str(cell);
            let gap = width - cell.width() + 2;
            line.extend(std::iter::repeat_n(' ', gap));
        }
        line
    });
    lines.collect()
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
        assert_eq!(lines(&rows), ["日   x  ", "abc     "]);
    }
}
