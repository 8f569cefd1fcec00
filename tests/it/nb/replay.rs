//! `nb exec --replay`: runs again what ran in the previous kernel.

use serde_json::{Value, json};

use super::{Output, kill, nb, open, path, pid, until};
use crate::world::World;

const CELLS: [(&str, &str); 5] = [
    ("load0001", "x = 1"),
    ("grow0002", "x += 1; print('x is', x)"),
    ("fail0003", "1/0"),
    ("loop0004", "print('on', flush=True)\nwhile True: pass"),
    ("show0005", "print('shows', x)"),
];

fn world() -> World {
    let world = World::new();
    let cells = CELLS.map(|(id, source)| {
        json!({"cell_type": "code", "id": id, "metadata": {}, "source": source, "outputs": [], "execution_count": null})
    });
    let notebook = json!({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5});
    let file = world.project().join("t.ipynb");
    std::fs::write(file, notebook.to_string()).expect("write a notebook");
    world
}

fn exec(world: &World, words: &[&str]) -> Output {
    nb(world, [&["exec", "t.ipynb"], words].concat())
}

fn cells(output: &Output) -> Vec<Value> {
    let answer = output.json();
    let cells = answer["replay"]["cells"].as_array();
    cells.expect("cells").clone()
}

#[test]
fn what_had_run_before_the_kernel_died_runs_again() {
    let world = world();
    open(&world, "t.ipynb");
    let nothing = exec(&world, &["--replay"]).ended(0);
    assert_eq!(
        nothing.stdout,
        "t.ipynb: nothing ran in a kernel before this one\n"
    );
    let nothing = exec(&world, &["--replay", "--json"]).ended(0);
    assert_eq!(cells(&nothing), [Value::Null; 0]);
    exec(&world, &["load", "--replay"])
        .ended(2)
        .with("named twice");

    exec(&world, &["load"]).ended(0);
    nb(&world, ["run", "scratch = 1"]).ended(0);
    exec(&world, &["grow"]).ended(0);
    exec(&world, &["fail"]).ended(3);
    exec(&world, &["grow"]).ended(0).with("x is 3");
    let running = exec(&world, &["loop", "show", "-d", "--json"])
        .ended(0)
        .json();
    let job = running["job"].as_str().expect("a job");
    let status = nb(&world, ["status", "--json"]).json();
    until("the loop runs", || {
        let output = nb(&world, ["wait", job, "--timeout", "0.05"]);
        output.stdout.contains("on").then_some(())
    });
    kill(pid(&status["sessions"][0]));
    nb(&world, ["wait", job]).ended(6);

    let dead = exec(&world, &["--replay"]).ended(6);
    dead.with("nb open t.ipynb && nb exec t.ipynb --replay");
    nb(&world, ["edit", "t.ipynb", "load", "x = 10", "--force"]).ended(0);
    open(&world, "t.ipynb");
    let output = exec(&world, &["--replay"]).ended(0).with("x is 12");
    for line in [
        "replay of kernel 1, which died ",
        ": 3 runs of 2 cells ran without error",
        "replay: changed since then, and runs as it is now: load",
        "replay: loop was running when it ended, and is left out · next: nb exec t.ipynb loop",
        "replay: left out: fail failed, 1 run of code outside the notebook",
    ] {
        assert!(output.stderr.contains(line), "no {line:?} in {output:#?}");
    }
    nb(&world, ["run", "x, 'scratch' in globals()"])
        .ended(0)
        .with("(12, False)");
}

#[test]
fn a_restart_and_what_had_run_is_one_command() {
    let world = world();
    let opened = open(&world, "t.ipynb");
    exec(&world, &["show"]).ended(3);
    exec(&world, &["grow"]).ended(3);
    exec(&world, &["load"]).ended(0);
    exec(&world, &["show"]).ended(0);
    let output = exec(&world, &["--restart", "--replay", "--json"]).ended(0);
    assert_eq!(cells(&output), ["load0001", "show0005"]);
    let replay = &output.json()["replay"];
    assert_eq!(
        (&replay["generation"], &replay["ended"]["how"]),
        (&json!(1), &json!("restarted"))
    );
    // Kernels in which nothing ran are skipped.
    nb(&world, ["restart"]).ended(0);
    nb(&world, ["shutdown", "t.ipynb"]).ended(0);
    assert!(!path(&opened["connection_file"]).exists());
    open(&world, "t.ipynb");
    let output = exec(&world, &["--replay", "--json"]).ended(0);
    assert_eq!(cells(&output), ["load0001", "show0005"]);
    assert_eq!(output.json()["replay"]["generation"], 2);
    nb(&world, ["rm", "t.ipynb", "load", "--force"]).ended(0);
    nb(&world, ["restart"]).ended(0);
    let output = exec(&world, &["--replay"]).ended(3);
    output.with("1 run of cells that are not there any more");
}
