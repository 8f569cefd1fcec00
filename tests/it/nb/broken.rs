//! Damaged and missing files: the message names them and the fix, and nothing is made worse.

use std::process::Command;

use super::{kill, nb, open, opening, output_of, path, pid, sockets, until};
use crate::python;
use crate::world::World;

#[test]
fn a_damaged_state_is_named_and_left_alone() {
    let world = World::new();
    let first = open(&world, "t.ipynb");
    let state = world.project().join(".nb/state.json");
    let good = std::fs::read(&state).expect("it was written");
    let half = &good[..good.len() / 2];
    let newer = br#"{"version": 99}"#;
    for (damaged, why) in [
        (half, "is damaged"),
        (b"", "is damaged"),
        (newer, "version 99"),
    ] {
        std::fs::write(&state, damaged).expect("damage it");
        for command in ["status", "open", "restart", "interrupt", "shutdown"] {
            let output = nb(&world, [command, "t.ipynb"]).ended(1).with(why);
            assert!(
                output.stderr.contains(&*state.to_string_lossy()),
                "{output:#?}"
            );
            assert_eq!(
                output.stderr.matches("EOF while").count(),
                usize::from(why == "is damaged")
            );
            assert_eq!(std::fs::read(&state).expect("it is there"), damaged);
        }
        nb(&world, ["run", "1"]).ended(1).with(why);
    }
    // An unreadable file: root may read everything, but cannot read a folder as a file.
    std::fs::remove_file(&state).expect("remove it");
    std::fs::create_dir(&state).expect("make a folder");
    nb(&world, ["status"])
        .ended(1)
        .with("cannot read")
        .with("state.json");
    std::fs::remove_dir(&state).expect("remove it");
    std::fs::write(&state, good).expect("put it back");
    nb(&world, ["run", "1"]).ended(0);

    // After the fix the kernel has no record: it is reported, not ended.
    std::fs::remove_file(&state).expect("move it away");
    let second = open(&world, "t.ipynb");
    assert_ne!(pid(&second), pid(&first));
    let note = format!("to end it: kill {}", pid(&first));
    assert!(
        second["notes"][0]
            .as_str()
            .is_some_and(|text| text.contains(&note)),
        "{second}"
    );
    kill(pid(&first));
    until("nothing is left of it", || {
        let notes = open(&world, "t.ipynb")["notes"].clone();
        (notes == serde_json::json!([])).then_some(())
    });
    assert!(!path(&first["connection_file"]).exists());
}

#[test]
fn a_damaged_connection_file_is_named_and_a_restart_mends_it() {
    let world = World::new();
    let first = open(&world, "t.ipynb");
    let file = path(&first["connection_file"]);
    let good = std::fs::read(&file).expect("it was written");
    let first_sockets = sockets(&file);
    for damaged in [Some(&good[..good.len() / 2]), Some(b"{}"), None] {
        match damaged {
            Some(bytes) => std::fs::write(&file, bytes).expect("damage it"),
            None => std::fs::remove_file(&file).expect("remove it"),
        }
        for words in [["open", "t.ipynb"], ["run", "1"]] {
            let output = nb(&world, words).with(&file.to_string_lossy());
            assert!(matches!(output.code, Some(1 | 6)), "{output:#?}");
            output.with("hint: nb restart");
            assert_eq!(std::fs::read(&file).ok().as_deref(), damaged);
        }
        // The process is known without the file.
        nb(&world, ["status", "t.ipynb"]).ended(0).with("live");
        nb(&world, ["interrupt"]).ended(0);
    }
    let mended = nb(&world, ["restart", "--json"]).ended(0).json();
    assert_eq!(mended["kernel_generation"], 2);
    assert_ne!(pid(&mended), pid(&first));
    assert_eq!(sockets(&file), first_sockets);
    nb(&world, ["run", "1"]).ended(0);
    // The sockets are removed even if no file lists them any more.
    std::fs::remove_file(&file).expect("remove it");
    nb(&world, ["shutdown"]).ended(0);
    assert!(first_sockets.iter().all(|socket| !socket.exists()));
}

