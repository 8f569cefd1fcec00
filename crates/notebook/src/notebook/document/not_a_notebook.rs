//! The error for a file that is not a notebook.

use crate::notebook::json::JsonError;

/// The error for a file that is not a notebook, with the first position that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not a notebook: line {line}, column {column}: expected {expected}, found {found}")]
pub struct NotANotebook {
    /// The line, from 1.
    pub line: usize,
    /// The character within the line, from 1.
    pub column: usize,
    /// The syntax that a notebook has there.
    pub expected: String,
    /// The text that the file has there.
    pub found: String,
    /// Whether the file ends too early: a program may be writing it in place.
    pub cut_off: bool,
}

impl NotANotebook {
    pub(in crate::notebook) fn at(text: &[u8], at: usize, expected: &str) -> Self {
        let before = text.get(..at).unwrap_or(text);
        let line_start = memchr::memrchr(b'\n', before).map_or(0, |newline| newline + 1);
        let line = before.get(line_start..).unwrap_or_default();
        let rest = text.get(at..).unwrap_or_default();
        // An unterminated string reaches to the end of the file.
        let open = expected.starts_with("a closing quote");
        let found = if rest.is_empty() || open {
            "the end of the file".to_owned()
        } else {
            let start = rest.get(..rest.len().min(80)).unwrap_or_default();
            let shown: String = String::from_utf8_lossy(start).chars().take(12).collect();
            format!("{shown:?}")
        };
        Self {
            line: memchr::memchr_iter(b'\n', before).count() + 1,
            column: String::from_utf8_lossy(line).chars().count() + 1,
            expected: expected.to_owned(),
            cut_off: open || is_beginning(rest.trim_ascii()),
            found,
        }
    }

    pub(in crate::notebook) fn of(text: &[u8], fault: &JsonError) -> Self {
        Self::at(text, fault.at, fault.expected)
    }
}

/// Says whether a text that is not JSON may be the beginning of valid JSON.
fn is_beginning(rest: &[u8]) -> bool {
    let tokens = [
        "true", "false", "null", "NaN", "Infinity", ".", "e+", "e-", "E+", "E-",
    ];
    tokens.iter().any(|word| word.as_bytes().starts_with(rest))
        || (rest.starts_with(b"\\") && rest.len() < 6)
        || std::str::from_utf8(rest).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use crate::notebook::Document;

    #[test]
    fn the_place_is_what_an_editor_shows() {
        let text = "{\n \"cells\": [\n  {\"source\": \"é\" 1}\n ]\n}";
        let fault = Document::parse(text).unwrap_err();
        assert_eq!((fault.line, fault.column, fault.cut_off), (3, 18, false));
        assert_eq!(
            fault.to_string(),
            "it is not a notebook: line 3, column 18: expected , or }, found \"1}\\n ]\\n}\""
        );
        for (text, line, column, expected) in [
            ("[]", 1, 1, "a notebook, which begins with {"),
            ("{}", 1, 2, "a field \"cells\": a notebook has one"),
            (
                "{\"cells\": {}}",
                1,
                11,
                "a list of cells, which begins with [",
            ),
            (
                "{\"cells\": [{},\r\n 1]}",
                2,
                2,
                "a cell, which begins with {",
            ),
            ("{\"cells\": []} x", 1, 15, "the end of the file"),
        ] {
            let fault = Document::parse(text).unwrap_err();
            assert_eq!((fault.line, fault.column), (line, column), "{text}");
            assert_eq!(fault.expected, expected);
            assert!(!fault.cut_off, "{text}");
        }
        let fault = Document::parse(&b"{\"cells\": [\"\xff\"]}"[..]).unwrap_err();
        assert_eq!((fault.column, &fault.expected[..]), (13, "text in UTF-8"));
    }

    #[test]
    fn a_file_that_ends_early_is_known_as_one() {
        let text = "{\"cells\": [{\"a\": [true, \"x\\n\\u00e9é\", -1.5e3]}], \"nbformat\": 4}";
        for end in 0..text.len() {
            let cut = &text.as_bytes()[..end];
            let fault = Document::parse(cut.to_vec()).unwrap_err();
            assert!(fault.cut_off, "{}: {fault}", String::from_utf8_lossy(cut));
        }
        Document::parse(text).unwrap();
    }
}
