//! Naming another kernelspec in a notebook's bytes: only that object's bytes change.

use std::fmt;
use std::ops::Range;

use serde::Deserializer;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use super::NotANotebook;

/// The kernelspec that a notebook is to name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernelspec<'a> {
    /// The name of its folder.
    pub name: &'a str,
    /// The name that people see.
    pub display_name: &'a str,
    /// The language of the cells; an empty one leaves what the notebook says.
    pub language: &'a str,
}

/// Returns the notebook's bytes with its kernelspec named; none where it is named already, or the
/// file is empty, as editors make new notebooks.
///
/// What exists keeps its place and its style; what is missing is added in the style of its
/// neighbours. Other fields of the object stay.
///
/// # Errors
/// The bytes are not a notebook's, or it has no metadata to name a kernelspec in.
pub fn with_kernelspec(
    text: &[u8],
    spec: &Kernelspec<'_>,
) -> Result<Option<Vec<u8>>, NotANotebook> {
    if text.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let top = Object::read(text, 0..text.len())?;
    let metadata = top.field("metadata").ok_or_else(|| no_field("metadata"))?;
    let metadata = Object::read(text, metadata)?;
    let fields = [
        ("display_name", spec.display_name),
        ("language", spec.language),
        ("name", spec.name),
    ];
    let fields = fields.iter().filter(|(_, value)| !value.is_empty());
    let mut splices: Vec<(Range<usize>, String)> = Vec::new();
    match metadata.field("kernelspec") {
        Some(span) if text.get(span.clone()) != Some(b"null") => {
            let object = Object::read(text, span)?;
            let mut missing = String::new();
            for (name, value) in fields {
                let value = string(value);
                match object.field(name) {
                    Some(span) if text.get(span.clone()) == Some(value.as_bytes()) => {}
                    Some(span) => splices.push((span, value)),
                    None => {
                        missing += &format!("{}\"{name}\"{}{value}", object.gap(), object.colon());
                    }
                }
            }
            if !missing.is_empty() {
                splices.push(match object.end_of_last() {
                    Some(end) => (end..end, missing),
                    None => {
                        let object = one_line(spec);
                        (object_span(&metadata)?, object)
                    }
                });
            }
        }
        span => {
            let style = Style::within(&top, &metadata);
            let object = style.object(fields.copied());
            splices.push(match span {
                Some(null) => (null, object),
                None => {
                    let field = format!("{}\"kernelspec\"{}{object}", style.open, style.colon);
                    let at = metadata.span.start + 1;
                    if metadata.fields.is_empty() {
                        (at..metadata.span.end - 1, field + &style.close)
                    } else {
                        (at..at, field + ",")
                    }
                }
            });
        }
    }
    splices.retain(|(span, new)| text.get(span.clone()) != Some(new.as_bytes()));
    if splices.is_empty() {
        return Ok(None);
    }
    splices.sort_by_key(|(span, _)| span.start);
    let mut out = Vec::with_capacity(text.len() + 64);
    let mut at = 0;
    for (span, new) in splices {
        out.extend_from_slice(text.get(at..span.start).unwrap_or_default());
        out.extend_from_slice(new.as_bytes());
        at = span.end;
    }
    out.extend_from_slice(text.get(at..).unwrap_or_default());
    Ok(Some(out))
}

fn object_span(metadata: &Object<'_>) -> Result<Range<usize>, NotANotebook> {
    metadata
        .field("kernelspec")
        .ok_or_else(|| no_field("kernelspec"))
}

fn one_line(spec: &Kernelspec<'_>) -> String {
    format!(
        "{{\"display_name\": {}, \"language\": {}, \"name\": {}}}",
        string(spec.display_name),
        string(spec.language),
        string(spec.name)
    )
}

/// Compact writers put nothing after colons and commas, others a space after both.
fn after_colon(colon: &str) -> &str {
    colon.split_once(':').map_or("", |(_, after)| after)
}

fn string(value: &str) -> String {
    serde_json::to_string(value).expect("a string is JSON")
}

fn no_field(name: &'static str) -> NotANotebook {
    NotANotebook(serde::de::Error::missing_field(name))
}

/// An object in the text and where its values are.
struct Object<'a> {
    text: &'a [u8],
    span: Range<usize>,
    fields: Vec<(String, Range<usize>)>,
}

impl<'a> Object<'a> {
    fn read(text: &'a [u8], span: Range<usize>) -> Result<Self, NotANotebook> {
        let part = text.get(span.clone()).unwrap_or_default();
        let mut reader = serde_json::Deserializer::from_slice(part);
        let fields = reader
            .deserialize_map(Fields)
            .and_then(|fields| reader.end().map(|()| fields))
            .map_err(NotANotebook)?;
        // A borrowed raw value points into the text that it was read from.
        let place = |value: &RawValue| {
            let start = value.get().as_ptr() as usize - text.as_ptr() as usize;
            start..start + value.get().len()
        };
        let lead = part.iter().take_while(|byte| byte.is_ascii_whitespace());
        let tail = part
            .iter()
            .rev()
            .take_while(|byte| byte.is_ascii_whitespace());
        Ok(Self {
            text,
            span: span.start + lead.count()..span.end - tail.count(),
            fields: fields
                .into_iter()
                .map(|(name, value)| (name, place(value)))
                .collect(),
        })
    }

