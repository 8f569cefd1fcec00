//! A hash of a JSON value that does not depend on how the value is written.

use std::sync::LazyLock;

use sha2::{Digest as _, Sha256};

use super::decode;
use super::layout::tokens;

type Hash = [u8; 32];

/// A value whose end has not been seen.
enum Open {
    List(Sha256),
    /// The fields read so far, and the key whose value comes next.
    Object(Vec<(Vec<u8>, Hash)>, Option<Vec<u8>>),
}

/// Returns the hash of a valid JSON value. White space, escapes, the order of keys and the spelling of a
/// number (JavaScript writes `1.0` as `1`) make no difference; of duplicate keys the last counts.
pub(in crate::notebook) fn digest(json: &[u8]) -> Hash {
    match json {
        b"{}" => return *EMPTY,
        b"null" => return *NULL,
        _ => {}
    }
    let mut open: Vec<Open> = Vec::new();
    let mut whole = None;
    for token in tokens(json) {
        let value = match (token, open.last_mut()) {
            (b"{", _) => {
                open.push(Open::Object(Vec::new(), None));
                continue;
            }
            (b"[", _) => {
                open.push(Open::List(Sha256::new_with_prefix(b"[")));
                continue;
            }
            (b"}" | b"]", _) => match open.pop() {
                Some(Open::Object(fields, _)) => object(fields),
                Some(Open::List(list)) => list.finalize().into(),
                None => break,
            },
            (_, Some(Open::Object(_, key @ None))) => {
                *key = Some(decode(token).into_owned());
                continue;
            }
            ([b'"', ..], _) => hash(b"\"", &decode(token)),
            _ => hash(b"1", &number(token)),
        };
        match open.last_mut() {
            Some(Open::List(list)) => list.update(value),
            Some(Open::Object(fields, key)) => {
                fields.push((key.take().unwrap_or_default(), value));
            }
            None => whole = Some(value),
        }
    }
    whole.unwrap_or_else(|| hash(b"", b""))
}

/// The hash of `{}`, which most cells have for metadata.
static EMPTY: LazyLock<Hash> = LazyLock::new(|| hash(b"{", b""));

/// The hash of `null`, which stands for a missing value.
static NULL: LazyLock<Hash> = LazyLock::new(|| hash(b"1", b"null"));

fn hash(kind: &[u8], bytes: &[u8]) -> Hash {
    let mut hash = Sha256::new_with_prefix(kind);
    hash.update(bytes);
    hash.finalize().into()
}

fn object(mut fields: Vec<(Vec<u8>, Hash)>) -> Hash {
    fields.sort_by(|a, b| a.0.cmp(&b.0));
    let mut all = Sha256::new_with_prefix(b"{");
    for (index, (key, value)) in fields.iter().enumerate() {
        let last = fields.get(index + 1).is_none_or(|next| next.0 != *key);
        if last {
            all.update(hash(b"k", key));
            all.update(value);
        }
    }
    all.finalize().into()
}

/// Returns the canonical spelling of a number; words are returned unchanged.
fn number(token: &[u8]) -> Vec<u8> {
    let float = token.iter().any(|byte| b".eE".contains(byte));
    let text = std::str::from_utf8(token).unwrap_or_default();
    match text.parse::<f64>() {
        // A float represents every whole number below 2^53 exactly.
        Ok(value) if float && value.fract() == 0.0 && value.abs() < 9.0e15 => {
            format!("{value:.0}").into_bytes()
        }
        Ok(value) if float && value.is_finite() => format!("{value:e}").into_bytes(),
        _ => token.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_meaning_counts() {
        for (a, b) in [
            (
                "{\"a\":1,\"b\":[2]}",
                " { \"b\" : [ 2.0 ] , \"\\u0061\" : 1e0 } ",
            ),
            ("{\"a\":1,\"a\":2}", "{\"a\":2}"),
            ("\"é\"", "\"\\u00e9\""),
            ("{}", " { } "),
            ("null", "null "),
            ("1e-05", "0.00001"),
        ] {
            assert_eq!(digest(a.as_bytes()), digest(b.as_bytes()), "{a} {b}");
        }
    }

    #[test]
    fn different_values_differ() {
        let values = [
            "1",
            "2",
            "1.5",
            "\"1\"",
            "[1]",
            "[[1]]",
            "[1,1]",
            "[]",
            "{}",
            "[{}]",
            "[[],1]",
            "{\"a\":1}",
            "{\"a\":[1]}",
            "{\"a\":\"1\"}",
            "{\"b\":1}",
            "{\"a\":{\"b\":1}}",
            "null",
            "true",
            "NaN",
            "Infinity",
            "12345678901234567890",
            "12345678901234567891",
            "\"\"",
            "{\"a\":1,\"b\":1}",
            "{\"a\":null}",
            "{\"a\":{}}",
        ];
        for (index, a) in values.iter().enumerate() {
            for b in values.iter().skip(index + 1) {
                assert_ne!(digest(a.as_bytes()), digest(b.as_bytes()), "{a} {b}");
            }
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_ne!(digest(deep.as_bytes()), digest(b"[]"));
    }
}
