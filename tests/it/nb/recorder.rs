//! What a cell printed is kept, whatever becomes of the notebook and of whoever records it.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::exec::{GATE, begin, cell, file, is, notebook, text};
use super::{nb, until};
use crate::world::World;

/// What is known of a job, once something holds of it.
fn record(world: &World, job: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let file = world.project().join(".nb/jobs").join(job).join("job.json");
    until(what, || {
        let text = std::fs::read(&file).ok()?;
        let job: Value = serde_json::from_slice(&text).ok()?;
        holds(&job).then_some(job)
    })
}

fn set_mode(path: &PathBuf, mode: u32) {
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, mode).expect("set the mode");
}

fn open_the_gate(world: &World) {
    std::fs::write(world.project().join("go"), "").expect("open the gate");
}

#[test]
fn a_notebook_that_could_not_be_written_for_a_while_has_it_all_at_the_end() {
    let world = notebook(&[GATE]);
    set_mode(&file(&world), 0o444);
    let id = begin(&world, &["0"]);
    let told = record(&world, &id, "unwritten", |job| {
        job["cells"][0]["unwritten"].is_string()
    });
    let why = told["cells"][0]["unwritten"].as_str().expect("a text");
    assert!(why.contains("read-only"), "{why}");
    assert_eq!(cell(&world, 0)["outputs"], json!([]));
    set_mode(&file(&world), 0o644);
    open_the_gate(&world);
    nb(&world, ["wait", &id]).ended(0).with("after");
    assert_eq!(text(&world, 0), "before\nafter\n");
    is(&world, &id, "done");
}
