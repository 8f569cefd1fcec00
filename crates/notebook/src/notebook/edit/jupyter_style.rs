//! Values in the form in which Jupyter writes them, with text as a list of lines.

use std::borrow::Cow;

use crate::notebook::document::split_lines;
use crate::notebook::json::{Field, Layout, Object, decode, encode, items};

/// Says whether nbformat writes data of this MIME type as a list of lines, as it does not for images and
/// JSON.
pub(super) fn is_in_lines(mime: &[u8]) -> bool {
    let others = [&b"application/javascript"[..], b"image/svg+xml"];
    mime.starts_with(b"text/") || others.contains(&mime)
}

/// Returns an object with `each` applied to its values; `each` also gets the decoded key. Other values are
/// returned unchanged.
pub(super) fn mapped<'a>(
    object: &'a [u8],
    each: impl Fn(&[u8], &'a [u8]) -> Cow<'a, [u8]>,
) -> Vec<u8> {
    mapped_in_order(object, |_| (), each)
}

/// Returns an object with its fields sorted by key, and `each` applied to its values.
pub(super) fn sorted_and_mapped<'a>(
    object: &'a [u8],
    each: impl Fn(&[u8], &'a [u8]) -> Cow<'a, [u8]>,
) -> Vec<u8> {
    mapped_in_order(object, |fields| fields.sort_by(|a, b| a.0.cmp(&b.0)), each)
}

fn mapped_in_order<'a>(
    object: &'a [u8],
    order: impl FnOnce(&mut Vec<(Cow<'a, [u8]>, &Field)>),
    each: impl Fn(&[u8], &'a [u8]) -> Cow<'a, [u8]>,
) -> Vec<u8> {
    let Some(fields) = Object::read(object) else {
        return object.to_vec();
    };
    let fields = fields.fields.iter();
    let mut fields: Vec<_> = fields
        .map(|field| (decode(field.key().of(object)), field))
        .collect();
    order(&mut fields);
    let mut out = Vec::with_capacity(object.len());
    out.push(b'{');
    for (index, (key, field)) in fields.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(field.key().of(object));
        out.push(b':');
        out.extend_from_slice(&each(key, field.value().of(object)));
    }
    out.push(b'}');
    out
}

/// Returns the characters of a string or of a list of strings; `None` for other values.
pub(super) fn text_of(value: &[u8]) -> Option<Vec<u8>> {
    if value.starts_with(b"\"") {
        return Some(decode(value).into_owned());
    }
    if !value.starts_with(b"[") {
        return None;
    }
    let mut text = Vec::with_capacity(value.len());
    for item in items(value) {
        let item = item.of(value);
        if !item.starts_with(b"\"") {
            return None;
        }
        text.extend_from_slice(&decode(item));
    }
    Some(text)
}

/// Returns a text as a list of its lines; other values unchanged.
pub(super) fn lines(value: &[u8]) -> Cow<'_, [u8]> {
    let Some(text) = text_of(value) else {
        return value.into();
    };
    let layout = Layout::default();
    let mut out = Vec::with_capacity(value.len());
    out.push(b'[');
    for (index, line) in split_lines(&text).into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        layout.string(&mut out, line);
    }
    out.push(b']');
    out.into()
}

/// Returns text as a JSON string.
pub(super) fn string(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 2);
    encode(&mut out, text, false);
    out
}
