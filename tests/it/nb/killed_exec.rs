//! Processes of a running `nb exec` are killed at any moment: the notebook still gets all outputs of the
//! cell.
//!
//! `NB_TEST_ROUNDS` sets the number of rounds, `NB_TEST_SEED` the moments.

use std::process::{Child, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use super::exec::{cell, notebook};
use super::killed::{Random, ends_within};
use super::recorder::all_text;
use super::{descendants, kill, nb, session_of, shell, until};
use crate::world::World;

/// The default number of rounds.
const ROUNDS: usize = VICTIMS.len();

/// Prints the round in each line, and leaves a mark in a file that needs no recorder.
const CELL: &str = "\
import time
with open('round') as file: mark = file.read()
for line in range(100):
    print(mark, line, flush=True)
    time.sleep(0.004)
display({'text/plain': mark + ' shown'}, raw=True)
with open('ran', 'a') as file: print(mark, file=file)
mark + ' is its value'";

/// The processes that are killed.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Command,
    Group,
    Session,
    Descendants,
}

const VICTIMS: [Victim; 4] = [
    Victim::Command,
    Victim::Group,
    Victim::Session,
    Victim::Descendants,
];

#[test]
fn cells_whose_command_is_killed_at_any_moment_are_whole_in_the_notebook() {
    let rounds = std::env::var("NB_TEST_ROUNDS").ok();
    let rounds = rounds.map_or(ROUNDS, |it| it.parse().expect("a number of rounds"));
    let mut random = Random::seeded();
    let world = notebook(&[CELL]);
    begin_round(&world, "warm");
    let began = Instant::now();
    nb(&world, ["exec", "a.ipynb", "0"]).ended(0);
    let whole = began.elapsed();
    let (mut killed, mut ran) = (0, 0);
    for round in 0..rounds {
        let victim = VICTIMS[round % VICTIMS.len()];
        // Most failures are possible at the beginning.
        let after = whole.mul_f64(random.part().powi(2) * 1.1);
        eprintln!("round {round}: {victim:?} killed after {after:?}");
        let mark = format!("round-{round}");
        let before = cell(&world, 0)["outputs"].clone();
        begin_round(&world, &mark);
        let known = jobs(&world);
        let mut child = spawn(&world);
        if !ends_within(&mut child, after) {
            killed += 1;
            victim.dies(child.id());
        }
        child.wait().expect("it was killed");
        let new = until("the end of all jobs", || {
            // Any command finds jobs without a recorder.
            nb(&world, ["jobs"]).ended(0);
            let mut jobs = jobs(&world);
            let is_over = jobs.iter().all(|job| job["state"] == "done");
            jobs.retain(|job| known.iter().all(|old| old["id"] != job["id"]));
            is_over.then_some(jobs)
        });
        assert!(new.len() < 2, "one was asked for: {new:?}");
        let status = new.first().map(|job| job["cells"][0]["status"].clone());
        if has_run(&world, &mark) {
            ran += 1;
            assert_eq!(status, Some(json!("ok")), "{new:?}");
            assert_whole(&world, &mark);
        } else {
            let never = [None, Some(json!("not_run"))];
            assert!(never.contains(&status), "{new:?}");
            assert_eq!(cell(&world, 0)["outputs"], before);
        }
    }
    eprintln!("{killed} of {rounds} were killed; {ran} cells ran, and are whole");
}

fn begin_round(world: &World, mark: &str) {
    std::fs::write(world.project().join("round"), mark).expect("write the round");
}

fn has_run(world: &World, mark: &str) -> bool {
    let ran = std::fs::read_to_string(world.project().join("ran"));
    ran.expect("it ran once").lines().any(|line| line == mark)
}

/// Returns the records of all jobs.
fn jobs(world: &World) -> Vec<Value> {
    let folders = std::fs::read_dir(world.project().join(".nb/jobs"));
    let records = folders.into_iter().flatten().flatten();
    let records = records.filter_map(|folder| std::fs::read(folder.path().join("job.json")).ok());
    let records = records.map(|text| serde_json::from_slice(&text).expect("a record"));
    records.collect()
}

fn assert_whole(world: &World, mark: &str) {
    let lines: String = (0..100).map(|line| format!("{mark} {line}\n")).collect();
    assert_eq!(all_text(world, 0), lines);
    let outputs = cell(world, 0)["outputs"].clone();
    let shown = |at: usize| outputs[at]["data"]["text/plain"].to_string();
    assert_eq!(outputs.as_array().map(Vec::len), Some(3), "{outputs}");
    assert!(shown(1).contains(&format!("{mark} shown")), "{outputs}");
    assert!(
        shown(2).contains(&format!("{mark} is its value")),
        "{outputs}"
    );
}

/// Starts an agent's shell, with the command in its own session.
fn spawn(world: &World) -> Child {
    let script = "setsid --wait \"$NB_TEST_BINARY\" exec a.ipynb 0; true";
    let mut command = shell(world, script);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null()).spawn().expect("start it")
}

impl Victim {
    fn dies(self, shell: u32) {
        // A stopped shell starts nothing after the list of its descendants was made.
        stop(shell);
        let family = descendants(shell);
        // The shell may not have started the command yet.
        let command = family.get(1).copied();
        let family = family.into_iter();
        match (self, command) {
            (Victim::Command, Some(command)) => kill(command),
            (Victim::Group, Some(command)) => {
                let group = i32::try_from(command).ok().and_then(Pid::from_raw);
                let _ = rustix::process::kill_process_group(group.expect("a pid"), Signal::KILL);
                // Before the command led a group, it was the only process.
                kill(command);
            }
            (Victim::Session, Some(command)) => {
                of_session(command).into_iter().for_each(kill);
                kill(command);
            }
            (Victim::Descendants, _) | (_, None) => family.for_each(kill),
        }
        signal(shell, Signal::CONT);
    }
}

/// Stops a process, and waits until it has stopped or ended.
fn stop(pid: u32) {
    signal(pid, Signal::STOP);
    until("a stopped process", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok();
        let state = stat.as_deref().and_then(|state| state.rsplit(')').next());
        state
            .is_none_or(|state| state.starts_with(" T") || state.starts_with(" Z"))
            .then_some(())
    });
}

fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let _ = rustix::process::kill_process(pid.expect("a pid"), signal);
}

/// Returns the processes of the session that this process leads.
fn of_session(leader: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc")
        .expect("there is /proc")
        .flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
    pids.filter(|pid| session_of(*pid) == Some(leader))
        .collect()
}