    /// Returns where a field's value is; of equal names the last one counts, as everywhere.
    fn field(&self, name: &str) -> Option<Range<usize>> {
        let found = self.fields.iter().rev().find(|(field, _)| field == name);
        found.map(|(_, span)| span.clone())
    }

    fn end_of_last(&self) -> Option<usize> {
        self.fields.last().map(|(_, span)| span.end)
    }

    /// Returns what stands between the brace and the first key.
    fn open(&self) -> &'a str {
        self.until_quote(self.span.start + 1)
    }

    /// Returns what stands between the first value and the second key, the comma included.
    fn gap(&self) -> String {
        match self.fields.as_slice() {
            [(_, first), _, ..] => self.until_quote(first.end).to_owned(),
            _ if self.open().contains('\n') => format!(",{}", self.open()),
            _ => format!(",{}", after_colon(self.colon())),
        }
    }

    /// Returns what stands between the first key and its value.
    fn colon(&self) -> &'a str {
        let Some((_, first)) = self.fields.first() else {
            return ": ";
        };
        let before = self.text.get(self.span.start..first.start);
        let before = before.and_then(|bytes| std::str::from_utf8(bytes).ok());
        before
            .and_then(|before| before.rsplit('"').next())
            .unwrap_or(": ")
    }

    fn until_quote(&self, from: usize) -> &'a str {
        let rest = self.text.get(from..self.span.end).unwrap_or_default();
        let length = rest.iter().position(|byte| *byte == b'"').unwrap_or(0);
        std::str::from_utf8(&rest[..length]).unwrap_or_default()
    }
}

/// How an object within the metadata is written.
struct Style {
    /// Before the first key of the metadata.
    open: String,
    /// Before the closing brace of the metadata.
    close: String,
    colon: String,
    /// What one level more adds to a line's beginning.
    unit: String,
}

impl Style {
    fn within(top: &Object<'_>, metadata: &Object<'_>) -> Self {
        let unit = match top.open().rsplit_once('\n') {
            Some((_, indent)) => indent.to_owned(),
            None => String::new(),
        };
        let open = if metadata.fields.is_empty() && top.open().contains('\n') {
            format!("{}{unit}", top.open())
        } else {
            metadata.open().to_owned()
        };
        Self {
            open,
            close: top.open().to_owned(),
            colon: top.colon().to_owned(),
            unit,
        }
    }

