//! `nb fmt` against nbformat, which defines the style: every byte must be equal.

use std::path::Path;
use std::process::Command;

use nb::notebook::Document;

use crate::{notebooks, python};

/// Formats every notebook that can be written, and lets Python do the same; returns their number.
fn assert_as_nbformat(folder: &Path) -> usize {
    let results = tempfile::tempdir().expect("make a folder");
    let mut count = 0;
    for (name, text) in notebooks::notebooks(folder) {
        let before = Document::parse(text.clone()).expect("it is a notebook");
        if before.is_read_only() {
            assert!(before.formatted().is_err(), "{name}");
            continue;
        }
        let after = before
            .formatted()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let again = after.formatted().expect("it is a notebook still");
        assert!(
            again.to_bytes() == after.to_bytes(),
            "{name} differs from itself"
        );
        let write = |ending, text: &[u8]| {
            std::fs::write(results.path().join(format!("{name}.{ending}")), text)
                .expect("write it");
        };
        write("before", &text);
        write("after", &after.to_bytes());
        count += 1;
    }
    let out = Command::new(python::interpreter())
        .arg(python::script("format.py"))
        .arg(results.path())
        .output()
        .expect("run the interpreter");
    let stdout = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    assert_eq!(stdout.trim().parse(), Ok(count));
    count
}

#[test]
fn notebooks_of_many_styles_become_what_nbformat_writes() {
    let folder = notebooks::made();
    assert!(assert_as_nbformat(folder.path()) > 300);
}

#[test]
fn jupyters_own_notebooks_become_what_nbformat_writes() {
    assert!(assert_as_nbformat(&notebooks::jupyters_own()) > 200);
}
