//! The kernelspec and the language that a notebook's metadata names.

use super::not_a_notebook::NotANotebook;
use crate::notebook::json::{Object, Scanner, string_at};

/// The kernel that a notebook's metadata names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedKernel {
    /// The name of the kernelspec.
    pub kernelspec: Option<String>,
    /// The language of the cells.
    pub language: Option<String>,
}

impl NamedKernel {
    /// Reads the named kernel from a notebook's bytes. An empty file names nothing; editors create such
    /// files.
    ///
    /// # Errors
    /// The bytes are not a JSON object, or its metadata is not one.
    pub fn read(bytes: &[u8]) -> Result<Self, NotANotebook> {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self::default());
        }
        if let Err(error) = std::str::from_utf8(bytes) {
            let at = error.valid_up_to();
            return Err(NotANotebook::at(bytes, at, "text in UTF-8"));
        }
        let mut scanner = Scanner::of_file(bytes);
        let top = Object::scan(&mut scanner).and_then(|top| scanner.end().map(|()| top));
        let top = top.map_err(|fault| NotANotebook::of(bytes, &fault))?;
        let Some(metadata) = top.get(bytes, "metadata") else {
            return Ok(Self::default());
        };
        let text = metadata.of(bytes);
        if !text.starts_with(b"{") && text != b"null" {
            let expected = "metadata, which begins with {";
            return Err(NotANotebook::at(bytes, metadata.start, expected));
        }
        let word = |path: &[&str]| string_at(text, path);
        // The kernel itself wrote `language_info`, so that takes precedence over the kernelspec.
        let language = word(&["language_info", "name"]);
        Ok(Self {
            kernelspec: word(&["kernelspec", "name"]),
            language: language.or_else(|| word(&["kernelspec", "language"])),
        })
    }
}

/// The kernelspec that a notebook is to name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelspecMetadata<'a> {
    /// The name of its folder.
    pub name: &'a str,
    /// The name that people see.
    pub display_name: &'a str,
    /// The language of the cells; if empty, the notebook's own language stays.
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
        let mut document = Document::parse(text.to_owned()).unwrap();
        let changed = document.set_kernelspec(spec).unwrap();
        let new = String::from_utf8(document.to_bytes()).unwrap();
        assert_eq!(changed, new != text);
        changed.then_some(new)
    }

    #[test]
    fn only_the_objects_bytes_change_and_change_back() {
        for (head, spec, tail) in [
            (
                "{\n \"cells\": [{\"source\": \"\\u00e9\\/\"}],\n \"metadata\": {\n  \"kernelspec\": ",
                "{\n   \"display_name\": \"My \\\"own\\\" Python\",\n   \"language\": \"python\",\n   \"name\": \"caf\\u00e9\"\n  }",
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
                "},\"cells\":[]}  ",
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
    fn missing_fields_are_added_in_the_style_of_their_neighbours() {
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
        let empty = named(r#"{"metadata": {"kernelspec": {}}, "cells": []}"#, &SHARED).unwrap();
        let value: Value = serde_json::from_str(&empty).unwrap();
        assert_eq!(value["metadata"]["kernelspec"]["name"], "nb-shared");
        let unknown = KernelspecMetadata {
            language: "",
            ..REAL
        };
        let kept = named(
            r#"{"metadata":{"kernelspec":{"name":"n","language":"R","display_name":"d"}},"cells":[]}"#,
            &unknown,
        );
        assert!(kept.unwrap().contains(r#""language":"R""#));
    }

    #[test]
    fn metadata_that_a_notebook_lacks_is_made() {
        let made = named("{\n \"cells\": [],\n \"nbformat\": 4\n}\n", &SHARED).unwrap();
        let value: Value = serde_json::from_str(&made).unwrap();
        assert_eq!(value["metadata"]["kernelspec"]["name"], "nb-shared");
        assert_eq!(value["nbformat"], 4);
        let mut old = Document::parse(r#"{"worksheets": [], "nbformat": 3}"#).unwrap();
        assert!(old.set_kernelspec(&SHARED).is_err());
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
                "{space}{{{space}\"metadata\":{space}{{\"kernelspec\"{space}:{space}{{{space}{}}}}},\"cells\":[]{space}}}{space}",
                fields.join(",")
            );
            let spec = KernelspecMetadata { name: &name, display_name: "D", language: "L" };
            let new = named(&text, &spec).unwrap();
            let value: Value = serde_json::from_str(&new).unwrap();
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
            proptest::prop_assert_eq!(named(&new, &spec), None);
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
