//! A folder from a stranger: each kind of file that `nb` stores is a link, a FIFO, a socket, ten gigabytes
//! or hostile content, for every command. Nothing outside the folder is read, written, deleted, run or
//! waited for.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::{Output, nb, output_of};
use crate::python;
use crate::world::{World, is_thorough};

/// Longer than any of these commands takes on a busy machine; a command that blocks would never end.
const SECONDS: &str = "60";

const NOTEBOOK: &str = r##"{"cells": [{"cell_type": "code", "id": "aaaa", "metadata": {}, "outputs": [],
 "execution_count": null, "source": ["1"]}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}"##;

/// The content of the files outside: no command may print it.
const SECRET: &str = "the-secret-outside";

/// The files that `nb` stores in a `.nb`, with their names for `t.ipynb`.
const FILES: [&str; 34] = [
    "state.json",
    "state.lock",
    "config.toml",
    "journal.jsonl",
    "proxy.log",
    "nb.log",
    "displays.json",
    "journal/1.jsonl",
    "calls.jsonl",
    "calls/1.jsonl",
    "present/t-da7ef036.json",
    "names/agent-d4f0bc5a.json",
    "names/lock",
    ".gitignore",
    "kernels/t-da7ef036.log",
    "connections/kernel-0123456789ab.json",
    "connections/kernel-0123456789ab.pid",
    "connections/kernel-0123456789ab.end",
    "connections/kernel-0123456789ab.container",
    "proxies/1.json",
    "jobs/0123abcd/job.json",
    "jobs/0123abcd/events.jsonl",
    "jobs/0123abcd/lock",
    "open/0123abcd",
    "front_end_outputs/0123abcd/job.json",
    "notebooks/t-da7ef036.json",
    "notebooks/t-da7ef036.lock",
    "seen/lock",
    "objects/written",
    "objects/lists/0123456789abcdef",
    "killed/0123abcd.json",
    "background/x.report",
    "relaunch/1.json",
    "locks/t-da7ef036.lock",
];

/// The folders in a `.nb`.
const FOLDERS: [&str; 20] = [
    "kernels",
    "connections",
    "proxies",
    "jobs",
    "open",
    "front_end_outputs",
    "notebooks",
    "seen",
    "objects",
    "killed",
    "background",
    "relaunch",
    "locks",
    "jupyter",
    "outputs",
    "trash",
    "scratch",
    "unfinished",
    "calls",
    "present",
];

/// The ways in which a file is hostile.
#[derive(Clone, Copy, Debug)]
enum Hostility {
    Link,
    DanglingLink,
    LinkToFifo,
    LinkToDevice,
    Fifo,
    Socket,
    Sparse,
    Garbage,
}

const HOSTILITIES: [Hostility; 8] = [
    Hostility::Link,
    Hostility::DanglingLink,
    Hostility::LinkToFifo,
    Hostility::LinkToDevice,
    Hostility::Fifo,
    Hostility::Socket,
    Hostility::Sparse,
    Hostility::Garbage,
];

/// Every command that ends by itself; those that would start a kernel find none to start.
const COMMANDS: [&[&str]; 38] = [
    &["status"],
    &["status", "--json"],
    &["status", "--all"],
    &["kernels"],
    &["doctor"],
    &["packages", "t.ipynb"],
    &["packages", "t.ipynb", "add", "six"],
    &["cells", "t.ipynb"],
    &["cell", "t.ipynb", "0"],
    &["search", "1", "t.ipynb"],
    &["diff", "t.ipynb"],
    &["log", "t.ipynb"],
    &["log", "t.ipynb", "--deleted"],
    &["log", "--proxy"],
    &["log", "t.ipynb", "--kernel"],
    &["jobs"],
    &["jobs", "0123abcd"],
    &["wait", "0123abcd", "--timeout", "1"],
    &["reply", "0123abcd", "x"],
    &["vars", "t.ipynb", "--timeout", "1"],
    &["verify", "t.ipynb", "--python", "/dev/null"],
    &["run", "-n", "t.ipynb", "1", "--timeout", "1"],
    &["exec", "t.ipynb", "0", "--timeout", "1"],
    &["interrupt", "t.ipynb"],
    &["restart", "t.ipynb", "--timeout", "1"],
    &["insert", "t.ipynb", "x"],
    &["edit", "t.ipynb", "0", "y"],
    &["clear", "t.ipynb"],
    &["move", "t.ipynb", "0", "1"],
    &["rm", "t.ipynb", "1"],
    &["undo", "t.ipynb"],
    &["restore", "t.ipynb", "0"],
    &["save", "t.ipynb"],
    &["fmt", "t.ipynb"],
    &["open", "t.ipynb", "--kernel", "nope"],
    &["gc"],
    &["gc", "--all"],
    &["shutdown", "t.ipynb"],
];

