//! A JSON value with the bytes in which it was written.

use std::borrow::Cow;

use super::{JsonError, Object, Scanner, decode, encode, lossy};

/// A JSON value that keeps its text: big integers, `1e-05` and the order of keys stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Json(Vec<u8>);

impl Json {
    /// Reads one value, as Python's `json.loads(strict=False)` would.
    ///
    /// # Errors
    /// The text is not one JSON value.
    pub fn parse(text: &str) -> Result<Self, JsonError> {
        let mut scanner = Scanner::new(text.as_bytes(), 0);
        scanner.value()?;
        scanner.end()?;
        Ok(Self(text.trim().as_bytes().to_vec()))
    }

    /// Makes a string.
    pub fn string(text: &str) -> Self {
        let mut out = Vec::new();
        encode(&mut out, text.as_bytes(), false);
        Self(out)
    }

    /// Makes an object with these fields, in this order.
    pub(in crate::notebook) fn object<'a>(
        fields: impl IntoIterator<Item = (&'a str, &'a Self)>,
    ) -> Self {
        let mut out = b"{".to_vec();
        for (name, value) in fields {
            if out.len() > 1 {
                out.push(b',');
            }
            encode(&mut out, name.as_bytes(), false);
            out.push(b':');
            out.extend_from_slice(&value.0);
        }
        out.push(b'}');
        Self(out)
    }

    /// Makes a list of these values.
    pub(in crate::notebook) fn list<'a>(values: impl IntoIterator<Item = &'a Self>) -> Self {
        Self(super::list(values.into_iter().map(Self::bytes)))
    }

    /// Returns the values of a list; nothing if the value is something else.
    pub fn items(&self) -> impl Iterator<Item = Self> {
        let items = super::items(&self.0).into_iter();
        items.map(|item| Self::of_valid(item.of(&self.0)))
    }

    /// Returns the value's text.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }

    /// Returns the characters of a string; `None` if the value is something else.
    pub fn as_string(&self) -> Option<String> {
        let raw = Some(&self.0).filter(|raw| raw.starts_with(b"\""))?;
        Some(lossy(decode(raw)).into_owned())
    }

    /// Says whether the value is `null`.
    pub fn is_null(&self) -> bool {
        self.0 == b"null"
    }

    /// Returns a field of an object; `None` if there is no such field, or the value is not an object.
    pub fn get(&self, name: &str) -> Option<Self> {
        let field = Object::read(&self.0)?.get(&self.0, name)?;
        Some(Self::of_valid(field.of(&self.0)))
    }

    /// Returns the names of an object's fields, in the order of the text, each once.
    pub fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        for field in Object::read(&self.0).unwrap_or_default().fields {
            let key = lossy(decode(field.key().of(&self.0))).into_owned();
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    /// Makes a value of bytes that are known to be one valid JSON value.
    pub(in crate::notebook) fn of_valid(text: &[u8]) -> Self {
        Self(text.to_vec())
    }

    pub(in crate::notebook) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&serde_json::Value> for Json {
    fn from(value: &serde_json::Value) -> Self {
        Self(value.to_string().into_bytes())
    }
}

impl From<u64> for Json {
    fn from(value: u64) -> Self {
        Self(value.to_string().into_bytes())
    }
}

impl<'de> serde::Deserialize<'de> for Json {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<serde_json::value::RawValue>::deserialize(deserializer)?;
        Ok(Self(raw.get().as_bytes().to_vec()))
    }
}
