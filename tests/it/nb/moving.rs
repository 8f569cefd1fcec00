//! Notebooks that are moved: their kernels and histories go along.

use std::path::Path;

use serde_json::Value;

use super::exec::{GATE, begin, notebook, wait_for_output};
use super::{kill, nb, open, opening, output_of, pid, until};
use crate::world::{World, succeed};

fn rename(world: &World, from: &str, to: &str) {
    let path = |name: &str| world.project().join(name);
    std::fs::rename(path(from), path(to)).expect("rename it");
}

#[test]
fn a_running_cell_goes_on_and_its_outputs_arrive_in_the_moved_file() {
    let world = notebook(&[GATE]);
    nb(&world, ["run", "mine = 41"]).ended(0);
    let id = begin(&world, &["0"]);
    wait_for_output(&world, &id, "before");
    std::fs::create_dir(world.project().join("sub")).expect("make a folder");
    nb(&world, ["mv", "a.ipynb", "sub"])
        .ended(0)
        .with("a.ipynb → sub/a.ipynb: moved; its kernel goes on (pid ");
    let edited = nb(&world, ["insert", "sub/a.ipynb", "x = 1", "--json"]).ended(0);
    std::fs::write(world.project().join("go"), "").expect("open the gate");
    nb(&world, ["wait", &id]).ended(0).with("after");
    assert!(!world.project().join("a.ipynb").exists());
    let cell = nb(&world, ["cell", "sub/a.ipynb", "0"]).ended(0);
    assert!(cell.stdout.contains("before\nafter"), "{cell:?}");

    // The history has the new name, from before and after the move.
    let log = nb(&world, ["log"]).ended(0).stdout;
    assert!(log.contains("ran \"mine = 41\" ok"), "{log}");
    assert!(
        log.contains("ok, ") && log.contains(&format!("job {id}")),
        "{log}"
    );
    assert!(!log.contains("it failed"), "{log}");
    assert!(log.contains(" moved the notebook from a.ipynb"), "{log}");
    nb(&world, ["jobs"])
        .ended(0)
        .with("of sub/a.ipynb · done ok");
    let op = edited.json()["op"].as_str().expect("an edit").to_owned();
    nb(&world, ["undo"])
        .ended(0)
        .with(&format!("took back {op}"));
    nb(&world, ["undo"]).ended(0).with("took back");
    nb(&world, ["run", "mine + 1"]).ended(0).with("42");
    let restarted = nb(&world, ["restart", "--json"]).ended(0).json();
    assert_eq!(restarted["notebook"], "sub/a.ipynb");

    // Its supervisor knows the old name only.
    nb(&world, ["mv", "sub/a.ipynb", "b.ipynb"]).ended(0);
    kill(pid(&restarted));
    until("its end is reported", || {
        let status = nb(&world, ["status", "b.ipynb"]);
        status.stdout.contains("was killed").then_some(())
    });
    let output = nb(&world, ["cells", "a.ipynb"]).ended(1);
    output.with("it was moved to ").with("/b.ipynb");
    // The old name is free for another notebook.
    let other = open(&world, "a.ipynb");
    assert_eq!(other["how"], "started");
    nb(&world, ["run", "-n", "a.ipynb", "mine"])
        .ended(3)
        .with("NameError");
    let log = nb(&world, ["log", "a.ipynb"]).ended(0).stdout;
    assert!(!log.contains("mine = 41"), "{log}");
}

#[test]
fn nothing_is_overwritten_and_nothing_leaves_its_project() {
    let world = notebook(&["1"]);
    open(&world, "b.ipynb");
    let other = world.project().join("../other");
    std::fs::create_dir_all(&other).expect("make a folder");
    std::os::unix::fs::symlink("a.ipynb", world.project().join("link.ipynb")).expect("link it");
    let text = std::fs::read(world.project().join("b.ipynb")).expect("read it");
    for (words, code, message) in [
        (
            ["a.ipynb", "b.ipynb"],
            5,
            "b.ipynb exists, and is not overwritten",
        ),
        (
            ["a.ipynb", "../other/a.ipynb"],
            5,
            "nb shutdown a.ipynb && mv a.ipynb ../other/a.ipynb",
        ),
        (["link.ipynb", "c.ipynb"], 5, "hint: nb mv a.ipynb c.ipynb"),
        (["a.ipynb", "none/c.ipynb"], 2, "there is no folder none"),
        (["a.ipynb", "c.txt"], 2, "it ends in .ipynb"),
        (["a.ipynb", "."], 2, "has this name already"),
        (
            ["none.ipynb", "c.ipynb"],
            1,
            "there is no notebook none.ipynb",
        ),
        (["3f2c", "0"], 2, "nb move CELL --after CELL"),
    ] {
        nb(&world, ["mv", words[0], words[1]])
            .ended(code)
            .with(message);
    }
    assert_eq!(
        std::fs::read(world.project().join("b.ipynb")).expect("read it"),
        text
    );
    nb(&world, ["run", "-n", "a.ipynb", "1"]).ended(0);
}

