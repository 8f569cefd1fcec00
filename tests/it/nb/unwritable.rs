//! Files and folders that cannot be written, or only up to a size: the message says so, and nothing is
//! lost.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use super::{Output, nb, output_of};
use crate::skipped;
use crate::world::World;

/// A uid other than this user's.
const OTHER: u32 = 65534;

fn text(source: &str) -> String {
    format!(
        r#"{{"cells": [{{"cell_type": "raw", "id": "aaaa", "metadata": {{}}, "source": "{source}"}}], "metadata": {{}}, "nbformat": 4, "nbformat_minor": 5}}"#
    )
}

/// Makes a world with a notebook.
fn world(source: &str) -> World {
    let world = World::new();
    std::fs::write(world.project().join("t.ipynb"), text(source)).expect("write the notebook");
    world
}

fn read(world: &World) -> String {
    std::fs::read_to_string(world.project().join("t.ipynb")).expect("read the notebook")
}

#[test]
fn a_limit_of_the_size_of_files_is_reported_and_ends_nothing() {
    let world = world(&"x".repeat(100_000));
    let before = read(&world);
    let mut command = world.command("bash".as_ref());
    let limited = "ulimit -f 64; exec \"$0\" edit t.ipynb aaaa new --force";
    command.args(["-c", limited]).arg(world.nb().get_program());
    // The base for a merge would be as large as the old notebook; that it cannot be stored is not an error.
    output_of(&mut command).ended(0);
    assert_ne!(read(&world), before, "what is small enough is written");
    std::fs::write(world.project().join("t.ipynb"), &before).expect("write the notebook");
    let mut command = world.command("bash".as_ref());
    let limited = "ulimit -f 64; exec \"$0\" insert t.ipynb new --type raw";
    command.args(["-c", limited]).arg(world.nb().get_program());
    output_of(&mut command)
        .ended(1)
        .with("cannot write t.ipynb")
        .with("hint: ")
        .with("ulimit -f shows the shell's limit");
    assert_eq!(read(&world), before);
}

#[test]
fn an_immutable_notebook_or_folder_is_reported_as_such() {
    let world = world("old");
    let change = |how: &str, path: &Path| {
        let mut command = Command::new("chattr");
        let done = command.arg(how).arg(path).output();
        done.is_ok_and(|done| done.status.success())
    };
    let edit = || nb(&world, ["edit", "t.ipynb", "aaaa", "new", "--force"]);
    // This creates the project's folder first.
    nb(&world, ["cells", "t.ipynb"]).ended(0);
    let project = world.project();
    // Hints name the notebook as it was typed.
    let named = [
        (project.join("t.ipynb"), "t.ipynb".to_owned()),
        (project.clone(), project.display().to_string()),
    ];
    for (path, name) in named {
        if !change("+i", &path) {
            skipped::note("no file can be made immutable here", "");
            return;
        }
        let output = edit();
        assert!(change("-i", &path), "{}", path.display());
        let hint = format!("chattr -i {name}");
        output.ended(1).with("is immutable").with(&hint);
        assert_eq!(read(&world), text("old"));
    }
    edit().ended(0);
}

#[test]
fn a_sticky_folder_is_reported_as_such() {
    let world = world("old");
    let folder = tempfile::tempdir().expect("make a folder");
    let notebook = folder.path().join("t.ipynb");
    std::fs::write(&notebook, text("old")).expect("write the notebook");
    let mode = |path: &Path, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("change the mode");
    };
    mode(&notebook, 0o666);
    mode(folder.path(), 0o1777);
    if chown(&notebook, Some(1), None).is_err() {
        skipped::note("only root can make another user's notebook", "");
        return;
    }
    // A user who owns neither; its home is beside the sticky folder.
    let home = tempfile::tempdir().expect("make a home");
    chown(home.path(), Some(OTHER), None).expect("give it away");
    let Some(output) = edited_by_another_user(&world, home.path(), folder.path()) else {
        return;
    };
    output
        .ended(1)
        .with("in which users cannot replace others' files")
        .with("hint: work on a copy");
    let now = std::fs::read_to_string(&notebook).expect("read it");
    assert_eq!(now, text("old"));
}

