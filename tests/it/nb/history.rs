//! The past of a notebook: differences, edits undone, versions restored, and who did what.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{Output, nb, output_of};
use crate::world::{World, succeed};

/// Four cells, of which the third was run.
const NOTEBOOK: &str = r##"{
 "cells": [
  {"cell_type": "markdown", "id": "aaaa1111", "metadata": {}, "source": ["# Title"]},
  {"cell_type": "code", "execution_count": null, "id": "bbbb2222", "metadata": {}, "outputs": [], "source": ["lr = 0.1\n", "n = 3\n", "steps = 7"]},
  {"cell_type": "code", "execution_count": 12, "id": "cccc3333", "metadata": {"tags": ["a"]}, "outputs": [{"name": "stdout", "output_type": "stream", "text": ["1\n"]}], "source": ["print(1)"]},
  {"cell_type": "code", "execution_count": null, "id": "dddd4444", "metadata": {}, "outputs": [], "source": ["last"]}
 ],
 "metadata": {},
 "nbformat": 4,
 "nbformat_minor": 5
}
"##;

/// Makes a world with the notebook, of which the tests' agent has seen every cell.
fn world() -> World {
    let world = World::new();
    std::fs::write(world.project().join("t.ipynb"), NOTEBOOK).expect("write the notebook");
    on(&world, &["cell", "0.."]).ended(0);
    world
}

/// Runs a command of the agent on the notebook.
fn on(world: &World, words: &[&str]) -> Output {
    let (command, rest) = words.split_first().expect("a command");
    nb(world, [&[*command, "t.ipynb"], rest].concat())
}

fn read(world: &World) -> Value {
    let text = std::fs::read(world.project().join("t.ipynb")).expect("read the notebook");
    serde_json::from_slice(&text).expect("it is JSON")
}

/// Saves the notebook as an editor does, with one text replaced by another.
fn save(world: &World, old: &str, new: &str) {
    let path = world.project().join("t.ipynb");
    let text = std::fs::read_to_string(&path).expect("read the notebook");
    assert!(text.contains(old), "no {old:?} in {text}");
    std::fs::write(path, text.replace(old, new)).expect("write the notebook");
}

/// Returns the ids and texts of the cells, in one line.
fn cells(world: &World) -> String {
    let notebook = read(world);
    let cells = notebook["cells"].as_array().expect("cells").iter();
    let cells = cells.map(|cell| {
        let lines = cell["source"].as_array().expect("a list of lines").iter();
        let text: String = lines.map(|line| line.as_str().expect("a line")).collect();
        let id = cell["id"].as_str().expect("an id").get(..4);
        format!("{}:{}", id.expect("a long id"), text.replace('\n', "|"))
    });
    cells.collect::<Vec<_>>().join(" ")
}

const CELLS: &str = "aaaa:# Title bbbb:lr = 0.1|n = 3|steps = 7 cccc:print(1) dddd:last";

/// Returns the operation that a command has made.
fn op(output: &Output) -> String {
    let op = output.json()["op"].as_str().expect("an op").to_owned();
    assert_eq!(op.len(), 8, "{op}");
    op
}

/// Returns the notebook's revision.
fn revision(world: &World) -> String {
    let answer = on(world, &["cells", "--json"]).ended(0).json();
    answer["revision"].as_str().expect("a revision").to_owned()
}

/// Returns stdout, with what differs in each run replaced: times and operations.
fn out(output: &Output) -> String {
    let is_op = |word: &str| word.len() == 8 && word.chars().all(|c| c.is_ascii_hexdigit());
    let is_time = |word: &str| word.len() == 8 && word.matches(':').count() == 2;
    let mut words = Vec::new();
    for word in output.stdout.split_inclusive([' ', '\n']) {
        let bare = word.trim_end().trim_end_matches([')', ':', ',']);
        let known = ["aaaa1111", "bbbb2222", "cccc3333", "dddd4444"].contains(&bare);
        words.push(match bare.trim_start_matches('(') {
            core if is_time(core) => word.replacen(core, "TIME", 1),
            core if is_op(core) && !known => word.replacen(core, "OP", 1),
            _ => word.to_owned(),
        });
    }
    words.concat()
}

