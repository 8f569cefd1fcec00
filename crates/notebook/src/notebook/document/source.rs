//! A cell's source as JSON: a list of lines or one string, in the form that the cell had before.

use std::borrow::Cow;

use crate::notebook::json::{
    Layout, Scanner, Span, append, decode, items, spliced, without_padding,
};

/// Returns the JSON of a source. Lines of `old`, the cell's present value, that stay at the beginning and
/// the end keep their bytes. `lists` decides between list and string if `old` does not.
///
/// `layout` is that of the cell's fields.
pub(in crate::notebook) fn source_json(
    old: Option<&[u8]>,
    text: &[u8],
    layout: &Layout,
    lists: bool,
) -> Vec<u8> {
    let list = match old {
        None | Some(b"\"\"" | b"[]") => lists,
        Some(old) => old.starts_with(b"["),
    };
    let mut out = Vec::with_capacity(text.len() + text.len() / 8 + 16);
    if !list {
        layout.string(&mut out, text);
        return out;
    }
    let lines = split_lines(text);
    let old = old.unwrap_or_default();
    let spans = items(old);
    // If not all items of the list are strings, none is reused.
    let are_strings = spans.iter().all(|span| span.of(old).starts_with(b"\""));
    let old_lines: Vec<_> = spans
        .iter()
        .filter(|_| are_strings)
        .map(|span| decode(span.of(old)))
        .collect();
    let same = |(old, line): &(&std::borrow::Cow<'_, [u8]>, &&[u8])| **old == **line;
    let head = old_lines.iter().zip(&lines).take_while(same).count();
    let longest_tail = old_lines.len().min(lines.len()) - head;
    let tail = old_lines
        .iter()
        .rev()
        .zip(lines.iter().rev())
        .take_while(same)
        .count()
        .min(longest_tail);
    let inner = layout.deeper();
    // The separator between two lines is that of this cell, else that of the file.
    let gap = match spans.as_slice() {
        [first, second, ..] => without_padding(Span::new(first.end, second.start).of(old)).to_vec(),
        [first] if first.start > 1 => [b",", Span::new(1, first.start).of(old)].concat(),
        _ => inner.gap().into_bytes(),
    };
    let new = lines.get(head..lines.len() - tail).unwrap_or_default();
    for (index, line) in new.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(&gap);
        }
        layout.string(&mut out, line);
    }
    if let (true, [first, .., last] | [first @ last]) = (head + tail > 0, spans.as_slice()) {
        // Some lines stay: cut the others out, and put the new ones in with one gap each.
        let before = head.checked_sub(1).and_then(|at| spans.get(at));
        let after = spans.get(spans.len() - tail);
        let start = before.map_or(first.start, |before| before.end);
        let end = after.map_or(last.end, |after| after.start);
        let gap_if = |is_needed: bool| if is_needed { &gap[..] } else { b"" };
        let gap_before = gap_if(before.is_some() && (after.is_some() || !new.is_empty()));
        let gap_after = gap_if(after.is_some() && !new.is_empty());
        return spliced(old, Span::new(start, end), &[gap_before, &out, gap_after]);
    }
    if lines.is_empty() {
        return b"[]".to_vec();
    }
    let (open, close) = match spans.as_slice() {
        [first, .., last] | [first @ last] => (
            Span::new(1, first.start).of(old),
            Span::new(last.end, old.len() - 1).of(old),
        ),
        [] => (inner.lead.as_bytes(), layout.lead.as_bytes()),
    };
    [b"[", open, &out, close, b"]"].concat()
}

/// Returns the text of a string or of a list of strings; an empty text for other values.
pub(in crate::notebook) fn joined_strings(raw: &[u8]) -> Cow<'_, [u8]> {
    if raw.starts_with(b"\"") {
        return decode(raw);
    }
    if !raw.starts_with(b"[") {
        return Cow::Borrowed(b"");
    }
    let mut text = Vec::with_capacity(raw.len());
    let mut at = 1;
    loop {
        let rest = raw.get(at..).unwrap_or_default();
        match rest.first() {
            Some(b'"') => at += append(&mut text, rest),
            Some(b',' | b' ' | b'\n' | b'\r' | b'\t') => at += 1,
            None | Some(b']') => return Cow::Owned(text),
            // Values other than strings have no text.
            Some(_) => match Scanner::new(raw, at).value() {
                Ok(value) => at = value.end,
                Err(_) => return Cow::Owned(text),
            },
        }
    }
}

