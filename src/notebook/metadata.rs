//! Which kernel a notebook names.

use serde::Deserialize;

/// What a notebook's metadata says about its kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The name of the kernelspec.
    pub kernelspec: Option<String>,
    /// The language of the cells.
    pub language: Option<String>,
}

/// Says that a file is no notebook.
#[derive(Debug, thiserror::Error)]
#[error("it is not a notebook")]
pub struct NotANotebook(#[source] pub(super) serde_json::Error);

impl Named {
    /// Reads it from a notebook's bytes; an empty file names nothing, as editors make such files.
    pub fn read(bytes: &[u8]) -> Result<Self, NotANotebook> {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self::default());
        }
        let file: File = serde_json::from_slice(bytes).map_err(NotANotebook)?;
        let metadata = file.metadata.unwrap_or_default();
        let spec = metadata.kernelspec.unwrap_or_default();
        // The kernel itself wrote language_info; the spec's word is second best.
        let info = metadata.language_info.unwrap_or_default();
        Ok(Self {
            kernelspec: spec.name,
            language: info.name.or(spec.language),
        })
    }
}

#[derive(Deserialize)]
struct File {
    metadata: Option<Metadata>,
}

#[derive(Default, Deserialize)]
struct Metadata {
    kernelspec: Option<Spec>,
    language_info: Option<Info>,
}

#[derive(Default, Deserialize)]
struct Spec {
    name: Option<String>,
    language: Option<String>,
}

#[derive(Default, Deserialize)]
struct Info {
    name: Option<String>,
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
    }

    #[test]
    fn what_is_no_notebook_is_an_error() {
        for text in ["{", "[]", "{\"metadata\":3}"] {
            assert!(Named::read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
