//! Decodes and encodes JSON strings.
//!
//! A JSON string may contain half of a surrogate pair, which a Rust string cannot. Decoded text is
//! therefore WTF-8: UTF-8 in which such a half is encoded like any other code point. Nothing is lost
//! between reading and writing; text that people see has U+FFFD in its place.

use std::borrow::Cow;

use memchr::{memchr, memchr2, memmem};

/// Returns the decoded characters of a JSON string, which is given with its quotes.
pub(in crate::notebook) fn decode(raw: &[u8]) -> Cow<'_, [u8]> {
    unescaped(inside(raw))
}

/// Returns the decoded characters of a JSON string, which is given with its quotes, in parts of about
/// `about` bytes: a string of fifty megabytes need not be in memory twice.
pub(in crate::notebook) fn in_parts(
    raw: &[u8],
    about: usize,
) -> impl Iterator<Item = Cow<'_, [u8]>> {
    let mut rest = inside(raw);
    std::iter::from_fn(move || {
        let (part, after) = rest.split_at_checked(whole(rest, about))?;
        rest = after;
        (!part.is_empty()).then(|| unescaped(part))
    })
}

/// Returns the length of a part of a string's content, of about `about` bytes, that ends within no escape
/// and no character.
fn whole(inner: &[u8], about: usize) -> usize {
    let (mut at, mut scratch) = (0, Vec::new());
    while at < about
        && let Some(ahead) = inner.get(at..about).and_then(|it| memchr(b'\\', it))
    {
        scratch.clear();
        let escape = inner.get(at + ahead + 1..).unwrap_or_default();
        at += ahead + 1 + unescape(&mut scratch, escape);
    }
    let at = at.max(about).min(inner.len());
    let rest = inner.get(at..).unwrap_or_default();
    let begins = |byte: &u8| !(0x80..0xc0).contains(byte);
    at + rest.iter().position(begins).unwrap_or(rest.len())
}

