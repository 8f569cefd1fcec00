//! The command line as its users use it: through the binary, on real kernels, in an empty home.

mod actor;
mod attach;
mod broken;
mod deaths;
mod displays;
mod doctor;
mod edits;
mod exec;
mod foreign;
mod handover;
mod history;
mod hostile;
mod kernels;
mod killed;
mod killed_exec;
mod languages;
mod lifecycle;
mod like_nbclient;
mod live;
mod mcp;
mod moving;
mod others;
mod output_and_help;
mod packages;
mod peek;
mod places;
mod reactive;
mod reads;
mod recorder;
mod remembered;
mod replay;
mod results;
mod run;
mod sandbox;
mod saved_meanwhile;
mod share;
mod spec;
mod stale;
mod starts;
mod target;
mod unsaved;
mod unwritable;
mod vars;
mod verify;
mod vscode_settings;
mod written;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::python;
use crate::world::{World, finish};

/// The output of a command, and how it ended.
#[derive(Debug)]
pub struct Output {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a command to its end.
pub fn output_of(command: &mut Command) -> Output {
    let (status, stdout, stderr) = finish(command);
    let output = Output {
        code: status.code(),
        stdout,
        stderr,
    };
    assert!(!output.stderr.contains("panicked"), "{output:?}");
    output
}

/// Runs `nb` in the world's project.
pub fn nb<S: AsRef<OsStr>>(world: &World, words: impl IntoIterator<Item = S>) -> Output {
    output_of(world.nb().args(words))
}

impl Output {
    /// Checks the exit code.
    #[track_caller]
    pub fn ended(self, code: i32) -> Output {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Checks for a text, on stdout or stderr.
    #[track_caller]
    pub fn with(self, text: &str) -> Output {
        assert!(
            self.stdout.contains(text) || self.stderr.contains(text),
            "no {text:?} in {self:#?}"
        );
        self
    }

    /// Checks that a text is neither in stdout nor in stderr.
    pub fn without(self, text: &str) -> Output {
        let has = self.stdout.contains(text) || self.stderr.contains(text);
        assert!(!has, "{text:?} is in {self:#?}");
        self
    }

    /// Returns stdout, which must be one JSON object on one line.
    pub fn json(&self) -> Value {
        assert_eq!(self.stdout.lines().count(), 1, "{self:#?}");
        let value: Value = serde_json::from_str(&self.stdout).expect("stdout is JSON");
        assert!(value.is_object(), "{value}");
        value
    }
}

/// Opens a notebook with the tests' Python and returns the answer in JSON.
fn open(world: &World, notebook: impl AsRef<OsStr>) -> Value {
    output_of(&mut opening(world, notebook)).ended(0).json()
}

fn opening(world: &World, notebook: impl AsRef<OsStr>) -> Command {
    let mut command = world.nb();
    command
        .arg("open")
        .arg(notebook)
        .args(["--json", "--python"]);
    command.arg(python::interpreter());
    command
}

/// Returns a shell in the world's project, with the variables of the `nb` under test.
fn shell(world: &World, script: &str) -> Command {
    let nb = world.nb();
    let mut command = Command::new("bash");
    command.args(["-c", script]).current_dir(world.project());
    for (name, value) in nb.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

fn home(world: &World) -> PathBuf {
    world.project().parent().expect("it has one").join("home")
}

/// Returns the sockets that a connection file names.
fn sockets(connection_file: &Path) -> Vec<PathBuf> {
    let Ok(text) = std::fs::read(connection_file) else {
        return Vec::new();
    };
    let Ok(info) = serde_json::from_slice::<Value>(&text) else {
        return Vec::new();
    };
    if info["transport"] != "ipc" {
        return Vec::new();
    }
    let prefix = info["ip"].as_str().expect("the prefix of the sockets");
    ["shell", "iopub", "stdin", "control", "hb"]
        .iter()
        .map(|channel| {
            let port = &info[format!("{channel}_port")];
            PathBuf::from(format!("{prefix}-{port}"))
        })
        .collect()
}

fn path(value: &Value) -> PathBuf {
    value.as_str().expect("a path").into()
}

fn pid(value: &Value) -> u32 {
    let pid = value["kernel_pid"].as_u64().expect("a pid");
    pid.try_into().expect("a pid")
}

fn kill(pid: u32) {
    let raw = i32::try_from(pid).ok();
    let named = raw.and_then(rustix::process::Pid::from_raw).expect("a pid");
    let _ = rustix::process::kill_process(named, rustix::process::Signal::KILL);
    // The system ends it a moment later: until then a command may still find it alive.
    until("the process has ended", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit(") ").next().unwrap_or_default();
        (state.is_empty() || state.starts_with(['Z', 'X'])).then_some(())
    });
}

/// Returns a process and all its descendants, by their parent pids.
fn descendants(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        at += 1;
        for entry in std::fs::read_dir("/proc")
            .expect("there is /proc")
            .flatten()
        {
            let Ok(pid) = entry.file_name().to_string_lossy().parse() else {
                continue;
            };
            if parent_of(pid) == Some(parent) && !found.contains(&pid) {
                found.push(pid);
            }
        }
    }
    found
}

fn parent_of(pid: u32) -> Option<u32> {
    stat(pid, 1)
}

fn session_of(pid: u32) -> Option<u32> {
    stat(pid, 3)
}

/// Says whether a process has released all its resources: its memory goes before its locks.
///
/// The first thread of a killed process can end before the others, which still hold its locks.
fn has_ended(pid: u32) -> bool {
    let state = stat::<char>(pid, 0);
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    state.is_none_or(|state| matches!(state, 'Z' | 'X') && threads <= 1)
}

/// Returns a field of `/proc/PID/stat`, counted from the state on.
fn stat<T: std::str::FromStr>(pid: u32, field: usize) -> Option<T> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?
        .1
        .split_ascii_whitespace()
        .nth(field)?
        .parse()
        .ok()
}

/// Returns the JSON objects that a process prints, one a line.
fn json_lines(stdout: ChildStdout) -> mpsc::Receiver<Value> {
    let (sender, messages) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            let line = line.expect("stdout is UTF-8");
            let message = serde_json::from_str(&line).expect("stdout is JSON");
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    messages
}

/// Repeats `find` until it returns something.
pub fn until<T>(condition: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(Instant::now() < deadline, "never: {condition}");
        // The awaited process needs the processor too.
        std::thread::sleep(Duration::from_millis(2));
    }
}
