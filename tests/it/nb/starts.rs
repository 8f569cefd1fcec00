//! Kernels that fail to start: each reports why, and leaves nothing behind.

use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Output, home, nb, open, output_of, pid, shell, sockets, until};
use crate::python;
use crate::world::World;

/// Installs a kernelspec with this command for its kernel; the connection file is appended.
fn spec(world: &World, name: &str, argv: &[&str]) {
    let folder = home(world).join("jupyter/kernels").join(name);
    std::fs::create_dir_all(&folder).expect("make a folder");
    let argv: Vec<_> = argv.iter().chain(&["{connection_file}"]).collect();
    let spec = json!({ "argv": argv, "display_name": name, "language": "sh" });
    std::fs::write(folder.join("kernel.json"), spec.to_string()).expect("write a spec");
}

fn opened(world: &World, script: &str, more: &[&str]) -> Output {
    spec(world, "made", &["/bin/sh", "-c", script]);
    let words = ["open", "t.ipynb", "--kernel", "made"];
    nb(world, words.iter().chain(more))
}

fn nothing_is_left(world: &World) {
    // The supervisor of a kernel that could not be started says so, and ends then.
    until("each process has ended", || {
        world.processes().is_empty().then_some(())
    });
    let folder = world.project().join(".nb/connections");
    let left: Vec<_> = std::fs::read_dir(folder).expect("it is there").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn one_that_ends_at_once_says_why() {
    let world = World::new();
    let script = "echo 'No module named x' >&2; exit 3";
    let output = opened(&world, script, &[]).ended(6);
    let output = output.with("ended while it was starting (exit status 3)");
    output
        .with("  | No module named x")
        .with("its whole log is");
    nb(&world, ["status", "t.ipynb"])
        .ended(6)
        .with("could not be started at")
        .with("(exit status 3). next: nb open");
    nothing_is_left(&world);
    let output = opened(&world, "kill -SEGV $$", &[]).ended(6);
    output.with("(SIGSEGV)");
    nothing_is_left(&world);
}

#[test]
fn one_whose_program_is_missing_is_named() {
    let world = World::new();
    spec(&world, "gone", &["/nope/kernel", "-f"]);
    let output = nb(&world, ["open", "t.ipynb", "--kernel", "gone"]).ended(1);
    output.with("cannot start /nope/kernel: No such file or directory");
    nothing_is_left(&world);
    spec(&world, "lost", &["nope-kernel", "-f"]);
    let output = nb(&world, ["open", "t.ipynb", "--kernel", "lost"]).ended(6);
    assert!(!output.stderr.contains("Failed"), "{output:?}");
    output.with("  | nb: cannot start nope-kernel: No such file or directory");
    nothing_is_left(&world);
}

#[test]
fn one_that_prints_megabytes_is_not_waited_for() {
    let world = World::new();
    let flood = "head -c 30000000 /dev/zero | tr '\\0' x; echo; echo the end; exit 1";
    let output = opened(&world, flood, &["--json"]).ended(6);
    assert!(
        output.stdout.len() < 100_000,
        "{} bytes",
        output.stdout.len()
    );
    let lines = output.json()["error"]["lines"].clone();
    let last = lines.as_array().and_then(|lines| lines.last());
    assert_eq!(last, Some(&json!("the end")));
    nothing_is_left(&world);
    // A kernel that prints as much but works is a kernel like any other.
    let python = python::interpreter().display();
    let chatty =
        format!("head -c 30000000 /dev/zero; exec '{python}' -m ipykernel_launcher -f \"$0\"");
    opened(&world, &chatty, &[]).ended(0).with("kernel started");
    nb(&world, ["run", "print(6 * 7)"]).ended(0).with("42");
}

#[test]
fn one_that_never_listens_goes_on_starting_until_it_is_ended() {
    let world = World::new();
    let output = opened(&world, "exec sleep 1000", &["--timeout", "1"]).ended(4);
    output
        .with("is still starting")
        .with("nb shutdown t.ipynb ends it");
    assert!(!world.processes().is_empty());
    nb(&world, ["status", "t.ipynb"]).with("half started");
    nb(&world, ["shutdown"]).ended(0);
    nothing_is_left(&world);
}

#[test]
fn one_that_listens_on_some_sockets_only_is_not_ready() {
    let world = World::new();
    let script = "import json, socket, sys, time\n\
        info = json.load(open(sys.argv[1]))\n\
        shell = socket.socket(socket.AF_UNIX)\n\
        shell.bind(f\"{info['ip']}-{info['shell_port']}\")\n\
        shell.listen()\n\
        time.sleep(1000)";
    let python = python::interpreter().to_string_lossy();
    spec(&world, "made", &[&python, "-c", script]);
    let words = ["open", "t.ipynb", "--kernel", "made", "--timeout", "2"];
    nb(&world, words).ended(4).with("is still starting");
    nb(&world, ["shutdown"]).ended(0);
    nothing_is_left(&world);
}

#[test]
fn one_that_forks_and_ends_leaves_nothing_behind() {
    let world = World::new();
    let output = opened(&world, "sleep 1000 & exit 0", &[]).ended(6);
    output.with("(exit status 0)");
    nothing_is_left(&world);
}

#[test]
fn a_limit_of_memory_holds_and_is_reported() {
    let world = World::new();
    let python = python::interpreter().to_string_lossy();
    let words = ["open", "t.ipynb", "--memory", "1.5G", "--python", &python];
    nb(&world, words).ended(0);
    let too_much = "x = bytearray(2_000_000_000)";
    for _ in 0..2 {
        nb(&world, ["run", too_much]).ended(3).with("MemoryError");
        nb(&world, ["status"]).ended(0).with("at most 1.5 GB");
        nb(&world, ["restart"]).ended(0);
    }
    nb(&world, ["open", "--memory", "none"])
        .ended(0)
        .with("was kept");
    nb(&world, ["shutdown"]).ended(0);
    nb(&world, ["open", "t.ipynb", "--memory", "none"]).ended(0);
    nb(&world, ["run", too_much]).ended(0);
    nb(&world, ["open", "--memory", "1 GX"])
        .ended(2)
        .with("1.5G");
}

#[test]
fn a_kernel_gets_the_variables_that_its_user_wants() {
    let world = World::new();
    let first = super::open(&world, "t.ipynb");
    nb(&world, ["shutdown"]).ended(0);
    assert_eq!(first["how"], "started");
    let config = world.project().join(".nb/config.toml");
    let text = "kernel_env = { ONE = \"${HOME}/one\", TWO = \"file\" }\n";
    std::fs::write(config, text).expect("write the settings");
    let env = [
        ("NB_KERNEL_ENV", "TWO=env,THREE=3"),
        ("PYTHONEXECUTABLE", "/no/python"),
        ("JPY_PARENT_PID", "1"),
    ];
    output_of(world.nb().args(["open", "t.ipynb"]).envs(env)).ended(0);
    let code = "import os; print(*(os.environ.get(it) for it in \
        ['ONE', 'TWO', 'THREE', 'PYTHONEXECUTABLE', 'JPY_PARENT_PID']), os.getcwd())";
    let wanted = format!(
        "{}/one env 3 None None {}\n",
        home(&world).display(),
        world
            .project()
            .canonicalize()
            .expect("it is there")
            .display()
    );
    assert_eq!(nb(&world, ["run", code]).ended(0).stdout, wanted);
    nb(&world, ["shutdown"]).ended(0);
    output_of(world.nb().args(["open"]).env("NB_KERNEL_ENV", "TWO"))
        .with("NB_KERNEL_ENV is \"TWO\"; it can be NAME=value");
}

#[test]
fn a_kernel_that_nobody_uses_is_ended() {
    let world = World::new();
    let python = python::interpreter().to_string_lossy();
    let idle = |time: &str| {
        let words = [
            "open",
            "t.ipynb",
            "--idle-timeout",
            time,
            "--python",
            &python,
        ];
        nb(&world, words)
    };
    idle("1h").ended(0);
    nb(&world, ["status"]).with("ends after 1 h without use");
    let sleep = "import time; time.sleep(3)";
    let began = Instant::now();
    nb(&world, ["run", "-d", sleep]).ended(0);
    // The new limit applies to the running kernel.
    idle("1s").ended(0).with("attached");
    until("it is ended", || {
        let answer = nb(&world, ["status", "t.ipynb", "--json"]).json();
        (answer["sessions"][0]["state"] == "stopped").then_some(())
    });
    assert!(began.elapsed() > Duration::from_secs(3), "it was busy");
    nb(&world, ["status"]).with("since nobody used it for 1 s");
    until("its supervisor is gone", || {
        world.processes().is_empty().then_some(())
    });
    nothing_is_left(&world);
    idle("never").ended(0);
    nb(&world, ["status", "--json"]).json()["sessions"][0]["idle_timeout"]
        .is_null()
        .then_some(())
        .expect("there is none");
}

#[test]
fn what_is_left_of_a_killed_start_is_cleared_up() {
    let world = World::new();
    spec(&world, "mute", &["/bin/sh", "-c", "exec sleep 1000"]);
    // The command that starts it gives up, as if it were killed: the kernel is never ready.
    let words = ["open", "mute.ipynb", "--kernel", "mute", "--timeout", "1"];
    nb(&world, words).ended(4);
    let kept = open(&world, "kept.ipynb");
    let killed = open(&world, "killed.ipynb");
    let stale = sockets(&super::path(&killed["connection_file"]));
    super::kill(pid(&killed));
    until("it is noticed", || {
        let answer = nb(&world, ["status", "killed.ipynb", "--json"]).json();
        (answer["sessions"][0]["state"] == "died").then_some(())
    });
    let folder = world.project().parent().expect("a world").join("gone");
    std::fs::create_dir(&folder).expect("make a folder");
    let left = open(&world, folder.join("left.ipynb"));
    std::fs::remove_dir_all(&folder).expect("delete the project");

    let output = nb(&world, ["gc", "--dry-run"]).ended(0);
    let output = output
        .with("would end the kernel of")
        .with("mute.ipynb, which was never ready");
    output
        .with("left.ipynb, whose project is gone")
        .with("would free");
    let file = super::path(&killed["connection_file"]);
    assert!(file.exists(), "it only reports");
    nb(&world, ["gc"]).ended(0).with("ended the kernel of");
    assert!(!file.exists() && stale.iter().all(|socket| !socket.exists()));
    until("only one kernel is left", || {
        let kernels = world.processes().into_iter();
        let kernels: Vec<_> = kernels
            .filter(|(_, words)| !words.contains("nb:"))
            .collect();
        let only = kernels.len() == 1 && kernels[0].0.unsigned_abs() == pid(&kept);
        only.then_some(())
    });
    assert_ne!(pid(&kept), pid(&left));
    nb(&world, ["run", "kept.ipynb", "print(6 * 7)"])
        .ended(0)
        .with("42");
    until("nothing is left to clear up", || {
        let answer = nb(&world, ["gc", "--json"]).ended(0).json();
        (answer["found"] == json!([])).then_some(())
    });
    nb(&world, ["status", "killed.ipynb"]).with("was killed at");
}

#[test]
fn a_shell_that_ends_takes_no_supervisor_with_it() {
    let world = World::new();
    let script = "\"$NB_TEST_BINARY\" open t.ipynb --json --python \"$NB_TEST_PYTHON\"; kill -9 0";
    // The script gets its own process group, or the tests would be killed with it.
    output_of(shell(&world, script).process_group(0));
    let supervisor = |world: &World| {
        let all = world.processes().into_iter();
        all.filter(|(_, words)| words.contains("nb:supervise"))
            .count()
    };
    assert_eq!(supervisor(&world), 1);
    nb(&world, ["run", "print(6 * 7)"]).ended(0).with("42");
    nb(&world, ["shutdown"]).ended(0);
    assert_eq!(world.processes(), []);
}

/// A stand-in for podman, which runs the kernel without a container and records what is removed.
const PODMAN: &str = r#"#!/bin/sh
case "$1" in
image)
    case "$*" in *missing*) echo "Error: missing: image not known" >&2; exit 1 ;; esac ;;
