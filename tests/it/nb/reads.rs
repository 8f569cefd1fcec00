//! The commands that read a notebook, and the one that only changes its style.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::{Output, nb, output_of};
use crate::world::{World, finish};

/// A red dot.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC\n";

fn notebook() -> Value {
    let lines: Vec<_> = (0..2000).map(|number| format!("step {number}\n")).collect();
    json!({
        "cells": [
            { "cell_type": "markdown", "id": "77de0001", "metadata": {}, "source": ["# Title\n", "\n", "Some text"] },
            {
                "cell_type": "code", "id": "3f2c9a1e", "metadata": { "tags": ["load"] }, "execution_count": 1,
                "source": ["import pandas as pd\n", "df = load()\n", "df.plot()"],
                "outputs": [
                    { "output_type": "stream", "name": "stdout", "text": lines },
                    {
                        "output_type": "display_data", "metadata": {},
                        "data": { "image/png": PNG, "text/plain": ["<Figure size 1x1 with 1 Axes>"] },
                    },
                    {
                        "output_type": "execute_result", "execution_count": 1, "metadata": {},
                        "data": { "text/html": ["<b>1</b>"], "text/plain": ["   a\n", "0  1"] },
                    },
                ],
            },
            {
                "cell_type": "code", "id": "3f2d0000", "metadata": {}, "execution_count": 12,
                "source": ["1/0  # \u{1b}[31m"],
                "outputs": [{
                    "output_type": "error", "ename": "ZeroDivisionError", "evalue": "division by zero",
                    "traceback": ["\u{1b}[31mTraceback\u{1b}[0m", "ZeroDivisionError: division by zero"],
                }],
            },
            { "cell_type": "code", "id": "12345678", "metadata": {}, "execution_count": null, "source": [], "outputs": [] },
        ],
        "metadata": { "kernelspec": { "display_name": "Python 3", "language": "python", "name": "python3" } },
        "nbformat": 4, "nbformat_minor": 5,
    })
}

/// Makes a world with `t.ipynb`, for which no kernel was ever started.
fn world() -> World {
    let world = World::new();
    write(&world, "t.ipynb", &notebook());
    world
}

fn write(world: &World, name: &str, notebook: &Value) -> PathBuf {
    let path = world.project().join(name);
    std::fs::create_dir_all(path.parent().expect("it has a folder")).expect("make it");
    std::fs::write(&path, notebook.to_string()).expect("write a notebook");
    path
}

fn ask(world: &World, words: &str) -> Output {
    nb(world, words.split(' '))
}

