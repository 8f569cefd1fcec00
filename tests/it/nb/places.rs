//! Notebooks in the various folders in which people keep them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::{home, nb, open, opening, output_of, path, pid, sockets};
use crate::python;
use crate::world::{World, succeed};

fn works(world: &World, notebook: &Path) {
    let output = output_of(world.nb().arg("run").arg(notebook).arg("print(6 * 7)"));
    output.ended(0).with("42");
    output_of(world.nb().arg("shutdown").arg(notebook)).ended(0);
}

#[test]
fn names_with_spaces_and_signs_and_long_paths() {
    let world = World::new();
    let odd = world.project().join("Übung №1 'ein \"Heft\"; $x.ipynb");
    let opened = open(&world, &odd);
    assert_eq!(
        path(&opened["notebook"]),
        Path::new(odd.file_name().expect("it has one"))
    );
    works(&world, &odd);
    let hint = nb(&world, ["restart"]).ended(6).stderr;
    assert!(hint.contains("nb open '"), "{hint}");

    let no_text = OsStr::from_bytes(b"caf\xe9.ipynb");
    nb(&world, [OsStr::new("open"), no_text])
        .ended(2)
        .with("is not UTF-8");
    assert!(!world.project().join(no_text).exists());

    let long = world.project().join("long/".repeat(30)).join("deep.ipynb");
    std::fs::create_dir_all(long.parent().expect("a folder")).expect("make the folders");
    assert!(long.as_os_str().len() > 150);
    let opened = open(&world, &long);
    let sockets = sockets(&path(&opened["connection_file"]));
    assert_eq!(sockets.len(), 5);
    assert!(sockets.iter().all(|socket| socket.as_os_str().len() < 100));
    works(&world, &long);
}

#[test]
fn a_link_is_the_notebook_that_it_names() {
    let world = World::new();
    let real = world.project().join("data/real.ipynb");
    std::fs::create_dir(world.project().join("data")).expect("make a folder");
    let first = open(&world, &real);
    let link = world.project().join("link.ipynb");
    std::os::unix::fs::symlink(&real, &link).expect("make a link");
    let second = open(&world, &link);
    assert_eq!(second["how"], "attached");
    assert_eq!(pid(&second), pid(&first));
    works(&world, &link);
}

#[test]
fn a_folder_that_cannot_be_written_has_its_project_elsewhere() {
    let world = World::new();
    let folder = world.project().join("shelf");
    std::fs::create_dir(&folder).expect("make a folder");
    let notebook = folder.join("t.ipynb");
    let text = r#"{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}"#;
    std::fs::write(&notebook, text).expect("make a notebook");
    // Root can write everywhere, but a file in the way stops root too.
    std::fs::write(folder.join(".nb"), "").expect("make a file");
    let mode = std::fs::Permissions::from_mode;
    std::fs::set_permissions(&folder, mode(0o555)).expect("make it read-only");
    let output = output_of(
        world
            .nb()
            .arg("open")
            .arg(&notebook)
            .arg("--python")
            .arg(python::interpreter()),
    );
    let output = output.ended(0).with("cannot hold a project folder");
    output.with(
        &home(&world)
            .join(".local/state/nb/projects")
            .to_string_lossy(),
    );
    let again = output_of(&mut opening(&world, &notebook)).ended(0);
    assert_eq!(
        again.json()["notes"],
        serde_json::json!([]),
        "it is reported once"
    );
    works(&world, &notebook);
    std::fs::set_permissions(&folder, mode(0o755)).expect("make it writable");
    let now = std::fs::read_to_string(&notebook).expect("it is there");
    assert_eq!(now, text);
}

#[test]
fn a_state_folder_that_cannot_be_written_is_named_and_nothing_is_left() {
    let world = World::new();
    // Not even root can make a folder there.
    let nowhere = "/proc/none";
    let notebook = world.project().join("t.ipynb");
    let is_left = || std::fs::read_dir(world.project()).map_or(0, Iterator::count);
    let refused = || {
        output_of(opening(&world, "t.ipynb").env("XDG_STATE_HOME", nowhere))
            .ended(1)
            .with("/proc/none/nb")
            .with("XDG_STATE_HOME")
    };
    refused();
    assert_eq!(is_left(), 0);
    nb(&world, ["open", "t.ipynb", "--no-kernel"]).ended(0);
    std::fs::remove_dir_all(world.project().join(".nb")).expect("remove it");
    refused();
    assert!(notebook.exists());
    assert_eq!(is_left(), 1);
    output_of(world.nb().arg("doctor").env("XDG_STATE_HOME", nowhere))
        .ended(1)
        .with("nb's state folder /proc/none/nb cannot be written")
        .with("set XDG_STATE_HOME to a folder of yours");
}

