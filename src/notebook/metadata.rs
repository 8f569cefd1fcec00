//! Metadata: values by their path of keys, and which kernel a notebook names.

use super::fault::NotANotebook;
use super::json::{Json, Layout, Object, Scanner, Span, digest, spliced};

/// What a notebook's metadata says about its kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The name of the kernelspec.
    pub kernelspec: Option<String>,
    /// The language of the cells.
    pub language: Option<String>,
}

impl Named {
    /// Reads it from a notebook's bytes; an empty file names nothing, as editors make such files.
    ///
    /// # Errors
    /// The bytes are not a JSON object, or its metadata is none.
    pub fn read(bytes: &[u8]) -> Result<Self, NotANotebook> {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self::default());
        }
        let top = top(bytes)?;
        let Some(metadata) = top.get(bytes, "metadata") else {
            return Ok(Self::default());
        };
        let text = metadata.of(bytes);
        if !text.starts_with(b"{") && text != b"null" {
            return Err(NotANotebook::at(
                bytes,
                metadata.start,
                "metadata, which begins with {",
            ));
        }
        let word = |path: &[&str]| at(text, path).and_then(|value| value.as_string());
        // The kernel itself wrote language_info; the spec's word is second best.
        let language = word(&["language_info", "name"]);
        Ok(Self {
            kernelspec: word(&["kernelspec", "name"]),
            language: language.or_else(|| word(&["kernelspec", "language"])),
        })
    }
}

/// Reads the fields of a whole file.
pub(super) fn top(bytes: &[u8]) -> Result<Object, NotANotebook> {
    if let Err(error) = std::str::from_utf8(bytes) {
        return Err(NotANotebook::at(
            bytes,
            error.valid_up_to(),
            "text in UTF-8",
        ));
    }
    let mut scanner = Scanner::of_file(bytes);
    let top = Object::scan(&mut scanner).and_then(|top| scanner.end().map(|()| top));
    top.map_err(|fault| NotANotebook::of(bytes, &fault))
}

/// Returns the value that a path of keys leads to within an object.
pub(super) fn at(object: &[u8], path: &[&str]) -> Option<Json> {
    let mut text = object;
    for key in path {
        text = Object::read(text)?.get(text, key)?.of(text);
    }
    Some(Json::of_valid(text))
}

/// Returns an object with the value that a path of keys leads to set; what is missing on the way is
/// made, and what is no object there is replaced. None where it has that value already.
///
/// `layout` is that of the object's fields, should it have none to show it.
pub(super) fn set(object: &[u8], path: &[&str], value: &Json, layout: &Layout) -> Option<Vec<u8>> {
    let mut span = Span {
        start: 0,
        end: object.len(),
    };
    let mut layout = layout.clone();
    let mut rest = path;
    loop {
        let text = span.of(object);
        let fields = Object::read(text)?;
        let (key, deeper) = rest.split_first()?;
        layout = fields.layout(text, &layout);
        let old = fields.get(text, key);
        if let Some(old) = old
            && !deeper.is_empty()
            && old.of(text).starts_with(b"{")
        {
            span = Span {
                start: span.start + old.start,
                end: span.start + old.end,
            };
            layout = layout.deeper();
            rest = deeper;
            continue;
        }
        let mut new = Vec::new();
        for key in deeper {
            new.push(b'{');
            layout.string(&mut new, key.as_bytes());
            new.push(b':');
        }
        new.extend_from_slice(value.bytes());
        new.resize(new.len() + deeper.len(), b'}');
        if old.is_some_and(|old| digest(old.of(text)) == digest(&new)) {
            return None;
        }
        let text = fields.set(text, key, &layout.value(&new), &layout);
        return Some(spliced(object, span, &[&text]));
    }
}

/// Returns an object without the field that a path of keys leads to; none where there is none.
pub(super) fn remove(object: &[u8], path: &[&str]) -> Option<Vec<u8>> {
    let (key, way) = path.split_last()?;
    let mut span = Span {
        start: 0,
        end: object.len(),
    };
    for key in way {
        let text = span.of(object);
        let old = Object::read(text)?.get(text, key)?;
        span = Span {
            start: span.start + old.start,
            end: span.start + old.end,
        };
    }
    let text = span.of(object);
    let fields = Object::read(text)?;
    fields.get(text, key)?;
    Some(spliced(object, span, &[&fields.remove(text, key)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Named {
        Named::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn the_kernels_own_word_on_its_language_wins() {
        let text = r#"{"cells":[],"metadata":{"kernelspec":{"name":"ir","language":"r"},
            "language_info":{"name":"R","version":"4"}}}"#;
        let both = Named {
            kernelspec: Some("ir".into()),
            language: Some("R".into()),
        };
        assert_eq!(named(text), both);
        let spec = r#"{"metadata":{"kernelspec":{"name":"j","language":"julia"}}}"#;
        assert_eq!(named(spec).language.as_deref(), Some("julia"));
        assert_eq!(named(r#"{"metadata":{}}"#), Named::default());
        assert_eq!(named(" \n"), Named::default());
        assert_eq!(named("\u{feff}{\"metadata\":null}"), Named::default());
    }

    #[test]
    fn what_is_no_notebook_is_an_error() {
        for text in ["{", "[]", "{\"metadata\":3}"] {
            assert!(Named::read(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_path_is_made_and_removed() {
        let layout = Layout::default();
        let set = |text: &str, path: &[&str], value: &str| {
            let value = Json::parse(value).unwrap();
            set(text.as_bytes(), path, &value, &layout).map(|new| String::from_utf8(new).unwrap())
        };
        assert_eq!(
            set("{}", &["a", "b"], "[1]").unwrap(),
            "{\"a\": {\"b\": [1]}}"
        );
        assert_eq!(
            set("{\"a\":{\"c\":0}}", &["a", "b"], "1e-05").unwrap(),
            "{\"a\":{\"b\":1e-05,\"c\":0}}"
        );
        assert_eq!(
            set("{\"a\": 3}", &["a", "b"], "1").unwrap(),
            "{\"a\": {\"b\": 1}}"
        );
        assert_eq!(set("{\"a\": {\"b\": 1.0}}", &["a", "b"], "1"), None);
        let remove = |text: &str, path: &[&str]| {
            remove(text.as_bytes(), path).map(|new| String::from_utf8(new).unwrap())
        };
        assert_eq!(
            remove("{\"a\":{\"b\":1, \"c\":2}}", &["a", "b"]).unwrap(),
            "{\"a\":{\"c\":2}}"
        );
        assert_eq!(remove("{\"a\":{\"b\":1}}", &["a"]).unwrap(), "{}");
        assert_eq!(remove("{\"a\":{\"b\":1}}", &["b"]), None);
        assert_eq!(remove("{\"a\":3}", &["a", "b"]), None);
    }
}
