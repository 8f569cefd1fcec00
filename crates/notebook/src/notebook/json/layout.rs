//! The style in which a file writes its JSON, and values written in that style.

use memchr::memchr2;

use super::{decode, encode};

/// How many levels are indented; deeper values are written on one line, since a kernel may send any depth.
const INDENTED_LEVELS: usize = 100;

/// The style of one level of a file. The default is Jupyter's, on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::notebook) struct Layout {
    /// The white space before a key or item of this level: a newline and the indent. Empty if the object is
    /// on one line.
    pub lead: String,
    /// The white space that each level adds to the indent.
    pub unit: String,
    /// The colon between a key and its value, with its white space.
    pub colon: String,
    /// Whether characters beyond ASCII are escaped.
    pub ascii: bool,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            lead: String::new(),
            unit: String::new(),
            colon: ": ".into(),
            ascii: false,
        }
    }
}

impl Layout {
    /// Returns the style one level deeper.
    pub(in crate::notebook) fn deeper(&self) -> Self {
        let lead = match self.lead.as_str() {
            "" => String::new(),
            lead => format!("{lead}{}", self.unit),
        };
        Self {
            lead,
            ..self.clone()
        }
    }

    /// Returns the white space before the bracket that closes this level.
    pub(in crate::notebook) fn close(&self) -> &str {
        self.lead.strip_suffix(&self.unit).unwrap_or(&self.lead)
    }

    /// Returns the separator between two fields or items.
    pub(in crate::notebook) fn gap(&self) -> String {
        if self.lead.is_empty() {
            format!(",{}", self.space())
        } else {
            format!(",{}", self.lead)
        }
    }

    /// Appends a string as JSON.
    pub(in crate::notebook) fn string(&self, out: &mut Vec<u8>, text: &[u8]) {
        encode(out, text, self.ascii);
    }

    /// Returns valid JSON as a value of this level, in this style. Numbers and the order of keys stay as
    /// they are.
    pub(in crate::notebook) fn value(&self, json: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(json.len() + json.len() / 4);
        let mut depth = 0;
        let mut rest = json;
        while let Some((byte, after)) = rest.split_first() {
            match byte {
                b' ' | b'\n' | b'\r' | b'\t' => {}
                b'{' | b'[' => {
                    out.push(*byte);
                    let next = after.trim_ascii_start();
                    if let Some((close @ (b'}' | b']'), after)) = next.split_first() {
                        out.push(*close);
                        rest = after;
                        continue;
                    }
                    depth += 1;
                    self.line(&mut out, depth);
                }
                b'}' | b']' => {
                    depth = depth.saturating_sub(1);
                    // A list that is too deep for indentation ends on the same line.
                    if depth < INDENTED_LEVELS {
                        self.line(&mut out, depth);
                    }
                    out.push(*byte);
                }
                b',' => {
                    out.push(b',');
                    if self.lead.is_empty() || depth > INDENTED_LEVELS {
                        out.extend_from_slice(self.space().as_bytes());
                    } else {
                        self.line(&mut out, depth);
                    }
                }
                b':' => out.extend_from_slice(self.colon.as_bytes()),
                b'"' => {
                    let (raw, after) = rest.split_at(string_length(rest));
                    if raw.is_ascii() && !raw.contains(&b'\\') {
                        out.extend_from_slice(raw);
                    } else {
                        self.string(&mut out, &decode(raw));
                    }
                    rest = after;
                    continue;
                }
                byte => out.push(*byte),
            }
            rest = after;
        }
        out
    }

    fn line(&self, out: &mut Vec<u8>, depth: usize) {
        if !self.lead.is_empty() && depth <= INDENTED_LEVELS {
            out.extend_from_slice(self.lead.as_bytes());
            for _ in 0..depth {
                out.extend_from_slice(self.unit.as_bytes());
            }
        }
    }

    /// Returns the white space after a comma: none for compact writers, which have none after a colon; else
    /// a space.
    fn space(&self) -> &str {
        self.colon.split_once(':').map_or("", |(_, space)| space)
    }
}

/// Returns the tokens of valid JSON without commas and colons: strings, numbers, words and brackets.
pub(super) fn tokens(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let start = rest.iter().position(|byte| !b",: \n\r\t".contains(byte))?;
        rest = rest.get(start..)?;
        let length = match rest.first()? {
            b'"' => string_length(rest),
            b'{' | b'[' | b'}' | b']' => 1,
            _ => {
                let mut bytes = rest.iter();
                let end = bytes.position(|byte| b",:]} \n\r\t".contains(byte));
                end.unwrap_or(rest.len())
            }
        };
        let (token, after) = rest.split_at(length);
        rest = after;
        Some(token)
    })
}

/// Returns the length of the string at the beginning of a text, including its quotes.
pub(super) fn string_length(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(ahead) = memchr2(b'"', b'\\', text.get(at..).unwrap_or_default()) {
        at += ahead;
        if text.get(at) == Some(&b'"') {
            return at + 1;
        }
        at += 2;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_python_writes_them() {
        let json = br#" {"a" :[ 1e-05,{ } ,[]],"b":"\u00e9\/","c":[NaN]}"#;
        let lines = Layout {
            lead: "\n ".into(),
            unit: " ".into(),
            ..Layout::default()
        };
        let text = String::from_utf8(lines.value(json)).unwrap();
        assert_eq!(
            text,
            "{\n  \"a\": [\n   1e-05,\n   {},\n   []\n  ],\n  \"b\": \"é/\",\n  \"c\": [\n   NaN\n  ]\n }"
        );
        let line = Layout {
            ascii: true,
            ..Layout::default()
        };
        let text = String::from_utf8(line.value(json)).unwrap();
        assert_eq!(
            text,
            r#"{"a": [1e-05, {}, []], "b": "\u00e9/", "c": [NaN]}"#
        );
        let tight = Layout {
            colon: ":".into(),
            ..Layout::default()
        };
        assert_eq!(tight.value(b"[1, {\"a\": 2}]"), b"[1,{\"a\":2}]");
    }

    #[test]
    fn depth_does_not_make_a_text_long() {
        let deep = format!("{}1{}", "[".repeat(50_000), "]".repeat(50_000));
        let lines = Layout {
            lead: "\n ".into(),
            unit: "    ".into(),
            ..Layout::default()
        };
        let text = lines.value(deep.as_bytes());
        assert!(text.len() < 200_000, "{}", text.len());
        let back: Vec<u8> = text
            .into_iter()
            .filter(|byte| !byte.is_ascii_whitespace())
            .collect();
        assert_eq!(back, deep.as_bytes());
    }
}
