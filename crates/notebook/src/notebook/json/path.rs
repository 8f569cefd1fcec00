//! Values within an object, by their paths of keys from the outermost on.

use super::{Json, Layout, Object, Span, digest, spliced};

impl Json {
    /// Sets a value within an object by its path of keys; missing objects on the path are created. A value
    /// that is not an object stays as it is.
    pub fn set(&mut self, path: &[&str], value: &Self) {
        let layout = Layout::default();
        if let Some(new) = set_value_at(self.bytes(), path, value, &layout) {
            *self = Self::of_valid(&new);
        }
    }
}

/// Returns the value at a path of keys within an object.
pub(in crate::notebook) fn value_at(object: &[u8], path: &[&str]) -> Option<Json> {
    let mut text = object;
    for key in path {
        text = Object::read(text)?.get(text, key)?.of(text);
    }
    Some(Json::of_valid(text))
}

/// Returns the string at a path of keys within an object; `None` if the value is something else.
pub(in crate::notebook) fn string_at(object: &[u8], path: &[&str]) -> Option<String> {
    value_at(object, path)?.as_string()
}

/// Returns an object with the value at a path of keys set. Missing objects on the path are created, and
/// other values on the path are replaced. `None` if the object has that value already.
///
/// `layout` is for an object without fields.
pub(in crate::notebook) fn set_value_at(
    object: &[u8],
    path: &[&str],
    value: &Json,
    layout: &Layout,
) -> Option<Vec<u8>> {
    let mut span = Span::new(0, object.len());
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
            span = Span::new(span.start + old.start, span.start + old.end);
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

/// Returns an object without the field at a path of keys; `None` if there is no such field.
pub(in crate::notebook) fn remove_value_at(object: &[u8], path: &[&str]) -> Option<Vec<u8>> {
    let (key, parents) = path.split_last()?;
    let mut span = Span::new(0, object.len());
    for key in parents {
        let text = span.of(object);
        let old = Object::read(text)?.get(text, key)?;
        span = Span::new(span.start + old.start, span.start + old.end);
    }
    let text = span.of(object);
    let fields = Object::read(text)?;
    fields.get(text, key)?;
    Some(spliced(object, span, &[&fields.remove(text, key)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_made_and_removed() {
        let layout = Layout::default();
        let set = |text: &str, path: &[&str], value: &str| {
            let value = Json::parse(value).unwrap();
            set_value_at(text.as_bytes(), path, &value, &layout)
                .map(|new| String::from_utf8(new).unwrap())
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
            remove_value_at(text.as_bytes(), path).map(|new| String::from_utf8(new).unwrap())
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