fn unescaped(inner: &[u8]) -> Cow<'_, [u8]> {
    if memchr(b'\\', inner).is_none() {
        return Cow::Borrowed(inner);
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(ahead) = memchr(b'\\', rest) {
        out.extend_from_slice(rest.get(..ahead).unwrap_or_default());
        let escape = rest.get(ahead + 1..).unwrap_or_default();
        let used = unescape(&mut out, escape);
        rest = escape.get(used..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    Cow::Owned(out)
}

/// Appends the decoded characters of the JSON string at the beginning of a text; returns its length,
/// including the quotes.
pub(in crate::notebook) fn append(out: &mut Vec<u8>, text: &[u8]) -> usize {
    let mut at = 1;
    loop {
        let rest = text.get(at..).unwrap_or_default();
        let ahead = quote_or_backslash(rest).unwrap_or(rest.len());
        out.extend_from_slice(rest.get(..ahead).unwrap_or_default());
        at += ahead + 1;
        match rest.get(ahead) {
            Some(b'\\') => at += unescape(out, rest.get(ahead + 1..).unwrap_or_default()),
            _ => return at.min(text.len()),
        }
    }
}

/// Appends the character of an escape, given without its backslash; returns how many bytes the escape has.
fn unescape(out: &mut Vec<u8>, escape: &[u8]) -> usize {
    let byte = match escape.first() {
        Some(b'b') => 8,
        Some(b'f') => 12,
        Some(b'n') => b'\n',
        Some(b'r') => b'\r',
        Some(b't') => b'\t',
        Some(b'u') => {
            let mut used = 5;
            let mut code = unit(escape);
            // The other half of a pair, if it follows directly.
            let next = escape.get(5..).filter(|next| next.starts_with(b"\\u"));
            if let (0xd800..0xdc00, Some(next)) = (code, next)
                && let low @ 0xdc00..0xe000 = unit(next.get(1..).unwrap_or_default())
            {
                code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                used = 11;
            }
            push(out, code);
            return used;
        }
        Some(byte) => *byte,
        None => return 0,
    };
    out.push(byte);
    1
}

/// Returns whether a JSON string, given with its quotes, is `name`.
#[inline]
pub(in crate::notebook) fn is(raw: &[u8], name: &str) -> bool {
    let (inner, name) = (inside(raw), name.as_bytes());
    if inner.len() <= name.len() {
        return inner == name;
    }
    // A longer string can equal the name only if it contains escapes. Most strings differ in the first
    // byte.
    let can_be = inner.first() == name.first() || inner.first() == Some(&b'\\');
    can_be && memchr(b'\\', inner).is_some() && *decode(raw) == *name
}

/// Returns the position of the first quote or backslash: there a string ends, or an escape begins.
#[inline]
pub(in crate::notebook) fn quote_or_backslash(text: &[u8]) -> Option<usize> {
    /// Most strings of a notebook end before this length. Up to it, reading a word at a time is faster than
    /// a call of `memchr2`, which is made for long texts.
    const SHORT: usize = 32;
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGHS: u64 = u64::from_le_bytes([0x80; 8]);
    // The lowest set bit belongs to the first byte that is 0.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    let mut at = 0;
    while at < SHORT {
        let Some(word) = text.get(at..).and_then(<[u8]>::first_chunk) else {
            break;
        };
        let word = u64::from_le_bytes(*word);
        let quotes = zeros(word ^ (ONES * u64::from(b'"')));
        let backslashes = zeros(word ^ (ONES * u64::from(b'\\')));
        let found = quotes | backslashes;
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let rest = text.get(at..).unwrap_or_default();
    Some(at + memchr2(b'"', b'\\', rest)?)
}

/// Appends text as a JSON string, as Python writes it; `ascii` escapes all non-ASCII characters.
pub(in crate::notebook) fn encode(out: &mut Vec<u8>, text: &[u8], ascii: bool) {
    out.push(b'"');
    for piece in Pieces(text) {
        match piece {
            Piece::Valid(valid) => {
                let mut plain = 0;
                for (at, c) in valid.char_indices() {
                    let escape: &[u8] = match c {
                        '"' => b"\\\"",
                        '\\' => b"\\\\",
                        '\n' => b"\\n",
                        '\r' => b"\\r",
                        '\t' => b"\\t",
                        '\u{8}' => b"\\b",
                        '\u{c}' => b"\\f",
                        '\0'..' ' => b"",
                        '\u{7f}'.. if ascii => b"",
                        _ => continue,
                    };
                    out.extend_from_slice(valid.as_bytes().get(plain..at).unwrap_or_default());
                    plain = at + c.len_utf8();
                    if escape.is_empty() {
                        let mut units = [0; 2];
                        for unit in c.encode_utf16(&mut units) {
                            out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
                        }
                    } else {
                        out.extend_from_slice(escape);
                    }
                }
                out.extend_from_slice(valid.as_bytes().get(plain..).unwrap_or_default());
            }
            Piece::Half(unit) => out.extend_from_slice(format!("\\u{unit:04x}").as_bytes()),
        }
    }
    out.push(b'"');
}

/// Returns decoded text for people, with U+FFFD for halves of surrogate pairs.
pub(in crate::notebook) fn lossy(text: Cow<'_, [u8]>) -> Cow<'_, str> {
    let bytes = match text {
        Cow::Borrowed(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => return Cow::Borrowed(text),
            Err(_) => bytes.to_vec(),
        },
        Cow::Owned(bytes) => match String::from_utf8(bytes) {
            Ok(text) => return Cow::Owned(text),
            Err(error) => error.into_bytes(),
        },
    };
    let mut out = String::with_capacity(bytes.len());
    for piece in Pieces(&bytes) {
        match piece {
            Piece::Valid(valid) => out.push_str(valid),
            Piece::Half(_) => out.push('\u{fffd}'),
        }
    }
    Cow::Owned(out)
}

fn inside(raw: &[u8]) -> &[u8] {
    raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default()
}

/// Reads the `uXXXX` of an escape.
fn unit(escape: &[u8]) -> u32 {
    let digits = escape.get(1..5).unwrap_or_default();
    digits.iter().fold(0, |code, digit| {
        code * 16 + char::from(*digit).to_digit(16).unwrap_or(0)
    })
}

/// Appends a code point, which may be a surrogate, in UTF-8's encoding.
fn push(out: &mut Vec<u8>, code: u32) {
    match char::from_u32(code) {
        Some(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        None => out.extend([
            0xe0 | (code >> 12) as u8,
            0x80 | (code >> 6 & 0x3f) as u8,
            0x80 | (code & 0x3f) as u8,
        ]),
    }
}

/// An iterator over the parts of decoded text.
struct Pieces<'a>(&'a [u8]);

enum Piece<'a> {
    Valid(&'a str),
    /// Half of a surrogate pair.
    Half(u32),
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        // Halves begin with 0xed and a byte above 0x9f, as nothing else in UTF-8 does.
        let mut end = self.0.len();
        let mut from = 0;
        while let Some(ahead) = memchr(0xed, self.0.get(from..).unwrap_or_default()) {
            let at = from + ahead;
            if self.0.get(at + 1) > Some(&0x9f) {
                end = at;
                break;
            }
            from = at + 1;
        }
        if end == 0 {
            let (half, rest) = self.0.split_at(self.0.len().min(3));
            self.0 = rest;
            let bits = |at: usize| u32::from(half.get(at).copied().unwrap_or(0)) & 0x3f;
            return Some(Piece::Half(0xd000 | bits(1) << 6 | bits(2)));
        }
        let (valid, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(Piece::Valid(
            std::str::from_utf8(valid).expect("decoded text without halves is UTF-8"),
        ))
    }
}

/// Returns the positions of `needle` in decoded text, from left to right without overlaps.
pub(in crate::notebook) fn find_all(text: &[u8], needle: &str) -> Vec<usize> {
    memmem::find_iter(text, needle).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_string_comes_in_parts() {
        let text = "a\né\u{1f600}\\\"日".repeat(50);
        let half = "\\ud83d\\ude00\\ud83d\\n";
        for ascii in [false, true] {
            let mut raw = Vec::new();
            encode(&mut raw, text.as_bytes(), ascii);
            raw.splice(1..1, half.bytes());
            let want = decode(&raw).into_owned();
            for about in 1..40 {
                let parts: Vec<_> = in_parts(&raw, about).collect();
                assert!(parts.len() > raw.len() / (about + 14));
                assert_eq!(parts.concat(), want, "{about}");
            }
        }
        assert_eq!(in_parts(b"\"\"", 4).count(), 0);
        // A text that is not a whole string.
        assert_eq!(in_parts(b"\"a\\\"", 1).count(), 2);
    }

    fn encoded(text: &[u8], ascii: bool) -> String {
        let mut out = Vec::new();
        encode(&mut out, text, ascii);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn escapes_are_pythons() {
        let text = "a\"\\/\n\r\t\u{8}\u{c}\u{1}\u{7f}é\u{2028}😀";
        assert_eq!(
            encoded(text.as_bytes(), false),
            "\"a\\\"\\\\/\\n\\r\\t\\b\\f\\u0001\u{7f}é\u{2028}😀\""
        );
        assert_eq!(
            encoded(text.as_bytes(), true),
            "\"a\\\"\\\\/\\n\\r\\t\\b\\f\\u0001\\u007f\\u00e9\\u2028\\ud83d\\ude00\""
        );
        assert_eq!(
            *decode(encoded(text.as_bytes(), true).as_bytes()),
            *text.as_bytes()
        );
    }

    #[test]
    fn the_first_quote_or_backslash_is_found_wherever_it_is() {
        for length in 0..80 {
            for first in 0..=length {
                for second in [first, first + 1, first + 7, length] {
                    let mut text = vec![b'!'; length];
                    for (at, byte) in [(second, b'"'), (first, b'\\')] {
                        if let Some(there) = text.get_mut(at) {
                            *there = byte;
                        }
                    }
                    let want = (first < length).then_some(first);
                    assert_eq!(quote_or_backslash(&text), want, "{length} {first} {second}");
                }
            }
        }
        // Bytes that differ from the two in one bit, and non-ASCII bytes.
        assert_eq!(
            quote_or_backslash(&[0x23, 0xa2, 0x5d, 0xdc, 0, 0xff, 1, 2, 3]),
            None
        );
        assert_eq!(quote_or_backslash("é\u{22}".as_bytes()), Some(2));
    }

    #[test]
    fn half_a_surrogate_pair_is_kept_and_shown_as_unknown() {
        let raw = br#""x\ud83d\ud83d\ude00\udc00y\ud800""#;
        let text = decode(raw);
        assert_eq!(encoded(&text, true).as_bytes(), raw);
        assert_eq!(lossy(text), "x\u{fffd}😀\u{fffd}y\u{fffd}");
        assert_eq!(lossy(decode("\"\u{d7ff}\"".as_bytes())), "\u{d7ff}");
    }

    #[test]
    fn a_key_may_be_written_with_escapes() {
        assert!(is(br#""s\u006furce""#, "source"));
        assert!(!is(br#""sourc""#, "source"));
    }

    proptest::proptest! {
        #[test]
        fn any_text_comes_back(text in ".*", ascii: bool) {
            let raw = encoded(text.as_bytes(), ascii);
            proptest::prop_assert_eq!(raw.is_ascii(), ascii || text.is_ascii());
            proptest::prop_assert_eq!(&*decode(raw.as_bytes()), text.as_bytes());
            let serde: String = serde_json::from_str(&raw).unwrap();
            proptest::prop_assert_eq!(serde, text);
        }
    }
}