fn git(world: &World, words: &[&str]) {
    let mut command = Command::new("git");
    command
        .args(["-c", "user.name=a", "-c", "user.email=a@b.c"])
        .args(words)
        .current_dir(world.project());
    let done = command.output().expect("git runs");
    assert!(done.status.success(), "{words:?}: {done:?}");
}

#[test]
fn a_difference_is_printed_cell_by_cell() {
    let world = world();
    let first = revision(&world);
    on(&world, &["edit", "bbbb", "--replace", "n = 3", "n = 4"]).ended(0);
    on(&world, &["edit", "cccc", "--meta", "tags=[\"b\"]"]).ended(0);
    on(&world, &["insert", "0", "x\ny", "--id", "new1"]).ended(0);
    on(&world, &["rm", "aaaa"]).ended(0);
    on(&world, &["move", "dddd", "0"]).ended(0);
    let now = revision(&world);
    let output = on(&world, &["diff", &first]).ended(0);
    let want = format!(
        "--- t.ipynb · revision {first}
+++ t.ipynb · revision {now}
aaaa1111 (was cell 0) · gone · # Title
-# Title
dddd4444 (cell 0) · moved from 3 · last
new1 (cell 1) · new · x
+x
+y
bbbb2222 (cell 2) · 9c8b5a5b5b → 9c8b5a5b5b · lr = 0.1
@@ -1,3 +1,3 @@
 lr = 0.1
-n = 3
+n = 4
 steps = 7
cccc3333 (cell 3) · 9c8b5a5b5b → 9c8b5a5b5b · print(1)
  metadata.tags: [\"a\"] → [\"b\"]
"
    );
    // The revisions of cells are those that the commands printed; here only their length is compared.
    let plain = |text: &str| {
        let words = text.split_inclusive([' ', '\n']).map(|word| {
            let is_revision = word.trim_end().len() == 10
                && word.trim_end().chars().all(|c| c.is_ascii_hexdigit());
            if is_revision {
                word.replace(word.trim_end(), "REVISION")
            } else {
                word.to_owned()
            }
        });
        words.collect::<String>()
    };
    assert_eq!(plain(&output.stdout), plain(&want), "{}", output.stdout);
    // A prefix is enough, and JSON has the same.
    let json = on(&world, &["diff", &first[..6], "--json"]).ended(0).json();
    assert_eq!(
        (&json["revision"], &json["before"]["revision"]),
        (&json!(now), &json!(first))
    );
    let cells = json["cells"].as_array().expect("cells");
    let ids: Vec<_> = cells
        .iter()
        .map(|cell| cell["cell"].as_str().expect("an id"))
        .collect();
    assert_eq!(
        ids,
        ["aaaa1111", "dddd4444", "new1", "bbbb2222", "cccc3333"]
    );
    assert_eq!(
        cells[3]["source"],
        json!([{"before": 1, "after": 1, "lines":
            [{"same": "lr = 0.1"}, {"removed": "n = 3"}, {"added": "n = 4"}, {"same": "steps = 7"}]}])
    );
    on(&world, &["diff", &now]).ended(0).with("no cell differs");
    on(&world, &["diff", "0123456789"])
        .ended(1)
        .with("has had no revision \"0123456789\"")
        .with(&now)
        .with("--git 0123456789");
}

#[test]
fn git_is_asked_and_says_what_is_missing() {
    let world = world();
    // A folder above the project may be somebody else's repository.
    on(&world, &["diff", "--git"])
        .ended(1)
        .with("is in no git repository");
    git(&world, &["init", "-q"]);
    on(&world, &["diff", "--git"])
        .ended(1)
        .with("has no commit yet");
    git(&world, &["commit", "-q", "--allow-empty", "-m", "first"]);
    on(&world, &["diff", "--git"])
        .ended(1)
        .with("t.ipynb is not in git at HEAD")
        .with("hint: git add t.ipynb");
    git(&world, &["add", "t.ipynb"]);
    git(&world, &["commit", "-q", "-m", "second"]);
    git(&world, &["tag", "v1"]);
    on(&world, &["diff", "--git", "nowhere"])
        .ended(1)
        .with("git knows no commit \"nowhere\"");
    save(&world, "print(1)", "print(2)");
    save(&world, "\"1\\n\"", "\"2\\n\"");
    save(
        &world,
        "\"metadata\": {},\n \"nb",
        "\"metadata\": {\"x\": 1},\n \"nb",
    );
    for words in [&["diff", "--git"][..], &["diff", "--git", "v1"]] {
        on(&world, words)
            .ended(0)
            .with("notebook metadata.x: none → 1")
            .with("outputs: stdout: 1 → stdout: 2")
            .with("-print(1)\n+print(2)\n");
    }
    let empty = world.project().join("empty");
    std::fs::create_dir(&empty).expect("make a folder");
    let output = output_of(
        world
            .nb()
            .args(["diff", "t.ipynb", "--git"])
            .env("PATH", &empty),
    );
    output.ended(1).with("there is no git on the PATH");
}

#[test]
fn notebooks_are_compared_from_the_first_to_the_second() {
    let world = world();
    let other = NOTEBOOK
        .replace("last", "the end")
        .replace("\"text\": [\"1", "\"text\": [\"7");
    std::fs::write(world.project().join("new.ipynb"), other).expect("write another");
    let output = on(&world, &["diff", "new.ipynb"]).ended(0);
    output
        .with("+++ new.ipynb")
        .with("-last\n+the end\n")
        .with("outputs: stdout: 1 → stdout: 7");
    on(&world, &["diff", "none.ipynb"])
        .ended(1)
        .with("there is no notebook none.ipynb");
}

#[test]
fn without_a_word_it_is_what_was_seen_last() {
    let world = world();
    on(&world, &["diff"])
        .ended(0)
        .with("no cell differs from what agent saw last");
    save(&world, "n = 3", "n = 33");
    save(
        &world,
        "\"source\": [\"last\"]}",
        "\"source\": [\"last\"]},\n  {\"cell_type\": \"raw\", \"id\": \"eeee\", \"metadata\": {}, \"source\": [\"new\"]}",
    );
    let output = on(&world, &["diff"]).ended(0);
    assert!(!output.stdout.contains("dddd4444"), "{output:?}");
    output
        .with("-n = 3\n+n = 33\n")
        .with("eeee (cell 4) · new · new");
    // The diff has shown the cells, so they may be edited.
    on(&world, &["diff"]).ended(0).with("no cell differs");
    on(&world, &["edit", "bbbb", "x"]).ended(0);
    on(&world, &["edit", "eeee", "y"]).ended(0);
    save(&world, "print(1)", "print(3)");
    on(&world, &["edit", "cccc", "z"]).ended(5);
    // Another actor has seen nothing, and there is no git.
    let output = nb(&world, ["--as", "other", "diff", "t.ipynb"]).ended(1);
    output
        .with("is in no git repository")
        .with("nb diff t.ipynb REVISION");
    nb(&world, ["--as", "other", "diff", "t.ipynb", "--seen"])
        .ended(1)
        .with("has seen no cell");
}

#[test]
fn edits_are_taken_back_one_after_the_other_and_done_again() {
    let world = world();
    let first = read(&world);
    for words in [
        &["edit", "bbbb", "one\ntwo"][..],
        &["insert", "new", "--id", "new1", "-a", "aaaa"],
        &["rm", "cccc"],
        &["move", "dddd", "0"],
        &["edit", "bbbb", "--type", "markdown"],
        &["insert", "-1", "x", "--id", "new2"],
    ] {
        on(&world, words).ended(0);
    }
    on(&world, &["clear"]).ended(0);
    let last = read(&world);
    assert_eq!(
        cells(&world),
        "dddd:last aaaa:# Title new1:new new2:x bbbb:one|two"
    );
    let mut redo = Vec::new();
    // The cleared cell had no outputs, so clearing was not an edit.
    for _ in 0..6 {
        redo.push(op(&on(&world, &["undo", "--json"]).ended(0)));
    }
    assert_eq!(read(&world), first);
    on(&world, &["undo"])
        .ended(1)
        .with("agent did nothing in this notebook that is left to take back")
        .with(&format!(
            "to do again what you took back last: nb undo t.ipynb {}",
            redo[5]
        ));
    for op in redo.iter().rev() {
        on(&world, &["undo", &op[..5]])
            .ended(0)
            .with(&format!("took back {op} (undo of"));
    }
    assert_eq!(read(&world), last);
    on(&world, &["undo", &redo[0]])
        .ended(1)
        .with(&format!("{} is taken back already", redo[0]));
    on(&world, &["undo", "zzzz"])
        .ended(1)
        .with("no operation on this notebook is called \"zzzz\"");
}

#[test]
fn outputs_that_were_cleared_come_back_and_go_again() {
    let world = world();
    let first = read(&world);
    on(&world, &["clear"]).ended(0);
    assert_eq!(read(&world)["cells"][2]["outputs"], json!([]));
    let cleared = read(&world);
    let undo = on(&world, &["undo"])
        .ended(0)
        .with("outputs are back: 2 cccc3333");
    assert_eq!(read(&world), first);
    on(&world, &["undo"])
        .ended(1)
        .with("nothing in this notebook that is left");
    let redo = undo.stdout.split_whitespace().last().expect("an op");
    on(&world, &["undo", redo])
        .ended(0)
        .with("cleared 2 cccc3333");
    assert_eq!(read(&world), cleared);
    // A cell that was run since keeps its new outputs.
    save(
        &world,
        "\"execution_count\": null, \"id\": \"cccc3333\"",
        "\"execution_count\": 99, \"id\": \"cccc3333\"",
    );
    let answer = on(&world, &["undo", "--json"]).ended(1).json();
    assert!(
        answer["error"]["message"]
            .as_str()
            .expect("a message")
            .contains("nothing"),
        "{answer}"
    );
    assert_eq!(read(&world)["cells"][2]["execution_count"], 99);
}

#[test]
fn what_others_did_since_stays() {
    let world = world();
    let edit = op(&on(
        &world,
        &["edit", "bbbb", "--replace", "n = 3", "n = 4", "--json"],
    )
    .ended(0));
    save(&world, "lr = 0.1", "lr = 0.2");
    save(&world, "last", "human");
    on(&world, &["undo", &edit[..4]])
        .ended(0)
        .with("cell bbbb2222 keeps what others changed since; it is now:")
        .with("    | lr = 0.2\n    | n = 3\n");
    assert_eq!(
        cells(&world),
        "aaaa:# Title bbbb:lr = 0.2|n = 3|steps = 7 cccc:print(1) dddd:human"
    );
    // The cell was shown, so it may be edited.
    on(&world, &["edit", "bbbb", "--replace", "n = 3", "n = 5"]).ended(0);
    save(&world, "n = 5", "n = 6");
    let before = std::fs::read(world.project().join("t.ipynb")).expect("read it");
    let answer = on(&world, &["undo", "--json"]).ended(5).json();
    let conflict = &answer["error"]["conflicts"][0];
    assert_eq!(answer["error"]["kind"], "conflict");
    for (side, text) in [("base", "n = 5"), ("yours", "n = 3"), ("theirs", "n = 6")] {
        let version = conflict[side].as_str().expect("a text");
        assert!(version.contains(text), "{side}: {version}");
    }
    assert_eq!(
        std::fs::read(world.project().join("t.ipynb")).expect("read it"),
        before
    );
    on(&world, &["undo", "--force"]).ended(0);
    assert_eq!(
        cells(&world),
        "aaaa:# Title bbbb:lr = 0.2|n = 3|steps = 7 cccc:print(1) dddd:human"
    );
    on(&world, &["log"]).ended(0).with("· forced ·");
}

#[test]
fn what_is_not_there_any_more_is_named_before_anything_else_is_touched() {
    let world = world();
    let before = std::fs::read(world.project().join("t.ipynb")).expect("read it");
    let earlier = op(&on(&world, &["edit", "dddd", "first", "--json"]).ended(0));
    let first = std::fs::read(world.project().join("t.ipynb")).expect("read it");
    let second = op(&on(&world, &["edit", "dddd", "second", "--json"]).ended(0));
    // A person has undone it by hand.
    std::fs::write(world.project().join("t.ipynb"), &first).expect("write it");
    on(&world, &["undo"])
        .ended(5)
        .with("is not in the notebook any more; nothing was taken back")
        .with(&format!(
            "nothing is left to take back of {second} (edit of dddd4444 by agent"
        ))
        .with(&format!("nb undo t.ipynb {earlier}"));
    assert_eq!(
        std::fs::read(world.project().join("t.ipynb")).expect("read it"),
        first
    );
    on(&world, &["undo", &earlier]).ended(0);
    assert_eq!(
        std::fs::read(world.project().join("t.ipynb")).expect("read it"),
        before
    );
    // A cell that somebody removed is restored only with `--force`.
    let edit = op(&on(&world, &["edit", "bbbb", "x", "--json"]).ended(0));
    nb(&world, ["--as", "ada", "rm", "t.ipynb", "bbbb", "--force"]).ended(0);
    on(&world, &["undo", &edit])
        .ended(5)
        .with("bbbb2222 · deleted")
        .with("\n‣   removed\n");
    on(&world, &["undo", &edit, "--force"]).ended(0);
    assert_eq!(cells(&world), CELLS);
}

#[test]
fn a_list_of_operations_is_taken_back_as_one() {
    let world = world();
    let first = read(&world);
    let list = r#"[
        {"op": "split", "cell": "bbbb", "line": 1, "id": "half"},
        {"op": "join", "cells": "3..5"},
        {"op": "remove", "cell": "aaaa"},
        {"op": "edit", "cell": "half", "type": "raw"},
        {"op": "move", "cell": "half", "to": 0}
    ]"#;
    let file = world.project().join("list.json");
    std::fs::write(&file, list).expect("write the list");
    let output = on(&world, &["apply", file.to_str().expect("a path"), "--json"]);
    let op = op(&output.ended(0));
    assert_eq!(
        cells(&world),
        "half:n = 3|steps = 7 bbbb:lr = 0.1 cccc:print(1)|last"
    );
    let undo = on(&world, &["undo", "--json"]).ended(0).json();
    assert_eq!(undo["undone"]["op"], op);
    assert_eq!(read(&world), first);
    on(&world, &["undo", undo["op"].as_str().expect("an op")]).ended(0);
    assert_eq!(
        cells(&world),
        "half:n = 3|steps = 7 bbbb:lr = 0.1 cccc:print(1)|last"
    );
    // The outputs were those of the cell before it was split.
    assert_eq!(read(&world)["cells"][2]["outputs"], json!([]));
}

