//! What the kernel says of each execution, through `nb`: it is stored, it decides what runs, and nobody else sees it.

use serde_json::{Value, json};

use super::exec::{GATE, begin, cell, notebook, text, wait_for_state};
use super::stale::{StaleWatch, run_on_the_kernels_sockets};
use super::{nb, output_of, until};
use crate::world::{World, succeed};

/// Returns what is stored of a kernel's executions.
fn stored(world: &World) -> Vec<Value> {
    let folder = std::fs::read_dir(world.project().join(".nb/facts"));
    let files = folder.into_iter().flatten().flatten();
    let texts = files.map(|file| std::fs::read_to_string(file.path()).expect("read the facts"));
    let text: String = texts.collect();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// Returns the texts that the cells show.
fn shown(world: &World, cells: usize) -> Vec<Value> {
    let shown = (0..cells).map(|at| {
        let mut outputs = cell(world, at)["outputs"].clone();
        for output in outputs.as_array_mut().expect("a list") {
            output["execution_count"] = Value::Null;
        }
        outputs
    });
    shown.collect()
}

/// Runs the stale cells; returns their indices in the notebook, in the order in which they ran.
fn run_stale(world: &World) -> Vec<usize> {
    let answer = nb(world, ["exec", "a.ipynb", "--stale", "--json"]);
    let answer = answer.ended(0).json();
    let cells = answer["cells"].as_array().expect("a list").iter();
    let list = nb(world, ["cells", "a.ipynb", "--json"]).ended(0).json();
    let ids = list["cells"].as_array().expect("a list");
    let place = |ran: &Value| ids.iter().position(|it| it["id"] == ran["cell"]);
    cells.map(|ran| place(ran).expect("a cell")).collect()
}

#[test]
fn what_no_text_shows_runs_again_as_the_kernel_says() {
    let cells = [
        "a = [0]\nf = a.append",
        "f(1)",
        "print('a', a)",
        "b = [0]",
        "list.append(b, 1)",
        "print('b', b)",
        "def g(l, v):\n    h = lambda x: x.append(v)\n    h(l)",
        "c = []",
        "g(c, 1)",
        "print('c', c)",
        "with open('z.txt', 'w') as z:\n    z.write('1');",
        "open('z.txt').read()",
        "other = 1",
    ];
    let world = notebook(&cells);
    assert_eq!(run_stale(&world).len(), cells.len());
    assert_eq!(stored(&world).len(), cells.len());
    for (at, source) in [
        ("1", "f(2)"),
        ("4", "list.append(b, 2)"),
        ("8", "g(c, 2)"),
        ("10", "with open('z.txt', 'w') as z:\n    z.write('2');"),
    ] {
        nb(&world, ["edit", "a.ipynb", at, "-s", source]).ended(0);
    }
    nb(&world, ["exec", "a.ipynb", "--stale", "--plan"])
        .ended(0)
        .with("by what the kernel said of earlier runs")
        .with("another cell needs what it gives");
    assert_eq!(run_stale(&world), [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11]);
    let after = shown(&world, cells.len());
    nb(&world, ["exec", "a.ipynb", "--stale"])
        .ended(0)
        .with("there is nothing to run");
    nb(&world, ["cells", "a.ipynb", "--stale"])
        .ended(0)
        .with("0 of 13 cells");
    nb(&world, ["exec", "a.ipynb", "--all", "--restart"]).ended(0);
    assert_eq!(shown(&world, cells.len()), after);
    assert_eq!(text(&world, 2), "a [0, 2]\n");
    assert_eq!(stored(&world).len(), cells.len(), "the new kernel's");
}

#[test]
fn a_watch_and_cells_that_are_named_get_what_they_need_again() {
    let world = notebook(&["a = [0]\nf = a.append", "f(1)", "print('a', a)", "b = 1"]);
    nb(&world, ["exec", "a.ipynb", "0", "1", "2"]).ended(0);
    let mut watch = StaleWatch::start(&world, "a.ipynb");
    watch.next();
    nb(&world, ["edit", "a.ipynb", "1", "-s", "f(2)", "--force"]).ended(0);
    let ran = watch.next_run();
    assert_eq!(ran["cells"].as_array().map(Vec::len), Some(3), "{ran}");
    assert_eq!(text(&world, 2), "a [0, 2]\n");
    drop(watch);
    nb(&world, ["edit", "a.ipynb", "1", "-s", "f(3)", "--force"]).ended(0);
    // The edited cell is not among them, and what it changed before counts.
    nb(&world, ["exec", "a.ipynb", "2", "3", "--stale"]).ended(0);
    assert_eq!(text(&world, 2), "a [0, 2]\n");
    assert_eq!(cell(&world, 3)["execution_count"], 7);
    nb(&world, ["exec", "a.ipynb", "1", "--stale"]).ended(0);
    nb(&world, ["exec", "a.ipynb", "2", "--stale"]).ended(0);
    assert_eq!(text(&world, 2), "a [0, 3]\n");
}

#[test]
fn a_name_that_no_cell_gives_any_more_is_deleted_before_its_readers_run() {
    let world = notebook(&["x = 1", "y = 1", "print('x' in dir(), y)"]);
    nb(&world, ["exec", "a.ipynb", "--all"]).ended(0);
    nb(&world, ["edit", "a.ipynb", "0", "-s", "y = 3"]).ended(0);
    nb(&world, ["edit", "a.ipynb", "2", "-s", "print(x)"]).ended(0);
    // It fails as after Restart & Run All.
    nb(&world, ["exec", "a.ipynb", "--stale"]).ended(3);
    assert_eq!(cell(&world, 2)["outputs"][0]["ename"], "NameError");
    nb(&world, ["edit", "a.ipynb", "2", "-s", "print(y)"]).ended(0);
    nb(&world, ["exec", "a.ipynb", "--stale"]).ended(0);
    assert_eq!(text(&world, 2), "1\n");
}

#[test]
fn what_code_outside_the_notebook_changed_is_known() {
    let world = notebook(&["base = 3", "a = base + 2", "print('a is', a)"]);
    nb(&world, ["exec", "a.ipynb", "--all"]).ended(0);
    nb(&world, ["run", "base = 100"]).ended(0);
    // What was made of it before is right.
    assert_eq!(run_stale(&world), [0]);
    run_on_the_kernels_sockets(&world, "base = 7; a = 0");
    until("the facts are stored", || {
        (stored(&world).len() == 6).then_some(())
    });
    nb(
        &world,
        ["edit", "a.ipynb", "2", "-s", "print('a is now', a)"],
    )
    .ended(0);
    let answer = nb(&world, ["exec", "a.ipynb", "--stale", "--json"]);
    let answer = answer.ended(0).json();
    assert_eq!(answer["any_name_is_doubtful"], false, "{answer}");
    assert_eq!(answer["doubtful"], json!([]), "{answer}");
    assert_eq!(text(&world, 2), "a is now 5\n");
    // All of it moves with the notebook.
    let before = stored(&world).len();
    nb(&world, ["mv", "a.ipynb", "b.ipynb"]).ended(0);
    nb(&world, ["run", "-n", "b.ipynb", "a = 6"]).ended(0);
    assert_eq!(stored(&world).len(), before + 1);
    let plan = nb(&world, ["exec", "b.ipynb", "--stale", "--plan", "--json"]);
    let plan = plan.ended(0).json();
    assert_eq!(plan["plan"][0]["index"], 1, "{plan}");
    assert_eq!(plan["plan"].as_array().map(Vec::len), Some(1), "{plan}");
    assert_eq!(plan["by_kernel"], true);
}

#[test]
fn a_cell_that_runs_makes_no_other_stale() {
    let world = notebook(&["x = 1", "y = x", GATE]);
    nb(&world, ["exec", "a.ipynb", "0", "1"]).ended(0);
    let id = begin(&world, &["2"]);
    wait_for_state(&world, &id, "running");
    nb(&world, ["cells", "a.ipynb", "--stale"])
        .ended(0)
        .with("0 of 3 cells");
    std::fs::write(world.project().join("go"), "").expect("open the gate");
    nb(&world, ["wait", &id]).ended(0);
    assert!(run_stale(&world).is_empty());
}

#[test]
fn files_and_the_clock_are_named_once_by_their_cells() {
    let world = notebook(&[
        "text = open('data.csv').read()",
        "import time\nbegan = time.time()",
        "a = b = c = d = text",
    ]);
    std::fs::write(world.project().join("data.csv"), "x,1\n").expect("write a file");
    let output = nb(&world, ["exec", "a.ipynb", "--stale"]).ended(0);
    output
        .with("cell 0 depends on the file data.csv, cell 1 depends on time")
        .with("--stale --plan says why");
    let plan = nb(&world, ["exec", "a.ipynb", "--stale", "--plan"]).ended(0);
    assert_eq!(plan.stdout.lines().count(), 3, "{plan:?}");
}

#[test]
fn a_front_ends_cells_count_and_it_sees_nothing_of_it() {
    let world = World::opened();
    for source in ["a = [0]", "f = a.append", "f(1)", "print(a)"] {
        nb(&world, ["insert", "t.ipynb", "-s", source]).ended(0);
    }
    succeed(&mut world.script("facts.py", "nb-shared"));
    assert_eq!(stored(&world).len(), 4);
    let runs = |words: &[&str]| {
        let words = ["exec", "t.ipynb", "--stale", "--json"].iter().chain(words);
        nb(&world, words).ended(0).json()
    };
    assert_eq!(runs(&[])["cells"], json!([]), "the front end ran them");
    nb(&world, ["edit", "t.ipynb", "2", "-s", "f(2)"]).ended(0);
    let ran = runs(&[]);
    assert_eq!(ran["cells"].as_array().map(Vec::len), Some(4), "{ran}");
    assert!(ran["cells"].to_string().contains("[0, 2]"), "{ran}");
}

/// Cells that show what a user can see of a kernel.
const SEEN: [&str; 4] = [
    "import sys\nsorted(globals())",
    "%history\n%who",
    "[In, Out]",
    "'nb_witness' in sys.modules",
];

#[test]
fn a_kernel_that_says_what_cells_change_looks_like_one_that_does_not() {
    let mut seen = Vec::new();
    for is_on in ["1", "0"] {
        let world = World::new();
        let mut open = super::opening(&world, "a.ipynb");
        output_of(open.env("NB_REACTIVE", is_on)).ended(0);
        for source in SEEN {
            nb(&world, ["insert", "a.ipynb", "-s", source]).ended(0);
        }
        nb(&world, ["exec", "a.ipynb", "--all"]).ended(0);
        let mut shown = shown(&world, SEEN.len());
        let has_witness = shown.pop().expect("the last cell");
        let says = if is_on == "1" { "True" } else { "False" };
        assert_eq!(has_witness[0]["data"]["text/plain"], json!([says]));
        assert_eq!(stored(&world).len(), if is_on == "1" { 4 } else { 0 });
        seen.push(shown);
    }
    assert_eq!(seen[0], seen[1]);
}

#[test]
fn an_interrupt_that_meets_the_look_before_a_cell_ends_the_cell() {
    // The look asks for the folder before and after each cell.
    let cells = [
        "import os, signal\nfolder, interrupts = os.getcwd, [1, 2, 3, 4]\ndef getcwd():\n    \
         if interrupts:\n        interrupts.pop()\n        signal.raise_signal(signal.SIGINT)\n    \
         return folder()\nos.getcwd = getcwd",
        "print('ran')",
        "no syntax",
        "print(interrupts)",
    ];
    let world = notebook(&cells);
    nb(&world, ["exec", "a.ipynb", "0"]).ended(0);
    let interrupted = nb(&world, ["exec", "a.ipynb", "1"]).ended(130);
    assert!(!interrupted.stderr.contains("itness"), "{interrupted:?}");
    nb(&world, ["exec", "a.ipynb", "2"]).ended(3);
    nb(&world, ["exec", "a.ipynb", "3"]).ended(0);
    let outputs = |at| cell(&world, at)["outputs"].clone();
    assert_eq!(outputs(0), json!([]));
    assert_eq!(outputs(1)[0]["ename"], "KeyboardInterrupt");
    assert_eq!(outputs(1)[1], Value::Null);
    assert_eq!(outputs(2)[0]["ename"], "SyntaxError");
    assert_eq!(text(&world, 3), "[]\n");
}

#[test]
fn what_a_hostile_kernel_says_is_bounded_and_makes_cells_uncertain_only() {
    let says = |facts: &str| {
        format!(
            "k = get_ipython().kernel\n\
             k.session.send(k.iopub_socket, 'nb_facts', {facts}, parent=k.get_parent());"
        )
    };
    let huge = says("{'version': 1, 'run': 2, 'x': 'x' * (3 << 20)}");
    let nonsense = says("{'version': 1, 'run': 1 << 62, 'reads': 5}");
    let list = says("{'run': [[[1]]]}");
    let world = notebook(&["x = 1", &huge, &nonsense, &list, "print(x)"]);
    nb(&world, ["exec", "a.ipynb", "--all"]).ended(0);
    let all = stored(&world);
    assert!(all.iter().all(|line| line.to_string().len() < 1 << 20));
    assert_eq!(text(&world, 4), "1\n");
    // It is not believed: the cells run again and again.
    let output = nb(&world, ["exec", "a.ipynb", "--stale"]);
    let output = output.ended(1).with("the cells still change");
    output.with("30 of 31 cells ran in");
    nb(&world, ["exec", "a.ipynb", "4"]).ended(0);
}