#[test]
fn a_kernel_that_cannot_be_started_says_why() {
    let world = World::new();
    let unknown = nb(&world, ["open", "t.ipynb", "--kernel", "nope"]).ended(1);
    unknown.with("no kernelspec nope was found").with("hint: ");
    assert!(!world.project().join("t.ipynb").exists());
    nb(&world, ["open", "t.ipynb", "--python", "/no/python"])
        .ended(1)
        .with("/no/python")
        .with("--python PATH");

    std::fs::write(world.project().join("no.ipynb"), "print(1)").expect("write a file");
    nb(&world, ["open", "no.ipynb"])
        .ended(1)
        .with("no.ipynb: it is not a notebook");

    let bare = world.project().join("bare env");
    let made = Command::new(python::interpreter())
        .args(["-m", "venv", "--without-pip"])
        .arg(&bare)
        .status()
        .expect("start Python");
    assert!(made.success());
    let python = bare.join("bin/python");
    let output = output_of(
        world
        .nb()
        // A uv on PATH would be used to install it.
        .env("PATH", "/usr/bin:/bin")
        .args(["open", "t.ipynb", "--python"])
        .arg(&python),
    )
    .ended(1);
    let output = output.with("has no ipykernel");
    let quoted = format!("'{}'", python.display());
    output.with(&format!(
        "hint: {quoted} -m ensurepip && {quoted} -m pip install ipykernel"
    ));

    let spec = |name: &str, script: &str| {
        let folder = world
            .project()
            .parent()
            .expect("a world")
            .join("home/jupyter/kernels")
            .join(name);
        std::fs::create_dir_all(&folder).expect("make a folder");
        let spec = serde_json::json!({
            "argv": ["/bin/sh", "-c", script, "{connection_file}"],
            "display_name": name, "language": "sh",
        });
        std::fs::write(folder.join("kernel.json"), spec.to_string()).expect("write a spec");
    };
    spec("broken", "echo 'No module named x' >&2; exit 3");
    spec("mute", "exec sleep 1000");
    let listed = nb(&world, ["open", "t.ipynb", "--kernel", "nope"]).ended(1);
    listed.with("choose one with --kernel: broken, mute");
    let output = nb(&world, ["open", "t.ipynb", "--kernel", "broken"]).ended(6);
    output.with("  | No module named x").with("t-");
    nb(&world, ["status", "t.ipynb"]).ended(6).with("died");
    let slow = nb(
        &world,
        [
            "open",
            "t.ipynb",
            "--kernel",
            "mute",
            "--timeout",
            "1",
            "--json",
        ],
    )
    .ended(4);
    assert_eq!(slow.json()["error"]["kind"], "still-running");
    assert!(!world.processes().is_empty());
    nb(&world, ["shutdown"]).ended(0);
    assert_eq!(world.processes(), []);
    // A broken choice can be replaced by another one.
    assert_eq!(
        output_of(&mut opening(&world, "t.ipynb")).ended(0).json()["how"],
        "started"
    );
}

#[test]
fn a_kernel_that_another_program_recorded_is_used_and_never_ended() {
    let world = World::new();
    let opened = open(&world, "t.ipynb");
    let folder = world.project().join("theirs");
    std::fs::create_dir_all(folder.join(".nb")).expect("make a folder");
    let notebook = folder.join("x.ipynb");
    let state = serde_json::json!({
        "notebook": notebook,
        "connection_file": opened["connection_file"],
        "kernel_pid": opened["kernel_pid"],
    });
    std::fs::write(folder.join(".nb/state.json"), state.to_string()).expect("write it");
    let in_folder = |words: &[&str]| output_of(world.nb().args(words).current_dir(&folder));
    in_folder(&["run", "print(6 * 7)"]).ended(0).with("42");
    let status = in_folder(&["status", "--json"]).ended(0).json();
    assert_eq!(status["sessions"][0]["owned"], false);
    // On a machine under load an idle kernel may look busy.
    let state = &status["sessions"][0]["state"];
    assert!(state == "idle" || state == "busy", "{state}");
    assert_eq!(
        in_folder(&["interrupt", "--json"]).ended(0).json()["mode"],
        "message"
    );
    for named in [&["x.ipynb"][..], &[]] {
        for command in ["restart", "shutdown"] {
            let words = [&[command], named].concat();
            in_folder(&words).ended(5).with("not started by nb");
        }
    }
    let attached = in_folder(&["open", "x.ipynb", "--json"]);
    // The notebook is created, and uses the kernel that is recorded for it.
    assert_eq!(attached.ended(0).json()["kernel_pid"], opened["kernel_pid"]);
}