#[test]
fn a_notebook_without_ids_has_a_history_too() {
    let world = World::new();
    let old = NOTEBOOK.replace("\"nbformat_minor\": 5", "\"nbformat_minor\": 4");
    let ids = ["aaaa1111", "bbbb2222", "cccc3333", "dddd4444"];
    let old = ids.iter().fold(old, |text, id| {
        text.replace(&format!("\"id\": \"{id}\", "), "")
    });
    std::fs::write(world.project().join("t.ipynb"), &old).expect("write the notebook");
    let first = revision(&world);
    on(&world, &["cell", "0.."]).ended(0);
    on(&world, &["edit", "-1", "x"]).ended(0);
    on(&world, &["rm", "0"]).ended(0);
    on(&world, &["diff", &first])
        .ended(0)
        .with("(was cell 0) · gone · # Title")
        .with("-last\n+x\n");
    on(&world, &["undo"]).ended(0);
    on(&world, &["undo"]).ended(0);
    on(&world, &["diff", &first])
        .ended(0)
        .with("no cell differs");
    assert_eq!(revision(&world), first);
}

#[test]
fn everybody_takes_back_what_was_his() {
    let world = world();
    let ada = op(&nb(
        &world,
        [
            "--as", "ada", "insert", "t.ipynb", "a", "--id", "ada1", "--json",
        ],
    )
    .ended(0));
    let bob = op(&nb(
        &world,
        [
            "--as", "bob", "insert", "t.ipynb", "b", "--id", "bob1", "--json",
        ],
    )
    .ended(0));
    let output = nb(&world, ["--as", "eve", "undo", "t.ipynb"]).ended(1);
    output
        .with("eve did nothing in this notebook")
        .with(&ada)
        .with(&bob);
    nb(&world, ["--as", "ada", "undo", "t.ipynb"])
        .ended(0)
        .with("removed ada1");
    // Any actor can undo an operation by its id.
    nb(&world, ["--as", "ada", "undo", "t.ipynb", &bob])
        .ended(0)
        .with("removed bob1");
    assert_eq!(cells(&world), CELLS);
}

