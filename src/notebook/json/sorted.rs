//! Any JSON as Python's `json.dumps(…, indent=1, sort_keys=True, ensure_ascii=False)` writes it.
//!
//! Numbers keep their spelling. Nothing here calls itself: depth costs memory, never the stack.

use std::borrow::Cow;

use super::layout::string_length;
use super::{Span, decode, encode};

/// Deeper values are written on one line: Python writes none at all, and a line's indent is as long
/// as it is deep.
const INDENTED_LEVELS: usize = 1000;

/// Returns valid JSON with the keys of each object sorted, a line for each value, and a newline at the
/// end; of equal keys the last stays.
pub(in crate::notebook) fn sorted(text: &[u8]) -> Vec<u8> {
    Tree::read(text).into_bytes()
}

/// The values of a JSON text; a list or an object holds the indexes of its values.
struct Tree<'a> {
    text: &'a [u8],
    values: Vec<Value<'a>>,
}

enum Value<'a> {
    /// A string, number or word.
    Plain(Span),
    List(Vec<usize>),
    Object(Vec<(Cow<'a, [u8]>, usize)>),
}

impl<'a> Tree<'a> {
    /// Reads valid JSON; the whole is value 0.
    fn read(text: &'a [u8]) -> Self {
        let mut values: Vec<Value<'a>> = Vec::new();
        let mut open: Vec<usize> = Vec::new();
        let mut key = None;
        let mut at = 0;
        while let Some(byte) = text.get(at) {
            let rest = text.get(at..).unwrap_or_default();
            let length = match byte {
                b'"' => string_length(rest),
                b' ' | b'\n' | b'\r' | b'\t' | b',' | b':' => {
                    at += 1;
                    continue;
                }
                b'}' | b']' => {
                    open.pop();
                    at += 1;
                    continue;
                }
                b'{' | b'[' => 1,
                _ => {
                    let end = |byte: &u8| b",:]} \n\r\t".contains(byte);
                    rest.iter().position(end).unwrap_or(rest.len())
                }
            };
            let span = Span::new(at, at + length);
            at += length;
            let parent = open.last().copied();
            let in_object = matches!(parent.and_then(|at| values.get(at)), Some(Value::Object(_)));
            if in_object && key.is_none() {
                key = Some(decode(span.of(text)));
                continue;
            }
            let number = values.len();
            match (parent.and_then(|at| values.get_mut(at)), key.take()) {
                (Some(Value::List(inside)), _) => inside.push(number),
                (Some(Value::Object(inside)), Some(key)) => inside.push((key, number)),
                _ => {}
            }
            values.push(match byte {
                b'{' => Value::Object(Vec::new()),
                b'[' => Value::List(Vec::new()),
                _ => Value::Plain(span),
            });
            if matches!(byte, b'{' | b'[') {
                open.push(number);
            }
        }
        Self { text, values }
    }

    /// Returns the whole, as Jupyter writes it.
    fn into_bytes(mut self) -> Vec<u8> {
        for value in &mut self.values {
            if let Value::Object(fields) = value {
                // Stable: of equal keys the last counts.
                fields.sort_by(|a, b| a.0.cmp(&b.0));
                fields.reverse();
                fields.dedup_by(|a, b| a.0 == b.0);
                fields.reverse();
            }
        }
        let mut out = Vec::with_capacity(self.text.len() + self.text.len() / 4);
        // The lists and objects that are being written, and how much of each is.
        let mut open: Vec<(usize, usize)> = Vec::new();
        let mut next = Some(0);
        loop {
            if let Some(number) = next.take() {
                match self.values.get(number) {
                    Some(Value::Plain(span)) => plain(&mut out, span.of(self.text)),
                    Some(Value::List(inside)) if inside.is_empty() => out.extend(b"[]"),
                    Some(Value::Object(inside)) if inside.is_empty() => out.extend(b"{}"),
                    Some(value) => {
                        out.push(if matches!(value, Value::List(_)) {
                            b'['
                        } else {
                            b'{'
                        });
                        open.push((number, 0));
                    }
                    None => {}
                }
            }
            let depth = open.len();
            let Some((number, written)) = open.last_mut() else {
                break;
            };
            let at = *written;
            *written += 1;
            let (inside, close) = match self.values.get(*number) {
                Some(Value::List(inside)) => (inside.get(at).map(|value| (None, *value)), b']'),
                Some(Value::Object(inside)) => {
                    let field = inside.get(at);
                    (field.map(|(key, value)| (Some(key), *value)), b'}')
                }
                _ => (None, b' '),
            };
            let Some((key, value)) = inside else {
                open.pop();
                line(&mut out, depth - 1, depth);
                out.push(close);
                continue;
            };
            if at > 0 {
                out.push(b',');
            }
            line(&mut out, depth, depth);
            if let Some(key) = key {
                encode(&mut out, key, false);
                out.extend(b": ");
            }
            next = Some(value);
        }
        out.push(b'\n');
        out
    }
}

/// Begins a line with this indent, unless what stands there is too deep for lines.
fn line(out: &mut Vec<u8>, indent: usize, depth: usize) {
    if depth <= INDENTED_LEVELS {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', indent));
    }
}

/// Writes a string, number or word.
fn plain(out: &mut Vec<u8>, raw: &[u8]) {
    let is_plain = |byte: &u8| *byte >= b' ' && *byte != b'\\';
    if raw.starts_with(b"\"") && !raw.iter().all(is_plain) {
        encode(out, &decode(raw), false);
    } else {
        out.extend_from_slice(raw);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_python_sorts_them() {
        let text = "{\"b\":1E5,\"\\u00e9\":[],\"a\":{\"x\":[{},-0]},\"b\":\"\\/\\u0007\t\\ud800\"}";
        assert_eq!(
            String::from_utf8(sorted(text.as_bytes())).unwrap(),
            "{\n \"a\": {\n  \"x\": [\n   {},\n   -0\n  ]\n },\n \"b\": \"/\\u0007\\t\\ud800\",\n \"é\": []\n}\n"
        );
        assert_eq!(sorted(b" 3 "), b"3\n");
    }
}
