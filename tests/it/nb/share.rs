//! Notebooks that share one kernel.

use super::{kill, nb, open, output_of, pid, until};
use crate::world::{World, succeed};

#[test]
fn a_notebook_shares_anothers_kernel_until_it_lets_go() {
    let world = World::new();
    let a = open(&world, "a.ipynb");
    nb(&world, ["run", "-n", "a.ipynb", "x = 41"]).ended(0);
    let b = nb(
        &world,
        ["open", "b.ipynb", "--kernel-of", "a.ipynb", "--json"],
    );
    let b = b.ended(0).json();
    assert_eq!(pid(&b), pid(&a));
    assert_eq!(b["created"], true);
    assert_eq!(b["how"], "attached");
    assert_eq!(b["kernel_of"], "a.ipynb");
    assert_eq!(b["shared_with"], serde_json::json!(["a.ipynb"]));
    nb(&world, ["run", "-n", "b.ipynb", "x + 1"])
        .ended(0)
        .with("42");
    // Both notebooks use the same kernel, so none needs to be named.
    nb(&world, ["run", "x"]).ended(0).with("41");
    nb(&world, ["open", "a.ipynb", "--kernel-of", "b.ipynb"])
        .ended(5)
        .with("already shares");
    nb(&world, ["open", "b.ipynb", "--kernel-of", "b.ipynb"])
        .ended(5)
        .with("with itself");
    nb(&world, ["open", "c.ipynb", "--kernel-of", "none.ipynb"])
        .ended(6)
        .with("hint: nb open none.ipynb");
    assert!(!world.project().join("c.ipynb").exists());

    let restarted = nb(&world, ["restart", "b.ipynb", "--json"]).ended(0).json();
    let a = open(&world, "a.ipynb");
    assert_eq!(pid(&a), pid(&restarted));
    assert_eq!(a["kernel_generation"], 2);
    assert_eq!(a["shared_with"], serde_json::json!(["b.ipynb"]));

    let let_go = nb(&world, ["shutdown", "b.ipynb"]).ended(0);
    let_go.with("b.ipynb: let go of the kernel of a.ipynb, which goes on");
    nb(&world, ["status", "b.ipynb"]).ended(6).with("stopped");
    nb(&world, ["restart", "b.ipynb"])
        .ended(6)
        .with("hint: nb open");
    nb(&world, ["run", "-n", "a.ipynb", "print(6 * 7)"])
        .ended(0)
        .with("42");
    let again = nb(&world, ["shutdown", "b.ipynb", "--json"])
        .ended(0)
        .json();
    assert_eq!(again["was_running"], false);

    let again = nb(&world, ["open", "b.ipynb"]).ended(0);
    again
        .with("shares the kernel of a.ipynb")
        .with("nb open b.ipynb --own");
    // The kernel's end is that of both notebooks, and opening one starts it for both.
    kill(pid(&a));
    until("both have died", || {
        let status = nb(&world, ["status", "b.ipynb"]);
        (status.code == Some(6)).then_some(())
    });
    let b = open(&world, "b.ipynb");
    assert_eq!(b["how"], "started");
    assert_eq!(b["kernel_generation"], 3);
    assert_eq!(pid(&open(&world, "a.ipynb")), pid(&b));

    let stopped = nb(&world, ["shutdown", "a.ipynb"]).ended(0);
    stopped.with("it was shared with b.ipynb");
    assert_eq!(world.processes(), []);
    nb(&world, ["status", "b.ipynb"]).ended(6).with("stopped");
    let b = open(&world, "b.ipynb");
    assert_eq!(b["kernel_of"], "a.ipynb");

    let own = output_of(super::opening(&world, "b.ipynb").arg("--own"))
        .ended(0)
        .json();
    assert_eq!(own["how"], "started");
    assert_eq!(own["kernel_of"], serde_json::Value::Null);
    assert_ne!(pid(&own), pid(&b));
    nb(&world, ["run", "1"])
        .ended(0)
        .with("b.ipynb: the one of 2 open notebooks that you used last");
    nb(&world, ["open", "b.ipynb", "--kernel-of", "a.ipynb"])
        .ended(5)
        .with("hint: end it first: nb shutdown /");
    nb(&world, ["shutdown", "b.ipynb"])
        .ended(0)
        .with("was shut down");
    nb(&world, ["run", "1"]).ended(0);
}

#[test]
fn front_ends_of_notebooks_that_share_are_on_one_kernel() {
    let world = World::served();
    succeed(&mut world.script("share.py", "nb-shared"));
}