#[test]
fn an_edit_that_a_save_wiped_out_can_be_restored() {
    let world = world();
    let before = std::fs::read(world.project().join("t.ipynb")).expect("read it");
    on(&world, &["edit", "dddd", "agent"]).ended(0);
    on(&world, &["insert", "new", "--id", "new1"]).ended(0);
    // The Overwrite of an editor that has not read the last edits.
    std::fs::write(world.project().join("t.ipynb"), before).expect("write it");
    on(&world, &["restore", "dddd"])
        .ended(0)
        .with("dddd4444 is revision");
    on(&world, &["restore", "new1"])
        .ended(0)
        .with("deleted cell new1 is back");
    assert_eq!(
        cells(&world),
        format!("{} new1:new", CELLS.replace("last", "agent"))
    );
    on(&world, &["log"])
        .ended(0)
        .with("wiped out agent's edit of dddd4444");
}

#[test]
fn versions_of_a_cell_come_back_whoever_made_them() {
    let world = world();
    on(&world, &["edit", "dddd", "two"]).ended(0);
    save(&world, "\"two\"", "\"human\"");
    on(&world, &["cell", "dddd"]).ended(0);
    on(&world, &["edit", "dddd", "four"]).ended(0);
    let answer = on(&world, &["log", "dddd", "--json"]).ended(0).json();
    let versions = answer["versions"].as_array().expect("versions");
    let lines: Vec<_> = versions
        .iter()
        .map(|version| version["first_line"].as_str().expect("a line"))
        .collect();
    assert_eq!(lines, ["last", "two", "human", "four"]);
    let output = on(&world, &["log", "-1"]).ended(0);
    assert_eq!(output.stdout.lines().count(), 4);
    on(&world, &["restore", "dddd"]).ended(0);
    assert!(cells(&world).ends_with("dddd:human"));
    let first = versions[0]["revision"].as_str().expect("a revision");
    on(&world, &["restore", &format!("dddd@{}", &first[..5])]).ended(0);
    assert_eq!(cells(&world), CELLS);
    let answer = on(&world, &["restore", "-1", "--rev", first, "--json"])
        .ended(0)
        .json();
    assert_eq!(
        (&answer["op"], &answer["changes"][0]["what"]),
        (&Value::Null, &json!("nothing"))
    );
    on(&world, &["restore", "dddd@ffff"])
        .ended(1)
        .with("cell dddd4444 has had no revision \"ffff\"")
        .with(first)
        .with("human");
    on(&world, &["restore", "aaaa"])
        .ended(1)
        .with("cell aaaa1111 is as it has always been, as far as nb knows");
    // That would overwrite text of a person that the agent has not seen.
    save(&world, "\"last\"", "\"unseen\"");
    on(&world, &["restore", "dddd@fff"]).ended(1);
    on(&world, &["restore", "dddd"]).ended(5).with("unseen");
    on(&world, &["restore", "dddd"]).ended(0);
}

