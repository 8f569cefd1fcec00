//! A kernel's whole life, as `nb` reports it.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::{
    descendants, has_ended, home, kill, nb, open, opening, output_of, parent_of, path, pid, shell,
    sockets, until,
};
use crate::world::World;

#[test]
fn a_kernel_is_ended_also_where_nothing_can_be_written() {
    let world = World::new();
    let opened = open(&world, "t.ipynb");
    // As on a full disk: no file may grow. The output goes into a pipe.
    let script =
        "(trap '' XFSZ; ulimit -f 0; exec \"$NB_TEST_BINARY\" shutdown t.ipynb 2>&1) | cat";
    output_of(&mut shell(&world, script))
        .ended(0)
        .with("its kernel was shut down")
        .with("that is not written down");
    until("its end", || has_ended(pid(&opened)).then_some(()));
}

#[test]
fn a_kernel_is_opened_used_restarted_killed_and_shut_down() {
    let world = World::new();
    nb(&world, ["status"])
        .ended(6)
        .with("hint: nb open NOTEBOOK.ipynb");
    for command in ["interrupt", "restart", "shutdown"] {
        nb(&world, [command]).ended(6).with("hint: nb open");
    }

    let first = open(&world, "t.ipynb");
    assert_eq!(first["how"], "started");
    assert_eq!(first["created"], true);
    assert_eq!(first["kernel_generation"], 1);
    assert_eq!(first["spec"], "installed");
    let text = std::fs::read(world.project().join("t.ipynb")).expect("it was made");
    let notebook: serde_json::Value = serde_json::from_slice(&text).expect("a notebook");
    assert_eq!(notebook["metadata"]["kernelspec"]["name"], "python3");

    let again = open(&world, "t.ipynb");
    assert_eq!(again["how"], "attached");
    assert_eq!(again["created"], false);
    assert_eq!(pid(&again), pid(&first));
    assert_eq!(again["spec"], "good");

    let ran = nb(&world, ["run", "--json", "x = 1"]).ended(0).json();
    assert_eq!(ran["kernel_generation"], 1);
    let file = path(&first["connection_file"]);
    let first_sockets = sockets(&file);
    assert_eq!(first_sockets.len(), 5);

    // A cell that another actor runs is interrupted.
    let mut running = world
        .nb()
        .args(["run", "--stream"])
        .arg("import time\nprint('here', flush=True)\nwhile True: time.sleep(0.01)")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("start nb");
    let mut line = String::new();
    let mut printed = BufReader::new(running.stdout.take().expect("it is piped"));
    printed.read_line(&mut line).expect("read its stdout");
    assert_eq!(line, "here\n");
    let status = nb(&world, ["status", "--json"]).ended(0).json();
    assert_eq!(status["sessions"][0]["state"], "busy");
    let interrupted = nb(&world, ["interrupt", "--json"]).ended(0).json();
    assert_eq!(interrupted["kernel_generation"], 1);
    let ended = running.wait().expect("it ends");
    assert!(matches!(ended.code(), Some(3 | 130)), "{ended}");

    let restarted = nb(&world, ["restart", "--json"]).ended(0).json();
    assert_eq!(restarted["kernel_generation"], 2);
    assert_ne!(pid(&restarted), pid(&first));
    assert_eq!(sockets(&file), first_sockets);
    nb(&world, ["run", "x"]).ended(3).with("NameError");

    kill(pid(&restarted));
    let died = until("status says died", || {
        let status = nb(&world, ["status", "t.ipynb", "--json"]);
        let session = status.json()["sessions"][0].clone();
        (status.code == Some(6)).then_some(session)
    });
    assert_eq!(died["state"], "died");
    assert_eq!(died["ended"]["generation"], 2);
    nb(&world, ["run", "1"]).ended(6).with("hint: nb open");
    let opened = nb(&world, ["open"]).ended(0);
    let opened = opened.with("note: the kernel of t.ipynb was killed at");
    opened.with("(SIGKILL). Its variables are gone.");
    let third = open(&world, "t.ipynb");
    assert_eq!(third["kernel_generation"], 3);
    let file = path(&third["connection_file"]);
    let third_sockets = sockets(&file);

    let log = nb(&world, ["log", "--kernel", "--json"]).ended(0).json();
    assert!(
        log["lines"]
            .as_array()
            .is_some_and(|lines| !lines.is_empty())
    );
    nb(&world, ["log", "--proxy"]).ended(1).with("proxy.log");

    let stopped = nb(&world, ["shutdown", "--json"]).ended(0).json();
    assert_eq!(stopped["was_running"], true);
    assert_eq!(stopped["kernel_generation"], 3);
    for path in first_sockets.iter().chain(&third_sockets).chain([&file]) {
        assert!(!path.exists(), "{}", path.display());
    }
    let links = std::fs::read_dir(home(&world).join("runtime")).expect("it was made");
    assert_eq!(links.count(), 0);
    let again = nb(&world, ["shutdown", "--json"]).ended(0).json();
    assert_eq!(again["was_running"], false);
    for command in ["interrupt", "restart"] {
        nb(&world, [command]).ended(6).with("hint: nb open");
    }
    nb(&world, ["run", "1"]).ended(6).with("shut down");
    let status = nb(&world, ["status", "--json"]).ended(0).json();
    assert_eq!(status["sessions"][0]["state"], "stopped");
}

