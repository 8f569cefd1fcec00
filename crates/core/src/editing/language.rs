//! The language of a notebook: `metadata.language_info`, from which nbconvert takes a script's file name
//! extension.
//!
//! Front ends write it when they connect to a kernel, from its `kernel_info_reply`. In a notebook
//! that only `nb` has made and run, `nb` writes it: when `nb open` makes the notebook, and with the
//! first outputs. No other read or edit adds it.

use std::path::Path;

use serde_json::Value;

use super::notebook_file::NotebookFile;
use super::transaction::{self, NB, WriteError};
use crate::notebook::{Document, DocumentEditError, Json};

/// Why the language could not be written.
pub type LanguageError = WriteError<DocumentEditError>;

/// Writes the language of its kernel into a notebook; returns whether that changed it.
///
/// # Errors
/// The notebook cannot be read or written.
pub fn write(notebook: &Path) -> Result<bool, LanguageError> {
    let notebook = NotebookFile::of(notebook)?;
    let Some(language) = of_kernel(&notebook) else {
        return Ok(false);
    };
    let written = transaction::write(&notebook, NB, false, |document| {
        let mut after = document.clone();
        add(&mut after, &language)?;
        Ok::<_, DocumentEditError>(after)
    })?;
    Ok(written.wrote)
}

/// Returns the `language_info` of a notebook's kernel.
pub fn of_kernel(notebook: &NotebookFile) -> Option<Value> {
    let state = notebook.project.state().ok()?;
    let language = state
        .session(&notebook.key)?
        .kernel_info?
        .get("language_info")?
        .clone();
    language["file_extension"].is_string().then_some(language)
}

/// Adds a kernel's `language_info` to a notebook that has none or only the language's name. A notebook of
/// another language was made for another kernel, and is not changed.
pub fn add(document: &mut Document, language: &Value) -> Result<bool, DocumentEditError> {
    let name = document.metadata_string(&["language_info", "name"]);
    let extension = document.metadata(&["language_info", "file_extension"]);
    let is_same = name.is_none_or(|name| Some(name.as_str()) == language["name"].as_str());
    if extension.is_some() || !is_same {
        return Ok(false);
    }
    // As Jupyter writes it.
    let mut sorted = language.clone();
    sorted.sort_all_objects();
    document.set_notebook_metadata(&["language_info"], &Json::from(&sorted))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::notebook::new_notebook;

    #[test]
    fn the_kernels_language_is_added_once_and_replaces_no_other() {
        let language = json!({
            "name": "python", "version": "3.13.1", "mimetype": "text/x-python", "file_extension": ".py",
            "codemirror_mode": {"version": 3, "name": "ipython"},
        });
        let mut document = Document::parse(new_notebook("python3", "P", "python")).unwrap();
        assert!(add(&mut document, &language).unwrap());
        assert!(!add(&mut document, &language).unwrap());
        let text = String::from_utf8(document.to_bytes()).unwrap();
        let want = "  \"language_info\": {\n   \"codemirror_mode\": {\n    \"name\": \"ipython\",\n    \"version\": 3\n   },\n   \"file_extension\": \".py\",\n   \"mimetype\": \"text/x-python\",\n   \"name\": \"python\",\n   \"version\": \"3.13.1\"\n  }\n";
        assert!(text.contains(want), "{text}");
        let other = new_notebook("ir", "R", "R");
        let mut document = Document::parse(other.clone()).unwrap();
        assert!(!add(&mut document, &language).unwrap());
        assert_eq!(document.to_bytes(), other.as_bytes());
    }
}