#[test]
fn what_is_no_notebook_by_its_name_is_refused_with_a_command_that_works() {
    let world = World::new();
    nb(&world, ["open", "."])
        .ended(2)
        .with(". is a folder, not a notebook")
        .with("hint: nb open ./NAME.ipynb");
    nb(&world, ["open", "--no-kernel", "--", "-x.txt"])
        .ended(2)
        .with("hint: nb open ./-x.ipynb");
    nb(&world, ["open", "--no-kernel", "./-x.ipynb"]).ended(0);
}

#[test]
fn a_notebook_without_a_kernel_is_made_where_there_is_no_python() {
    let world = World::new();
    let mut command = world.nb();
    command
        .args(["open", "t.ipynb", "--no-kernel", "--json"])
        .env("PATH", "/nonexistent");
    command.env_remove("VIRTUAL_ENV");
    let made = output_of(&mut command).ended(0).json();
    assert_eq!(made["created"], true);
    assert_eq!(made["kernel_generation"], serde_json::Value::Null);
    assert!(world.project().join("t.ipynb").exists());
    assert!(
        !home(&world).join("jupyter").exists(),
        "nothing is installed"
    );
    assert_eq!(world.processes(), []);
    nb(&world, ["status", "t.ipynb"])
        .ended(6)
        .with("hint: nb open t.ipynb");
    nb(&world, ["open", "no/such/folder/t.ipynb"])
        .ended(1)
        .with("no/such/folder");
}

#[test]
fn over_tcp_it_works_the_same() {
    let world = World::new();
    let first = output_of(opening(&world, "t.ipynb").args(["--transport", "tcp"]))
        .ended(0)
        .json();
    let file = path(&first["connection_file"]);
    let info = std::fs::read(&file).expect("it was made");
    assert!(String::from_utf8_lossy(&info).contains("127.0.0.1"));
    nb(&world, ["run", "print(6 * 7)"]).ended(0).with("42");
    let again = nb(&world, ["open", "--transport", "ipc"])
        .ended(0)
        .with("attached");
    again.with("tcp) and was kept");
    let restarted = nb(&world, ["restart", "--json"]).ended(0).json();
    assert_eq!(restarted["kernel_generation"], 2);
    assert_eq!(std::fs::read(&file).expect("it is there"), info);
    works(&world, &world.project().join("t.ipynb"));
}

/// Runs `nb` in a shell in which a filter forbids sockets, as agents' sandboxes do.
fn in_a_sandbox(world: &World, kind: &str, words: &[&str]) -> super::Output {
    let nb = world.nb();
    let mut command = Command::new(python::interpreter());
    command
        .arg(python::script("sandboxed.py"))
        .arg(kind)
        .arg(nb.get_program())
        .args(words)
        .current_dir(world.project());
    for (name, value) in nb.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    output_of(&mut command)
}

#[test]
fn a_sandboxed_shell_is_told_so_and_nothing_is_ended_started_or_called_dead() {
    let world = World::new();
    let opened = open(&world, "t.ipynb");
    let file = opened["connection_file"].as_str().expect("a path");
    nb(&world, ["run", "x = 42"]).ended(0);
    let text = format!(
        "cannot reach the kernel from this shell: it is sandboxed (socket: Operation not \
         permitted). Its recorded state is \"alive\" (pid {}, not checked from here). Allow nb \
         outside the sandbox.",
        pid(&opened)
    );
    for kind in ["--unix", "--pairs", "--all"] {
        let in_sandbox = |words: &[&str]| in_a_sandbox(&world, kind, words);
        for words in [
            &["run", "1 + 1"][..],
            &["open", "t.ipynb"],
            &["open", "t.ipynb", "--own"],
            &["open", "new.ipynb", "--kernel-of", "t.ipynb"],
            &["interrupt"],
            &["restart"],
            &["restart", "--force"],
            &["shutdown"],
            &["shutdown", "--force"],
        ] {
            in_sandbox(words).ended(5).with(&text);
        }
        in_sandbox(&["status"]).ended(0).with(&text[..100]);
        let status = in_sandbox(&["status", "t.ipynb", "--json"]).ended(0).json();
        assert_eq!(status["sessions"][0]["state"], "unchecked");
        assert_eq!(status["sessions"][0]["recorded"], "live");
        in_sandbox(&["log", "--kernel"]).ended(0);
        in_sandbox(&["open", "new.ipynb"])
            .ended(5)
            .with("would die with the call")
            .with("hint: allow nb outside the sandbox");
        in_sandbox(&["open", "new.ipynb", "--attach", file])
            .ended(5)
            .with("sandboxed");
        assert!(!world.project().join("new.ipynb").exists());
    }
    let same = nb(&world, ["status", "t.ipynb", "--json"]).ended(0).json();
    assert_eq!(same["sessions"][0]["kernel_pid"], opened["kernel_pid"]);
    nb(&world, ["run", "x"]).ended(0).with("42");
    nb(&world, ["shutdown"]).ended(0);
    in_a_sandbox(&world, "--unix", &["run", "1"]).ended(6);
}