/// Edits the notebook of a folder as another user; returns `None` where that user cannot run this `nb`.
fn edited_by_another_user(world: &World, home: &Path, folder: &Path) -> Option<Output> {
    let mut command = Command::new("setpriv");
    let id = OTHER.to_string();
    command
        .args(["--reuid", &id, "--regid", &id, "--clear-groups"])
        .arg(world.nb().get_program())
        .args(["edit", "t.ipynb", "aaaa", "new", "--force"])
        .env("HOME", home)
        .env_remove("XDG_STATE_HOME")
        .current_dir(folder);
    let output = output_of(&mut command);
    if output.stderr.contains("Permission denied") && output.code == Some(127) {
        skipped::note("another user cannot run this nb", "");
        return None;
    }
    Some(output)
}

#[test]
fn what_belongs_to_another_user_has_no_hint_that_only_its_owner_can_follow() {
    let world = world("old");
    let folder = tempfile::tempdir().expect("make a folder");
    let notebook = folder.path().join("t.ipynb");
    std::fs::write(&notebook, text("old")).expect("write the notebook");
    let mode = |path: &Path, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("change the mode");
    };
    mode(folder.path(), 0o777);
    std::fs::create_dir(folder.path().join(".nb")).expect("make a folder");
    std::fs::write(folder.path().join(".nb/state.json"), "{}").expect("write a state");
    mode(&folder.path().join(".nb"), 0o700);
    let home = tempfile::tempdir().expect("make a home");
    if chown(home.path(), Some(OTHER), None).is_err() {
        skipped::note("only root can act as another user", "");
        return;
    }
    let Some(output) = edited_by_another_user(&world, home.path(), folder.path()) else {
        return;
    };
    for command in ["chmod", "mv "] {
        assert!(!output.stderr.contains(command), "{output:?}");
    }
    output
        .ended(1)
        .with("it belongs to another user")
        .with("hint: work on a copy")
        .with(".nb is not used: it cannot be read");
}

#[test]
fn an_empty_file_is_refused_by_every_command_as_by_jupyter() {
    let world = World::new();
    let path = world.project().join("t.ipynb");
    // Each command waits two seconds for the rest of the file.
    for (empty, words) in [
        ("", ["cells", "t.ipynb"].as_slice()),
        ("\n", &["insert", "t.ipynb", "1"]),
        ("", &["open", "t.ipynb", "--no-kernel"]),
        ("\n", &["open", "t.ipynb"]),
    ] {
        std::fs::write(&path, empty).expect("make an empty file");
        nb(&world, words)
            .ended(1)
            .with("t.ipynb is empty")
            .with("hint: if there is nothing to get back: rm t.ipynb && nb open t.ipynb");
        let now = std::fs::read_to_string(&path).expect("read it");
        assert_eq!(now, empty);
    }
}

#[test]
fn what_is_no_file_is_refused_and_not_waited_for() {
    let world = World::new();
    let pipe = world.project().join("pipe.ipynb");
    let mut command = Command::new("mkfifo");
    crate::world::succeed(command.arg(&pipe));
    std::fs::create_dir(world.project().join("folder.ipynb")).expect("make a folder");
    for (name, kind) in [("pipe", "no regular file"), ("folder", "a folder")] {
        let notebook = format!("{name}.ipynb");
        for command in ["cells", "open", "save", "clear", "status"] {
            let output = nb(&world, [command, &notebook]);
            assert_ne!(output.code, Some(0), "{output:#?}");
            if command != "status" {
                output.with(&format!("{notebook} is {kind}, not a notebook"));
            }
        }
    }
}

#[test]
fn reading_needs_no_place_to_write() {
    let world = world("1");
    // Root can write everywhere, but a file in the way stops root too.
    std::fs::write(world.project().join(".nb"), "").expect("make a file");
    for words in [
        ["cells", "t.ipynb"].as_slice(),
        &["cells", "t.ipynb", "--json"],
        &["cell", "t.ipynb", "aaaa"],
        &["search", "t.ipynb", "1"],
        &["log", "t.ipynb"],
        &["log", "t.ipynb", "aaaa"],
        &["diff", "t.ipynb", "t.ipynb"],
        &["fmt", "--check", "t.ipynb"],
    ] {
        let mut command = world.nb();
        command.args(words);
        for name in ["HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"] {
            command.env(name, "/dev/null");
        }
        let output = output_of(&mut command);
        assert!(matches!(output.code, Some(0 | 1)), "{words:?}: {output:#?}");
        let quiet = !output.stderr.contains("cannot") && !output.stderr.contains("denied");
        assert!(quiet, "{words:?}: {output:#?}");
    }
}
