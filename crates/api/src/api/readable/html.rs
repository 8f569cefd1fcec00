//! HTML as text.

use html2text::config::plain_no_decorate;

/// The longest HTML that is read, in bytes. Reading takes longer the deeper it is nested.
const HTML_BYTES_MAX: usize = 64 << 10;

/// The deepest nesting that is read.
const DEEPEST: usize = 500;

/// Wider than any table that is printed: no line is broken.
const WIDTH: usize = 1 << 16;

/// How many of the first and of the last rows of a shortened table are kept.
const FIRST_ROWS: usize = 3;
const LAST_ROWS: usize = 2;

/// Returns HTML as text; `None` if it is too long or too deep.
pub(super) fn text(html: &str) -> Option<String> {
    if html.len() > HTML_BYTES_MAX || depth(html) > DEEPEST {
        return None;
    }
    let config = plain_no_decorate().no_table_borders();
    let text = config
        .no_link_wrapping()
        .string_from_read(html.as_bytes(), WIDTH)
        .ok()?;
    let lines: Vec<_> = text.trim_end().lines().map(str::trim_end).collect();
    Some(lines.join("\n"))
}

/// Returns a data frame as text, one line a row. If its library has left out rows, only some of the others are
/// kept. `None` if the HTML is not of a data frame.
pub(super) fn table(html: &str) -> Option<String> {
    let is_frame = html.contains("<table") && html.contains("class=\"dataframe\"");
    let text = text(html).filter(|_| is_frame)?;
    let lines: Vec<_> = text.lines().filter(|line| !line.is_empty()).collect();
    let Some(gap) = lines.iter().position(|line| is_gap(line)) else {
        return Some(lines.join("\n"));
    };
    let shape = lines.last().filter(|line| line.contains(" rows × "));
    let rows = lines.len() - usize::from(shape.is_some());
    // As many rows are shown above the gap as below it; what is above those are the columns' names.
    let below = rows.saturating_sub(gap + 1);
    let names = gap.saturating_sub(below);
    let mut shown: Vec<&str> = shape.copied().into_iter().collect();
    shown.extend(&lines[..names + below.min(FIRST_ROWS)]);
    shown.push("…");
    shown.extend(&lines[rows - below.min(LAST_ROWS)..rows]);
    Some(shown.join("\n"))
}

/// Says whether a line is the row of dots that stands for rows that are left out.
fn is_gap(line: &str) -> bool {
    let mut words = line.split_whitespace().peekable();
    words.peek().is_some() && words.all(|word| word == "..." || word == "…")
}

/// Returns about how deep the elements are nested. Elements that are not closed count as nested.
fn depth(html: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for at in memchr::memchr_iter(b'<', html.as_bytes()) {
        let name = html.as_bytes().get(at + 1).copied().unwrap_or_default();
        match name {
            b'/' => depth = depth.saturating_sub(1),
            name if name.is_ascii_alphabetic() => depth += 1,
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(rows: &[&str], shape: &str) -> String {
        let rows = rows.iter().map(|row| {
            let cells = row.split(' ').map(|cell| format!("<td>{cell}</td>"));
            format!("<tr>{}</tr>", cells.collect::<String>())
        });
        let rows: String = rows.collect();
        format!(
            "<div><style scoped>.dataframe {{}}</style>\n<table border=\"1\" class=\"dataframe\">\n\
             <thead><tr><th></th><th>a</th><th>name</th></tr></thead>{rows}</table><p>{shape}</p></div>"
        )
    }

    #[test]
    fn a_table_has_a_line_for_each_row() {
        insta::assert_snapshot!(table(&frame(&["0 1 x", "1 20 yy"], "")).unwrap(), @"
          a  name
        0 1  x
        1 20 yy
        ");
    }

    #[test]
    fn of_a_table_that_was_cut_a_few_rows_are_kept() {
        let rows = [
            "0 1 x",
            "1 2 x",
            "2 3 x",
            "3 4 x",
            "4 5 x",
            "... ... ...",
            "95 6 y",
            "96 7 y",
            "97 8 y",
            "98 9 y",
            "99 10 y",
        ];
        insta::assert_snapshot!(table(&frame(&rows, "100 rows × 2 columns")).unwrap(), @"
        100 rows × 2 columns
            a   name
        0   1   x
        1   2   x
        2   3   x
        …
        98  9   y
        99  10  y
        ");
    }

    #[test]
    fn other_html_is_no_table() {
        assert_eq!(table("<table><tr><td>1</td></tr></table>"), None);
        assert_eq!(table("<p class=\"dataframe\">x</p>"), None);
    }

    #[test]
    fn scripts_and_styles_are_left_out() {
        let html = "<style>p{}</style><script>alert(1)</script><h1>T</h1><p>a <a href='http://x/'>b</a></p>\
                    <ul><li>one<li>two</ul><pre>x\n  y</pre>";
        insta::assert_snapshot!(text(html).unwrap(), @"
        # T

        a [b]
        * one
        * two

        x
          y
        ");
    }

    #[test]
    fn html_that_would_take_long_is_not_read() {
        assert_eq!(text(&"<b>x</b>".repeat(HTML_BYTES_MAX)), None);
        assert_eq!(text(&"<div>".repeat(DEEPEST + 1)), None);
        assert!(text(&"<p>x</p>".repeat(DEEPEST + 1)).is_some());
    }
}
