//! JSON as Python's `json.dumps(…, indent=1, sort_keys=True, ensure_ascii=False)` writes it.
//!
//! Numbers keep their spelling. No function here is recursive: depth uses memory, never the stack.

use std::borrow::Cow;

use super::layout::tokens;
use super::{decode, encode};

/// How many levels are indented. Deeper values are written on one line; Python does not write them at all.
const INDENTED_LEVELS: usize = 1000;

/// Returns valid JSON with the keys of each object sorted, one line for each value, and a newline at the
/// end; of duplicate keys the last stays.
pub(in crate::notebook) fn sorted(text: &[u8]) -> Vec<u8> {
    Tree::read(text).into_bytes()
}

/// The values of a JSON text; a list or an object holds the indexes of its values.
struct Tree<'a> {
    length: usize,
    values: Vec<Value<'a>>,
}

enum Value<'a> {
    /// A string, number or word.
    Plain(&'a [u8]),
    List(Vec<usize>),
    Object(Vec<(Cow<'a, [u8]>, usize)>),
}

impl<'a> Tree<'a> {
    /// Reads valid JSON; its root is value 0.
    fn read(text: &'a [u8]) -> Self {
        let mut values: Vec<Value<'a>> = Vec::new();
        let mut open: Vec<usize> = Vec::new();
        let mut key = None;
        for token in tokens(text) {
            if matches!(token, b"}" | b"]") {
                open.pop();
                continue;
            }
            let number = values.len();
            match open.last().and_then(|at| values.get_mut(*at)) {
                Some(Value::List(inside)) => inside.push(number),
                Some(Value::Object(inside)) => match key.take() {
                    Some(key) => inside.push((key, number)),
                    None => {
                        key = Some(decode(token));
                        continue;
                    }
                },
                _ => {}
            }
            values.push(match token {
                b"{" => Value::Object(Vec::new()),
                b"[" => Value::List(Vec::new()),
                plain => Value::Plain(plain),
            });
            if matches!(token, b"{" | b"[") {
                open.push(number);
            }
        }
        let length = text.len();
        Self { length, values }
    }

    /// Returns the root value, as Jupyter writes it.
    fn into_bytes(mut self) -> Vec<u8> {
        for value in &mut self.values {
            if let Value::Object(fields) = value {
                // The sort is stable: of duplicate keys the last counts.
                fields.sort_by(|a, b| a.0.cmp(&b.0));
                fields.reverse();
                fields.dedup_by(|a, b| a.0 == b.0);
                fields.reverse();
            }
        }
        let mut out = Vec::with_capacity(self.length + self.length / 4);
        // The lists and objects that are being written, and how many of their values are written.
        let mut open: Vec<(usize, usize)> = Vec::new();
        let mut next = Some(0);
        loop {
            if let Some(number) = next.take() {
                match self.values.get(number) {
                    Some(Value::Plain(raw)) => plain(&mut out, raw),
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

/// Begins a line with this indent, unless the depth is too large for lines.
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
