//! If a command that opens a notebook is killed at any moment, the next `nb open` repairs what it left.

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{descendants, home, kill, nb, open, opening, path, pid, shell, sockets, until};
use crate::world::World;

/// How often each command is killed: a few times by default; `NB_TEST_ROUNDS` sets another number.
fn rounds() -> usize {
    let given = std::env::var("NB_TEST_ROUNDS").ok();
    given.and_then(|it| it.parse().ok()).unwrap_or(4)
}

#[test]
fn opens_that_are_killed_at_any_moment_are_put_right() {
    let mut random = Random::seeded();
    let world = World::new();
    let began = Instant::now();
    open(&world, "t.ipynb");
    let whole = began.elapsed();
    nb(&world, ["shutdown"]).ended(0);
    for round in 0..rounds() {
        let after = whole.mul_f64(random.part() * 1.1);
        eprintln!("round {round}: killed after {after:?}");
        let by_shell = round % 2 == 1;
        let mut command = if by_shell {
            shell(&world, SCRIPT)
        } else {
            opening(&world, "t.ipynb")
        };
        let mut child = spawn(&mut command);
        if !ends_within(&mut child, after) {
            let family = if by_shell {
                descendants(child.id())
            } else {
                vec![child.id()]
            };
            family.into_iter().rev().for_each(kill);
        }
        child.wait().expect("it was killed");
        assert_put_right(&world);
    }
}

#[test]
fn restarts_and_shutdowns_that_are_killed_are_put_right() {
    let mut random = Random::seeded();
    let world = World::new();
    for round in 0..rounds() {
        open(&world, "t.ipynb");
        // About as long as each command takes.
        let (command, whole) = [("restart", 1.0), ("shutdown", 0.3)][round % 2];
        let after = Duration::from_secs_f64(random.part() * whole);
        eprintln!("round {round}: {command} killed after {after:?}");
        let mut child = spawn(world.nb().arg(command));
        let ended = ends_within(&mut child, after);
        kill(child.id());
        child.wait().expect("it was killed");
        if !ended {
            // The process that does the restart can outlive the command that requested it, and may not have
            // become that process yet.
            until("nobody restarts it any more", || {
                let tasks = ["nb:detach", "nb:become", "nb:task"];
                let mut jobs = world.processes();
                jobs.retain(|(_, words)| tasks.iter().any(|task| words.contains(task)));
                jobs.iter().for_each(|(pid, _)| kill(pid.unsigned_abs()));
                jobs.is_empty().then_some(())
            });
        }
        assert_put_right(&world);
    }
}

#[test]
fn what_is_killed_leaves_nothing_behind_once_it_is_cleared_up() {
    let mut random = Random::seeded();
    let world = World::new();
    let began = Instant::now();
    open(&world, "t.ipynb");
    let whole = began.elapsed();
    let mut sockets_then = Vec::new();
    for round in 0..rounds() {
        let part = 1.1 * random.part();
        let (mut command, after) = match round % 2 {
            0 => {
                let mut command = opening(&world, "t.ipynb");
                // Into a sandbox and out of it again.
                command.args([["--sandbox"], ["--no-sandbox"]][round / 2 % 2]);
                (command, whole.mul_f64(part))
            }
            _ => {
                let mut command = world.nb();
                command.args(["shutdown", "--force"]);
                (command, Duration::from_secs_f64(0.4 * part))
            }
        };
        eprintln!("round {round}: killed after {after:?}");
        let mut child = spawn(&mut command);
        ends_within(&mut child, after);
        kill(child.id());
        child.wait().expect("it was killed");
        sockets_then.extend(all_sockets(&world));
    }
    let status = nb(&world, ["status", "--json"]).ended(0).json();
    let state = status["sessions"][0]["state"].as_str().expect("a word");
    if matches!(state, "idle" | "busy" | "live") {
        // The kernel is ready: only its user may end it.
        nb(&world, ["shutdown"]).ended(0);
    }
    until("all is cleared up", || {
        let answer = nb(&world, ["gc", "--json"]).ended(0).json();
        let folders = [".nb/connections", ".nb/scratch", "../home/runtime"];
        let files = folders.map(|folder| files_in(&world.project().join(folder)));
        let sockets = sockets_then.iter().any(|socket| socket.exists());
        let clean = answer["found"] == serde_json::json!([]) && files.concat().is_empty();
        (clean && !sockets && world.processes().is_empty()).then_some(())
    });
}

/// Opens, uses and shuts down the kernel; then nothing is left.
fn assert_put_right(world: &World) {
    let mut sockets_then = all_sockets(world);
    if world.project().join(".nb").exists() {
        let status = nb(world, ["status", "--json"]).ended(0).json();
        let sessions = status["sessions"].as_array().expect("a list");
        assert!(sessions.len() < 2, "there is one notebook: {status}");
    }
    let opened = open(world, "t.ipynb");
    nb(world, ["run", "print(6 * 7)"]).ended(0).with("42");
    let status = nb(world, ["status", "--json"]).ended(0).json();
    assert_eq!(status["sessions"][0]["kernel_pid"], opened["kernel_pid"]);
    sockets_then.extend(sockets(&path(&opened["connection_file"])));
    nb(world, ["shutdown"]).ended(0);

    let left: Vec<_> = sockets_then
        .iter()
        .filter(|socket| socket.exists())
        .collect();
    assert!(left.is_empty(), "{left:?}");
    for folder in [
        home(world).join("runtime"),
        world.project().join(".nb/connections"),
    ] {
        let left = files_in(&folder);
        assert!(left.is_empty(), "{left:?}");
    }
    let left = world.processes();
    assert!(
        left.is_empty(),
        "left after kernel {}: {left:#?}",
        pid(&opened)
    );
}

fn spawn(command: &mut Command) -> Child {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null()).spawn().expect("start it")
}

const SCRIPT: &str = "\"$NB_TEST_BINARY\" open t.ipynb --python \"$NB_TEST_PYTHON\"; true";

pub(super) fn ends_within(child: &mut Child, time: Duration) -> bool {
    let end = Instant::now() + time;
    while Instant::now() < end {
        if child.try_wait().expect("ask for it").is_some() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

/// Returns the sockets of every connection file of the project.
fn all_sockets(world: &World) -> Vec<PathBuf> {
    files_in(&world.project().join(".nb/connections"))
        .iter()
        .flat_map(|file| sockets(file))
        .collect()
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Marsaglia's xorshift64 generator.
pub(super) struct Random(u64);

impl Random {
    /// Begins with a new seed, or with the given one to repeat a run, and prints it.
    pub(super) fn seeded() -> Self {
        let given = std::env::var("NB_TEST_SEED").ok();
        let seed = given.and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(()));
        eprintln!("NB_TEST_SEED={seed}");
        Self(seed)
    }

    /// Returns a number from 0 to 1.
    pub(super) fn part(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}
