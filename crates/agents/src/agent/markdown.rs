//! Markdown that shows what an agent says and does. Pure.

use std::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use similar::TextDiff;

use crate::notebook::visible_line;

/// How much of one text of a tool is shown, in bytes.
const SHOWN_BYTES_MAX: usize = 4000;

/// Returns a text that Markdown shows as it is, on one line.
pub(super) fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in one_line(text).chars() {
        match c {
            '<' => shown.push_str("&lt;"),
            '&' => shown.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '|' | '~' | '$' => {
                shown.push('\\');
                shown.push(c);
            }
            c => shown.push(c),
        }
    }
    shown
}

/// Returns the beginning of a text as one line in which all characters are visible.
pub(super) fn one_line(text: &str) -> String {
    let line = text.replace(['\n', '\r', '\t'], " ");
    visible_line(&line).chars().take(300).collect()
}

/// Returns a text as inline code.
pub(super) fn code(text: &str) -> String {
    let text = one_line(text);
    // A longer row of backticks than any inside.
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let ticks = "`".repeat(longest + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') {
        " "
    } else {
        ""
    };
    format!("{ticks}{pad}{text}{pad}{ticks}")
}

/// Returns a text as a block of code, shortened in the middle.
pub(super) fn block(text: &str, language: &str) -> String {
    let text = shortened(text);
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}{language}\n{text}{end}{fence}")
}

/// Returns a text, or its beginning and its end if it is long.
pub(super) fn shortened(text: &str) -> String {
    if text.len() <= SHOWN_BYTES_MAX {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(SHOWN_BYTES_MAX / 2);
    let tail = text.ceil_char_boundary(text.len() - SHOWN_BYTES_MAX / 2);
    let left_out = tail - head;
    format!(
        "{}\n… {left_out} bytes are left out …\n{}",
        &text[..head],
        &text[tail..]
    )
}

/// Returns the difference of two texts as a unified diff.
pub(super) fn diff(path: &str, old: &str, new: &str) -> String {
    /// Larger texts would take long to compare.
    const COMPARED: usize = 1 << 20;
    if old.len() + new.len() > COMPARED {
        return format!("{path}: {} bytes become {}\n", old.len(), new.len());
    }
    let diff = TextDiff::from_lines(old, new);
    let mut unified = diff.unified_diff();
    unified.context_radius(2).header(path, path);
    unified.to_string()
}

/// Returns a part that is folded until somebody clicks on its title, which is HTML.
pub(super) fn folded(title: &str, inside: &str) -> String {
    format!("<details><summary>{title}</summary>\n\n{inside}\n\n</details>")
}

/// Where a growing Markdown text can be divided, so that both parts are shown as before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Division {
    /// Where the second part begins.
    pub(super) at: usize,
    /// What the first part has to end with.
    pub(super) close: String,
    /// What the second part has to begin with.
    pub(super) open: String,
}

/// Returns where to divide a text that has become longer than `limit` bytes: at the last blank line outside a
/// block of code, else in a block of code, which is closed and opened again.
pub(super) fn division(text: &str, limit: usize) -> Option<Division> {
    if text.len() <= limit {
        return None;
    }
    let mut fence: Option<&str> = None;
    let (mut blank, mut in_code, mut at) = (None, None, 0);
    for line in text.split_inclusive('\n') {
        let bare = line.trim();
        // Neither part may be empty.
        if at > 0 && at + line.len() < text.len() {
            match fence {
                None if bare.is_empty() => blank = Some(at + line.len()),
                Some(opening) if bare != closing(opening) => {
                    in_code = Some((at + line.len(), opening));
                }
                _ => {}
            }
        }
        let ticks = |it: &str| it.starts_with("```") || it.starts_with("~~~");
        fence = match fence {
            None if ticks(bare) => Some(bare),
            Some(opening) if bare == closing(opening) => None,
            same => same,
        };
        at += line.len();
    }
    let whole = |at| Division {
        at,
        close: String::new(),
        open: String::new(),
    };
    match (blank, in_code) {
        (Some(at), _) => Some(whole(at)),
        (None, Some((at, opening))) => Some(Division {
            at,
            close: format!("{}\n", closing(opening)),
            open: format!("{opening}\n"),
        }),
        // One endless paragraph.
        (None, None) if text.len() > 2 * limit => {
            let end = text.rfind(char::is_whitespace).map(|at| at + 1);
            let end = end.filter(|end| *end > limit && *end < text.len());
            Some(whole(end.unwrap_or(text.floor_char_boundary(limit))))
        }
        (None, None) => None,
    }
}

/// Returns the line that ends the block of code that this line begins.
fn closing(opening: &str) -> &str {
    let mark = opening.chars().next().unwrap_or('`');
    let length = opening.chars().take_while(|c| *c == mark).count();
    &opening[..length]
}

/// Adds a part after a blank line.
pub(super) fn add(text: &mut String, part: &str) {
    if !text.is_empty() {
        while !text.ends_with("\n\n") {
            text.push('\n');
        }
    }
    let _ = write!(text, "{part}");
}

/// Returns a link to a notebook's cell, which JupyterLab follows; other front ends open the notebook.
pub fn cell_link(notebook: &str, cell: &str) -> String {
    const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'/')
        .remove(b'.')
        .remove(b'-')
        .remove(b'_');
    let [path, id] = [notebook, cell].map(|it| utf8_percent_encode(it, ESCAPED));
    let name = escaped(&format!("{notebook} {cell}"));
    format!("[{name}]({path}#cell-id={id})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_divided_text_is_the_same_text() {
        let paragraphs = "word word\n\n".repeat(30);
        let division = division(&paragraphs, 100).unwrap();
        assert_eq!(division.at, paragraphs.len() - 11);
        let code = format!("```python\n{}", "x = 1\n".repeat(40));
        let found = super::division(&code, 100).unwrap();
        assert_eq!((&*found.close, &*found.open), ("```\n", "```python\n"));
        assert!(code[..found.at].ends_with("x = 1\n"));
        let endless = "ä".repeat(500);
        let found = super::division(&endless, 100).unwrap();
        assert!(
            endless.is_char_boundary(found.at) && found.at >= 100,
            "{found:?}"
        );
        assert_eq!(super::division("short", 100), None);
        // A blank line in a block of code does not count.
        let blank = format!("a\n\n```\n{}", "\n\n".repeat(100));
        assert_eq!(super::division(&blank, 100).unwrap().at, 3);
    }

    #[test]
    fn an_agents_words_are_no_markup() {
        assert_eq!(escaped("a <b> *c*\n[d](e)"), r"a &lt;b> \*c\* \[d\](e)");
        assert_eq!(code("a`b``"), "``` a`b`` ```");
        assert_eq!(block("```\nx", "text"), "````text\n```\nx\n````");
        let long = shortened(&"é".repeat(5000));
        assert!(
            long.len() < SHOWN_BYTES_MAX + 60 && long.contains("are left out"),
            "{}",
            long.len()
        );
    }

    #[test]
    fn a_difference_is_a_unified_diff() {
        let shown = diff("a.py", "1\n2\n", "1\n3\n");
        assert_eq!(shown, "--- a.py\n+++ a.py\n@@ -1,2 +1,2 @@\n 1\n-2\n+3\n");
    }
}