run)
    while [ "$1" != --entrypoint ]; do
        [ "$1" = --name ] && echo "$2" >> "${0%/*}/ran"
        shift
    done
    program=$2; shift 3
    exec "$program" "$@" ;;
rm)
    for last in "$@"; do :; done
    echo "$last" >> "${0%/*}/removed" ;;
esac
"#;

#[test]
fn a_kernel_in_a_container_is_one_like_any_other_and_leaves_no_container() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    let bin = home(&world).join("bin");
    std::fs::create_dir_all(&bin).expect("make a folder");
    let podman = bin.join("podman");
    std::fs::write(&podman, PODMAN).expect("write the stand-in");
    std::fs::set_permissions(&podman, std::fs::Permissions::from_mode(0o755)).expect("mark it");
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", bin.display());
    let with = |words: &[&str]| output_of(world.nb().args(words).env("PATH", &path));
    let python = python::interpreter().to_string_lossy();
    let names = |file: &str| -> Vec<String> {
        let text = std::fs::read_to_string(bin.join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };

    with(&["open", "t.ipynb", "--container", "missing"])
        .ended(5)
        .with("podman has no image missing: Error: missing: image not known")
        .with("podman pull missing")
        .with("nb open t.ipynb --sandbox");
    assert!(!world.project().join("t.ipynb").exists());

    let words = [
        "open",
        "t.ipynb",
        "--container",
        "made",
        "--python",
        &python,
        "--json",
    ];
    let opened = with(&words).ended(0).json();
    assert_eq!(opened["container"]["image"], "made");
    assert_eq!(names("ran").len(), 1);
    with(&["run", "print(6 * 7)"]).ended(0).with("42");
    // Inside, the project does not show `nb`'s secrets: the kernel reads a copy of its connection file.
    let file = world
        .project()
        .join(".nb")
        .join(super::path(&opened["connection_file"]));
    let sockets = sockets(&file);
    let copy = sockets[0].with_file_name("kernel.json");
    assert!(copy.exists() && copy != file);
    with(&["open", "t.ipynb", "--container", "other"])
        .ended(5)
        .with("the one that runs is in another, of made")
        .with("t.ipynb, then repeat this");
    with(&["restart"]).ended(0);
    with(&["run", "print(6 * 7)"]).ended(0).with("42");

    // The kernel's death is noticed, and the next kernel runs in a container too.
    let answer = with(&["status", "t.ipynb", "--json"]).ended(0).json();
    super::kill(pid(&answer["sessions"][0]));
    until("it is noticed", || {
        (with(&["status", "t.ipynb"]).code == Some(6)).then_some(())
    });
    let again = with(&["open", "t.ipynb", "--json"]).ended(0).json();
    assert_eq!(again["container"]["image"], "made");
    with(&["shutdown"]).ended(0);
    assert!(!copy.exists());
    nothing_is_left(&world);
    let ran = names("ran");
    assert_eq!(ran.len(), 3);
    let removed = names("removed");
    assert!(ran.iter().all(|name| removed.contains(name)), "{removed:?}");

    let free = with(&[
        "open",
        "t.ipynb",
        "--no-sandbox",
        "--python",
        &python,
        "--json",
    ]);
    assert_eq!(free.ended(0).json()["container"], json!(null));
    assert_eq!(names("ran").len(), 3);
    with(&["shutdown"]).ended(0);
}
