//! What a notebook says of its language: `metadata.language_info`, which nbconvert needs to give a
//! script its ending.
//!
//! Front ends write it when they connect to a kernel, with what the kernel said of itself. A notebook
//! that only `nb` has made and run has it from here, when the kernel has answered: at `nb open` of a
//! new one, and with the first outputs. No other read or edit adds it.

use std::path::Path;

use serde_json::{Map, Value};

use super::notebook_file::NotebookFile;
use super::transaction::{self, WriteError};
use crate::notebook::{Document, EditError, Json};

/// Why it could not be written.
pub type LanguageError = WriteError<EditError>;

/// Writes what its kernel says of its language into a notebook; says whether that changed it.
///
/// # Errors
/// The notebook cannot be read or written.
pub fn write(notebook: &Path) -> Result<bool, LanguageError> {
    let page = NotebookFile::of(notebook)?;
    let Some(language) = known(&page) else {
        return Ok(false);
    };
    let written = transaction::write(&page, false, |document| {
        let mut after = document.clone();
        add(&mut after, &language)?;
        Ok::<_, EditError>(after)
    })?;
    Ok(written.wrote)
}

/// Returns what the kernel of a notebook has said of its language.
pub(crate) fn known(page: &NotebookFile) -> Option<Value> {
    let state = page.project.state().ok()?;
    let language = state
        .session(&page.key)?
        .kernel_info?
        .get("language_info")?
        .clone();
    language["file_extension"].is_string().then_some(language)
}

/// Adds it to a notebook that says no more than the language's name. A notebook of another language
/// was made for another kernel, whose word stays.
pub(crate) fn add(document: &mut Document, language: &Value) -> Result<bool, EditError> {
    let own = document.metadata_string(&["language_info", "name"]);
    let whole = document.metadata(&["language_info", "file_extension"]);
    let same = own.is_none_or(|own| Some(own.as_str()) == language["name"].as_str());
    if whole.is_some() || !same {
        return Ok(false);
    }
    let value = Json::from(&sorted(language));
    document.set_notebook_metadata(&["language_info"], &value)
}

/// Returns a value with its keys sorted, as Jupyter writes them.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            let fields = fields.into_iter();
            let fields = fields.map(|(key, value)| (key.clone(), sorted(value)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::notebook::new_notebook;

    #[test]
    fn it_comes_once_as_the_kernel_says_it_and_replaces_no_other() {
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
