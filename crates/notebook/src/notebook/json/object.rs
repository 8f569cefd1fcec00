//! One object in its own bytes: finds, sets and removes a field, and leaves all else untouched.

use std::collections::BTreeMap;

use super::{JsonError, Layout, Scanner, Span, decode, is, lossy};

/// The positions of a field's key and value, at half of a [`Span`]'s size to save memory: a code cell has
/// six fields. No text is longer than [`TEXT_BYTES_MAX`](super::TEXT_BYTES_MAX).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::notebook) struct Field {
    key: [u32; 2],
    value: [u32; 2],
}

impl Field {
    /// Makes a field of spans in a text of at most [`TEXT_BYTES_MAX`](super::TEXT_BYTES_MAX) bytes.
    #[inline]
    pub(in crate::notebook) fn new(key: Span, value: Span) -> Self {
        let short =
            |span: Span| [span.start, span.end].map(|at| u32::try_from(at).unwrap_or(u32::MAX));
        Self {
            key: short(key),
            value: short(value),
        }
    }

    /// Returns the key's span, with the quotes.
    #[inline]
    pub(in crate::notebook) fn key(&self) -> Span {
        let [start, end] = self.key;
        Span::new(start as usize, end as usize)
    }

    /// Returns the value's span.
    #[inline]
    pub(in crate::notebook) fn value(&self) -> Span {
        let [start, end] = self.value;
        Span::new(start as usize, end as usize)
    }

    /// Returns the field with `to` applied to each of its positions.
    pub(in crate::notebook) fn moved(&self, to: impl Fn(usize) -> usize) -> Self {
        let moved = |span: Span| Span::new(to(span.start), to(span.end));
        Self::new(moved(self.key()), moved(self.value()))
    }
}

/// The positions of an object's fields in a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::notebook) struct Object {
    /// The object with its braces.
    pub span: Span,
    /// The fields in the order of the text.
    pub fields: Vec<Field>,
}

impl Object {
    /// Reads the object at the scanner's position.
    pub(in crate::notebook) fn scan(scanner: &mut Scanner<'_>) -> Result<Self, JsonError> {
        let mut fields = Vec::new();
        let span = scanner.object(|scanner, key| {
            let value = scanner.value()?;
            if fields.is_empty() {
                // A code cell has six fields; most objects have no more.
                fields.reserve_exact(6);
            }
            fields.push(Field::new(key, value));
            Ok(())
        })?;
        Ok(Self { span, fields })
    }

    /// Reads an object that fills a text; `None` if the text is anything else.
    pub(in crate::notebook) fn read(text: &[u8]) -> Option<Self> {
        Self::scan(&mut Scanner::new(text, 0)).ok()
    }

    /// Returns the position of a field's value; of duplicate keys the last counts.
    pub(in crate::notebook) fn get(&self, text: &[u8], name: &str) -> Option<Span> {
        let mut from_end = self.fields.iter().rev();
        let found = from_end.find(|field| is(field.key().of(text), name));
        found.map(|field| field.value())
    }

    /// Returns the positions of all values by the fields' names.
    pub(in crate::notebook) fn by_name(&self, text: &[u8]) -> BTreeMap<String, Span> {
        let fields = self.fields.iter();
        let named = fields.map(|field| {
            let name = lossy(decode(field.key().of(text)));
            (name.into_owned(), field.value())
        });
        named.collect()
    }

    /// Returns the text with a field set to a value that is already in the file's layout.
    ///
    /// A new field goes before the first key that sorts after it, as most writers sort, and is written in
    /// the style of its neighbours; `layout` is for an object without fields.
    pub(in crate::notebook) fn set(
        &self,
        text: &[u8],
        name: &str,
        value: &[u8],
        layout: &Layout,
    ) -> Vec<u8> {
        if let Some(old) = self.get(text, name) {
            return spliced(text, old, &[value]);
        }
        let layout = self.layout(text, layout);
        let mut key = Vec::new();
        layout.string(&mut key, name.as_bytes());
        let colon = layout.colon.as_bytes();
        let later = |field: &Field| {
            let raw = field.key().of(text);
            raw.get(1..) > key.get(1..)
        };
        let gap = self.gap(text, &layout);
        match (
            self.fields.iter().find(|field| later(field)),
            self.fields.last(),
        ) {
            (Some(next), _) => {
                let at = next.key().start;
                spliced(text, Span::new(at, at), &[&key, colon, value, &gap])
            }
            (None, Some(last)) => {
                let at = last.value().end;
                spliced(text, Span::new(at, at), &[&gap, &key, colon, value])
            }
            (None, None) => {
                let lead = layout.lead.as_bytes();
                let close = layout.close();
                let parts: [&[u8]; 7] = [b"{", lead, &key, colon, value, close.as_bytes(), b"}"];
                spliced(text, self.span, &parts)
            }
        }
    }

    /// Returns the text without a field, also if it occurs several times.
    pub(in crate::notebook) fn remove(&self, text: &[u8], name: &str) -> Vec<u8> {
        let removed: Vec<_> = self
            .fields
            .iter()
            .map(|field| is(field.key().of(text), name))
            .collect();
        if removed.iter().all(|it| *it) && !removed.is_empty() {
            return spliced(text, self.span, &[b"{}"]);
        }
        let mut out = Vec::with_capacity(text.len());
        let mut at = 0;
        let mut has_earlier = false;
        for (index, field) in self.fields.iter().enumerate() {
            if removed.get(index) == Some(&false) {
                has_earlier = true;
                continue;
            }
            // Also remove its separator: the one before it, if an earlier field stays, else the one after
            // it.
            let before = index.checked_sub(1).and_then(|at| self.fields.get(at));
            let (start, end) = match (before, self.fields.get(index + 1)) {
                (Some(before), _) if has_earlier => (before.value().end, field.value().end),
                (_, Some(next)) => (field.key().start, next.key().start),
                _ => (field.key().start, field.value().end),
            };
            out.extend_from_slice(text.get(at..start).unwrap_or_default());
            at = end;
        }
        out.extend_from_slice(text.get(at..).unwrap_or_default());
        out
    }

