//! What `nb` remembers of a notebook between commands: what each actor has seen, and what others saved.

use serde_json::{Value, json};

use super::{Output, nb};
use crate::world::World;

fn notebook(cells: &[(&str, &str)]) -> String {
    let cell = |(id, source): &(&str, &str)| {
        json!({
            "cell_type": "code", "execution_count": null, "id": id, "metadata": {},
            "outputs": [], "source": [source]
        })
    };
    let cells: Vec<_> = cells.iter().map(cell).collect();
    json!({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).to_string()
}

fn text(world: &World) -> String {
    let path = world.project().join("t.ipynb");
    std::fs::read_to_string(path).expect("read the notebook")
}

/// Saves as an editor does that does not know `nb`.
fn save(world: &World, text: &str) {
    std::fs::write(world.project().join("t.ipynb"), text).expect("write the notebook");
}

fn as_(world: &World, name: &str, words: &[&str]) -> Output {
    let (command, rest) = words.split_first().expect("a command");
    nb(
        world,
        [&[*command, "t.ipynb"], rest, &["--as", name]].concat(),
    )
}

fn journal(world: &World) -> Vec<Value> {
    let path = world.project().join(".nb/journal.jsonl");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().map(serde_json::from_str);
    lines.map(|line| line.expect("an entry")).collect()
}

const CELLS: [(&str, &str); 2] = [("3f2c0001", "lr = 0.1"), ("77de0002", "train(lr)")];

#[test]
fn a_humans_save_is_not_edited_unseen() {
    let world = World::new();
    save(&world, &notebook(&CELLS));
    as_(&world, "claude", &["cells"]).ended(0);
    let saved = text(&world).replace("lr = 0.1", "lr = 0.001  # mine");
    save(&world, &saved);

    let edit = ["edit", "3f2c", "lr = 0.5"];
    let refused = as_(&world, "claude", &[&edit[..], &["--json"]].concat());
    let refused = refused.ended(5).json();
    let conflict = &refused["error"]["conflicts"][0];
    assert_eq!(conflict["cell"], "3f2c0001");
    assert_eq!(conflict["base"], "lr = 0.1");
    assert_eq!(conflict["yours"], "lr = 0.5");
    assert_eq!(conflict["theirs"], "lr = 0.001  # mine");
    assert_eq!(text(&world), saved, "the human's text stays");
    let since = refused["since"][0]["text"].as_str().expect("a text");
    assert!(since.ends_with(" · somebody edited 3f2c"), "{since}");

    // Another actor has not seen the cell. The command names one cell, and leaves the other alone.
    let other = as_(&world, "codex", &["rm", "3f2c"]).ended(5);
    other.with("lr = 0.001  # mine");
    assert_eq!(text(&world), saved);
    // The refusal has shown the cell to the agent, which now knows what it changes.
    as_(&world, "claude", &edit).ended(0);
    as_(&world, "claude", &["edit", "77de", "train(lr, 3)"]).ended(0);
    as_(&world, "claude", &["edit", "77de", "train(lr, 4)"]).ended(0);
    assert!(text(&world).contains("lr = 0.5") && text(&world).contains("train(lr, 4)"));
    // `--force` writes without a check, and the journal records it.
    as_(&world, "codex", &["rm", "77de", "--force"]).ended(0);
    let last = journal(&world).pop().expect("an entry");
    assert_eq!(
        (&last["event"], &last["by"]),
        (&json!("edited"), &json!("codex"))
    );
    assert_eq!(
        (&last["command"], &last["forced"]),
        (&json!("rm"), &json!(true))
    );
    assert_eq!(journal(&world)[0]["event"], "saved");
}

#[test]
fn a_cell_that_a_search_has_printed_whole_is_seen() {
    let world = World::new();
    let long = "x = 1\ny = 2";
    save(&world, &notebook(&[CELLS[0], ("aaaa0003", long)]));
    as_(&world, "claude", &["cells"]).ended(0);
    as_(&world, "claude", &["cell", "aaaa"]).ended(0);
    let saved = text(&world).replace("lr = 0.1", "lr = 0.2");
    save(&world, &saved.replace("x = 1", "x = 3"));
    let search = |pattern: &str| nb(&world, ["search", pattern, "t.ipynb", "--as", "claude"]);
    search("lr|x").ended(0).with("lr = 0.2").with("x = 3");
    as_(&world, "claude", &["edit", "3f2c", "lr = 0.5"]).ended(0);
    // One of two lines is not the cell.
    as_(&world, "claude", &["edit", "aaaa", "x = 4\ny = 2"]).ended(5);
}

#[test]
fn a_refusal_is_short_and_what_it_does_not_show_is_not_seen() {
    let world = World::new();
    let lines = |first: usize| -> String {
        let line = |at: usize| format!("feature_{at} = table['column_{at}'].fillna({first})\n");
        (0..60).map(line).collect()
    };
    let (one, other) = (lines(0), lines(1));
    save(&world, &notebook(&[("aaaa0001", &one), ("bbbb0002", &one)]));
    as_(&world, "claude", &["cell", "0..2"]).ended(0);
    save(
        &world,
        &notebook(&[
            ("aaaa0001", &other),
            ("bbbb0002", &one.replacen("(0)", "(9)", 1)),
        ]),
    );
    let new = one.replace("fillna(0)", "dropna()");
    let refused = |cell: &str| {
        let output = as_(&world, "claude", &["edit", cell, &new]).ended(5);
        assert!(
            output.stderr.len() <= 600 && output.stdout.is_empty(),
            "{output:?}"
        );
        output
    };
    refused("aaaa").with("more changed lines: nb cell aaaa0001");
    refused("bbbb")
        .with("  - feature_0 = table['column_0'].fillna(0)\n")
        .with("  + feature_0 = table['column_0'].fillna(9)\n");
    // The second refusal showed all of it.
    as_(&world, "claude", &["edit", "bbbb", &new]).ended(0);
    as_(&world, "claude", &["edit", "aaaa", &new]).ended(5);
    as_(&world, "claude", &["cell", "aaaa"]).ended(0);
    as_(&world, "claude", &["edit", "aaaa", &new]).ended(0);
}

#[test]
fn what_an_editor_overwrote_is_reported_once() {
    let world = World::new();
    save(&world, &notebook(&CELLS));
    as_(&world, "claude", &["cells"]).ended(0);
    let opened = text(&world);
    let done = as_(
        &world,
        "claude",
        &["edit", "77de", "train(lr, 3)", "--json"],
    )
    .ended(0);
    let done = done.json();
    assert_eq!(done["overwritten"], json!([]));
    as_(&world, "claude", &["insert", "print(lr)", "--json"]).ended(0);
    // The editor had the notebook open from before, and its user has typed in the other cell.
    save(&world, &opened.replace("lr = 0.1", "lr = 0.2"));

    let answer = as_(&world, "codex", &["cells", "--json"]).ended(0).json();
    assert_eq!(answer["overwritten"], json!([]), "it is not codex's edit");
    let answer = as_(&world, "claude", &["cells", "--json"]).ended(0).json();
    let lost = answer["overwritten"].as_array().expect("a list");
    assert_eq!(lost.len(), 2, "{lost:?}");
    assert_eq!(
        (&lost[0]["cell"], &lost[0]["op"]),
        (&json!("77de0002"), &done["op"])
    );
    assert_eq!(lost[1]["what"], "inserted");
    assert!(lost[0]["revision"].is_string(), "{lost:?}");
    assert_eq!(
        text(&world),
        opened.replace("lr = 0.1", "lr = 0.2"),
        "nothing is done again by itself"
    );
    let output = as_(&world, "claude", &["cells"]).ended(0);
    assert!(!output.stderr.contains("overwrote"), "{output:?}");

    // The text output has it too, with a command that works.
    as_(&world, "claude", &["edit", "77de", "train(lr, 5)"]).ended(0);
    save(&world, &opened);
    let output = as_(&world, "claude", &["cell", "77de"]).ended(0);
    let line = output
        .stderr
        .lines()
        .find(|line| line.starts_with("‣ your edit of 77de ("));
    let line = line.unwrap_or_else(|| panic!("{output:?}"));
    assert!(
        line.contains(
            ") is no longer in the file: a save overwrote it; nb restore t.ipynb 77de0002@"
        ),
        "{line}"
    );
}

#[test]
fn processes_at_once_keep_the_ledger_right() {
    const EACH: usize = 5;
    let world = World::new();
    save(&world, &notebook(&CELLS));
    as_(&world, "reader", &["cells"]).ended(0);
    std::thread::scope(|scope| {
        for name in ["a", "b", "c", "d"] {
            let world = &world;
            scope.spawn(move || {
                for number in 0..EACH {
                    let source = format!("{name}{number} = 1");
                    let at = if number % 2 == 0 { "0" } else { "3f2c" };
                    as_(world, name, &["insert", &source, "--before", at]).ended(0);
                }
            });
        }
        for _ in 0..EACH {
            let mut reads = world.nb();
            reads.args(["cells", "t.ipynb", "--as", "reader"]);
            assert!(reads.output().expect("run nb").status.success());
        }
    });
    let journal = journal(&world);
    assert_eq!(journal.len(), 4 * EACH, "what nb wrote is nobody's save");
    assert!(journal.iter().all(|entry| entry["event"] == "edited"));
    // Each entry begins where the one before ended: the journal is in the order of the writes.
    assert!(
        journal
            .windows(2)
            .all(|two| two[0]["after"] == two[1]["before"])
    );
    let now = as_(&world, "reader", &["cells", "--json"]).ended(0).json();
    assert_eq!(now["revision"], journal[4 * EACH - 1]["after"]);
    assert_eq!(now["cells"].as_array().map(Vec::len), Some(2 + 4 * EACH));
}