#[test]
fn a_notebook_that_another_program_has_renamed_is_taken_up_again() {
    let world = notebook(&["1", "2"]);
    nb(&world, ["run", "mine = 41"]).ended(0);
    open(&world, "other.ipynb");
    rename(&world, "a.ipynb", "b.ipynb");
    nb(&world, ["status"])
        .ended(0)
        .with("NEW.ipynb; else: nb shutdown ");
    // Whoever wants another kernel for it gets a hint how to use that of the old one.
    output_of(opening(&world, "b.ipynb").arg("--own").env("NB_AS", "ada"))
        .ended(0)
        .with("a.ipynb is gone, and its kernel runs on; if it is this notebook now: nb shutdown b.ipynb && nb mv ");
    rename(&world, "other.ipynb", "another.ipynb");
    nb(&world, ["mv", "a.ipynb", "another.ipynb"])
        .ended(5)
        .with("does not have the cells of a.ipynb");
    nb(&world, ["mv", "a.ipynb", "b.ipynb"])
        .ended(5)
        .with("hint: nb shutdown b.ipynb && nb mv a.ipynb b.ipynb");
    nb(&world, ["shutdown", "b.ipynb"]).ended(0);
    let moved = nb(&world, ["mv", "a.ipynb", "b.ipynb", "--json"])
        .ended(0)
        .json();
    assert_eq!(moved["was_renamed"], true);
    assert_eq!(moved["notebook"], "b.ipynb");
    nb(&world, ["run", "-n", "b.ipynb", "mine + 1"])
        .ended(0)
        .with("42");
    nb(&world, ["log", "b.ipynb"]).ended(0).with("mine = 41");
    nb(&world, ["mv", "a.ipynb", "b.ipynb"])
        .ended(2)
        .with("has this name already");
    nb(&world, ["mv", "other.ipynb", "another.ipynb"]).ended(0);
}

#[test]
fn a_notebook_that_shares_the_kernel_of_a_moved_one_keeps_it() {
    let world = notebook(&[]);
    nb(&world, ["open", "b.ipynb", "--kernel-of", "a.ipynb"]).ended(0);
    nb(&world, ["run", "-n", "b.ipynb", "mine = 41"]).ended(0);
    nb(&world, ["mv", "a.ipynb", "c.ipynb"]).ended(0);
    nb(&world, ["mv", "b.ipynb", "d.ipynb"]).ended(0);
    for name in ["c.ipynb", "d.ipynb"] {
        nb(&world, ["run", "-n", name, "mine + 1"])
            .ended(0)
            .with("42");
    }
    let status = nb(&world, ["status", "--json"]).ended(0).json();
    let keys = status["sessions"].as_array().expect("sessions").iter();
    let keys: Vec<_> = keys
        .filter_map(|entry| entry["notebook"].as_str())
        .map(Value::from)
        .collect();
    assert_eq!(keys, ["c.ipynb", "d.ipynb"]);
}

#[test]
fn front_ends_find_the_kernel_of_a_moved_notebook() {
    let world = World::served();
    succeed(&mut world.script("moved.py", "nb-shared"));
}

#[test]
fn front_ends_go_along_with_a_project_that_is_moved() {
    let world = World::served();
    succeed(&mut world.script("project_moved.py", "nb-shared"));
}