/// A world, the files outside its project, and a process that is not a kernel.
struct Place {
    world: World,
    outside: PathBuf,
    before: BTreeMap<PathBuf, String>,
    innocent: Child,
}

impl Place {
    fn new() -> Self {
        let world = World::new();
        let outside = world
            .project()
            .parent()
            .expect("it has one")
            .join("outside");
        std::fs::create_dir_all(outside.join("folder/deep")).expect("make folders");
        for name in ["file", "folder/x.json", "folder/deep/y"] {
            std::fs::write(outside.join(name), SECRET).expect("write a file");
            std::fs::set_permissions(outside.join(name), Permissions::from_mode(0o600))
                .expect("keep it private");
        }
        fifo(&outside.join("fifo"));
        std::fs::write(world.project().join("t.ipynb"), NOTEBOOK).expect("write the notebook");
        let innocent = Command::new("sleep")
            .arg("100000")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("start a process");
        let before = picture(&outside);
        Self {
            world,
            outside,
            before,
            innocent,
        }
    }

    /// Runs a program, which must end in time and use only a few gigabytes.
    fn bounded(&self, program: &Path, words: &[&str]) -> Output {
        let mut command = self.world.command(Path::new("timeout"));
        command
            .args([
                "-s",
                "KILL",
                SECONDS,
                "sh",
                "-c",
                "ulimit -v 6000000; exec \"$0\" \"$@\"",
            ])
            .arg(program)
            .args(words)
            .env("NB_AUTOSTART", "0")
            .stdin(Stdio::null());
        output_of(&mut command)
    }

    fn run(&mut self, words: &[&str], context: &str) -> Output {
        let nb = PathBuf::from(self.world.nb().get_program());
        let output = self.bounded(&nb, words);
        self.check(&output, &format!("nb {} with {context}", words.join(" ")));
        output
    }

    /// Launches a proxy, which finds no kernel.
    fn proxy(&mut self, context: &str) {
        let file = self.world.project().join("connection.json");
        let ports: Vec<_> = (0..5)
            .map(|_| std::net::TcpListener::bind("127.0.0.1:0").expect("bind"))
            .map(|listener| listener.local_addr().expect("it is bound").port())
            .collect();
        let text = json!({
            "transport": "tcp", "ip": "127.0.0.1", "key": "k", "signature_scheme": "hmac-sha256",
            "shell_port": ports[0], "iopub_port": ports[1], "stdin_port": ports[2],
            "control_port": ports[3], "hb_port": ports[4],
        });
        std::fs::write(&file, text.to_string()).expect("write it");
        let file = file.to_string_lossy().into_owned();
        let proxy = Path::new(env!("CARGO_BIN_EXE_nb-proxy"));
        let output = self.bounded(proxy, &["-f", &file]);
        self.check(&output, &format!("nb-proxy with {context}"));
    }

    fn check(&mut self, output: &Output, context: &str) {
        assert!(
            output.code.is_some_and(|code| code < 128),
            "{context}: {output:#?}"
        );
        for text in [&output.stdout, &output.stderr] {
            assert!(!text.contains(SECRET), "{context}: {output:#?}");
        }
        assert_eq!(
            picture(&self.outside),
            self.before,
            "{context}: {output:#?}"
        );
        let ended = self.innocent.try_wait().expect("look at it");
        assert_eq!(ended, None, "{context} ended somebody's process");
        // A process that was preforked for a kernel ends just after the command that did not need it; a
        // process that is ending no longer has a command line.
        let mut left = Vec::new();
        super::until(context, || {
            left = self.world.processes();
            let is_own = |(_, line): &(_, String)| line.is_empty() || line.starts_with("nb nb:");
            (!left.iter().any(is_own)).then_some(())
        });
        assert_eq!(left, [], "{context}");
    }