#[test]
fn two_notebooks_opened_by_two_each_at_once_have_one_kernel_each() {
    let world = World::new();
    let mut commands = ["a", "b", "a", "b"].map(|name| opening(&world, format!("{name}.ipynb")));
    let answers = std::thread::scope(|scope| {
        let calls = commands
            .each_mut()
            .map(|command| scope.spawn(move || output_of(command).ended(0).json()));
        calls.map(|call| call.join().expect("it does not panic"))
    });
    let started = answers
        .iter()
        .filter(|answer| answer["how"] == "started")
        .count();
    assert_eq!(started, 2, "{answers:#?}");
    assert_eq!(pid(&answers[0]), pid(&answers[2]));
    assert_eq!(pid(&answers[1]), pid(&answers[3]));
    for opened in &answers {
        let notebook = opened["notebook"].as_str().expect("its name");
        let ran = nb(&world, ["run", notebook, "import os; print(os.getpid())"]);
        assert_eq!(ran.ended(0).stdout, format!("{}\n", pid(opened)));
    }
    let files = std::fs::read_dir(world.project().join(".nb/connections")).expect("it was made");
    let files = files
        .flatten()
        .filter(|file| file.path().extension() == Some("json".as_ref()));
    assert_eq!(files.count(), 2);
}

#[test]
fn a_kernel_outlives_everything_under_the_shell_that_opened_it() {
    let world = World::new();
    let mut shell = shell(
        &world,
        "\"$NB_TEST_BINARY\" open t.ipynb --python \"$NB_TEST_PYTHON\" && cat",
    );
    let mut shell = shell
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("start a shell");
    let mut line = String::new();
    let mut printed = BufReader::new(shell.stdout.take().expect("it is piped"));
    printed.read_line(&mut line).expect("read its stdout");
    assert!(line.contains("kernel started"), "{line}");
    let kernel = pid(&open(&world, "t.ipynb"));
    let family = descendants(shell.id());
    assert!(!family.contains(&kernel), "it is a descendant");
    family.into_iter().rev().for_each(kill);
    shell.wait().expect("it was killed");
    nb(&world, ["run", "print(6 * 7)"]).ended(0).with("42");
    let stat = std::fs::read_to_string(format!("/proc/{kernel}/stat")).expect("it lives");
    let group: Vec<_> = stat
        .rsplit_once(')')
        .expect("a name")
        .1
        .split_ascii_whitespace()
        .collect();
    assert_eq!(
        group[2..4],
        [kernel.to_string(), kernel.to_string()],
        "group and session"
    );
    assert_ne!(parent_of(kernel), Some(std::process::id()));
}