#[test]
fn a_folder_of_a_later_version_is_refused_and_not_touched() {
    let world = World::new();
    open(&world, "t.ipynb");
    nb(&world, ["shutdown"]).ended(0);
    let dir = world.project().join(".nb");
    let state = r#"{"version": 99, "sessions": {"t.ipynb": {"backend": {"kind": "remote"}}}}"#;
    std::fs::write(dir.join("state.json"), state).expect("write it");
    let picture = || {
        let all = walkdir::WalkDir::new(&dir).sort_by_file_name();
        let all = all.into_iter().flatten();
        let files = all.filter(|entry| entry.file_type().is_file());
        let of =
            |entry: walkdir::DirEntry| (entry.path().to_owned(), std::fs::read(entry.path()).ok());
        files.map(of).collect::<Vec<_>>()
    };
    let before = picture();
    for words in [
        &["status"][..],
        &["open", "t.ipynb"],
        &["run", "1"],
        &["cells", "t.ipynb"],
        &["insert", "t.ipynb", "0", "x"],
        &["restart"],
        &["shutdown"],
    ] {
        nb(&world, words).ended(1).with("has version 99");
    }
    assert_eq!(picture(), before);
}

#[test]
fn a_process_that_only_has_the_kernels_pid_is_left_alone() {
    let world = World::new();
    let opened = open(&world, "t.ipynb");
    kill(pid(&opened));
    until("it is dead", || world.processes().is_empty().then_some(()));
    let file = world.project().join(".nb/state.json");
    let text = std::fs::read(&file).expect("it was written");
    let mut state: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let mut stranger = Command::new("sleep").arg("1000").spawn().expect("start it");
    state["sessions"]["t.ipynb"]["backend"]["process"]["pid"] = stranger.id().into();
    std::fs::write(&file, state.to_string()).expect("write it");
    let status = nb(&world, ["status", "t.ipynb", "--json"]).ended(6).json();
    assert_eq!(status["sessions"][0]["state"], "died");
    nb(&world, ["interrupt"]).ended(6);
    nb(&world, ["shutdown"]).ended(0);
    assert_eq!(open(&world, "t.ipynb")["how"], "started");
    assert!(
        stranger.try_wait().expect("ask for it").is_none(),
        "it was ended"
    );
    stranger.kill().expect("end it");
    stranger.wait().expect("it was killed");
}

#[test]
fn an_answer_that_cannot_be_written_is_reported() {
    let world = World::new();
    let notebook = r#"{"cells": [{"cell_type": "code", "id": "a", "metadata": {}, "outputs": [],
        "execution_count": null, "source": "x = 1"}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}"#;
    std::fs::write(world.project().join("t.ipynb"), notebook).expect("write it");
    let into_nowhere = |words: &str| {
        let mut command = super::shell(&world, &format!("\"$NB\" {words} > /dev/full"));
        command.env("NB", world.nb().get_program());
        output_of(&mut command).with("cannot write the answer: No space left")
    };
    // A command that does nothing but print fails, and one that has done its work does not.
    for words in [
        "completions bash",
        "help edit",
        "export t.ipynb",
        "cells t.ipynb --json",
        "cell t.ipynb 0",
        "search x t.ipynb",
        "doctor t.ipynb",
    ] {
        into_nowhere(words).ended(1);
    }
    into_nowhere("edit t.ipynb 0 --replace 1 2").ended(0);
}