    /// Returns the layout of the object's fields; `other` if it has no fields.
    pub(in crate::notebook) fn layout(&self, text: &[u8], other: &Layout) -> Layout {
        let Some(first) = self.fields.first() else {
            return other.clone();
        };
        let between = |start, end| {
            let between = Span::new(start, end).of(text);
            String::from_utf8_lossy(between).into_owned()
        };
        let lead = between(self.span.start + 1, first.key().start);
        let lines = lead.contains('\n');
        Layout {
            // Blanks at the end of the line before give the file another size; they are no layout.
            lead: match lines {
                true => lead.trim_start_matches([' ', '\t']).to_owned(),
                false => String::new(),
            },
            colon: between(first.key().end, first.value().start),
            ..other.clone()
        }
    }

    /// Returns the bytes between two fields, including the comma.
    fn gap(&self, text: &[u8], layout: &Layout) -> Vec<u8> {
        match self.fields.as_slice() {
            [first, second, ..] => {
                let gap = Span::new(first.value().end, second.key().start);
                without_padding(gap.of(text)).to_vec()
            }
            _ => layout.gap().into_bytes(),
        }
    }
}

/// Returns a separator without spaces at its beginning: they give the file another size and are no layout.
pub(in crate::notebook) fn without_padding(gap: &[u8]) -> &[u8] {
    let spaces = gap.iter().take_while(|byte| **byte == b' ').count();
    gap.get(spaces..).unwrap_or_default()
}

/// Returns the positions of an array's values; an empty list if the text is anything else.
pub(in crate::notebook) fn items(text: &[u8]) -> Vec<Span> {
    let mut items = Vec::new();
    let mut scanner = Scanner::new(text, 0);
    // A value that is not an array has no items, so the scanner's error does not matter.
    let _ = scanner.array(|scanner| {
        items.push(scanner.value()?);
        Ok(())
    });
    items
}

/// Returns a JSON array of values.
pub(in crate::notebook) fn list<T: AsRef<[u8]>>(values: impl Iterator<Item = T>) -> Vec<u8> {
    let mut out = b"[".to_vec();
    for (index, value) in values.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(value.as_ref());
    }
    out.push(b']');
    out
}

/// Returns a text with one part replaced.
pub(in crate::notebook) fn spliced(text: &[u8], old: Span, new: &[&[u8]]) -> Vec<u8> {
    let before = text.get(..old.start).unwrap_or_default();
    let after = text.get(old.end..).unwrap_or_default();
    let length: usize = new.iter().map(|part| part.len()).sum();
    let mut out = Vec::with_capacity(before.len() + length + after.len());
    out.extend_from_slice(before);
    for part in new {
        out.extend_from_slice(part);
    }
    out.extend_from_slice(after);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout {
            lead: "\n  ".into(),
            unit: " ".into(),
            ..Layout::default()
        }
    }

    fn set(text: &str, name: &str) -> String {
        let object = Object::read(text.as_bytes()).unwrap();
        String::from_utf8(object.set(text.as_bytes(), name, b"0", &layout())).unwrap()
    }

    fn removed(text: &str, name: &str) -> String {
        let object = Object::read(text.as_bytes()).unwrap();
        String::from_utf8(object.remove(text.as_bytes(), name)).unwrap()
    }

    #[test]
    fn a_new_field_stands_where_sorted_ones_expect_it() {
        assert_eq!(
            set("{\"a\": 1,\n \"c\": 2}", "b"),
            "{\"a\": 1,\n \"b\": 0,\n \"c\": 2}"
        );
        assert_eq!(set("{ \"b\" :1}", "a"), "{ \"a\" :0,\"b\" :1}");
        assert_eq!(set("{\"a\": 1}", "b"), "{\"a\": 1, \"b\": 0}");
        assert_eq!(
            set("{\r\n\t\"a\":1\r\n}", "b"),
            "{\r\n\t\"a\":1,\r\n\t\"b\":0\r\n}"
        );
        assert_eq!(set("{ }", "b"), "{\n  \"b\": 0\n }");
        assert_eq!(set("{\"a\":1,\"a\":2}", "a"), "{\"a\":1,\"a\":0}");
    }

    #[test]
    fn blanks_at_the_end_of_a_line_are_no_layout() {
        let text = b"{ \t\n   \"a\": 1\n  }";
        let found = Object::read(text).unwrap().layout(text, &layout());
        assert_eq!(found.lead, "\n   ");
    }

    #[test]
    fn a_field_goes_with_all_its_doubles() {
        let text = "{ \"x\": 1, \"a\": 2,\n \"x\": 3, \"\\u0078\": 4, \"b\": 5, \"x\": 6 }";
        assert_eq!(removed(text, "x"), "{ \"a\": 2, \"b\": 5 }");
        assert_eq!(removed("{\"x\":1 }", "x"), "{}");
        assert_eq!(removed("{\"x\":1,\"x\":2}", "x"), "{}");
        assert_eq!(removed("{\"x\":1}", "y"), "{\"x\":1}");
        assert_eq!(removed("{}", "y"), "{}");
    }
}