    fn object<'a>(&self, fields: impl Iterator<Item = (&'a str, &'a str)>) -> String {
        let lines = self.open.contains('\n');
        let space = after_colon(&self.colon);
        let (inner, next) = if lines {
            let inner = format!("{}{}", self.open, self.unit);
            (inner.clone(), inner)
        } else {
            (String::new(), space.to_owned())
        };
        let close = if lines { self.open.as_str() } else { "" };
        let fields: Vec<_> = fields
            .map(|(name, value)| format!("\"{name}\"{}{}", self.colon, string(value)))
            .collect();
        format!("{{{inner}{}{close}}}", fields.join(&format!(",{next}")))
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const SHARED: Kernelspec<'_> = Kernelspec {
        name: "nb-shared",
        display_name: "nb shared kernel",
        language: "python",
    };
    const REAL: Kernelspec<'_> = Kernelspec {
        name: "café",
        display_name: "My \"own\" Python",
        language: "python",
    };

    fn named(text: &str, spec: &Kernelspec<'_>) -> Option<String> {
        let new = with_kernelspec(text.as_bytes(), spec).unwrap();
        new.map(|new| String::from_utf8(new).unwrap())
    }

    #[test]
    fn only_the_objects_bytes_change_and_change_back() {
        for (head, spec, tail) in [
            (
                "{\n \"cells\": [{\"source\": \"\\u00e9\\/\"}],\n \"metadata\": {\n  \"kernelspec\": ",
                "{\n   \"display_name\": \"My \\\"own\\\" Python\",\n   \"language\": \"python\",\n   \"name\": \"café\"\n  }",
                ",\n  \"x\": 1.50\n },\n \"nbformat\": 4\n}\n",
            ),
            (
                "{\"metadata\":{\"a\":{},\"kernelspec\":",
                "{\"name\":\"café\",\"language\":\"python\",\"more\":[1],\"display_name\":\"My \\\"own\\\" Python\"}",
                "},\"cells\":[]}",
            ),
            (
                "\r\n{\r\n\t\"metadata\": {\r\n\t\t\"kernelspec\" : ",
                "{\r\n\t\t\t\"name\" : \"café\", \"display_name\" : \"My \\\"own\\\" Python\",\r\n\t\t\t\"language\" :\"python\"}",
                "}}  ",
            ),
        ] {
            let text = format!("{head}{spec}{tail}");
            assert_eq!(named(&text, &REAL), None);
            let shared = named(&text, &SHARED).unwrap();
            assert!(
                shared.starts_with(head) && shared.ends_with(tail),
                "{shared}"
            );
            let value: Value = serde_json::from_str(&shared).unwrap();
            assert_eq!(value["metadata"]["kernelspec"]["name"], "nb-shared");
            assert_eq!(named(&shared, &SHARED), None);
            assert_eq!(named(&shared, &REAL).unwrap(), text);
        }
    }

    #[test]
    fn what_is_missing_comes_in_the_style_of_its_neighbours() {
        let jupyter = |metadata: &str| {
            format!("{{\n \"cells\": [],\n \"metadata\": {metadata},\n \"nbformat\": 4\n}}\n")
        };
        let whole = "{\n   \"display_name\": \"nb shared kernel\",\n   \"language\": \"python\",\n   \"name\": \"nb-shared\"\n  }";
        assert_eq!(
            named(&jupyter("{}"), &SHARED).unwrap(),
            jupyter(&format!("{{\n  \"kernelspec\": {whole}\n }}"))
        );
        assert_eq!(
            named(&jupyter("{\n  \"x\": 1\n }"), &SHARED).unwrap(),
            jupyter(&format!("{{\n  \"kernelspec\": {whole},\n  \"x\": 1\n }}"))
        );
        assert_eq!(
            named(&jupyter("{\n  \"kernelspec\": null\n }"), &SHARED).unwrap(),
            jupyter(&format!("{{\n  \"kernelspec\": {whole}\n }}"))
        );
        let part = "{\n  \"kernelspec\": {\n   \"name\": \"x\"\n  }\n }";
        assert_eq!(
            named(&jupyter(part), &SHARED).unwrap(),
            jupyter(
                "{\n  \"kernelspec\": {\n   \"name\": \"nb-shared\",\n   \"display_name\": \"nb shared kernel\",\n   \"language\": \"python\"\n  }\n }"
            )
        );
        assert_eq!(
            named(r#"{"metadata":{},"cells":[]}"#, &SHARED).unwrap(),
            r#"{"metadata":{"kernelspec":{"display_name":"nb shared kernel","language":"python","name":"nb-shared"}},"cells":[]}"#
        );
        let empty = named(r#"{"metadata": {"kernelspec": {}}}"#, &SHARED).unwrap();
        let value: Value = serde_json::from_str(&empty).unwrap();
        assert_eq!(value["metadata"]["kernelspec"]["name"], "nb-shared");
        let unknown = Kernelspec {
            language: "",
            ..REAL
        };
        let kept = named(
            r#"{"metadata":{"kernelspec":{"name":"n","language":"R","display_name":"d"}}}"#,
            &unknown,
        );
        assert!(kept.unwrap().contains(r#""language":"R""#));
    }

    #[test]
    fn what_is_no_notebook_is_left_alone() {
        assert_eq!(named(" \n", &SHARED), None);
        for text in [
            "{",
            "[]",
            "{}",
            "{\"metadata\":3}",
            "{\"metadata\":{}} x",
            "\u{feff}{}",
        ] {
            assert!(with_kernelspec(text.as_bytes(), &SHARED).is_err(), "{text}");
        }
        assert!(with_kernelspec(b"{\"metadata\":{\"a\":\"\xff\"}}", &SHARED).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_changed_as_meant_or_refused(
            keys in proptest::collection::vec("[a-c\"\\\\é]{0,3}|name|language|display_name", 0..5),
            space in "[ \n\r\t]{0,3}",
            name in ".{1,12}",
        ) {
            let fields: Vec<_> = keys
                .iter()
                .map(|key| format!("{space}{}{space}:{space}{}{space}", string(key), string(key)))
                .collect();
            let text = format!(
                "{space}{{{space}\"metadata\":{space}{{\"kernelspec\"{space}:{space}{{{space}{}}}}}{space}}}{space}",
                fields.join(",")
            );
            let spec = Kernelspec { name: &name, display_name: "D", language: "L" };
            let new = with_kernelspec(text.as_bytes(), &spec).unwrap().unwrap();
            let value: Value = serde_json::from_slice(&new).unwrap();
            let found = &value["metadata"]["kernelspec"];
            proptest::prop_assert_eq!(&found["name"], &name);
            proptest::prop_assert_eq!(&found["display_name"], "D");
            proptest::prop_assert_eq!(&found["language"], "L");
            let before: Value = serde_json::from_str(&text).unwrap();
            for (key, value) in before["metadata"]["kernelspec"].as_object().unwrap() {
                if !matches!(key.as_str(), "name" | "language" | "display_name") {
                    proptest::prop_assert_eq!(&found[key], value);
                }
            }
            proptest::prop_assert_eq!(with_kernelspec(&new, &spec).unwrap(), None);
        }
    }
}