#[test]
fn a_notebook_of_another_project_is_not_shared_with() {
    let world = World::new();
    open(&world, "a.ipynb");
    let folder = world.project().join("../other");
    std::fs::create_dir(&folder).expect("make a folder");
    let in_folder = |words: &[&str]| output_of(world.nb().args(words).current_dir(&folder));
    let with = ["open", "b.ipynb", "--kernel-of", "../project/a.ipynb"];
    in_folder(&with).ended(5).with("--attach ");
    assert!(!folder.join("b.ipynb").exists());
}

#[test]
fn a_notebook_that_was_moved_is_reported_with_its_kernel_and_finds_it_again() {
    let world = World::new();
    open(&world, "t.ipynb");
    nb(&world, ["run", "x = 'kept'"]).ended(0);
    let (old, new) = ("t.ipynb", "new.ipynb");
    std::fs::rename(world.project().join(old), world.project().join(new)).expect("move it");
    nb(&world, ["status"])
        .ended(0)
        .with("its file is gone, and its kernel runs on; if it was moved: nb mv ");
    let mut opening = world.nb();
    opening.args(["open", new, "--python"]);
    opening.arg(crate::python::interpreter());
    output_of(&mut opening)
        .ended(0)
        .with("t.ipynb is gone, and its kernel runs on")
        .with("nb shutdown new.ipynb && nb mv ");
    nb(&world, ["shutdown", new]).ended(0);
    nb(&world, ["open", new, "--kernel-of", old]).ended(0);
    nb(&world, ["run", new, "x"]).ended(0).with("kept");
    nb(&world, ["shutdown", old]).ended(0);
}

#[test]
fn a_notebook_that_was_renamed_keeps_its_kernel_when_it_is_opened() {
    let world = World::new();
    open(&world, "t.ipynb");
    nb(&world, ["insert", "t.ipynb", "-x", "x = 'kept'"]).ended(0);
    let at = |name: &str| world.project().join(name);
    std::fs::rename(at("t.ipynb"), at("new.ipynb")).expect("rename it");
    let opened = nb(&world, ["open", "new.ipynb", "--json"]).ended(0).json();
    assert_eq!(opened["how"], "attached", "{opened:#}");
    let notes = opened["notes"].to_string();
    assert!(
        notes.contains("t.ipynb is gone, and this notebook has its cells"),
        "{notes}"
    );
    nb(&world, ["run", "x"]).ended(0).with("kept");
    nb(&world, ["undo"]).ended(0).with("insert");
    // A command that needs the kernel takes it up too, and does not say that it started one.
    nb(&world, ["insert", "new.ipynb", "x"]).ended(0);
    std::fs::rename(at("new.ipynb"), at("newer.ipynb")).expect("rename it");
    let output = nb(&world, ["exec", "newer.ipynb", "0"]).ended(0);
    output
        .with("kept")
        .with("new.ipynb is gone")
        .without("no kernel ran");
    std::fs::rename(at("newer.ipynb"), at("new.ipynb")).expect("rename it");
    let output = nb(&world, ["status", "new.ipynb"]).ended(0);
    output.with("newer.ipynb is gone").with("idle");
    nb(&world, ["run", "-n", "new.ipynb", "x"])
        .ended(0)
        .with("kept");
    // A copy is another notebook.
    std::fs::copy(at("new.ipynb"), at("copy.ipynb")).expect("copy it");
    let opened = nb(&world, ["open", "copy.ipynb", "--json"]).ended(0).json();
    assert_eq!(opened["how"], "started", "{opened:#}");
}

#[test]
fn notebooks_of_a_folder_that_was_renamed_keep_their_kernels() {
    let world = World::new();
    let at = |name: &str| world.project().join(name);
    open(&world, "t.ipynb");
    std::fs::create_dir(at("exp")).expect("a folder");
    for name in ["a", "b"] {
        open(&world, format!("exp/{name}.ipynb"));
        let code = format!("x = 'kept {name}'");
        nb(
            &world,
            ["insert", &format!("exp/{name}.ipynb"), "-x", &code],
        )
        .ended(0);
    }
    std::fs::rename(at("exp"), at("exp2")).expect("rename it");
    let opened = nb(&world, ["open", "exp2/a.ipynb", "--json"])
        .ended(0)
        .json();
    assert_eq!(opened["how"], "attached", "{opened:#}");
    nb(&world, ["run", "-n", "exp2/a.ipynb", "x"])
        .ended(0)
        .with("kept a");
    let moved = nb(&world, ["mv", "exp/b.ipynb", "exp2/b.ipynb", "--json"])
        .ended(0)
        .json();
    assert_eq!(moved["kernel_runs"], true, "{moved:#}");
    nb(&world, ["run", "-n", "exp2/b.ipynb", "x"])
        .ended(0)
        .with("kept b");
    nb(&world, ["undo", "exp2/b.ipynb"]).ended(0).with("insert");
    for name in ["a", "b"] {
        nb(&world, ["shutdown", &format!("exp2/{name}.ipynb")]).ended(0);
    }
}