#[test]
fn cells_are_a_line_each() {
    let world = world();
    let listed = ask(&world, "cells t.ipynb").ended(0);
    insta::assert_snapshot!(listed.stdout, @r#"
    t.ipynb: 4 cells · revision d15a5cf9d2 · python3
    0  77de   markdown         # Title (3 lines)
    1  3f2c   In[1]            import pandas as pd (3 lines) → a, 2 more
    2  3f2d   In[12]    error  1/0  #  [31m → ZeroDivisionError: division by zero
    3  12345  In[ ]
    "#);
    assert_eq!(listed.stderr, "");
    let some = ask(&world, "cells t.ipynb 1..3 -i -1 --json")
        .ended(0)
        .json();
    let ids: Vec<_> = some["cells"]
        .as_array()
        .expect("cells")
        .iter()
        .map(|cell| &cell["id"])
        .collect();
    assert_eq!(ids, ["3f2c9a1e", "3f2d0000", "12345678"]);
    assert_eq!(some["cell_count"], 4);
    let error = &some["cells"][1];
    assert_eq!(error["state"], "error");
    assert_eq!(error["execution_count"], 12);
    assert_eq!(
        error["outputs_in_short"],
        "ZeroDivisionError: division by zero"
    );
    assert_eq!(some["cells"][0]["lines"], 3);
    assert_eq!(some["kernelspec"], "python3");
    assert_eq!(some["revision"].as_str().map(str::len), Some(10));
}

#[test]
fn a_list_of_cells_is_short_whatever_they_have_printed() {
    let world = World::new();
    let output =
        json!({ "output_type": "stream", "name": "stdout", "text": "a word, ".repeat(10_000) });
    let cells: Vec<_> = (0..60)
        .map(|index| {
            let id = format!("{index:08x}");
            json!({ "cell_type": "code", "id": id, "metadata": {}, "execution_count": index, "source": "x = 1\nx + 1", "outputs": [output] })
        })
        .collect();
    let metadata = json!({});
    let notebook =
        json!({ "cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5 });
    write(&world, "t.ipynb", &notebook);
    let text = ask(&world, "cells t.ipynb").ended(0).stdout.len();
    let object = ask(&world, "cells t.ipynb --json").ended(0).stdout.len();
    // 4.8 MB of outputs; beside the text, the object has its keys, whole ids and the names that cells write.
    assert!(text < 60 * 120 && object <= 3 * text, "{text} {object}");
    // A cell that was never run has nothing to say but its source.
    let cell = json!({ "cell_type": "code", "id": "3f2c9a1e", "metadata": {}, "execution_count": null, "outputs": [], "source": "1" });
    let notebook = json!({ "cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5 });
    write(&world, "one.ipynb", &notebook);
    let mut object = ask(&world, "cells one.ipynb --json").ended(0).json();
    object["cells"][0]["revision"].take();
    assert_eq!(
        object["cells"],
        json!([{"index": 0, "id": "3f2c9a1e", "type": "code", "first_line": "1", "revision": null}])
    );
    assert_eq!(object.get("kernelspec"), None);
}

#[test]
fn a_cell_shows_its_source_and_its_outputs() {
    let world = world();
    let shown = ask(&world, "cell t.ipynb 3f2c In[12] --limit 120").ended(0);
    // Escape sequences in a source must not reach the terminal.
    insta::assert_snapshot!(shown.stdout.replace('\u{1b}', "␛"), @r#"
    ‣ === 1 3f2c9a1e · code · In[1]
    ‣ --- metadata {"tags":["load"]}
    ‣ --- source
    import pandas as pd
    df = load()
    df.plot()
    ‣ --- output 0 · stdout
    step 0
    step 1
    ‣ [… 18850 characters, 1996 lines left out; all of it: .nb/outputs/t-da7ef036/3f2c9a1e-0.txt …]
    step 1998
    step 1999
    ‣ --- output 1 · display · image/png 1x1, 69 bytes: .nb/outputs/t-da7ef036/3f2c9a1e-1.png
    ‣ --- output 2 · result
       a
    0  1
    ‣ === 2 3f2d0000 · code · In[12]
    1/0  # ␛[31m
    ‣ --- output 0 · error · ZeroDivisionError
    Traceback
    ZeroDivisionError: division by zero
    "#);
    assert_eq!(shown.stderr, "");
}

#[test]
fn what_no_text_shows_is_in_private_files() {
    let world = world();
    let answer = ask(&world, "cell t.ipynb 1 --json --limit 100")
        .ended(0)
        .json();
    let cell = &answer["cells"][0];
    assert_eq!(
        cell["source"],
        "import pandas as pd\ndf = load()\ndf.plot()"
    );
    assert_eq!(cell["metadata"], json!({ "tags": ["load"] }));
    let file = |output: usize| {
        let file = &cell["outputs"][output]["files"][0];
        let path = world.project().join(file["path"].as_str().expect("a path"));
        let mode = std::fs::metadata(&path)
            .expect("it is there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        (file["mime"].clone(), std::fs::read(path).expect("read it"))
    };
    let (mime, text) = file(0);
    assert_eq!(mime, "text/plain");
    assert!(text.ends_with(b"step 1998\nstep 1999\n") && text.starts_with(b"step 0\n"));
    let (mime, image) = file(1);
    assert_eq!(mime, "image/png");
    assert!(
        image.starts_with(b"\x89PNG") && image.len() == 69,
        "{}",
        image.len()
    );
    assert_eq!(
        cell["outputs"][1]["data"],
        json!({ "text/plain": "<Figure size 1x1 with 1 Axes>" })
    );
    assert_eq!(cell["outputs"][2].get("files"), None);

    // Without a limit the whole is in the answer, as in the file.
    let whole = ask(&world, "cell t.ipynb 1 --json --limit 0")
        .ended(0)
        .json();
    assert_eq!(
        whole["cells"][0]["outputs"],
        notebook()["cells"][1]["outputs"]
    );

    // A cell that is run again overwrites its files.
    let mut changed = notebook();
    changed["cells"][1]["outputs"][1]["data"]["image/png"] = json!("aGk=");
    write(&world, "t.ipynb", &changed);
    ask(&world, "cell t.ipynb 1").ended(0);
    let path = cell["outputs"][1]["files"][0]["path"]
        .as_str()
        .expect("a path");
    assert_eq!(
        std::fs::read(world.project().join(path)).expect("read it"),
        b"hi"
    );
}

#[test]
fn files_that_cannot_be_written_keep_nobody_from_reading() {
    let world = world();
    ask(&world, "cells t.ipynb").ended(0);
    std::fs::write(world.project().join(".nb/outputs"), "in the way").expect("write a file");
    let output = ask(&world, "cell t.ipynb 1 --limit 100").ended(0);
    let output = output
        .with("note: outputs could not be written to files")
        .with("all of it: --output 0");
    assert!(
        output.stdout.contains("also image/png 1x1, 69 bytes"),
        "{output:#?}"
    );
}

#[test]
fn a_source_and_an_output_come_alone_and_exactly() {
    let world = world();
    let source = ask(&world, "cell t.ipynb 2 --source-only").ended(0).stdout;
    assert_eq!(source, "1/0  # \u{1b}[31m\n");
    assert_eq!(
        ask(&world, "cell t.ipynb 3 --source-only").ended(0).stdout,
        ""
    );
    let both = ask(&world, "cell t.ipynb 0 2 --source-only")
        .ended(0)
        .stdout;
    assert_eq!(both, "# Title\n\nSome text\n1/0  # \u{1b}[31m\n");
    let stream = ask(&world, "cell t.ipynb 1 --output 0").ended(0).stdout;
    assert_eq!(stream.lines().count(), 2000);
    assert_eq!(
        ask(&world, "cell t.ipynb 1 --output 2").ended(0).stdout,
        "   a\n0  1\n"
    );
    let html = ask(&world, "cell t.ipynb 1 --output 2 --mime text/html")
        .ended(0)
        .stdout;
    assert_eq!(html, "<b>1</b>\n");
    let file = world.project().join("dot.png");
    let mut command = world.nb();
    command.args("cell t.ipynb 1 --output 1".split(' '));
    let status = command
        .stdout(std::fs::File::create(&file).expect("make a file"))
        .status();
    assert!(status.expect("start nb").success());
    assert!(
        std::fs::read(&file)
            .expect("read it")
            .starts_with(b"\x89PNG")
    );

    ask(&world, "cell t.ipynb 1 --output 3")
        .ended(1)
        .with("no output 3: it has 3, from 0");
    ask(&world, "cell t.ipynb 1 2 --output 0")
        .ended(2)
        .with("--output is of one cell");
    ask(&world, "cell t.ipynb 1 --output 2 --mime a/b")
        .ended(1)
        .with("it has text/html, text/plain");
}

#[test]
fn who_means_no_cell_is_helped() {
    let world = world();
    for (words, code, message) in [
        ("cell t.ipynb", 2, "which cell is meant?"),
        (
            "cell t.ipynb 7",
            1,
            "there is no cell 7: the notebook has 4, from 0",
        ),
        ("cell t.ipynb -9", 1, "there is no cell -9"),
        (
            "cell t.ipynb 3f2",
            1,
            "3f2c9a1e (cell 1, In[1]: import pandas as pd)\n‣   | 3f2d0000 (cell 2",
        ),
        (
            "cell t.ipynb 77df",
            1,
            "no cell \"77df\"\n‣   | 77de0001 (cell 0: # Title)",
        ),
        ("cell t.ipynb -c 1", 2, "\"1\" is too little of an id"),
        ("cell t.ipynb In[3]", 1, "no cell is In[3]"),
        ("cells t.ipynb 2..9", 1, "there is no cell 9"),
        (
            "cells t.ipynb --since 0123456789",
            1,
            "nothing is known of revision 0123456789",
        ),
        ("cells t.ipynb --since x", 2, "not a revision"),
        (
            "cells t.ipynb 1 --since 0123456789",
            2,
            "--since lists what has changed",
        ),
        ("cells none.ipynb", 1, "there is no notebook none.ipynb"),
        ("cells", 2, "nb cells -n t.ipynb"),
    ] {
        let output = ask(&world, words);
        assert!(output.stderr.contains(message), "{words}: {output:#?}");
        output.ended(code);
    }
    // An id that looks like an index is selected with `-c`.
    ask(&world, "cell t.ipynb -c 12345678")
        .ended(0)
        .with("‣ === 3 12345678");
    ask(&world, "cell t.ipynb 12345")
        .ended(0)
        .with("‣ === 3 12345678");
    ask(&world, "cell -n t.ipynb -1")
        .ended(0)
        .with("‣ === 3 12345678");
}

#[test]
fn odd_notebooks_are_read_too() {
    let world = World::new();
    let old = json!({
        "worksheets": [{ "cells": [{
            "cell_type": "code", "input": ["x"], "prompt_number": 3, "language": "python",
            "outputs": [{ "output_type": "pyout", "text": ["4"], "png": PNG, "prompt_number": 3 }],
        }] }],
        "metadata": {}, "nbformat": 3, "nbformat_minor": 0,
    });
    write(&world, "old.ipynb", &old);
    ask(&world, "cells old.ipynb")
        .ended(0)
        .with("format 3, read only")
        .with("In[3]");
    ask(&world, "cell old.ipynb 0")
        .ended(0)
        .with("image/png 1x1, 69 bytes: .nb/outputs/")
        .with("4");
    ask(&world, "fmt old.ipynb")
        .ended(5)
        .with("format 3, which is only read");

    let many: Vec<_> = (0..100)
        .map(|number| json!({ "output_type": "display_data", "metadata": {}, "data": { "text/plain": format!("<{number}>") } }))
        .collect();
    let cell = json!({
        "cell_type": "code", "id": "../../evil", "metadata": {}, "execution_count": null,
        "source": "print('\u{65e5}')", "outputs": many,
    });
    let odd = json!({ "cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5 });
    let text = odd
        .to_string()
        .replace("\"<7>\"", "NaN")
        .replace("print(", "print('\\ud800'");
    std::fs::write(world.project().join("odd.ipynb"), text).expect("write it");
    let output = ask(&world, "cell odd.ipynb 0").ended(0);
    output
        .with("<19>")
        .with("‣ --- 60 outputs left out, 20 to 79")
        .with("<80>")
        .with("print('\u{fffd}'");
    let json = ask(&world, "cell odd.ipynb 0 --json").ended(0).json();
    assert_eq!(json["cells"][0]["output_count"], 100);
    assert_eq!(
        json["cells"][0]["outputs"].as_array().map(Vec::len),
        Some(40)
    );
    assert_eq!(
        json["cells"][0]["outputs"][7]["files"][0]["mime"],
        "text/plain"
    );
    std::fs::write(world.project().join("no.ipynb"), "[1]").expect("write it");
    ask(&world, "cells no.ipynb")
        .ended(1)
        .with("line 1, column 1");
}

#[test]
fn search_finds_lines_of_sources_and_outputs() {
    let world = world();
    write(&world, "deep/er/u.ipynb", &notebook());
    write(
        &world,
        "deep/.ipynb_checkpoints/u-checkpoint.ipynb",
        &notebook(),
    );
    std::fs::write(world.project().join("deep/bad.ipynb"), "{").expect("write it");
    let found = nb(
        &world,
        ["search", "step 19[0-9]{2}$|^df", ".", "--limit", "4"],
    )
    .ended(0);
    insta::assert_snapshot!(found.stdout, @r#"
    deep/er/u.ipynb 3f2c:2: df = load()
    deep/er/u.ipynb 3f2c:3: df.plot()
    deep/er/u.ipynb 3f2c:out0:1901: step 1900
    deep/er/u.ipynb 3f2c:out0:1902: step 1901
    "#);
    insta::assert_snapshot!(found.stderr, @r#"
    ‣ note: cannot read deep/bad.ipynb: it is not a notebook: line 1, column 2: expected a key in double quotes, or }, found the end of the file
    ‣ 200 more lines; --limit 0 prints all 204
    "#);
    ask(&world, "search -F 1/0 t.ipynb --outputs")
        .ended(0)
        .with("nothing found in 1 notebook");
    assert_eq!(
        ask(&world, "search -i TITLE t.ipynb").ended(0).stdout,
        "t.ipynb 77de:1: # Title\n"
    );
    assert_eq!(ask(&world, "search TITLE t.ipynb").ended(0).stdout, "");
    // Notebooks may come first.
    assert_eq!(
        ask(&world, "search t.ipynb Title").ended(0).stdout,
        "t.ipynb 77de:1: # Title\n"
    );
    let json = ask(&world, "search Traceback t.ipynb --json")
        .ended(0)
        .json();
    let hit = json!([{
        "index": 2, "cell": "3f2d0000", "output": 0, "line": 1, "text": "Traceback", "notebook": "t.ipynb",
    }]);
    assert_eq!(json["matches"], hit);
    ask(&world, "search ( t.ipynb")
        .ended(2)
        .with("unclosed group")
        .with("hint: nb search -F '('");
    ask(&world, "search x none.ipynb")
        .ended(1)
        .with("none.ipynb: No such file");
    ask(&world, "search x deep/bad.ipynb")
        .ended(1)
        .with("it is not a notebook");
    // Reading creates no project.
    assert!(!world.project().join("deep/.nb").exists());
}

#[test]
fn what_has_changed_since_a_revision_is_listed() {
    let world = world();
    let first = ask(&world, "cells t.ipynb --json").ended(0).json()["revision"].clone();
    let first = first.as_str().expect("a revision");
    let mut changed = notebook();
    let cells = changed["cells"].as_array_mut().expect("cells");
    cells.remove(0);
    cells.push(json!({ "cell_type": "raw", "id": "new1", "metadata": {}, "source": "new" }));
    cells[1]["source"] = json!("1/1");
    cells[0]["outputs"] = json!([]);
    write(&world, "t.ipynb", &changed);
    let since = nb(&world, ["cells", "t.ipynb", "--since", first]).ended(0);
    insta::assert_snapshot!(since.stdout, @r#"
    t.ipynb: 2 of 4 cells new, edited or moved since d15a5cf9d2 · revision 0782a467dc · python3
    1  3f2d  edited  In[12]  error  1/1 → ZeroDivisionError: division by zero
    3  new1  new     raw            new
    -  77de0001  removed  # Title
    "#);
    let json = nb(&world, ["cells", "t.ipynb", "--since", first, "--json"])
        .ended(0)
        .json();
    assert_eq!(json["cells"][0]["changes"], json!(["edited"]));
    assert_eq!(json["removed"][0]["id"], "77de0001");
    let now = json["revision"].as_str().expect("a revision");
    let none = nb(&world, ["cells", "t.ipynb", "--since", now, "--json"])
        .ended(0)
        .json();
    assert_eq!(
        (none["cells"].clone(), none["removed"].clone()),
        (json!([]), json!([]))
    );
}

#[test]
fn only_what_was_shown_whole_counts_as_seen() {
    let world = world();
    let edit = |cell: &str| nb(&world, ["edit", "t.ipynb", cell, "x = 1", "--as", "claude"]);
    for cell in ["0", "1"] {
        let others = ["edit", "t.ipynb", cell, "a\nb\nc", "--as", "codex"];
        nb(&world, others).ended(0);
    }
    ask(&world, "cells t.ipynb --as claude").ended(0);
    // The list shows one of three lines, which is not the whole cell; of an empty cell it shows the whole.
    edit("1").ended(5);
    edit("3").ended(0);
    ask(&world, "cell t.ipynb 0 --as claude").ended(0);
    edit("0").ended(0);
}

#[test]
fn fmt_lists_and_writes_what_jupyter_would_write_otherwise() {
    let world = world();
    let path = write(&world, "sub/u.ipynb", &notebook());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("set its mode");
    let before = std::fs::read(&path).expect("read it");
    let checked = ask(&world, "fmt .").ended(1);
    assert_eq!(checked.stdout, "sub/u.ipynb\nt.ipynb\n");
    checked.with("2 of 2 notebooks would change; nb fmt --write writes them");
    assert_eq!(std::fs::read(&path).expect("read it"), before);
    ask(&world, "fmt --write sub")
        .ended(0)
        .with("1 of 1 notebook written");
    let text = std::fs::read_to_string(&path).expect("read it");
    assert!(
        text.starts_with("{\n \"cells\": [\n  {\n   \"cell_type\": \"markdown\",\n"),
        "{text}"
    );
    assert_eq!(
        serde_json::from_str::<Value>(&text).expect("JSON"),
        notebook()
    );
    let mode = std::fs::metadata(&path)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
    assert_eq!(ask(&world, "fmt sub --check").ended(0).stdout, "");
    let json = ask(&world, "fmt . --json").ended(1).json();
    assert_eq!(
        (&json["differing"], &json["failed"]),
        (&json!(1), &json!(0))
    );

    // A notebook that cannot be read does not stop the others.
    std::fs::write(world.project().join("bad.ipynb"), "[]").expect("write it");
    let output = ask(&world, "fmt --write .").ended(1);
    assert_eq!(output.stdout, "t.ipynb\n");
    output.with("bad.ipynb: it is not a notebook");
    ask(&world, "fmt --check --write t.ipynb").ended(2);
}

#[test]
fn fmt_puts_the_real_kernelspec_back_and_adds_ids() {
    let world = World::opened();
    let path = world.project().join("t.ipynb");
    let read = || -> Value {
        serde_json::from_slice(&std::fs::read(&path).expect("read it")).expect("JSON")
    };
    let real = read()["metadata"]["kernelspec"].clone();
    let mut shared = read();
    shared["metadata"]["kernelspec"] =
        json!({ "name": "nb-shared", "display_name": "nb shared kernel", "language": "python" });
    shared["cells"] =
        json!([{ "cell_type": "raw", "metadata": { "trusted": true }, "source": "x" }]);
    shared["nbformat_minor"] = json!(4);
    write(&world, "t.ipynb", &shared);
    let checked = ask(&world, "fmt t.ipynb").ended(1).with("1 cell has no id");
    checked.with("it names the kernelspec nb-shared; its own is python3");
    ask(&world, "fmt --write t.ipynb")
        .ended(0)
        .with("its own kernelspec python3 again");
    let after = read();
    assert_eq!(after["metadata"]["kernelspec"], real);
    assert_eq!(after["nbformat_minor"], 5);
    assert_eq!(after["cells"][0]["id"].as_str().map(str::len), Some(8));
    assert_eq!(after["cells"][0]["metadata"], json!({}));
    // If nobody knows the real kernelspec, this is reported and it is left.
    write(&world, "u.ipynb", &shared);
    ask(&world, "fmt --write u.ipynb")
        .ended(0)
        .with("which real kernel it had is not known");
    ask(&world, "fmt u.ipynb").ended(0);
}

#[test]
fn attachments_are_named() {
    let world = World::new();
    let cell = json!({
        "cell_type": "markdown", "id": "abcd", "metadata": { "execution": {} }, "source": "![](a.png)",
        "attachments": { "a.png": { "image/png": PNG } },
    });
    write(
        &world,
        "t.ipynb",
        &json!({ "cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5 }),
    );
    let shown = ask(&world, "cell t.ipynb 0").ended(0);
    shown.with("‣ --- attachment a.png · image/png 1x1, 69 bytes\n‣ --- source\n![](a.png)\n");
    let json = ask(&world, "cell t.ipynb 0 --json").ended(0).json();
    let forms = json!([{ "mime": "image/png", "bytes": 69, "pixels": [1, 1] }]);
    assert_eq!(
        json["cells"][0]["attachments"],
        json!([{ "name": "a.png", "forms": forms }])
    );
}

#[test]
fn a_reader_that_goes_is_a_quiet_end() {
    let world = world();
    let mut bash = super::shell(
        &world,
        "\"$NB_TEST_BINARY\" cell t.ipynb 0..=3 --limit 0 | head -1",
    );
    let (status, out, err) = finish(&mut bash);
    assert!(status.success() && err.is_empty(), "{err}");
    assert!(out.starts_with("‣ === 0 "), "{out}");
    output_of(world.nb().args(["cells", "--help"]))
        .ended(0)
        .with("nb cells train.ipynb");
}