#[test]
fn a_kernel_goes_on_where_its_project_was_renamed() {
    let world = World::new();
    let folder = world.project().canonicalize().expect("it is there");
    let [old, new, other] = ["p", "q", "other"].map(|name| folder.join(name));
    for folder in [&old, &other] {
        std::fs::create_dir(folder).expect("make a folder");
    }
    let nb_in =
        |folder: &Path, words: &[&str]| output_of(world.nb().args(words).current_dir(folder));
    let first = output_of(opening(&world, "t.ipynb").current_dir(&old));
    let first = first.ended(0).json();
    // A cell may change the kernel's working directory.
    nb_in(&old, &["run", "import os; os.chdir('/'); v = 7"]).ended(0);
    std::fs::rename(&old, &new).expect("rename the project");
    // No command has run in the renamed project yet.
    let cleared = nb_in(&other, &["gc"]).ended(0);
    assert!(!cleared.stdout.contains("the kernel of"), "{cleared:?}");
    let all = nb_in(&other, &["status", "--all", "--json"])
        .ended(0)
        .json();
    assert_eq!(all["left"], serde_json::json!([]), "{all}");
    assert_eq!(all["kernels"][0]["project"], new.to_string_lossy().as_ref());
    nb_in(&new, &["run", "v"]).ended(0).with("7");
    let status = nb_in(&new, &["status"]).ended(0);
    assert!(!status.stdout.contains("its file is gone"), "{status:?}");
    let again = output_of(opening(&world, "t.ipynb").current_dir(&new));
    let again = again.ended(0).json();
    assert_eq!(
        (&again["how"], pid(&again)),
        (&"attached".into(), pid(&first))
    );
    nb_in(&new, &["insert", "t.ipynb", "v + 1", "-x"])
        .ended(0)
        .with("8");
    nb_in(&new, &["shutdown"]).ended(0);
    let left = std::fs::read_dir(new.join(".nb/connections")).expect("it is there");
    assert_eq!(left.count(), 0, "its files are removed in the new place");
    assert!(!old.exists(), "nothing is made in the old place");
}

#[test]
fn a_kernel_goes_on_where_its_private_folder_was_renamed_or_deleted() {
    let world = World::new();
    let folder = world.project().canonicalize().expect("it is there");
    let [project, other] = ["p", "other"].map(|name| folder.join(name));
    for folder in [&project, &other] {
        std::fs::create_dir(folder).expect("make a folder");
    }
    let nb_in =
        |folder: &Path, words: &[&str]| output_of(world.nb().args(words).current_dir(folder));
    let opened = output_of(opening(&world, "t.ipynb").current_dir(&project));
    let pid = pid(&opened.ended(0).json()).to_string();
    nb_in(&project, &["run", "v = 7"]).ended(0);
    let is_left = |words: &[&str]| {
        let cleared = nb_in(&other, words).ended(0).with(&format!("kill {pid}"));
        // Its files stay, too. Other tests may leave sockets.
        assert!(!cleared.stdout.contains("link"), "{cleared:?}");
        cleared
    };
    let (dir, renamed) = (project.join(".nb"), project.join(".nb~"));
    // For a moment, as a backup or a synchronisation does, or another user of a shared folder.
    std::fs::rename(&dir, &renamed).expect("rename it");
    is_left(&["gc"]).with(&format!("mv {} {}", renamed.display(), dir.display()));
    is_left(&["gc", "--all"]);
    for words in [
        &["status", "--all"][..],
        &["shutdown", "--idle", "0s", "--all"],
    ] {
        is_left(words).with("its .nb was removed or renamed");
    }
    std::fs::rename(&renamed, &dir).expect("rename it back");
    nb_in(&project, &["run", "v"]).ended(0).with("7");

    std::fs::remove_dir_all(&dir).expect("delete it");
    is_left(&["gc"]).with("no notebook can use it again");
    std::fs::remove_dir_all(&project).expect("delete the project");
    nb_in(&other, &["gc"])
        .ended(0)
        .with("ended the kernel of")
        .with("whose project is gone");
}

#[test]
fn a_notebook_that_was_moved_elsewhere_is_not_to_be_made_anew() {
    let world = notebook(&["1"]);
    nb(&world, ["run", "mine = 41"]).ended(0);
    rename(&world, "a.ipynb", "b.ipynb");
    nb(&world, ["cells", "a.ipynb"])
        .ended(1)
        .with("hint: if it was moved: nb mv a.ipynb NEW.ipynb")
        .with("else: nb shutdown a.ipynb");
    nb(&world, ["mv", "a.ipynb", "b.ipynb"]).ended(0);
    nb(&world, ["run", "-n", "b.ipynb", "mine + 1"])
        .ended(0)
        .with("42");
    // Without a kernel there is the history.
    nb(&world, ["open", "c.ipynb", "--no-kernel"]).ended(0);
    nb(&world, ["insert", "c.ipynb", "x = 1"]).ended(0);
    rename(&world, "c.ipynb", "d.ipynb");
    nb(&world, ["cells", "c.ipynb"])
        .ended(1)
        .with("hint: if it was moved: nb mv c.ipynb NEW.ipynb")
        .with("else: nb open c.ipynb makes a new one");
    nb(&world, ["mv", "c.ipynb", "d.ipynb"]).ended(0);
    nb(&world, ["log", "d.ipynb"]).ended(0).with("inserted");
    nb(&world, ["cells", "none.ipynb"])
        .ended(1)
        .with("nb open none.ipynb makes it");
}