#[test]
fn deleted_cells_come_back_to_their_place_with_their_outputs() {
    let world = world();
    let first = read(&world);
    on(&world, &["rm", "cccc"]).ended(0);
    on(&world, &["rm", "bbbb"]).ended(0);
    let output = on(&world, &["log", "--deleted"])
        .ended(0)
        .with("cccc3333@")
        .with("bbbb2222@");
    assert_eq!(output.stdout.lines().count(), 2);
    on(&world, &["restore", "zzzz"])
        .ended(1)
        .with("there is no cell \"zzzz\"")
        .with("cccc3333@");
    on(&world, &["log", "ccc"])
        .ended(0)
        .with("was deleted")
        .with("removed");
    on(&world, &["restore", "ccc"])
        .ended(0)
        .with("deleted cell cccc3333 is back");
    on(&world, &["restore", "bbbb2222"]).ended(0);
    assert_eq!(read(&world), first);
    // A cell that a person deletes is restored without outputs: they were only in the file.
    let path = world.project().join("t.ipynb");
    let text = std::fs::read_to_string(&path).expect("read it");
    let line = text.lines().find(|line| line.contains("\"dddd4444\""));
    let mut notebook = read(&world);
    assert!(line.is_some() || notebook["cells"][3]["id"] == "dddd4444");
    notebook["cells"].as_array_mut().expect("cells").remove(3);
    std::fs::write(&path, notebook.to_string()).expect("write it");
    on(&world, &["restore", "dddd"]).ended(0);
    assert_eq!(cells(&world), CELLS);
}

