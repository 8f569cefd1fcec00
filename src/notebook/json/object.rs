//! One object in its own bytes: finding, setting and removing a field, all else untouched.

use std::collections::BTreeMap;

use super::{JsonError, Layout, Scanner, Span, decode, is, lossy};

/// The positions of a field's key and value, in half the bytes of two [`Span`]s: a code cell has six fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::notebook) struct Field {
    key: ShortSpan,
    value: ShortSpan,
}

/// A [`Span`] of a text that is no longer than [`LONGEST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ShortSpan {
    start: u32,
    end: u32,
}

impl ShortSpan {
    #[inline]
    fn of(span: Span) -> Self {
        // The scanner goes no further.
        let at = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Self {
            start: at(span.start),
            end: at(span.end),
        }
    }

    #[inline]
    fn span(self) -> Span {
        Span::new(self.start as usize, self.end as usize)
    }
}

impl Field {
    /// Makes a field of spans in a text of at most [`LONGEST`] bytes.
    #[inline]
    pub(in crate::notebook) fn new(key: Span, value: Span) -> Self {
        Self {
            key: ShortSpan::of(key),
            value: ShortSpan::of(value),
        }
    }

    /// Returns the key's span, with the quotes.
    #[inline]
    pub(in crate::notebook) fn key(&self) -> Span {
        self.key.span()
    }

    /// Returns the value's span.
    #[inline]
    pub(in crate::notebook) fn value(&self) -> Span {
        self.value.span()
    }

    /// Returns the field with each of its positions put through `to`.
    pub(in crate::notebook) fn moved(&self, to: impl Fn(usize) -> usize) -> Self {
        let moved = |span: Span| Span::new(to(span.start), to(span.end));
        Self::new(moved(self.key()), moved(self.value()))
    }
}

/// The positions of an object's fields in a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::notebook) struct Object {
    /// From brace to brace.
    pub span: Span,
    /// In the order of the text.
    pub fields: Vec<Field>,
}

impl Object {
    /// Reads the object that the scanner is at.
    pub(in crate::notebook) fn scan(scanner: &mut Scanner<'_>) -> Result<Self, JsonError> {
        let mut fields = Vec::new();
        let span = scanner.object(|scanner, key| {
            let value = scanner.value()?;
            if fields.is_empty() {
                // As many as a cell of code has; most have no more.
                fields.reserve_exact(6);
            }
            fields.push(Field::new(key, value));
            Ok(())
        })?;
        Ok(Self { span, fields })
    }

    /// Reads an object that fills a text; none where the text is anything else.
    pub(in crate::notebook) fn read(text: &[u8]) -> Option<Self> {
        Self::scan(&mut Scanner::new(text, 0)).ok()
    }

    /// Returns a field's value; of equal keys the last one counts, as everywhere.
    pub(in crate::notebook) fn get(&self, text: &[u8], name: &str) -> Option<Span> {
        let mut from_end = self.fields.iter().rev();
        let found = from_end.find(|field| is(field.key().of(text), name));
        found.map(|field| field.value())
    }

    /// Returns all fields' values by their names.
    pub(in crate::notebook) fn by_name(&self, text: &[u8]) -> BTreeMap<String, Span> {
        let fields = self.fields.iter();
        let named = fields.map(|field| {
            let name = lossy(decode(field.key().of(text)));
            (name.into_owned(), field.value())
        });
        named.collect()
    }

    /// Returns the text with a field set to a value that is laid out already.
    ///
    /// A new field goes before the first key that sorts after it (writers sort, mostly), written as
    /// its neighbours are; `layout` is for an object that has none.
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

    /// Returns the text without a field, however often it stands there.
    pub(in crate::notebook) fn remove(&self, text: &[u8], name: &str) -> Vec<u8> {
        let goes: Vec<_> = self
            .fields
            .iter()
            .map(|field| is(field.key().of(text), name))
            .collect();
        if goes.iter().all(|goes| *goes) && !goes.is_empty() {
            return spliced(text, self.span, &[b"{}"]);
        }
        let mut out = Vec::with_capacity(text.len());
        let mut at = 0;
        let mut kept = false;
        for (index, field) in self.fields.iter().enumerate() {
            if goes.get(index) == Some(&false) {
                kept = true;
                continue;
            }
            // With what separates it from its neighbour: the one before, if any stays there.
            let before = index.checked_sub(1).and_then(|at| self.fields.get(at));
            let (start, end) = match (before, self.fields.get(index + 1)) {
                (Some(before), _) if kept => (before.value().end, field.value().end),
                (_, Some(next)) => (field.key().start, next.key().start),
                _ => (field.key().start, field.value().end),
            };
            out.extend_from_slice(text.get(at..start).unwrap_or_default());
            at = end;
        }
        out.extend_from_slice(text.get(at..).unwrap_or_default());
        out
    }

    /// Returns how this object writes its fields; `other` where it has none to learn from.
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
            lead: if lines { lead } else { String::new() },
            colon: between(first.key().end, first.value().start),
            ..other.clone()
        }
    }

    /// Returns what stands between two fields, the comma included.
    fn gap(&self, text: &[u8], layout: &Layout) -> Vec<u8> {
        match self.fields.as_slice() {
            [first, second, ..] => Span::new(first.value().end, second.key().start)
                .of(text)
                .to_vec(),
            _ => layout.gap().into_bytes(),
        }
    }
}

/// Returns the places of an array's values; none where the text is anything else.
pub(in crate::notebook) fn items(text: &[u8]) -> Vec<Span> {
    let mut items = Vec::new();
    let mut scanner = Scanner::new(text, 0);
    // A value that is no array has no items; the scanner's error says nothing more.
    let _ = scanner.array(|scanner| {
        items.push(scanner.value()?);
        Ok(())
    });
    items
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
    fn a_field_goes_with_all_its_doubles() {
        let text = "{ \"x\": 1, \"a\": 2,\n \"x\": 3, \"\\u0078\": 4, \"b\": 5, \"x\": 6 }";
        assert_eq!(removed(text, "x"), "{ \"a\": 2, \"b\": 5 }");
        assert_eq!(removed("{\"x\":1 }", "x"), "{}");
        assert_eq!(removed("{\"x\":1,\"x\":2}", "x"), "{}");
        assert_eq!(removed("{\"x\":1}", "y"), "{\"x\":1}");
        assert_eq!(removed("{}", "y"), "{}");
    }
}
