//! Notebooks that Python wrote in many styles: which open, which bytes stay, and what an edit means.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use nb::activity::notification::PendingNotices;
use nb::editing::edit::{self, Editor};
use nb::editing::history;
use nb::editing::notebook_file::NotebookFile;
use nb::editing::view::PendingCells;
use nb::notebook::{
    Cell, CellType, ChangeKind, Document, DocumentEditError, Json, NewCell, Operation,
    read_percent, write_percent,
};
use serde_json::{Value, json};

use crate::world::is_thorough;
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

/// Returns the notebooks in the source archives of nbformat, nbclient, nbconvert, papermill, nbdime,
/// jupytext.
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

/// The edits that are made to each notebook, at a cell that it has.
const EDITS: [&str; 6] = ["source", "metadata", "insert", "remove", "move", "clear"];

fn edited(
    document: &mut Document,
    kind: &str,
    at: usize,
    to: usize,
    text: &str,
) -> Result<ChangeKind, DocumentEditError> {
    let changed = match kind {
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
    changed.map(|changed| changed.kind)
}

/// Checks that an edit left all bytes except the cell's.
fn assert_rest_is_untouched(
    before: &Document,
    after: &Document,
    kind: &str,
    at: usize,
    to: usize,
) -> bool {
    // The head of the file, then for each cell the bytes before it and the cell.
    let parts = |document: &Document| document.chunks().map(<[u8]>::to_vec).collect::<Vec<_>>();
    let without = |document: &Document, cell: usize| {
        let mut parts = parts(document);
        let separator = if cell == 0 { 3 } else { 2 * cell + 1 };
        parts.remove(separator.max(2 * cell + 2));
        parts.remove(separator.min(2 * cell + 2));
        parts.concat()
    };
    match kind {
        // White space inside the brackets of an empty list is removed.
        "insert" | "remove" if before.cells().len().min(after.cells().len()) == 0 => return false,
        // Cells that have one id in the file get ids of their own.
        "remove" | "move" if has_twins(before) => return false,
        "insert" => assert!(without(after, at) == before.to_bytes()),
        "remove" => assert!(without(before, at) == after.to_bytes()),
        _ => {
            let (mut old, mut new) = (parts(before), parts(after));
            if kind == "move" {
                let cells = 2..old.len() - 2;
                let mut texts: Vec<_> = old[cells.clone()].iter().step_by(2).cloned().collect();
                let moved = texts.remove(at);
                texts.insert(to, moved);
                assert!(new[cells].iter().step_by(2).eq(&texts));
            }
            let touched = match kind {
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

/// Returns whether several cells seem to have the same id in the file, which need not be valid for a JSON library.
fn has_twins(document: &Document) -> bool {
    let id = regex::bytes::Regex::new(r#""id"\s*:\s*("[^"]*"|[0-9]+)"#).expect("a pattern");
    let cells = document.chunks().skip(2).step_by(2);
    let ids = cells.flat_map(|cell| {
        let ids = id.captures_iter(cell).map(|found| found[1].to_vec());
        ids.collect::<std::collections::BTreeSet<_>>()
    });
    let mut known = std::collections::BTreeSet::new();
    !ids.into_iter().all(|id| known.insert(id))
}

/// Checks that the cells as plain text are read as the same cells.
fn assert_is_exported(document: &Document, name: &str) {
    let is_known = |cell: &Cell| cell.cell_type() != CellType::Unknown;
    if !document.cells().iter().all(is_known) {
        return;
    }
    let written = write_percent(document.cells());
    let again = read_percent(written.strip_suffix('\n').unwrap_or(&written));
    let again = again.unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(again.len(), document.cells().len(), "{name}");
    for (plain, cell) in again.iter().zip(document.cells()) {
        assert_eq!(plain.cell_type, cell.cell_type(), "{name}");
        assert_eq!(plain.source, cell.source(), "{name}");
    }
}

/// Opens notebooks, and checks that they keep their bytes and that Python reads edits of them as the same
/// edits of the data. Returns how many notebooks and edits there were, and for how many edits all bytes
/// round the cell were compared.
fn assert_faithful(folder: &Path) -> (usize, usize, usize) {
    let results = tempfile::tempdir().expect("make a folder");
    let notebooks = notebooks(folder);
    let mut untouched = 0;
    for (name, text) in &notebooks {
        let before = Document::parse(text.clone());
        let before = before.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(before.to_bytes() == *text, "{name} has changed");
        assert_is_exported(&before, name);
        let count = before.cells().len();
        for (number, kind) in EDITS.into_iter().enumerate() {
            let (at, to) = match count {
                0 if kind == "insert" => (0, 0),
                0 => continue,
                _ => (number % count, (number * 7 + 1) % count),
            };
            let text = ["", "é\nnew\n", "x"][number % 3];
            let mut after = before.clone();
            match edited(&mut after, kind, at, to, text) {
                Err(DocumentEditError::NotCode(_) | DocumentEditError::ReadOnly(_)) => continue,
                change => drop(change.unwrap_or_else(|error| panic!("{name}, {kind}: {error}"))),
            }
            untouched += usize::from(assert_rest_is_untouched(&before, &after, kind, at, to));
            let file = folder.join(name);
            let note = json!({
                "file": file, "what": kind, "at": at, "to": to, "text": text,
            });
            let file = |ending| results.path().join(format!("{name}-{kind}.{ending}"));
            std::fs::write(file("note"), note.to_string()).expect("write a note");
            std::fs::write(file("edited"), after.to_bytes()).expect("write a notebook");
            let reread = Document::parse(after.to_bytes()).expect("an edit leaves a notebook");
            // The ledger has the ids of cells without an id in the file, so only revisions are compared.
            let revisions = |document: &Document| -> Vec<_> {
                let cells = document.cells().iter();
                cells.map(|cell| cell.revision()).collect()
            };
            assert_eq!(revisions(&reread), revisions(&after), "{name}, {kind}");
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

/// Returns the notebooks that packages on PyPI and npm contain as tutorials and examples.
pub fn real() -> PathBuf {
    let script = include_str!("../python/notebooks.py");
    let from = script.find("# Wheels").expect("a list");
    let to = script.find("# What pip asks").expect("its end");
    let list = script.get(from..to).expect("the list");
    made::once("test-real-notebooks", &[list], |home| {
        corpus("real", home);
    })
}

/// Returns an operation for a real file, and its positions; `None` if the notebook has no such cell.
fn operation(kind: &str, document: &Document, seed: usize) -> Option<(Value, usize, usize)> {
    let cells = document.cells();
    let count = cells.len();
    let find = |is: &dyn Fn(usize) -> bool| {
        let mut places = (0..count).map(|step| (seed + step) % count.max(1));
        places.find(|at| is(*at))
    };
    let code = |at: usize| {
        cells
            .get(at)
            .is_some_and(|cell| cell.cell_type() == CellType::Code)
    };
    let lines = |at: usize| {
        cells
            .get(at)
            .map_or(0, |cell| cell.source().split('\n').count())
    };
    let any = find(&|_| true);
    let operation = |at: usize, to: usize| {
        Some(match kind {
            // The typical edit: the number of characters stays the same.
            "edit" => {
                let source = cells.get(at)?.source();
                let last = source.chars().last()?;
                let other = if last == 'x' { 'y' } else { 'x' };
                let text: String = source.chars().take(source.chars().count() - 1).collect();
                json!({"op": "edit", "cell": at, "source": format!("{text}{other}")})
            }
            "insert" => json!({"op": "insert", "at": at, "id": "inserted", "source": "a\nb = 'é'"}),
            "rm" => json!({"op": "rm", "cell": at}),
            "move" => json!({"op": "move", "cell": at, "to": to}),
            "type" => {
                let other = if code(at) { "markdown" } else { "code" };
                json!({"op": "edit", "cell": at, "type": other})
            }
            "clear" => json!({"op": "clear", "cell": at}),
            "split" => json!({"op": "split", "cell": at, "line": 1, "id": "half"}),
            _ => json!({"op": "join", "cells": [at, at + 1]}),
        })
    };
    let (at, to) = match kind {
        "insert" => (seed % (count + 1), 0),
        "clear" => (find(&code)?, 0),
        "split" => (find(&|at| lines(at) > 2)?, 0),
        "join" => (find(&|at| at + 1 < count)?, 0),
        "edit" => (
            find(&|at| cells.get(at).is_some_and(|cell| !cell.source().is_empty()))?,
            0,
        ),
        _ => (any?, (seed * 7 + 1) % count),
    };
    Some((operation(at, to)?, at, to))
}

/// A notebook's bytes: the head, the bytes before each cell, the cells, and the bytes after them.
type Parts = (Vec<u8>, Vec<Vec<u8>>, Vec<Vec<u8>>, Vec<u8>);

fn parts(text: &[u8]) -> Parts {
    let document = Document::parse(text.to_vec()).expect("a notebook");
    let chunks: Vec<_> = document.chunks().map(<[u8]>::to_vec).collect();
    let cells = document.cells().len();
    let inside = chunks.iter().skip(1).take(2 * cells);
    let before = inside.clone().step_by(2).cloned().collect();
    let texts = inside.skip(1).step_by(2).cloned().collect();
    let rest = chunks
        .iter()
        .skip(1 + 2 * cells)
        .flatten()
        .copied()
        .collect();
    (
        chunks.first().cloned().expect("a head"),
        before,
        texts,
        rest,
    )
}

/// Checks that all cells except the named ones kept their bytes.
fn assert_only(kind: &str, at: usize, to: usize, old: &[u8], new: &[u8]) {
    let (old, mut new) = (parts(old), parts(new));
    assert_eq!(old.0, new.0, "the head of the file");
    let mut texts = old.2.clone();
    match kind {
        "insert" => texts.insert(at, Vec::new()),
        "split" => texts.insert(at + 1, Vec::new()),
        "rm" => drop(texts.remove(at)),
        "join" => drop(texts.remove(at + 1)),
        "move" => {
            let moved = texts.remove(at);
            texts.insert(to, moved);
        }
        _ => {}
    }
    assert_eq!(texts.len(), new.2.len());
    let touched = match kind {
        "rm" => vec![],
        "split" => vec![at, at + 1],
        "move" => vec![to],
        _ => vec![at],
    };
    for at in touched {
        texts[at].clear();
        new.2[at].clear();
    }
    assert!(texts == new.2, "another cell has changed");
    if old.2.is_empty() || new.2.is_empty() {
        return;
    }
    assert_eq!(old.3, new.3, "the end of the file");
    // The bytes between two cells are the same for each added or removed cell.
    let (short, long) = match old.1.len() < new.1.len() {
        true => (&old.1, &new.1),
        false => (&new.1, &old.1),
    };
    assert_eq!(short.first(), long.first());
    assert!(
        long.starts_with(short)
            || long.ends_with(short)
            || short.iter().all(|line| long.contains(line))
    );
}

/// Runs each command on a fresh file and undoes it; returns how many there were.
fn commands(name: &str, text: &[u8], seed: usize) -> usize {
    let document = Document::parse(text.to_vec()).unwrap_or_else(|error| panic!("{name}: {error}"));
    // Two cells of this notebook have the same id; without the first, it is the second one's own.
    if document.is_read_only() || name.ends_with("invalid_unique_cell_id.ipynb") {
        return 0;
    }
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("t.ipynb");
    std::fs::write(&path, text).expect("write the notebook");
    let page = NotebookFile::of(&path).expect("a page");
    let editor = Editor {
        by: "claude".into(),
        force: false,
        now: true,
        must_have_seen: false,
        progress: |_| {},
        notices: PendingNotices::default(),
        shown: PendingCells::default(),
        shows_whole: false,
    };
    let mut done = 0;
    for (number, kind) in [
        "edit", "insert", "rm", "move", "type", "clear", "split", "join",
    ]
    .into_iter()
    .enumerate()
    {
        let Some((operation, at, to)) = operation(kind, &document, seed * 3 + number) else {
            continue;
        };
        let list = json!([operation]).to_string();
        let list = Operation::read_list(&list).expect("an operation");
        let edited = edit::apply(&page, &list, &editor);
        let edited = edited.unwrap_or_else(|error| panic!("{name}, {operation}: {error}"));
        let new = std::fs::read(&path).expect("read the notebook");
        // The cell was cleared already, or is at that position already.
        let Some(op) = edited.op else {
            assert!(new == text, "{name}, {operation}");
            continue;
        };
        let checked = std::panic::catch_unwind(|| assert_only(kind, at, to, text, &new));
        assert!(checked.is_ok(), "{name}, {operation}");
        assert_ne!(new.len(), text.len(), "{name}, {operation}");
        let undone = history::undo(&page, Some(&op), &editor);
        undone.unwrap_or_else(|error| panic!("{name}, {operation}: {error}"));
        let back = std::fs::read(&path).expect("read the notebook");
        assert!(back == text, "{name}, {operation}: undo leaves other bytes");
        done += 1;
    }
    done
}

#[test]
fn of_real_notebooks_an_edit_changes_its_cell_alone_and_an_undo_leaves_no_byte() {
    let all: Vec<_> = [real(), jupyters_own()]
        .iter()
        .flat_map(|folder| notebooks(folder))
        .collect();
    let (step, least) = if is_thorough() { (1, 5000) } else { (32, 150) };
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(step, Ordering::Relaxed);
                    let Some((name, text)) = all.get(at) else {
                        break;
                    };
                    done.fetch_add(commands(name, text, at), Ordering::Relaxed);
                }
            });
        }
    });
    let (notebooks, done) = (all.len(), done.into_inner());
    eprintln!("{notebooks} notebooks, {done} commands");
    assert!(notebooks > 800 && done > least, "{notebooks} {done}");
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
