//! Notebooks that Python wrote in many styles: what opens, what stays, and what an edit means.

use std::path::{Path, PathBuf};
use std::process::Command;

use nb::notebook::{Change, Document, EditError, Json, NewCell};
use serde_json::json;

use crate::{made, python};

fn corpus(command: &str, folder: &Path) -> String {
    let out = Command::new(python::interpreter())
        .arg(python::script("notebooks.py"))
        .arg(command)
        .arg(folder)
        .output()
        .expect("run the interpreter");
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{errors}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

pub fn made() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("make a folder");
    corpus("make", folder.path());
    folder
}

/// Notebooks in the source archives of nbformat, nbclient, nbconvert, papermill, nbdime, jupytext.
pub fn jupyters_own() -> PathBuf {
    let script = include_str!("../python/notebooks.py");
    let list = script.split("# What pip asks").next().expect("a list");
    made::once("test-notebooks", &[list], |home| {
        corpus("fetch", home);
    })
}

pub fn notebooks(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut notebooks: Vec<_> = std::fs::read_dir(folder)
        .expect("read the folder")
        .map(|entry| entry.expect("read an entry").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "ipynb"))
        .map(|path| {
            let name = path.file_name().expect("a file has a name");
            let text = std::fs::read(&path).expect("read a notebook");
            (name.to_string_lossy().into_owned(), text)
        })
        .collect();
    notebooks.sort();
    notebooks
}

/// What is done to each notebook, at a cell that it has.
const EDITS: [&str; 6] = ["source", "metadata", "insert", "remove", "move", "clear"];

fn edited(
    document: &mut Document,
    what: &str,
    at: usize,
    to: usize,
    text: &str,
) -> Result<Change, EditError> {
    let changed = match what {
        "source" => document.set_source(at, text),
        "metadata" => {
            let value = Json::parse("[1e-05]").expect("a list");
            document.set_metadata(at, &["new", "key"], &value)
        }
        "insert" => {
            let cell = NewCell {
                id: "inserted".into(),
                cell_type: "code".parse().expect("a type"),
                source: text.into(),
                metadata: None,
            };
            document.insert(at, &cell)
        }
        "remove" => document.remove(at),
        "move" => document.move_cell(at, to),
        _ => document.clear_outputs(at),
    };
    changed.map(|changed| changed.what)
}

/// Checks that an edit left all bytes but the cell's, of a notebook in which every cell has an id
/// (the first edit of another one writes them).
fn assert_rest_is_untouched(
    before: &Document,
    after: &Document,
    what: &str,
    at: usize,
    to: usize,
) -> bool {
    let has_ids = before.cells().iter().all(|cell| cell.has_own_id());
    if !has_ids || before.nbformat() < (4, 5) {
        return false;
    }
    // The head of the file, then what stands before each cell and the cell.
    let parts = |document: &Document| document.chunks().map(<[u8]>::to_vec).collect::<Vec<_>>();
    let without = |document: &Document, cell: usize| {
        let mut parts = parts(document);
        let separator = if cell == 0 { 3 } else { 2 * cell + 1 };
        parts.remove(separator.max(2 * cell + 2));
        parts.remove(separator.min(2 * cell + 2));
        parts.concat()
    };
    match what {
        // What stood round the brackets of an empty list goes.
        "insert" | "remove" if before.cells().len().min(after.cells().len()) == 0 => return false,
        "insert" => assert!(without(after, at) == before.to_bytes()),
        "remove" => assert!(without(before, at) == after.to_bytes()),
        _ => {
            let (mut old, mut new) = (parts(before), parts(after));
            if what == "move" {
                let cells = 2..old.len() - 2;
                let mut texts: Vec<_> = old[cells.clone()].iter().step_by(2).cloned().collect();
                let moved = texts.remove(at);
                texts.insert(to, moved);
                assert!(new[cells].iter().step_by(2).eq(&texts));
            }
            let touched = match what {
                "move" => at.min(to)..=at.max(to),
                _ => at..=at,
            };
            for cell in touched {
                old[2 * cell + 2].clear();
                new[2 * cell + 2].clear();
            }
            assert!(old == new);
        }
    }
    true
}

/// Opens notebooks, checks that they keep their bytes, and that edits of them mean to Python what the
/// same edits of the data mean; returns how many notebooks and edits there were, and of how many edits
/// all bytes round the cell were compared.
fn assert_faithful(folder: &Path) -> (usize, usize, usize) {
    let results = tempfile::tempdir().expect("make a folder");
    let notebooks = notebooks(folder);
    let mut untouched = 0;
    for (name, text) in &notebooks {
        let before = Document::parse(text.clone());
        let before = before.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(before.to_bytes() == *text, "{name} has changed");
        let count = before.cells().len();
        let ids: Vec<_> = before.cells().iter().map(|cell| cell.id()).collect();
        for (number, what) in EDITS.into_iter().enumerate() {
            let (at, to) = match count {
                0 if what == "insert" => (0, 0),
                0 => continue,
                _ => (number % count, (number * 7 + 1) % count),
            };
            let text = ["", "é\nnew\n", "x"][number % 3];
            let mut after = before.clone();
            let change = match edited(&mut after, what, at, to, text) {
                Err(EditError::NotCode(_) | EditError::ReadOnly(_)) => continue,
                change => change.unwrap_or_else(|error| panic!("{name}, {what}: {error}")),
            };
            let changed = change != Change::Nothing;
            untouched += usize::from(assert_rest_is_untouched(&before, &after, what, at, to));
            let file = folder.join(name);
            let note = json!({
                "file": file, "what": what, "at": at, "to": to, "text": text, "ids": ids, "changed": changed,
            });
            let file = |ending| results.path().join(format!("{name}-{what}.{ending}"));
            std::fs::write(file("note"), note.to_string()).expect("write a note");
            std::fs::write(file("edited"), after.to_bytes()).expect("write a notebook");
            let reread = Document::parse(after.to_bytes()).expect("an edit leaves a notebook");
            assert_eq!(reread.revision(), after.revision(), "{name}, {what}");
        }
    }
    let checked = corpus("check", results.path());
    let checked = checked.trim().parse().expect("the number of edits");
    (notebooks.len(), checked, untouched)
}

#[test]
fn an_edit_means_to_python_what_the_same_edit_of_the_data_means() {
    let folder = made();
    let (notebooks, edits, untouched) = assert_faithful(folder.path());
    assert_eq!(notebooks, 322);
    assert!(edits > 1200 && untouched > 400, "{edits} {untouched}");
}

#[test]
fn jupyters_own_notebooks_open_and_are_edited_alike() {
    let (notebooks, edits, untouched) = assert_faithful(&jupyters_own());
    assert_eq!(notebooks, 274);
    assert!(edits > 1200 && untouched > 100, "{edits} {untouched}");
}

#[test]
fn what_python_takes_for_json_is_json() {
    let folder = made();
    let texts = std::fs::read(folder.path().join("texts.json")).expect("read the texts");
    let texts: Vec<(String, bool)> = serde_json::from_slice(&texts).expect("pairs");
    assert!(texts.len() > 4000);
    let mut taken = 0;
    for (text, verdict) in texts {
        assert_eq!(Json::parse(&text).is_ok(), verdict, "{text:?}");
        taken += usize::from(verdict);
    }
    assert!(taken > 500, "{taken}");
}