/// Splits text into lines with their line ends, as Python's `str.splitlines(True)` does, which Jupyter
/// uses.
pub(in crate::notebook) fn split_lines(text: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    let (mut start, mut at) = (0, 0);
    while let Some(byte) = text.get(at) {
        let rest = text.get(at..).unwrap_or_default();
        let end = match byte {
            b'\r' if rest.get(1) == Some(&b'\n') => 2,
            b'\n' | b'\r' | 0x0b | 0x0c | 0x1c..=0x1e => 1,
            0xc2 if rest.get(1) == Some(&0x85) => 2,
            0xe2 if rest.starts_with(b"\xe2\x80\xa8") || rest.starts_with(b"\xe2\x80\xa9") => 3,
            _ => 0,
        };
        at += end.max(1);
        if end > 0 {
            lines.extend(text.get(start..at));
            start = at;
        }
    }
    lines.extend(text.get(start..).filter(|rest| !rest.is_empty()));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(old: &str, text: &str) -> String {
        let layout = Layout {
            lead: "\n   ".into(),
            unit: " ".into(),
            ..Layout::default()
        };
        String::from_utf8(source_json(
            Some(old.as_bytes()),
            text.as_bytes(),
            &layout,
            true,
        ))
        .unwrap()
    }

    #[test]
    fn lines_that_stay_keep_their_bytes() {
        let old = "[\n    \"\\u0061\\n\",\n    \"b\\n\",\n    \"c\"\n   ]";
        for (text, new) in [
            (
                "a\nB\nc",
                "[\n    \"\\u0061\\n\",\n    \"B\\n\",\n    \"c\"\n   ]",
            ),
            ("a\nc", "[\n    \"\\u0061\\n\",\n    \"c\"\n   ]"),
            (
                "x\na\nb\nc",
                "[\n    \"x\\n\",\n    \"\\u0061\\n\",\n    \"b\\n\",\n    \"c\"\n   ]",
            ),
            ("b\nc", "[\n    \"b\\n\",\n    \"c\"\n   ]"),
            ("a\nb\n", "[\n    \"\\u0061\\n\",\n    \"b\\n\"\n   ]"),
            (
                "a\nb\nd\ne",
                "[\n    \"\\u0061\\n\",\n    \"b\\n\",\n    \"d\\n\",\n    \"e\"\n   ]",
            ),
            ("z", "[\n    \"z\"\n   ]"),
            ("", "[]"),
            ("a\nb\nc", old),
        ] {
            assert_eq!(rewritten(old, text), new, "{text:?}");
        }
        assert_eq!(rewritten("\"x\"", "é\ny"), "\"é\\ny\"");
        assert_eq!(rewritten("[]", "x\ny"), "[\n    \"x\\n\",\n    \"y\"\n   ]");
        assert_eq!(rewritten("[1, \"a\"]", "a"), "[\"a\"]");
        assert_eq!(rewritten("[\"a\"]", "b"), "[\"b\"]");
    }

    #[test]
    fn lines_end_where_python_ends_them() {
        let lines: Vec<_> = split_lines("a\r\nb\rc\u{b}d\u{1c}e\u{85}f\u{2028}g\n\nh".as_bytes())
            .into_iter()
            .map(|line| std::str::from_utf8(line).unwrap())
            .collect();
        let want = [
            "a\r\n",
            "b\r",
            "c\u{b}",
            "d\u{1c}",
            "e\u{85}",
            "f\u{2028}",
            "g\n",
            "\n",
            "h",
        ];
        assert_eq!(lines, want);
    }

    proptest::proptest! {
        #[test]
        fn any_source_reads_back(
            old in proptest::collection::vec("[ab\n]{0,3}", 0..5),
            text in "[ab\n]{0,8}",
            space in "[ \n]{0,2}",
        ) {
            let items: Vec<_> = old.iter().map(|line| serde_json::to_string(line).unwrap()).collect();
            let old = format!("[{space}{}{space}]", items.join(&format!("{space},{space}")));
            let new = rewritten(&old, &text);
            let lines: Vec<String> = serde_json::from_str(&new).unwrap();
            proptest::prop_assert_eq!(lines.concat(), text);
        }
    }
}
