//! Naming another kernelspec in a notebook's bytes: only that object's bytes change.

use super::not_a_notebook::NotANotebook;
use crate::notebook::json::{Json, Layout, Object, Scanner, set_value_at, spliced, string_at};

/// The kernel that a notebook's metadata names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedKernel {
    /// The name of the kernelspec.
    pub kernelspec: Option<String>,
    /// The language of the cells.
    pub language: Option<String>,
}

impl NamedKernel {
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
        let word = |path: &[&str]| string_at(text, path);
        // The kernel itself wrote language_info; the spec's word is second best.
        let language = word(&["language_info", "name"]);
        Ok(Self {
            kernelspec: word(&["kernelspec", "name"]),
            language: language.or_else(|| word(&["kernelspec", "language"])),
        })
    }
}

/// Reads the fields of a whole file.
fn top(bytes: &[u8]) -> Result<Object, NotANotebook> {
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

/// The kernelspec that a notebook is to name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelspecMetadata<'a> {
    /// The name of its folder.
    pub name: &'a str,
    /// The name that people see.
    pub display_name: &'a str,
    /// The language of the cells; an empty one leaves what the notebook says.
    pub language: &'a str,
}

impl<'a> KernelspecMetadata<'a> {
    /// Returns the fields that are to be set.
    pub(in crate::notebook) fn fields(&self) -> impl Iterator<Item = (&'static str, &'a str)> {
        let fields = [
            ("display_name", self.display_name),
            ("language", self.language),
            ("name", self.name),
        ];
        fields.into_iter().filter(|(_, value)| !value.is_empty())
    }
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
    spec: &KernelspecMetadata<'_>,
) -> Result<Option<Vec<u8>>, NotANotebook> {
    if text.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let top = top(text)?;
    let Some(span) = top.get(text, "metadata") else {
        let end = top.span.end.saturating_sub(1);
        return Err(NotANotebook::at(text, end, "a field \"metadata\""));
    };
    let old = span.of(text);
    if !old.starts_with(b"{") {
        return Err(NotANotebook::at(
            text,
            span.start,
            "metadata, which begins with {",
        ));
    }
    let layout = top.layout(text, &Layout::default());
    let unit = layout.lead.rsplit_once('\n').map(|(_, indent)| indent);
    let unit = unit.unwrap_or_default().to_owned();
    let layout = Layout { unit, ..layout }.deeper();
    let mut new: Option<Vec<u8>> = None;
    for (name, value) in spec.fields() {
        let now = new.as_deref().unwrap_or(old);
        let path = ["kernelspec", name];
        new = set_value_at(now, &path, &Json::string(value), &layout).or(new);
    }
    Ok(new.map(|new| spliced(text, span, &[&new])))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::notebook::Document;

    const SHARED: KernelspecMetadata<'_> = KernelspecMetadata {
        name: "nb-shared",
        display_name: "nb shared kernel",
        language: "python",
    };
    const REAL: KernelspecMetadata<'_> = KernelspecMetadata {
        name: "café",
        display_name: "My \"own\" Python",
        language: "python",
    };

    fn quoted(text: &str) -> String {
        serde_json::to_string(text).unwrap()
    }

    fn named(text: &str, spec: &KernelspecMetadata<'_>) -> Option<String> {
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
            if let Ok(mut document) = Document::parse(text.clone()) {
                assert_eq!(document.set_kernelspec(&SHARED), Ok(true));
                assert_eq!(document.to_bytes(), shared.as_bytes());
                assert_eq!(document.set_kernelspec(&SHARED), Ok(false));
            }
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
                "{\n  \"kernelspec\": {\n   \"display_name\": \"nb shared kernel\",\n   \"language\": \"python\",\n   \"name\": \"nb-shared\"\n  }\n }"
            )
        );
        assert_eq!(
            named(r#"{"metadata":{},"cells":[]}"#, &SHARED).unwrap(),
            r#"{"metadata":{"kernelspec":{"display_name":"nb shared kernel","language":"python","name":"nb-shared"}},"cells":[]}"#
        );
        let empty = named(r#"{"metadata": {"kernelspec": {}}}"#, &SHARED).unwrap();
        let value: Value = serde_json::from_str(&empty).unwrap();
        assert_eq!(value["metadata"]["kernelspec"]["name"], "nb-shared");
        let unknown = KernelspecMetadata {
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
                .map(|key| format!("{space}{}{space}:{space}{}{space}", quoted(key), quoted(key)))
                .collect();
            let text = format!(
                "{space}{{{space}\"metadata\":{space}{{\"kernelspec\"{space}:{space}{{{space}{}}}}}{space}}}{space}",
                fields.join(",")
            );
            let spec = KernelspecMetadata { name: &name, display_name: "D", language: "L" };
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

    fn kernel_of(text: &str) -> NamedKernel {
        NamedKernel::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn the_kernels_own_word_on_its_language_wins() {
        let text = r#"{"cells":[],"metadata":{"kernelspec":{"name":"ir","language":"r"},
            "language_info":{"name":"R","version":"4"}}}"#;
        let both = NamedKernel {
            kernelspec: Some("ir".into()),
            language: Some("R".into()),
        };
        assert_eq!(kernel_of(text), both);
        let spec = r#"{"metadata":{"kernelspec":{"name":"j","language":"julia"}}}"#;
        assert_eq!(kernel_of(spec).language.as_deref(), Some("julia"));
        assert_eq!(kernel_of(r#"{"metadata":{}}"#), NamedKernel::default());
        assert_eq!(kernel_of(" \n"), NamedKernel::default());
        assert_eq!(
            kernel_of("\u{feff}{\"metadata\":null}"),
            NamedKernel::default()
        );
    }

    #[test]
    fn metadata_of_what_is_no_notebook_is_an_error() {
        for text in ["{", "[]", "{\"metadata\":3}"] {
            assert!(NamedKernel::read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