    /// Puts a hostile file at this path.
    fn put(&self, path: &Path, hostility: Hostility) {
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("make a folder");
        remove(path);
        match hostility {
            Hostility::Link => symlink(self.outside.join("file"), path).expect("make a link"),
            Hostility::DanglingLink => {
                symlink(self.outside.join("new"), path).expect("make a link");
            }
            Hostility::LinkToFifo => {
                symlink(self.outside.join("fifo"), path).expect("make a link");
            }
            Hostility::LinkToDevice => symlink("/dev/zero", path).expect("make a link"),
            Hostility::Fifo => fifo(path),
            Hostility::Socket => drop(UnixListener::bind(path).expect("make a socket")),
            Hostility::Sparse => std::fs::File::create(path)
                .and_then(|file| file.set_len(10 << 30))
                .expect("make a file"),
            Hostility::Garbage => {
                std::fs::write(path, "{\"a\": [1, \u{1b}]}\n\u{0}").expect("write a file");
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.innocent.kill();
        let _ = self.innocent.wait();
    }
}

fn fifo(path: &Path) {
    let made = Command::new("mkfifo")
        .arg(path)
        .status()
        .expect("run mkfifo");
    assert!(made.success());
}

fn remove(path: &Path) {
    match path.symlink_metadata() {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(path).expect("remove it"),
        Ok(_) => std::fs::remove_file(path).expect("remove it"),
        Err(_) => {}
    }
}

/// Returns everything that can be observed of a folder without changing it.
fn picture(folder: &Path) -> BTreeMap<PathBuf, String> {
    let entries = walkdir::WalkDir::new(folder).into_iter();
    let files = entries.map(|entry| {
        let entry = entry.expect("walk the folder");
        let found = entry.metadata().expect("look at it");
        let text = match found.is_file() {
            true => std::fs::read_to_string(entry.path()).expect("read it"),
            false => String::new(),
        };
        let times = (
            found.mtime(),
            found.mtime_nsec(),
            found.ctime(),
            found.ctime_nsec(),
        );
        let state = format!("{} {:o} {times:?} {text}", found.ino(), found.mode());
        (entry.into_path(), state)
    });
    files.collect()
}

/// Returns a `state.json` with paths and processes that must not be used, for a session with this status.
fn hostile_state(place: &Place, status: &str) -> String {
    let outside = &place.outside;
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", place.innocent.id()));
    let stat = stat.unwrap_or_default();
    let start_time: u64 = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.split(' ').nth(19)?.parse().ok())
        .unwrap_or(1);
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let touch = format!("touch {}", outside.join("ran").display());
    json!({
        "version": 2, "notebook": "t.ipynb", "kernel_pid": place.innocent.id(),
        "connection_file": outside.join("folder/x.json"),
        "sessions": {"t.ipynb": {
            "notebook": place.world.project().join("t.ipynb"),
            "connection_file": outside.join("folder/x.json"),
            "backend": {
                "kind": "local",
                "process": {"pid": place.innocent.id(), "start_time": start_time},
                "host": {"name": "h", "boot_id": boot.trim(), "pid_namespace": ""},
            },
            "status": status, "generation": 1,
            "kernelspec": {"name": "x", "display_name": "x", "language": "python",
                "argv": ["/bin/sh", "-c", touch, "{connection_file}"],
                "env": {"BASH_ENV": outside.join("file")}},
            "settings": {"confinement": {
                "sandbox": {"scratch": outside.join("folder"), "allow_write": [outside]},
            }},
        }},
    })
    .to_string()
}

#[test]
fn a_strangers_folder_of_any_kind_is_left_alone_by_every_command() {
    let mut place = Place::new();
    let dir = place.world.project().join(".nb");
    for (way, hostility) in HOSTILITIES.into_iter().enumerate() {
        for name in FILES {
            place.put(&dir.join(name), hostility);
        }
        let held = picture_of_names(&dir);
        for (number, words) in COMMANDS.into_iter().enumerate() {
            // Each way meets a quarter of the commands, and each command two ways.
            if is_thorough() || (number + way).is_multiple_of(4) {
                place.run(words, &format!("all as {hostility:?}"));
            }
        }
        place.proxy(&format!("all as {hostility:?}"));
        assert_eq!(picture_of_names(&dir), held, "{hostility:?}");
        let output = nb(&place.world, ["cells", "t.ipynb"]);
        output.with("was not made by your nb").with(": mv ");
        remove(&dir);
    }
}

/// Returns the names and kinds of the entries of a folder.
fn picture_of_names(folder: &Path) -> Vec<String> {
    let entries = walkdir::WalkDir::new(folder)
        .sort_by_file_name()
        .into_iter();
    let lines = entries.map(|entry| {
        let entry = entry.expect("walk the folder");
        let found = entry.metadata().expect("look at it");
        let modified = (found.mtime(), found.mtime_nsec(), found.len());
        format!("{} {modified:?}", entry.path().display())
    });
    lines.collect()
}

#[test]
fn a_strangers_folder_that_is_a_link_or_no_folder_is_left_alone() {
    let mut place = Place::new();
    let dir = place.world.project().join(".nb");
    symlink(place.outside.join("folder"), &dir).expect("make a link");
    for words in COMMANDS {
        place.run(words, "a link as .nb");
    }
    place.proxy("a link as .nb");
    for hostility in [Hostility::Fifo, Hostility::Socket, Hostility::LinkToFifo] {
        place.put(&dir, hostility);
        for words in [
            &["status"][..],
            &["cells", "t.ipynb"],
            &["edit", "t.ipynb", "0", "z"],
        ] {
            place.run(words, &format!(".nb as {hostility:?}"));
        }
    }
}

#[test]
fn what_a_strangers_state_names_is_not_run_signalled_read_or_deleted() {
    let mut place = Place::new();
    let dir = place.world.project().join(".nb");
    std::fs::create_dir(&dir).expect("make a folder");
    let statuses = ["live", "stopped", "starting", "died"];
    for (way, status) in statuses.into_iter().enumerate() {
        std::fs::write(dir.join("state.json"), hostile_state(&place, status)).expect("write it");
        let config = "kernel_env = { PYTHONSTARTUP = \"/dev/zero\" }\nas = 'stranger'\n";
        std::fs::write(dir.join("config.toml"), config).expect("write it");
        for (number, words) in COMMANDS.into_iter().enumerate() {
            // Each command meets a kernel that should run, and one that should not.
            if is_thorough() || (number + way / 2).is_multiple_of(2) {
                place.run(words, &format!("a made-up session, {status}"));
            }
        }
        place.proxy(&format!("a made-up session, {status}"));
    }
    // A kernel of the user's own choice runs beside it, and is recorded in another folder.
    let python = python::interpreter();
    let python = python.to_str().expect("a path");
    let opened = nb(
        &place.world,
        ["open", "t.ipynb", "--no-serve", "--python", python],
    )
    .ended(0);
    opened.with("it is not used").with(": mv ");
    let output = nb(&place.world, ["run", "-n", "t.ipynb", "print(6 * 7)"]);
    output.ended(0).with("42");
    nb(&place.world, ["shutdown", "t.ipynb"]).ended(0);
    std::fs::rename(&dir, dir.with_file_name(".nb.old")).expect("move it away, as the note says");
    let log = nb(&place.world, ["log", "t.ipynb"]).ended(0);
    assert!(!log.stderr.contains("not made by your nb"), "{log:?}");
    assert_eq!(picture(&place.outside), place.before);
}

/// Commands that together open every kind of file.
const OPENING: [&[&str]; 15] = [
    &["status"],
    &["cells", "t.ipynb"],
    &["cell", "t.ipynb", "0"],
    &["log", "t.ipynb"],
    &["log", "t.ipynb", "--kernel"],
    &["log", "--proxy"],
    &["jobs"],
    &["jobs", "0123abcd"],
    &["vars", "t.ipynb", "--timeout", "1"],
    &["edit", "t.ipynb", "0", "y"],
    &["undo", "t.ipynb"],
    &["diff", "t.ipynb"],
    &["open", "t.ipynb", "--kernel", "nope"],
    &["gc"],
    &["shutdown", "t.ipynb"],
];

#[test]
fn hostile_files_in_the_users_own_folder_lead_nowhere() {
    // As `git pull` may bring them: it overwrites ignored files without a message.
    let mut place = Place::new();
    place.run(&["insert", "t.ipynb", "x"], "nothing");
    let dir = place.world.project().join(".nb");
    assert!(dir.join("id").is_file(), "it is nb's own");
    let ways = [
        Hostility::Link,
        Hostility::LinkToFifo,
        Hostility::Fifo,
        Hostility::Sparse,
    ];
    for (way, hostility) in ways.into_iter().enumerate() {
        for (file, name) in FILES.into_iter().enumerate() {
            let path = dir.join(name);
            let kept = std::fs::read(&path).ok().filter(|_| path.is_file());
            place.put(&path, hostility);
            for (number, words) in OPENING.into_iter().enumerate() {
                // Each command meets half of the files, and in turn each way.
                if is_thorough() || (file + number) % (2 * ways.len()) == way {
                    place.run(words, &format!("{name} as {hostility:?}"));
                }
            }
            remove(&path);
            if let Some(kept) = kept {
                std::fs::write(&path, kept).expect("put it back");
            }
        }
        // Folders that were made for a hostile file stay; only the file is removed.
        let _ = std::fs::remove_dir_all(dir.join("jobs"));
        let _ = std::fs::remove_dir_all(dir.join("front_end_outputs"));
    }
}

#[test]
fn folders_that_are_links_in_the_users_own_folder_lead_nowhere() {
    let mut place = Place::new();
    place.run(&["insert", "t.ipynb", "x"], "nothing");
    let dir = place.world.project().join(".nb");
    for (folder, name) in FOLDERS.into_iter().enumerate() {
        let path = dir.join(name);
        remove(&path);
        symlink(place.outside.join("folder"), &path).expect("make a link");
        for (number, words) in OPENING.into_iter().enumerate() {
            // Each command meets every other folder.
            if is_thorough() || (folder + number).is_multiple_of(2) {
                place.run(words, &format!("{name} as a link"));
            }
        }
        place.proxy(&format!("{name} as a link"));
        remove(&path);
    }
}
