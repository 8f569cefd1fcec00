//! A person saves the notebook from an editor while a cell runs: both their edits and the outputs stay.

use serde_json::{Value, json};

use super::{nb, open, until};
use crate::world::World;

/// Code that waits until there is a file `go` beside the notebook.
const GATE: &str = "import os, time\nprint('before', flush=True)\n\
    while not os.path.exists('go'): time.sleep(0.01)\nprint('after')";

fn read(world: &World) -> Value {
    let text = std::fs::read(world.project().join("t.ipynb")).expect("read the notebook");
    serde_json::from_slice(&text).expect("JSON")
}

/// Starts the cell, waits until its first output is in the file, lets a person save, and waits for the job;
/// returns the job's notes beside the outputs.
fn saved(world: &World, person: impl FnOnce(&mut Value)) -> String {
    open(world, "t.ipynb");
    for source in [GATE, "x = 1"] {
        nb(world, ["insert", "t.ipynb", "-s", source]).ended(0);
    }
    let opened = read(world);
    let words = ["exec", "t.ipynb", "0", "-d", "--json"];
    let job = nb(world, words).ended(0).json();
    let job = job["job"].as_str().expect("a job");
    until("the first output is in the file", || {
        let outputs = read(world)["cells"][0]["outputs"].to_string();
        outputs.contains("before").then_some(())
    });
    // An editor saves what it had read before there were outputs.
    let mut saved = opened;
    person(&mut saved);
    let path = world.project().join("t.ipynb");
    std::fs::write(path, saved.to_string()).expect("save the notebook");
    std::fs::write(world.project().join("go"), "").expect("open the gate");
    nb(world, ["wait", job]).ended(0).stderr
}

#[test]
fn an_edit_of_another_cell_stays_and_so_do_the_outputs() {
    let world = World::new();
    saved(&world, |notebook| {
        notebook["cells"][1]["source"] = json!("x = 'a person wrote this'");
    });
    let now = read(&world);
    assert_eq!(now["cells"][1]["source"], "x = 'a person wrote this'");
    let outputs =
        json!([{"output_type": "stream", "name": "stdout", "text": ["before\n", "after\n"]}]);
    assert_eq!(now["cells"][0]["outputs"], outputs);
    assert_eq!(now["cells"][0]["execution_count"], 1);
}

#[test]
fn an_edit_of_the_running_cell_stays_and_is_reported() {
    let world = World::new();
    let message = saved(&world, |notebook| {
        notebook["cells"][0]["source"] = json!("x = 'a person wrote this'");
    });
    let now = read(&world)["cells"][0].clone();
    assert_eq!(now["source"], "x = 'a person wrote this'");
    assert_eq!(now["execution_count"], Value::Null);
    let outputs = now["outputs"].to_string();
    assert!(
        outputs.contains("earlier text") && outputs.contains("after"),
        "{now}"
    );
    assert!(message.contains("was edited while it ran"), "{message}");
}