#[test]
fn another_container_or_host_is_told_where_the_kernel_is() {
    let world = World::new();
    let opened = open(&world, "t.ipynb");
    let state = world.project().join(".nb/state.json");
    let text = std::fs::read_to_string(&state).expect("it is there");
    let mut recorded: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let host = &mut recorded["sessions"]["t.ipynb"]["backend"]["host"];
    *host = serde_json::json!({ "name": "beast", "boot_id": "b", "pid_namespace": "pid:[1]" });
    let written = recorded.to_string();
    std::fs::write(&state, &written).expect("write it");
    for words in [
        &["run", "1"][..],
        &["open", "t.ipynb"],
        &["interrupt"],
        &["restart"],
        &["shutdown"],
    ] {
        nb(&world, words)
            .ended(5)
            .with("was started on beast and cannot be seen from here");
    }
    let status = nb(&world, ["status", "t.ipynb", "--json"]).ended(0).json();
    assert_eq!(status["sessions"][0]["state"], "elsewhere");
    nb(&world, ["status"]).ended(0).with("was started on beast");
    let after = std::fs::read_to_string(&state).expect("it is there");
    let after: serde_json::Value = serde_json::from_str(&after).expect("JSON");
    assert_eq!(after["sessions"], recorded["sessions"]);
    assert!(path(&opened["connection_file"]).exists());

    // A session that was ended on the other host does not block this one.
    recorded["sessions"]["t.ipynb"]["status"] = "stopped".into();
    std::fs::write(&state, recorded.to_string()).expect("write it");
    let here = open(&world, "t.ipynb");
    assert_eq!(here["how"], "started");
    assert!(path(&opened["connection_file"]).exists(), "it is theirs");
    std::fs::write(&state, text).expect("put it back");
    nb(&world, ["shutdown"]).ended(0);
    super::kill(pid(&here));
}

#[test]
fn a_sandbox_with_pids_of_its_own_starts_nothing_and_judges_nothing() {
    let world = World::new();
    let opened = open(&world, "t.ipynb");
    nb(&world, ["run", "x = 42"]).ended(0);
    // The first process has the name of a sandbox's.
    let first = world.project().join("bwrap");
    std::fs::copy("/bin/bash", &first).expect("copy a shell");
    let in_namespace = |words: &str| {
        let script =
            format!("unshare -pf --mount-proc ./bwrap -c '\"$NB_TEST_BINARY\" {words}; exit $?'");
        output_of(&mut super::shell(&world, &script))
    };
    if in_namespace("--version").code != Some(0) {
        crate::skipped::note("this machine makes no pid namespaces", "");
        return;
    }
    for words in ["run 1", "open t.ipynb", "restart", "interrupt", "shutdown"] {
        in_namespace(words)
            .ended(5)
            .with(", outside this container or sandbox, and cannot be seen from here")
            .with("hint: allow nb outside the sandbox");
    }
    for words in ["open new.ipynb", "open t.ipynb --force"] {
        in_namespace(words).ended(5).with("process 1 is bwrap");
    }
    in_namespace("status t.ipynb").ended(0).with("elsewhere");
    // A kernel that is recorded only in its files is not collected from there.
    let state = world.project().join(".nb/state.json");
    let text = std::fs::read(&state).expect("it is there");
    std::fs::remove_file(&state).expect("move it away");
    in_namespace("open t.ipynb")
        .ended(5)
        .with("process 1 is bwrap");
    assert!(path(&opened["connection_file"]).exists());
    std::fs::write(&state, text).expect("put it back");
    nb(&world, ["run", "x"]).ended(0).with("42");
}

#[test]
fn a_chosen_kernel_goes_on_working() {
    let world = World::new();
    succeed(&mut world.script("chosen.py", "nb-shared"));
}
