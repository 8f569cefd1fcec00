//! The commands that write cells: their arguments, their effects, their output.

use std::path::Path;

use serde_json::{Value, json};

use super::{Output, nb, output_of, shell};
use crate::world::World;

/// Four cells: the ids of the last two have a common prefix, and the third has been run.
const NOTEBOOK: &str = r##"{
 "cells": [
  {"cell_type": "markdown", "id": "aaaa1111", "metadata": {}, "source": ["# Title"]},
  {"cell_type": "code", "execution_count": null, "id": "12345678", "metadata": {}, "outputs": [], "source": ["lr = 0.1\n", "n = 3"]},
  {"cell_type": "code", "execution_count": 12, "id": "bbbb2222", "metadata": {"tags": ["a"]}, "outputs": [{"name": "stdout", "output_type": "stream", "text": ["1\n"]}], "source": ["print(1)"]},
  {"cell_type": "code", "execution_count": null, "id": "bbbb3333", "metadata": {}, "outputs": [], "source": []}
 ],
 "metadata": {},
 "nbformat": 4,
 "nbformat_minor": 5
}
"##;

/// Makes a world with the notebook, of which the tests' agent has seen everything.
fn world() -> World {
    let world = World::new();
    write(&world, NOTEBOOK);
    see_all(&world, "t.ipynb");
    world
}

/// Lets the agent see all cells.
fn see_all(world: &World, notebook: &str) {
    nb(world, ["cell", notebook, "0.."]).ended(0);
}

fn write(world: &World, text: &str) {
    std::fs::write(world.project().join("t.ipynb"), text).expect("write the notebook");
}

fn read(world: &World) -> Value {
    let text = std::fs::read(world.project().join("t.ipynb")).expect("read the notebook");
    serde_json::from_slice(&text).expect("it is JSON")
}

fn source(cell: &Value) -> String {
    let lines = cell["source"].as_array().expect("a list of lines").iter();
    lines.map(|line| line.as_str().expect("a line")).collect()
}

/// Returns the ids and texts of the cells.
fn cells(world: &World) -> Vec<(String, String)> {
    let notebook = read(world);
    let cells = notebook["cells"].as_array().expect("cells").iter();
    let id = |cell: &Value| cell["id"].as_str().expect("an id").to_owned();
    cells.map(|cell| (id(cell), source(cell))).collect()
}

fn ids(world: &World) -> Vec<String> {
    cells(world).into_iter().map(|(id, _)| id).collect()
}

fn text_of(world: &World, id: &str) -> String {
    let cells = cells(world).into_iter();
    let mut found = cells.filter(|(other, _)| other == id);
    found.next().expect("there is the cell").1
}

/// Runs a command of the agent on the notebook.
fn on(world: &World, words: &[&str]) -> Output {
    let (command, rest) = words.split_first().expect("a command");
    nb(world, [&[*command, "t.ipynb"], rest].concat())
}

/// Runs a script in which `nb` is the one under test.
fn run(world: &World, script: &str) -> Output {
    let script = format!("nb() {{ \"$NB_TEST_BINARY\" \"$@\"; }}\n{script}");
    output_of(&mut shell(world, &script))
}

/// Returns stdout, with the ids of operations, which differ in each run, replaced.
fn out(output: &Output) -> String {
    let mut words = Vec::new();
    let mut after_undo = false;
    for word in output.stdout.split_inclusive([' ', '\n']) {
        let end = word.trim_end().len();
        words.push(match after_undo {
            true => format!("OP{}", &word[end..]),
            false => word.to_owned(),
        });
        after_undo = word.trim_end() == "undo";
    }
    words.concat()
}