#[test]
fn a_deleted_cells_whole_id_means_it_also_where_others_begin_so() {
    let world = world();
    save(&world, "cccc3333", "bbbb22223");
    save(&world, "dddd4444", "bbbb22224");
    on(&world, &["cell", "0.."]).ended(0);
    on(&world, &["rm", "bbbb2222"]).ended(0);
    for _ in 0..2 {
        on(&world, &["log", "bbbb2222"])
            .ended(0)
            .with("cell bbbb2222 was deleted")
            .with("removed");
        // Then a cell with the same prefix is deleted too.
        let left = "bbbb22223";
        if cells(&world).matches("bbbb").count() == 2 {
            on(&world, &["rm", left]).ended(0);
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_checkout_beside_a_front_end_is_not_its_save() {
    let world = world();
    let git = |words: &[&str]| {
        let mut command = world.command(Path::new("git"));
        command.args(["-c", "user.name=ada", "-c", "user.email=a@b"]);
        succeed(command.args(words));
    };
    git(&["init", "--quiet"]);
    git(&["add", "t.ipynb"]);
    git(&["commit", "--quiet", "-m", "one"]);
    on(&world, &["edit", "bbbb", "x"]).ended(0);
    git(&["commit", "--quiet", "-am", "two"]);
    // The front end's proxy is this process.
    let own = std::process::id();
    let stat = std::fs::read_to_string(format!("/proc/{own}/stat")).expect("this process");
    let start_time = stat
        .rsplit(") ")
        .next()
        .and_then(|it| it.split(' ').nth(19));
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("the boot");
    let proxies = world.project().join(".nb/proxies");
    std::fs::create_dir_all(&proxies).expect("a folder");
    let joined = json!({
        "pid": own, "start_time": start_time.and_then(|it| it.parse::<u64>().ok()),
        "boot_id": boot_id.trim(), "session": "t.ipynb", "front_end": "JupyterLab",
        "since": "2026-01-02T03:04:05Z",
    });
    std::fs::write(proxies.join("1.json"), joined.to_string()).expect("write the record");
    git(&["checkout", "--quiet", "HEAD~1"]);
    let output = on(&world, &["log"]).ended(0);
    let line = output.stdout.lines().last().expect("a line");
    for part in [
        "somebody saved: edited bbbb2222 ",
        " · JupyterLab was joined · git HEAD moved: checkout: moving from ",
        "that wiped out agent's edit of bbbb2222",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[test]
fn the_log_names_who_did_what() {
    let world = world();
    on(&world, &["log"])
        .ended(0)
        .with("nothing has happened here yet");
    on(&world, &["edit", "bbbb", "x"]).ended(0);
    nb(&world, ["--as", "ada", "move", "t.ipynb", "dddd", "0"]).ended(0);
    save(&world, "\"x\"", "\"y\"");
    nb(&world, ["--as", "ada", "undo", "t.ipynb"]).ended(0);
    let output = on(&world, &["log"]).ended(0);
    let lines = out(&output);
    let lines: Vec<_> = lines
        .lines()
        .map(|line| line.split(" · notebook ").next())
        .collect();
    let begins = |line: Option<&str>, text: &str| {
        let line = line.expect("a line");
        assert!(line.starts_with(text), "{text:?} does not begin {line:?}");
    };
    assert_eq!(lines.len(), 4, "{output:?}");
    begins(lines[0], "TIME  agent edited bbbb2222 ");
    begins(lines[1], "TIME  ada moved dddd4444 to 0 · op OP");
    begins(lines[2], "TIME  somebody saved: edited bbbb2222 ");
    begins(lines[3], "TIME  ada took back ");
    let count = |words: &[&str]| on(&world, words).ended(0).stdout.lines().count();
    assert_eq!(count(&["log", "--lines", "2"]), 2);
    assert_eq!(count(&["log", "--by", "ada"]), 2);
    assert_eq!(count(&["log", "--by", "ada", "--lines", "1"]), 1);
    assert_eq!(count(&["log", "--since", "1h"]), 4);
    // The agent has just read the log.
    assert_eq!(count(&["log", "--since", "last"]), 0);
    on(&world, &["log", "--since", "soon"])
        .ended(2)
        .with("is not a time");
    let json = on(&world, &["log", "--json"]).ended(0).json();
    let events: Vec<_> = json["log"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|entry| entry["event"].clone())
        .collect();
    assert_eq!(events, ["edited", "edited", "saved", "edited"]);
    assert_eq!(json["revision"], revision(&world));
    assert_eq!(json["log"][3]["command"], "undo");
    on(&world, &["log", "-f"])
        .ended(2)
        .with("--proxy or --kernel");
}

#[test]
fn what_is_not_kept_is_reported() {
    let world = World::new();
    std::fs::write(world.project().join("t.ipynb"), NOTEBOOK).expect("write the notebook");
    let folder = world.project().join(".nb");
    std::fs::create_dir(&folder).expect("make .nb");
    // Settings apply only in a folder that `nb` has made; the first command takes over an empty one.
    let _ = nb(&world, ["log"]);
    std::fs::write(folder.join("config.toml"), "journal.code = false").expect("write the settings");
    on(&world, &["cell", "0.."]).ended(0);
    on(&world, &["edit", "dddd", "x"]).ended(0);
    on(&world, &["undo"])
        .ended(1)
        .with("is not remembered any more")
        .with("journal.code = false");
    on(&world, &["restore", "dddd"])
        .ended(1)
        .with("is not remembered any more")
        .with("journal.code = false");
    on(&world, &["insert", "new", "--id", "new1"]).ended(0);
    // This undo needs no stored version.
    on(&world, &["undo"]).ended(0).with("removed new1");
    assert!(Path::new(&folder).exists());
}
