//! Text that a person typed in VS Code and did not save, in a backup like VS Code's.

use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use serde_json::{Value, json};

use super::stale::StaleWatch;
use super::{Output, home, nb, open};
use crate::world::World;

/// Writes a notebook with the cells `aaaa` and `bbbb`, which the editing actor has seen.
fn notebook(world: &World) -> PathBuf {
    let path = world.project().join("t.ipynb");
    let cell = |id: &str| json!({"cell_type": "code", "execution_count": null, "id": id, "metadata": {}, "outputs": [], "source": format!("{id} = 1")});
    write(&path, &[cell("aaaa"), cell("bbbb")]);
    nb(world, ["cell", "t.ipynb", "aaaa", "bbbb"]).ended(0);
    path
}

fn write(path: &PathBuf, cells: &[Value]) {
    let text = json!({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5});
    std::fs::write(path, text.to_string()).expect("write the notebook");
}

/// Writes a backup of the notebook with other text in one cell, as VS Code does: an address and what VS
/// Code knew of the file, then what a save would write.
fn type_in(world: &World, product: &str, cell: &str, text: &str) -> PathBuf {
    let path = world.project().join("t.ipynb");
    let found = std::fs::metadata(&path).expect("there is a notebook");
    let modified = found.modified().expect("it has a time");
    let modified = modified.duration_since(UNIX_EPOCH).expect("after 1970");
    let mut content = read(world);
    let cells = content["cells"].as_array_mut().expect("cells");
    let wanted = cells.iter_mut().find(|cell_json| cell_json["id"] == cell);
    wanted.expect("the cell")["source"] = json!(text);
    let meta = json!({
        "mtime": u64::try_from(modified.as_millis()).expect("fits"), "ctime": 0, "size": found.len(),
        "etag": "39e8d2dd", "orphaned": false, "typeId": "notebook/jupyter-notebook/jupyter-notebook",
    });
    let address = format!("file://{}", path.display()).replace("t.ipynb", "%74.ipynb");
    let folder = home(world).join(format!(".config/{product}/Backups/1763733832012/file"));
    std::fs::create_dir_all(&folder).expect("make VS Code's folder");
    let file = folder.join("-5a09c1f2");
    std::fs::write(&file, format!("{address} {meta}\n{content:#}")).expect("write the backup");
    file
}

fn read(world: &World) -> Value {
    let text = std::fs::read(world.project().join("t.ipynb")).expect("there is a notebook");
    serde_json::from_slice(&text).expect("it is JSON")
}

fn source(world: &World, index: usize) -> Value {
    read(world)["cells"][index]["source"].clone()
}

fn edit(world: &World, cell: &str, text: &str, options: &[&str]) -> Output {
    let words = [&["edit", "t.ipynb", cell, text], options].concat();
    nb(world, words)
}

#[test]
fn a_cell_in_which_somebody_types_is_not_edited() {
    let world = World::new();
    notebook(&world);
    let before = std::fs::read(world.project().join("t.ipynb")).expect("there is a notebook");
    let backup = type_in(&world, "Code", "aaaa", "typed = 1");
    edit(&world, "aaaa", "edited = 1", &[])
        .ended(5)
        .with("VS Code has unsaved text of the cell (since ")
        .with(" · not saved yet\n")
        .with("  + typed = 1\n");
    let output = edit(&world, "aaaa", "edited = 1", &["--json"]).ended(5);
    let conflict = output.json()["error"]["conflicts"][0].clone();
    assert_eq!(conflict["unsaved"], true, "{conflict}");
    assert_eq!(conflict["theirs"], "typed = 1", "{conflict}");
    assert_eq!(conflict["yours"], "edited = 1", "{conflict}");
    assert_eq!(conflict["base"], "aaaa = 1", "{conflict}");
    nb(&world, ["rm", "t.ipynb", "aaaa"]).ended(5);
    let after = std::fs::read(world.project().join("t.ipynb")).expect("there is a notebook");
    assert_eq!(before, after, "it was refused and written all the same");
    // With `--force` the edit is written, and also after the text was saved or reverted.
    edit(&world, "aaaa", "edited = 1", &["--force"]).ended(0);
    assert_eq!(source(&world, 0), "edited = 1");
    std::fs::remove_file(backup).expect("VS Code removes it");
    edit(&world, "aaaa", "edited = 2", &[]).ended(0);
    assert_eq!(source(&world, 0), "edited = 2");
}

#[test]
fn an_edit_of_another_cell_goes_in_with_a_warning() {
    let world = World::new();
    notebook(&world);
    type_in(&world, "VSCodium", "bbbb", "typed = 1");
    let output = edit(&world, "aaaa", "edited = 1", &[]).ended(0);
    assert!(
        output.stderr.contains("unsaved changes in cell bbbb"),
        "{output:?}"
    );
    assert_eq!(source(&world, 0), "edited = 1");
    // VS Code's backup still has the old text of the edited cell, in which nobody has typed.
    let output = edit(&world, "aaaa", "edited = 2", &["--json"]).ended(0);
    let notes = output.json()["notes"].to_string();
    assert!(notes.contains("unsaved changes in cell bbbb:"), "{notes}");
    assert_eq!(source(&world, 0), "edited = 2");
}

#[test]
fn who_moves_a_notebook_is_told_of_text_that_is_not_in_its_file() {
    let world = World::new();
    notebook(&world);
    type_in(&world, "Code", "bbbb", "typed = 1");
    nb(&world, ["mv", "t.ipynb", "u.ipynb"])
        .ended(0)
        .with("VS Code has unsaved text of t.ipynb (")
        .with("t.ipynb → u.ipynb: moved");
}

#[test]
fn a_watch_does_not_run_a_cell_in_which_somebody_types() {
    let world = World::new();
    notebook(&world);
    open(&world, "t.ipynb");
    nb(&world, ["exec", "t.ipynb", "--all"]).ended(0);
    let mut watch = StaleWatch::start(&world, "t.ipynb");
    watch.next();
    let backup = type_in(&world, "Code", "aaaa", "typed = 1");
    nb(&world, ["edit", "t.ipynb", "aaaa", "edited = 1", "--force"]).ended(0);
    assert_eq!(watch.next_wait(), "aaaa is being edited");
    std::fs::remove_file(backup).expect("VS Code takes the file's text");
    nb(&world, ["edit", "t.ipynb", "bbbb", "edited = 2", "--force"]).ended(0);
    assert_eq!(watch.next()["to_run"], json!(["aaaa", "bbbb"]));
}

#[test]
fn nothing_is_reported_where_nobody_types() {
    let world = World::new();
    notebook(&world);
    let folder = home(&world).join(".config/Code/Backups/1/file");
    std::fs::create_dir_all(&folder).expect("make VS Code's folder");
    std::fs::write(folder.join("1"), "file:///elsewhere/t.ipynb {}\n{}").expect("write a backup");
    let output = edit(&world, "aaaa", "edited = 1", &[]).ended(0);
    assert_eq!(output.stderr, "");
}
