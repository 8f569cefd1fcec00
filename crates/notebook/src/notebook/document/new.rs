//! The text of a new notebook.

use serde_json::json;

/// Returns the text of a notebook without cells as Jupyter writes it: indented by 1, with a newline at the
/// end.
pub fn new_notebook(kernelspec: &str, display_name: &str, language: &str) -> String {
    let document = json!({
        "cells": [],
        "metadata": {
            "kernelspec": {
                "display_name": display_name,
                "language": language,
                "name": kernelspec,
            },
            "language_info": { "name": language },
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    });
    let mut text = Vec::new();
    let style = serde_json::ser::PrettyFormatter::with_indent(b" ");
    let mut writer = serde_json::Serializer::with_formatter(&mut text, style);
    serde::Serialize::serialize(&document, &mut writer).expect("strings and numbers are JSON");
    text.push(b'\n');
    String::from_utf8(text).expect("serde_json writes UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_as_jupyter_writes_it() {
        let text = new_notebook("python3", "Python 3 (ipykernel)", "python");
        assert!(text.starts_with("{\n \"cells\": [],\n \"metadata\": {\n  \"kernelspec\": {\n"));
        assert!(text.ends_with(" \"nbformat\": 4,\n \"nbformat_minor\": 5\n}\n"));
        let named = crate::notebook::NamedKernel::read(text.as_bytes()).unwrap();
        assert_eq!(named.kernelspec.as_deref(), Some("python3"));
    }
}
