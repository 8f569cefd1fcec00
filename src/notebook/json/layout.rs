//! How a file writes its JSON, and values written so.

use memchr::memchr2;

use super::{decode, encode};

/// Deeper values are written on one line: a line's indent is as long as it is deep, and a kernel
/// may send any depth.
const INDENTED_LEVELS: usize = 100;

/// The style of one level of a file; its default is Jupyter's, on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::notebook) struct Layout {
    /// The white space before a key or item of this level: a newline and the indent. Empty if the
    /// object stands on one line.
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

    /// Returns what stands before the bracket that closes this level.
    pub(in crate::notebook) fn close(&self) -> &str {
        self.lead.strip_suffix(&self.unit).unwrap_or(&self.lead)
    }

    /// Returns what stands between two fields or items.
    pub(in crate::notebook) fn gap(&self) -> String {
        if self.lead.is_empty() {
            format!(",{}", self.space())
        } else {
            format!(",{}", self.lead)
        }
    }

    /// Appends a string.
    pub(in crate::notebook) fn string(&self, out: &mut Vec<u8>, text: &[u8]) {
        encode(out, text, self.ascii);
    }

    /// Returns a value of this level, valid JSON, in this style: numbers and the order of keys
    /// stay as they are.
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
                    // A list that is too deep to be indented ends on its own line.
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

    /// Compact writers put nothing after colons and commas, others a space after both.
    fn space(&self) -> &str {
        self.colon.split_once(':').map_or("", |(_, space)| space)
    }
}

/// Returns the length of the string that a text begins with, its quotes included.
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