#[test]
fn each_change_is_printed_in_a_line() {
    let world = world();
    let mut all = String::new();
    for words in [
        &["insert", "x = 1", "--id", "new1"][..],
        &["insert", "0", "# Top", "-t", "markdown", "--id", "new2"],
        &["insert", "-1", "'y'", "--id", "new3"],
        &["insert", "-a", "bbbb2222", "-s", "-2", "--id", "new4"],
        &["edit", "new1", "x = 2"],
        &["edit", "new1", "x = 2"],
        &[
            "edit",
            "12345678",
            "--replace",
            "lr = 0.1",
            "lr = 0.01",
            "-t",
            "raw",
        ],
        &[
            "edit",
            "new1",
            "--meta",
            "jupyter.source_hidden=true",
            "--meta",
            "tags=[\"b\"]",
        ],
        &["move", "new1", "--before", "aaaa1111"],
        &["move", "new2", "-1"],
        &["clear"],
        &["rm", "bbbb2222", "-1"],
    ] {
        all.push_str(&out(&on(&world, words).ended(0)));
    }
    insta::assert_snapshot!(all, @r"
    inserted 4 new1 · nb undo OP
    inserted 0 new2 · nb undo OP
    inserted 5 new3 · nb undo OP
    inserted 4 new4 · nb undo OP
    edited 7 new1 · nb undo OP
    unchanged 7 new1
    edited 2 12345678 · nb undo OP
    edited 7 new1 · nb undo OP
    moved 1 new1 · nb undo OP
    moved 7 new2 · nb undo OP
    cleared 3 bbbb2222 · nb undo OP
    removed bbbb2222 (was 3), new2 (was 7) · nb undo OP
    ");
    assert_eq!(
        cells(&world)
            .iter()
            .map(|(id, text)| format!("{id} {text:?}"))
            .collect::<Vec<_>>(),
        [
            r#"new1 "x = 2""#,
            r##"aaaa1111 "# Title""##,
            r#"12345678 "lr = 0.01\nn = 3""#,
            r#"new4 "-2""#,
            r#"bbbb3333 """#,
            r#"new3 "'y'""#,
        ]
    );
    let notebook = read(&world);
    assert_eq!(notebook["cells"][2]["cell_type"], "raw");
    assert_eq!(
        notebook["cells"][0]["metadata"],
        json!({"jupyter": {"source_hidden": true}, "tags": ["b"]})
    );
}

#[test]
fn an_answer_has_all_of_it() {
    let world = world();
    let done = on(&world, &["edit", "bbbb2", "print(2)", "--json"]);
    let done = done.ended(0).json();
    assert_eq!(done["notebook"], "t.ipynb");
    assert_eq!(done["changes"][0]["cell"], "bbbb2222");
    assert_eq!(done["changes"][0]["index"], 2);
    assert_eq!(done["changes"][0]["what"], "edited");
    let listed = on(&world, &["cells", "--json"]).ended(0).json();
    assert_eq!(done["revision"], listed["revision"]);
    assert_eq!(done["changes"][0]["after"], listed["cells"][2]["revision"]);
    assert_ne!(done["changes"][0]["before"], done["changes"][0]["after"]);
    assert!(done["op"].is_string());
    for field in ["conflicts", "notes", "since"] {
        assert_eq!(done[field], json!([]), "{field}");
    }
    assert_eq!(done["kernel_generation"], Value::Null);
    // An edit that changes no byte is not recorded as one.
    let before = std::fs::metadata(world.project().join("t.ipynb")).expect("it is there");
    let again = on(&world, &["edit", "bbbb2", "print(2)", "--json"]);
    let again = again.ended(0).json();
    assert_eq!(again["changes"][0]["what"], "nothing");
    assert_eq!(again["op"], Value::Null);
    let after = std::fs::metadata(world.project().join("t.ipynb")).expect("it is there");
    assert_eq!(
        before.modified().expect("a time"),
        after.modified().expect("a time")
    );
}

#[test]
fn a_text_is_taken_as_it_is() {
    let world = world();
    let text = r#"print("a\n\t'$HOME' \\ é")"#;
    on(&world, &["edit", "bbbb2222", text]).ended(0);
    assert_eq!(text_of(&world, "bbbb2222"), text);
    on(&world, &["edit", "bbbb2222", "-s", "-x\n"]).ended(0);
    assert_eq!(text_of(&world, "bbbb2222"), "-x\n");
    on(&world, &["edit", "bbbb2222", "--", "--json"]).ended(0);
    assert_eq!(text_of(&world, "bbbb2222"), "--json");
    on(&world, &["edit", "bbbb2222", ""]).ended(0);
    assert_eq!(text_of(&world, "bbbb2222"), "");
    // The last newline of stdin and of a file is not part of the cell.
    let heredoc = "nb edit t.ipynb bbbb2222 - <<'EOF'\nfor x in \"\\n\":\n    print(x)\n\nEOF\n";
    run(&world, heredoc).ended(0);
    assert_eq!(
        text_of(&world, "bbbb2222"),
        "for x in \"\\n\":\n    print(x)\n"
    );
    let file = world.project().join("cell.py");
    std::fs::write(&file, "\u{feff}a = 1\r\nb = 2\r\n").expect("write a file");
    on(&world, &["edit", "bbbb2222", "--file", "cell.py"]).ended(0);
    assert_eq!(text_of(&world, "bbbb2222"), "a = 1\r\nb = 2");
    run(&world, "nb insert t.ipynb -s - < cell.py").ended(0);
    run(&world, "printf 'last' | nb insert t.ipynb 0 -").ended(0);
    assert_eq!(cells(&world)[0].1, "last");
    assert_eq!(cells(&world)[5].1, "a = 1\r\nb = 2");
    // A file that is not text cannot be a source.
    std::fs::write(&file, b"a = 1\nb = '\xff'\n").expect("write a file");
    on(&world, &["insert", "--file", "cell.py"])
        .ended(1)
        .with("cell.py is not UTF-8: line 2, byte 11");
    run(&world, "nb insert t.ipynb - < cell.py")
        .ended(1)
        .with("stdin is not UTF-8");
    run(&world, "nb insert t.ipynb $'\\xff'")
        .ended(2)
        .with("UTF-8");
    on(&world, &["insert", "--file", "none.py"])
        .ended(1)
        .with("cannot read the text from none.py");
    assert_eq!(cells(&world).len(), 6);
}

#[test]
fn cells_are_named_by_index_id_count_and_range() {
    let world = world();
    for (words, id) in [
        (&["0"][..], "aaaa1111"),
        (&["-2"], "bbbb2222"),
        (&["aaa"], "aaaa1111"),
        (&["In[12]"], "bbbb2222"),
        (&["12345678"], "12345678"),
        (&["-c", "123"], "12345678"),
        (&["--cell", "bbbb3"], "bbbb3333"),
        (&["--id", "bbbb3333"], "bbbb3333"),
        (&["-i", "-1"], "bbbb3333"),
        (&["--index", "0"], "aaaa1111"),
        (&["--cell-index", "0"], "aaaa1111"),
    ] {
        let words = [&["edit"], words, &["--meta", "seen=1", "--json"]].concat();
        let done = on(&world, &words).ended(0).json();
        assert_eq!(done["changes"][0]["cell"], id, "{words:?}");
    }
    on(&world, &["edit", "In[12]", "--meta-rm", "seen"]).ended(0);
    assert_eq!(read(&world)["cells"][2]["metadata"], json!({"tags": ["a"]}));
    // Selectors refer to the cells as they are before any is removed.
    on(&world, &["rm", "0", "2..=2", "-c", "123", "-i", "2"]).ended(0);
    assert_eq!(ids(&world), ["bbbb3333"]);
}

#[test]
fn names_of_nb_clis_commands_and_options_work() {
    let world = world();
    for line in [
        "add t.ipynb --source x --type markdown --after aaaa1111 --id new1",
        "add t.ipynb -s y -t raw -b aaaa1111 --id new2",
        "add t.ipynb -s z --insert-at 0 --id new3",
        "add t.ipynb -s z -i -1 --id new4",
        "update t.ipynb --cell new3 --source zz",
        "update t.ipynb --cell-index 0 -t markdown",
        "delete t.ipynb --cell new1",
        "delete t.ipynb -i 0 -i 1",
        "delete t.ipynb --range 0:2",
        "clear t.ipynb --cell bbbb2222",
    ] {
        nb(&world, line.split(' ')).ended(0);
    }
    assert_eq!(ids(&world), ["bbbb2222", "new4", "bbbb3333"]);
    assert_eq!(read(&world)["cells"][0]["outputs"], json!([]));
}

#[test]
fn a_wrong_word_is_answered_with_the_right_ones() {
    let world = world();
    let mut all = String::new();
    for (words, code) in [
        (&["edit", "7", "x"][..], 1),
        (&["edit", "-5", "x"], 1),
        (&["edit", "bbbb", "x"], 1),
        (&["edit", "bb", "x"], 2),
        (&["edit", "aaab1111", "x"], 1),
        (&["edit", "In[13]", "x"], 1),
        (&["edit", "x = 1"], 2),
        (&["edit", "0..2", "x"], 2),
        (&["edit"], 2),
        (&["edit", "0"], 2),
        (&["edit", "0", "x", "y"], 2),
        (&["edit", "0", "x", "--replace", "a", "b"], 2),
        (&["edit", "0", "--replace", "none", "b"], 1),
        (&["edit", "1", "--replace", "n", "m"], 0),
        (&["edit", "1", "--replace", " ", "m"], 1),
        (&["edit", "0", "--meta", "tags"], 2),
        (&["insert"], 2),
        (&["insert", "aaaa", "x"], 2),
        (&["insert", "5", "x"], 1),
        (&["insert", "0", "x", "--id", "aaaa1111"], 1),
        (&["insert", "0", "x", "--id", "a b"], 1),
        (&["insert", "0", "x", "-a", "1"], 2),
        (&["rm"], 2),
        (&["rm", "2..2"], 1),
        (&["rm", "0", "1", "--if-rev", "0000000000"], 2),
        (&["move", "0"], 2),
        (&["move", "0", "x"], 2),
        (&["move", "0", "4"], 1),
        (&["clear", "0"], 1),
        (&["clear", "0", "--all"], 2),
        (&["apply"], 2),
        (&["save", "x"], 2),
    ] {
        let output = on(&world, words).ended(code);
        if code != 0 {
            all.push_str(&format!("$ nb {}\n{}", words.join(" "), output.stderr));
        }
    }
    insta::assert_snapshot!(all, @r#"
    $ nb edit 7 x
    ‣ nb: there is no cell 7: the notebook has 4, from 0
    ‣ hint: nb cells t.ipynb lists the cells
    $ nb edit -5 x
    ‣ nb: there is no cell -5: the notebook has 4, from 0
    ‣ hint: nb cells t.ipynb lists the cells
    $ nb edit bbbb x
    ‣ nb: bbbb is more than one cell
    ‣   | bbbb2222 (cell 2, In[12]: print(1))
    ‣   | bbbb3333 (cell 3, empty)
    ‣ hint: give more of the id, or its index
    $ nb edit bb x
    ‣ nb: "bb" is too little of an id: give 3 characters or more
    ‣   | bbbb2222 (cell 2, In[12]: print(1))
    ‣   | bbbb3333 (cell 3, empty)
    ‣ hint: give more of the id, or its index
    $ nb edit aaab1111 x
    ‣ nb: there is no cell "aaab1111"
    ‣   | aaaa1111 (cell 0: # Title)
    ‣ hint: nb cells t.ipynb lists the cells
    $ nb edit In[13] x
    ‣ nb: no cell is In[13]
    ‣   | bbbb2222 (cell 2, In[12]: print(1))
    ‣ hint: nb cells t.ipynb lists the cells
    $ nb edit x = 1
    ‣ nb: "x = 1" names no cell: an index like 3 or -1, an id, In[12], or a range like 2..5
    $ nb edit 0..2 x
    ‣ nb: 0..2 is a range: name one cell
    $ nb edit
    ‣ nb: name a cell: an index like 3 or -1, an id, In[12], or a range like 2..5
    ‣ hint: nb cells t.ipynb lists the cells
    $ nb edit 0
    ‣ nb: there is nothing to change
    ‣ hint: nb edit t.ipynb CELL SOURCE, nb edit t.ipynb CELL - reads stdin, nb edit t.ipynb CELL --file PATH
    ‣ hint: nb edit t.ipynb CELL --replace OLD NEW, --type TYPE, --meta KEY=VALUE
    $ nb edit 0 x y
    ‣ nb: more than one text is given: put the text in quotes
    $ nb edit 0 x --replace a b
    ‣ nb: more than one text is given: put the text in quotes
    $ nb edit 0 --replace none b
    ‣ nb: the text to replace is not in cell aaaa1111
    ‣ hint: nb cell t.ipynb -c aaaa1111 --source-only shows its text
    $ nb edit 1 --replace   m
    ‣ nb: the text to replace is 4 times in cell 12345678, on lines 1, 2: give more of it, or replace all
    ‣ hint: --all replaces it wherever it is
    $ nb edit 0 --meta tags
    ‣ nb: "tags" is not metadata: write KEY=VALUE
    $ nb insert
    ‣ nb: there is no text for the cell
    ‣ hint: nb insert t.ipynb SOURCE, nb insert t.ipynb - reads stdin, nb insert t.ipynb --file PATH
    ‣ hint: an empty cell: nb insert t.ipynb -s ''
    $ nb insert aaaa x
    ‣ nb: "aaaa" is not an index: use a number, or -1 for the last cell
    ‣ hint: after a cell: -a CELL; before it: -b CELL
    $ nb insert 5 x
    ‣ nb: there is no cell 5: the notebook has 4, from 0
    ‣ hint: nb cells t.ipynb lists the cells
    $ nb insert 0 x --id aaaa1111
    ‣ nb: there is a cell aaaa1111 already
    $ nb insert 0 x --id a b
    ‣ nb: "a b" is not an id: an id has up to 64 letters, digits, - and _
    $ nb insert 0 x -a 1
    ‣ nb: more than one place is given
    $ nb rm
    ‣ nb: name a cell: an index like 3 or -1, an id, In[12], or a range like 2..5
    ‣ hint: nb cells t.ipynb lists the cells
    $ nb rm 2..2
    ‣ nb: 2..2 holds no cell
    ‣ hint: nb cells t.ipynb lists the cells
    $ nb rm 0 1 --if-rev 0000000000
    ‣ nb: --if-rev is for one cell
    $ nb move 0
    ‣ nb: name one place
    ‣ hint: nb move t.ipynb CELL --after CELL | --before CELL | --to INDEX
    $ nb move 0 x
    ‣ nb: "x" is not an index: use a number, or -1 for the last cell
    ‣ hint: nb move t.ipynb CELL --after CELL | --before CELL | --to INDEX
    $ nb move 0 4
    ‣ nb: there is no cell 4: the notebook has 4, from 0
    ‣ hint: nb cells t.ipynb lists the cells
    $ nb clear 0
    ‣ nb: cell aaaa1111 is no code: it has no outputs
    $ nb clear 0 --all
    ‣ nb: name cells or say --all, not both
    $ nb apply
    ‣ nb: one list of operations is wanted
    ‣ hint: nb apply t.ipynb - reads it from stdin, nb apply t.ipynb FILE from a file
    ‣ hint: nb apply --help tells what may be in it
    $ nb save x
    ‣ nb: "x" is not a notebook: its name ends in .ipynb
    "#);
    assert_eq!(
        ids(&world),
        ["aaaa1111", "12345678", "bbbb2222", "bbbb3333"]
    );
}

#[test]
fn a_revision_that_is_no_more_shows_what_is_there() {
    let world = world();
    let listed = on(&world, &["cells", "--json"]).ended(0).json();
    let revision = listed["cells"][1]["revision"].as_str().expect("a revision");
    write(&world, &NOTEBOOK.replace("lr = 0.1", "lr = 0.5"));
    let edit = ["edit", "1", "lr = 0.2", "--if-rev", revision];
    let refused = on(&world, &edit).ended(5);
    // The report about others' edits after this contains a time.
    let (message, _) = refused
        .stderr
        .split_once("‣ since ")
        .expect("others' edit is reported");
    insta::assert_snapshot!(message, @r"
    ‣ nb: cell 12345678 has changed: its revision is 8f6be0085b, not 4d29d5e34c
    ‣ cell 12345678 · source · revision 8f6be0085b
    ‣   - lr = 0.1
    ‣   + lr = 0.5
    ‣ hint: if it still holds, repeat it: nb edit --if-rev 8f6be0085b t.ipynb 1 'lr = 0.2'
    ‣ hint: --force writes without a check
    ");
    let refused = on(&world, &[&edit[..], &["--json"]].concat())
        .ended(5)
        .json();
    let [conflict] = refused["error"]["conflicts"]
        .as_array()
        .expect("conflicts")
        .as_slice()
    else {
        panic!("one conflict: {refused}");
    };
    assert_eq!(refused["error"]["kind"], "conflict");
    assert_eq!(conflict["cell"], "12345678");
    assert_eq!(conflict["yours"], "lr = 0.2");
    assert_eq!(conflict["theirs"], "lr = 0.5\nn = 3");
    assert_eq!(text_of(&world, "12345678"), "lr = 0.5\nn = 3");
    // The hint is the command to repeat.
    let actual = conflict["revision"].as_str().expect("a revision");
    let repeat = refused["error"]["hints"][0].as_str().expect("a hint");
    assert!(
        repeat.contains(&format!("nb edit --if-rev {actual} t.ipynb")),
        "{repeat}"
    );
    let (_, repeat) = repeat.split_once(": ").expect("a command");
    run(&world, repeat).ended(0);
    assert_eq!(text_of(&world, "12345678"), "lr = 0.2");
    on(&world, &["rm", "1", "--if-rev", revision])
        .ended(5)
        .with("revision");
    on(&world, &["edit", "1", "x", "--if-rev", "3f2c"])
        .ended(2)
        .with("ten hexadecimal digits");
}

#[test]
fn a_list_of_operations_is_done_whole_or_not_at_all() {
    let world = world();
    let apply = |list: &str| {
        std::fs::write(world.project().join("list.json"), list).expect("write the list");
        on(&world, &["apply", "list.json"])
    };
    let list = r##"[
        {"op": "insert", "source": "# Top", "type": "markdown", "at": 0, "id": "new1", "metadata": {"a.b": 1e-05}},
        {"op": "edit", "cell": "1234", "source": "x = 1\ny = 2"},
        {"op": "replace", "cell": "bbbb2", "old": "1", "new": "2"},
        {"op": "split", "cell": 2, "line": 1, "id": "new2"},
        {"op": "join", "cells": "0..2"},
        {"op": "move", "cell": "new2", "to": -1},
        {"op": "remove", "cell": ["bbbb3333"]},
        {"op": "clear"}
    ]"##;
    // 1234 is an index of four digits, which this notebook does not have.
    let refused = apply(list).ended(1);
    insta::assert_snapshot!(refused.stderr, @r#"
    ‣ nb: operation 1: there is no cell 1234: the notebook has 5, from 0
    ‣ hint: if 1234 is an id: -c 1234; in a list of operations {"id": "1234"}
    ‣ hint: nothing was done: all or none
    "#);
    assert_eq!(
        read(&world),
        serde_json::from_str::<Value>(NOTEBOOK).expect("JSON")
    );
    let done = apply(&list.replace("1234", "12345678")).ended(0);
    insta::assert_snapshot!(out(&done), @r"
    inserted 0 new1
    edited 2 12345678, 3 bbbb2222, 1 12345678
    inserted 3 new2
    edited 0 new1
    removed aaaa1111 (was 1)
    moved 3 new2
    removed bbbb3333 (was 3)
    cleared 2 bbbb2222 · nb undo OP
    ");
    let all = cells(&world);
    let all: Vec<_> = all.iter().map(|(id, text)| (&id[..], &text[..])).collect();
    assert_eq!(
        all,
        [
            ("new1", "# Top\n# Title"),
            ("12345678", "x = 1"),
            ("bbbb2222", "print(2)"),
            ("new2", "y = 2"),
        ]
    );
    let text = std::fs::read_to_string(world.project().join("t.ipynb")).expect("read it");
    assert!(text.contains("\"a.b\": 1e-05"), "{text}");
    for (list, fault) in [
        ("{}", "expected a list of operations"),
        ("[", "not JSON"),
        (
            r#"[{"op": "insert"}, {"op": "burn"}]"#,
            "operation 1: unknown variant `burn`",
        ),
        (r#"[{"op": "rm"}]"#, "operation 0: missing field `cell`"),
    ] {
        apply(list).ended(2).with(fault).with("nb apply --help");
    }
    run(&world, "echo '[]' | nb apply t.ipynb -")
        .ended(0)
        .with("unchanged");
    assert_eq!(cells(&world).len(), 4);
}

/// The examples in the help are what agents copy.
#[test]
fn the_examples_of_the_help_work() {
    let ids = [
        "3f2c", "77de", "1234", "aaaa", "bbbb", "cccc", "dddd", "eeee", "ffff", "abcd",
    ];
    for command in ["insert", "edit", "rm", "move", "clear", "apply"] {
        let help = nb(&World::new(), ["help", command]).ended(0).stdout;
        let (_, examples) = help.split_once("Example").expect("it has examples");
        let (_, examples) = examples.split_once('\n').expect("lines");
        let (examples, _) = examples.split_once("\n\n").unwrap_or((examples, ""));
        let mut lines = examples
            .lines()
            .map(|line| line.strip_prefix("  ").unwrap_or(line));
        let mut examples = 0;
        while let Some(line) = lines.next() {
            let mut example = line.to_owned();
            if line.contains("<<'EOF'") {
                // The text after the words explains the example.
                let (words, _) = line.split_once("<<'EOF'").expect("it has it");
                example = format!("{words} <<'EOF'\n");
                for line in lines.by_ref() {
                    example.push_str(&format!("{line}\n"));
                    if line == "EOF" {
                        break;
                    }
                }
            } else if let Some((words, _)) = line.split_once("   ") {
                example = words.to_owned();
            }
            let world = World::new();
            let cells = ids.map(|id| {
                json!({"cell_type": "code", "id": format!("{id}0000"), "metadata": {},
                    "outputs": [], "execution_count": null, "source": "lr = 0.1"})
            });
            let notebook =
                json!({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5});
            let path = world.project().join("analysis.ipynb");
            std::fs::write(path, notebook.to_string()).expect("write the notebook");
            std::fs::write(world.project().join("cell.py"), "y = 3\n").expect("write a file");
            see_all(&world, "analysis.ipynb");
            let listed = nb(&world, ["cells", "analysis.ipynb", "--json"]);
            let listed = listed.ended(0).json();
            let revision = listed["cells"][0]["revision"].as_str().expect("a revision");
            let example = example.replace("9f8e7d6c5b", revision);
            let script = format!("export NB_NOTEBOOK=analysis.ipynb\n{example}");
            // Running the written cells takes a kernel, which this notebook does not have.
            let runs = example.contains(" -x ");
            run(&world, &script).ended(if runs { 6 } else { 0 });
            examples += 1;
        }
        assert!(examples > 0, "{help}");
    }
}

#[test]
fn a_command_that_names_no_notebook_says_which_there_are() {
    let world = World::new();
    for (words, hint) in [
        (&["insert", "x"][..], "nb insert x -n NOTEBOOK.ipynb"),
        (&["edit", "0", "x"], "nb edit 0 x -n NOTEBOOK.ipynb"),
        (&["rm", "0"], "nb rm 0 -n NOTEBOOK.ipynb"),
        (&["move", "0", "1"], "nb move 0 1 -n NOTEBOOK.ipynb"),
        (&["clear"], "nb clear -n NOTEBOOK.ipynb"),
        (&["apply", "-"], "nb apply - -n NOTEBOOK.ipynb"),
        (&["save"], "nb save -n NOTEBOOK.ipynb"),
    ] {
        nb(&world, words)
            .ended(2)
            .with("no notebook is named")
            .with(hint);
    }
    write(&world, NOTEBOOK);
    nb(&world, ["save"]).ended(2).with("nb save -n t.ipynb");
    let mut named = world.nb();
    named.args(["insert", "x"]).env("NB_NOTEBOOK", "t.ipynb");
    output_of(&mut named).ended(0);
    nb(&world, ["-n", "t.ipynb", "insert", "x"]).ended(0);
    nb(&world, ["insert", "-n", "t.ipynb", "x"]).ended(0);
    nb(&world, ["insert", "none.ipynb", "x"])
        .ended(1)
        .with("there is no notebook none.ipynb")
        .with("nb open none.ipynb");
    assert_eq!(cells(&world).len(), 7);
}

#[test]
fn a_dry_run_shows_what_would_be_and_writes_nothing() {
    let world = world();
    let path = world.project().join("t.ipynb");
    let replace = ["edit", "1", "--replace", "0.1", "0.2", "--dry-run"];
    let output = on(&world, &replace).ended(0);
    insta::assert_snapshot!(output.stdout, @r"
    --- t.ipynb · revision cc8c0effb2
    +++ t.ipynb · revision 14f7470bdd
    12345678 (cell 1) · 4d29d5e34c → 7b09433434 · lr = 0.2
    @@ -1,2 +1,2 @@
    -lr = 0.1
    +lr = 0.2
     n = 3
    ");
    run(
        &world,
        r#"echo '[{"op": "rm", "cell": 0}]' | nb apply t.ipynb - --dry-run"#,
    )
    .ended(0)
    .with("-# Title");
    let would = on(&world, &["edit", "1", "", "--dry-run", "--json"]);
    assert_eq!(would.ended(0).json()["cells"][0]["cell"], "12345678");
    assert_eq!(std::fs::read_to_string(path).expect("read it"), NOTEBOOK);
}

#[test]
fn a_link_stays_a_link_and_a_notebook_may_lie_anywhere() {
    let world = World::new();
    let away = tempfile::tempdir().expect("make a folder");
    let outside = away.path().join("there.ipynb");
    std::fs::write(&outside, NOTEBOOK).expect("write the notebook");
    let link = world.project().join("t.ipynb");
    std::os::unix::fs::symlink(&outside, &link).expect("make a link");
    on(&world, &["insert", "x", "--id", "new1"]).ended(0);
    assert!(link.is_symlink());
    assert_eq!(ids(&world).last().map(String::as_str), Some("new1"));
    // The project is that of the notebook's folder, not of the working directory.
    assert!(away.path().join(".nb").is_dir());
    assert!(!world.project().join(".nb").exists());
    let outside = outside.to_str().expect("a path");
    nb(&world, ["edit", outside, "new1", "y"]).ended(0);
    assert_eq!(text_of(&world, "new1"), "y");
}

#[test]
fn a_notebook_that_may_not_be_written_is_refused() {
    let world = world();
    write(
        &world,
        r#"{"worksheets": [{"cells": []}], "nbformat": 3, "nbformat_minor": 0, "metadata": {}}"#,
    );
    let refused = on(&world, &["insert", "x"]);
    assert_ne!(refused.code, Some(0));
    refused.with("format 3");
    write(&world, "{\"cells\": [}");
    on(&world, &["insert", "x"])
        .ended(1)
        .with("line 1, column 12");
    on(&world, &["save"]).ended(1).with("it is not a notebook");
    write(&world, NOTEBOOK);
    let mode = |path: &Path, mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, permissions).expect("set the mode");
    };
    // Root can write read-only files, unless it drops that capability.
    let insert = match rustix::process::geteuid().is_root() {
        true => {
            "setpriv --bounding-set=-dac_override,-dac_read_search -- \"$NB_TEST_BINARY\" insert t.ipynb x"
        }
        false => "nb insert t.ipynb x",
    };
    mode(&world.project().join("t.ipynb"), 0o444);
    run(&world, insert)
        .ended(1)
        .with("read-only")
        .with("chmod u+w t.ipynb");
    mode(&world.project().join("t.ipynb"), 0o644);
    mode(&world.project(), 0o555);
    let refused = run(&world, insert);
    mode(&world.project(), 0o755);
    refused.ended(1).with("must be writable");
    assert_eq!(
        read(&world),
        serde_json::from_str::<Value>(NOTEBOOK).expect("JSON")
    );
    run(&world, insert).ended(0);
}

#[test]
fn save_prints_what_the_file_is() {
    let world = world();
    let output = on(&world, &["save"]).ended(0);
    insta::assert_snapshot!(output.stdout, @r"t.ipynb: revision cc8c0effb2 · 4 cells · format 4.5 · 600 bytes");
    let saved = on(&world, &["save", "--json"]).ended(0).json();
    assert_eq!(saved["nbformat"], json!([4, 5]));
    assert_eq!(saved["cell_count"], 4);
    assert_eq!(saved["bytes"], NOTEBOOK.len());
    let without = NOTEBOOK.replace("\"id\": \"aaaa1111\", ", "");
    write(&world, &without);
    on(&world, &["save"])
        .ended(0)
        .with("1 cells have no id of their own");
    assert_eq!(
        read(&world),
        serde_json::from_str::<Value>(&without).expect("JSON")
    );
}

#[test]
fn the_help_lists_every_command() {
    let world = World::new();
    let all = nb(&world, ["help", "all"]).ended(0).stdout;
    for command in ["apply", "move", "restore", "completions", "interrupt"] {
        assert!(all.contains(&format!("  {command} ")), "{all}");
        nb(&world, ["help", command]).ended(0).with("Usage: nb ");
    }
    nb(&world, ["help", "burn"]).ended(2).with("nb help all");
    let first = nb(&world, ["--help"]).ended(0).with("nb help all").stdout;
    assert!(first.lines().count() <= 40, "{first}");
    nb(&world, ["help"]).ended(0).with(&first);
    assert_eq!(nb(&world, [""; 0]).ended(2).stderr, first);
}

#[test]
fn an_edit_of_an_older_notebook_changes_its_cell_alone() {
    let world = World::new();
    let old = "{\n \"cells\": [\n  {\n   \"cell_type\": \"code\",\n   \"execution_count\": null,\n   \"metadata\": {},\n   \"outputs\": [],\n   \"source\": [\n    \"lr = 0.1\"\n   ]\n  },\n  {\n   \"cell_type\": \"markdown\",\n   \"metadata\": {},\n   \"source\": [\n    \"# T\\u007f\"\n   ]\n  }\n ],\n \"metadata\": {},\n \"nbformat\": 4,\n \"nbformat_minor\": 2\n}\n";
    write(&world, old);
    let text = || std::fs::read_to_string(world.project().join("t.ipynb")).expect("read it");
    let ids = || -> Vec<String> {
        let answer = on(&world, &["cells", "--json"]).ended(0).json();
        let cells = answer["cells"].as_array().expect("cells").clone();
        let id = |cell: &Value| cell["id"].as_str().expect("an id").to_owned();
        cells.iter().map(id).collect()
    };
    let first = ids();
    // The answer has DEL as it is in the cell.
    let shown = on(&world, &["cell", "1", "--json"]).ended(0).json();
    assert_eq!(shown["cells"][0]["source"], "# T\u{7f}");
    on(&world, &["cell", "0.."]).ended(0);
    on(&world, &["edit", "0", "--replace", "0.1", "0.5"]).ended(0);
    let edited = text();
    let lines = old.lines().zip(edited.lines());
    let other: Vec<_> = lines.filter(|(a, b)| a != b).collect();
    assert_eq!(other, [("    \"lr = 0.1\"", "     \"lr = 0.5\"")]);
    assert_ne!(edited.len(), old.len(), "VS Code would save over it");
    on(&world, &["insert", "0", "new", "--id", "mine1234"]).ended(0);
    assert_eq!(ids(), ["mine1234", &first[0], &first[1]]);
    on(&world, &["edit", "mine1234", "newer"]).ended(0);
    for _ in 0..3 {
        on(&world, &["undo"]).ended(0);
    }
    assert_eq!(text(), old);
    assert_eq!(ids(), first);
    // Only this command writes the ids, and raises the format to the one that has them.
    on(&world, &["fmt", "--write"]).ended(0);
    assert!(text().contains("\"nbformat_minor\": 5"));
    assert!(
        first
            .iter()
            .all(|id| text().contains(&format!("\"id\": \"{id}\"")))
    );
}

#[test]
fn a_notebook_that_nb_made_or_ran_first_says_what_its_language_needs() {
    let world = World::new();
    super::open(&world, "t.ipynb");
    let made = read(&world);
    let language = made["metadata"]["language_info"].clone();
    assert_eq!(language["file_extension"], ".py", "{language}");
    assert_eq!(language["nbconvert_exporter"], "python");
    let keys: Vec<_> = language.as_object().expect("an object").keys().collect();
    assert!(keys.is_sorted() && keys.len() >= 7, "{keys:?}");
    // In another person's notebook without the field, no read and no edit adds it, but the first run does.
    let mut foreign = made;
    let metadata = foreign["metadata"].as_object_mut().expect("an object");
    metadata.remove("language_info");
    write(&world, &foreign.to_string());
    on(&world, &["cells"]).ended(0);
    on(&world, &["insert", "1 + 1"]).ended(0);
    assert!(read(&world)["metadata"]["language_info"].is_null());
    on(&world, &["exec", "0"]).ended(0).with("2");
    assert_eq!(read(&world)["metadata"]["language_info"], language);
}

#[test]
fn a_text_is_replaced_in_all_cells_at_once_and_taken_back_at_once() {
    let world = world();
    let text = || std::fs::read_to_string(world.project().join("t.ipynb")).expect("read it");
    let before = text();
    let output = on(&world, &["replace", "n", "number", "--word"]).ended(0);
    output.with("replaced 1 occurrence\nedited 1 12345678");
    assert!(text().contains("number = 3"));
    on(&world, &["undo"]).ended(0);
    assert_eq!(text(), before);
    for more in [&[][..], &["--word"], &["--regex"]] {
        on(&world, &[&["replace", "", "x"], more].concat())
            .ended(1)
            .with("the text to replace is empty");
    }
    on(&world, &["replace", "nowhere", "x"])
        .ended(1)
        .with("no cell has \"nowhere\"");
    on(&world, &["replace", "n", "x", "0"])
        .ended(1)
        .with("these cells do not have \"n\"");
    on(
        &world,
        &["replace", "--regex", r"lr = ([\d.]+)", "rate = $1 * 2"],
    )
    .ended(0);
    assert!(text().contains("rate = 0.1 * 2"));
    on(&world, &["replace", "("])
        .ended(2)
        .with("nb replace OLD NEW");
}

#[test]
fn cells_are_split_joined_and_added_to() {
    let world = world();
    on(&world, &["edit", "1", "--append", "m = 4"]).ended(0);
    on(&world, &["edit", "1", "--append"]).ended(2);
    on(&world, &["split", "1", "3"]).ended(0);
    let sources = |world: &World| -> Vec<String> {
        let listed = on(world, &["cell", "1..3", "--json"]).ended(0).json();
        let cells = listed["cells"].as_array().expect("cells");
        let source = |cell: &Value| cell["source"].as_str().expect("a text").to_owned();
        cells.iter().map(source).collect()
    };
    assert_eq!(sources(&world), ["lr = 0.1\nn = 3", "m = 4"]);
    on(&world, &["join", "1..3"]).ended(0);
    assert_eq!(sources(&world)[0], "lr = 0.1\nn = 3\nm = 4");
    for line in ["1", "0", "x"] {
        on(&world, &["split", "1", line]).ended(2);
    }
}

#[test]
fn exported_cells_with_the_text_of_markers_are_inserted_as_the_same_cells() {
    let world = world();
    let sources = [
        (
            "code",
            "D = \"\"\"\n# %%\nno cell\n# %% [markdown]\n\"\"\"\nprint(len(D))",
        ),
        ("markdown", "```mermaid\n%% == States ==\na-->b\n```"),
        ("code", "%%bash\n# %% hm\nls"),
        ("code", "\n\nx = 1\r\n\n"),
        ("code", "tail"),
    ];
    for (index, (kind, source)) in sources.iter().enumerate() {
        let id = format!("k0{index}");
        on(&world, &["insert", "-t", kind, "--id", &id, "-s", source]).ended(0);
    }
    let ids = ["k00", "k01", "k02", "k03", "k04"];
    let with = |verb: &'static str| [&[verb], &ids[..]].concat();
    let exported = on(&world, &with("export")).ended(0).stdout;
    let before = cells(&world);
    let at = before.len() - sources.len();
    on(&world, &with("rm")).ended(0);
    std::fs::write(world.project().join("a.py"), exported).expect("write it");
    on(&world, &["insert", "--cells", "--file", "a.py"]).ended(0);
    assert_eq!(cells(&world)[at..], before[at..]);
    let output = on(
        &world,
        &["insert", "--cells", "-s", "# %%\n# %matplotlib inline"],
    );
    output.ended(2).with("line 2").with("jupytext --to ipynb");
}

#[test]
fn several_cells_are_inserted_and_exported_as_plain_text() {
    let world = world();
    let plain = "# %% [markdown]\n# ## New\n# %% id=\"fresh001\" tags=[\"a\"]\nx = 1\ny = 2\n";
    let put = |options: &[&str]| {
        on(
            &world,
            &[&["insert", "--cells", "-s", plain], options].concat(),
        )
    };
    let output = put(&["--after", "aaaa"]).ended(0);
    output.with("inserted 2 fresh001, 1 ");
    let sources: Vec<_> = cells(&world).into_iter().map(|(_, text)| text).collect();
    assert_eq!(sources[..3], ["# Title", "## New", "x = 1\ny = 2"]);
    let exported = on(&world, &["export", "1..3"]).ended(0).stdout;
    let listed = on(&world, &["cells", "1..3", "--format", "py"])
        .ended(0)
        .stdout;
    assert_eq!(listed, exported);
    let (_, rest) = exported.split_once('\n').expect("lines");
    assert_eq!(
        rest,
        "# ## New\n\n# %% id=\"fresh001\" tags=[\"a\"]\nx = 1\ny = 2\n"
    );
    on(&world, &["undo"]).ended(0);
    assert_eq!(cells(&world).len(), 4);
    for (place, at) in [
        (["--at", "1"], 1),
        (["--at", "-1"], 3),
        (["--before", "aaaa"], 0),
    ] {
        put(&place).ended(0);
        assert_eq!(ids(&world)[at + 1], "fresh001", "{place:?}");
        on(&world, &["undo"]).ended(0);
    }
    put(&[]).ended(0);
    assert_eq!(ids(&world).last().map(String::as_str), Some("fresh001"));
    let broken = ["insert", "--cells", "-s", "# %%\n1\n# %% [markdwon]\n# x"];
    on(&world, &broken)
        .ended(2)
        .with("line 3: [markdwon] is no type");
    on(&world, &["insert", "--cells", "-s", ""])
        .ended(2)
        .with("no cell");
    // In one call, and run.
    super::open(&world, "t.ipynb");
    let output = on(
        &world,
        &["insert", "-x", "--cells", "-s", "# %%\na = 6\n# %%\na * 7"],
    )
    .ended(0);
    output.with("42\n").with("2 cells ok");
}
